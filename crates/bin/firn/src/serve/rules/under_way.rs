//! Tasks that a group has started and waits for.
//!
//! Invariant: each task yields exactly one event. A task that panics yields the event that was
//! registered at its start, so that the group shows the failure and continues.

use firn_model::trace::SpanContext;
use firn_rules::machine::GroupEvent;
use std::collections::HashMap;
use tokio::task::{Id, JoinSet};
use tracing::warn;

/// The outcome of a task: the event at the end of its action.
pub(super) struct GroupTaskOutcome {
    pub(super) event: GroupEvent,
    /// The span of the evaluation if it is part of a trace.
    pub(super) span: Option<SpanContext>,
}

impl From<GroupEvent> for GroupTaskOutcome {
    fn from(event: GroupEvent) -> Self {
        Self { event, span: None }
    }
}

/// Set of running tasks of a group. Dropping it aborts the tasks. See the module.
#[derive(Default)]
pub(super) struct RunningTaskSet {
    tasks: JoinSet<GroupTaskOutcome>,
    /// Event that each task yields if it panics, by the id of the task.
    otherwise: HashMap<Id, GroupEvent>,
}

impl RunningTaskSet {
    /// Starts `work`. If it panics, it yields the event `otherwise`.
    pub(super) fn begin(
        &mut self,
        otherwise: GroupEvent,
        work: impl Future<Output = GroupTaskOutcome> + Send + 'static,
    ) {
        let task = self.tasks.spawn(work);
        self.otherwise.insert(task.id(), otherwise);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Waits for the next task and returns its outcome, or `None` if no task is running. Cancel
    /// safe.
    pub(super) async fn next(&mut self) -> Option<GroupTaskOutcome> {
        match self.tasks.join_next_with_id().await? {
            Ok((id, done)) => {
                self.otherwise.remove(&id);
                Some(done)
            }
            Err(e) => {
                // The panic itself was logged by its hook.
                warn!(error = %e, "task of a rule group failed");
                let event = self.otherwise.remove(&e.id())?;
                Some(event.into())
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
        let failed = |rule: usize| GroupEvent::Answered {
            rule,
            found: Err(RuleError::Query("it panicked".into())),
            took: Duration::ZERO,
        };
        let mut under_way = RunningTaskSet::default();
        under_way.begin(failed(1), async { panic!("as the test wants it") });
        under_way.begin(failed(2), async { GroupEvent::Woke.into() });
        let mut seen = Vec::new();
        while let Some(outcome) = under_way.next().await {
            seen.push(format!("{:?}", outcome.event));
        }
        seen.sort();
        let want = [format!("{:?}", failed(1)), "Woke".to_owned()];
        assert_eq!(seen, want);
        assert!(under_way.is_empty() && under_way.otherwise.is_empty());
    }
}
