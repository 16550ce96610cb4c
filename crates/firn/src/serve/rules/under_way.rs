//! What a group has begun and waits for.
//!
//! Invariant: each task gives one event, in whatever way it ends; of one that panics it is the one
//! that was told beforehand, so that the group shows the failure and goes on.

use firn_model::trace::SpanContext;
use firn_rules::machine::Event;
use std::collections::HashMap;
use tokio::task::{Id, JoinSet};
use tracing::warn;

/// What an action ended with, and the span of the evaluation if it is in a trace.
pub(super) type Done = (Event, Option<SpanContext>);

/// See the module. When it is dropped, the tasks end.
#[derive(Default)]
pub(super) struct UnderWay {
    tasks: JoinSet<Done>,
    /// What is told of each task if it does not tell it itself.
    otherwise: HashMap<Id, Event>,
}

impl UnderWay {
    /// Begins `work`, which counts as ended by `otherwise` if it panics.
    pub(super) fn begin(
        &mut self,
        otherwise: Event,
        work: impl Future<Output = Done> + Send + 'static,
    ) {
        let task = self.tasks.spawn(work);
        self.otherwise.insert(task.id(), otherwise);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// What the next one ends with; `None` if there is none. May be dropped at any time.
    pub(super) async fn next(&mut self) -> Option<Done> {
        match self.tasks.join_next_with_id().await? {
            Ok((id, done)) => {
                self.otherwise.remove(&id);
                Some(done)
            }
            Err(e) => {
                // The log has the panic.
                warn!(error = %e, "task of a rule group failed");
                let event = self.otherwise.remove(&e.id())?;
                Some((event, None))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_rules::rule::RuleError;
    use std::time::Duration;

    #[tokio::test]
    async fn task_that_panics_ends_with_what_was_told_beforehand() {
        let failed = |rule: usize| Event::Answered {
            rule,
            found: Err(RuleError::Query("it panicked".into())),
            took: Duration::ZERO,
        };
        let mut under_way = UnderWay::default();
        under_way.begin(failed(1), async { panic!("as the test wants it") });
        under_way.begin(failed(2), async { (Event::Woke, None) });
        let mut seen = Vec::new();
        while let Some((event, _)) = under_way.next().await {
            seen.push(format!("{event:?}"));
        }
        seen.sort();
        let want = [format!("{:?}", failed(1)), "Woke".to_owned()];
        assert_eq!(seen, want);
        assert!(under_way.is_empty() && under_way.otherwise.is_empty());
    }
}
