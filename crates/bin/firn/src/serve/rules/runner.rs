//! Runs one rule group: a task that passes events to the group's state machine and performs the
//! actions that it returns.
//!
//! Invariant: each action that was started yields exactly one event, even if it fails, so that the
//! group continues.

use super::RuleManagerState;
use super::under_way::{GroupTaskOutcome, RunningTaskSet};
use firn_ingest::{InstantAge, Pipeline};
use firn_model::batch::Batch;
use firn_model::error::{Error, ErrorKind};
use firn_model::matcher::Matcher;
use firn_model::sample::TimeRange;
use firn_model::store::AppendOutcome;
use firn_model::sync::lock;
use firn_model::trace::SpanContext;
use firn_rules::group::RuleGroup;
use firn_rules::instant::RuleInstant;
use firn_rules::machine::{
    AppendOrigin, BackfillRange, GroupAction, GroupEvent, GroupMachine, GroupMachineSettings,
    SavedGroup,
};
use firn_rules::rule::{RuleError, RuleEvalContext};
use firn_server::parts::RuleGroupName;
use firn_server::rules::{RuleQueryError, RuleQueryInfo};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{info, warn};

/// Maximum duration of a sleep, because the clock may be adjusted meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(5);

/// Pause between two attempts of a rule to enter the query queue.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A running group with its task. Created when a configuration adds or changes the group; dropping
/// it aborts the task at once.
pub(super) struct RuleGroupRunner {
    group: Arc<RuleGroup>,
    machine: Arc<Mutex<GroupMachine>>,
    stop: mpsc::Sender<()>,
    /// Task of the group, or `None` once the group is being stopped.
    task: Option<RuleGroupTask>,
}

/// Handle of the task of a group. Dropping it aborts the task, so that no group outlives its
/// runner.
struct RuleGroupTask(JoinHandle<()>);

impl Drop for RuleGroupTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A group that ends after its current evaluation. It is still listed by the API until then.
pub(super) struct StoppingRuleGroup {
    machine: Arc<Mutex<GroupMachine>>,
    task: Option<RuleGroupTask>,
}

impl StoppingRuleGroup {
    /// Waits for the end of the group and returns its machine.
    pub(super) async fn ended(mut self) -> Arc<Mutex<GroupMachine>> {
        if let Some(task) = &mut self.task {
            // An error means that the task was aborted.
            let _ = (&mut task.0).await;
        }
        self.machine
    }
}

impl RuleGroupRunner {
    /// Starts the task of a group, which runs until it is stopped or dropped.
    pub(super) fn start(shared: Arc<RuleManagerState>, machine: GroupMachine) -> Self {
        let group = machine.group().clone();
        let machine = Arc::new(Mutex::new(machine));
        let (stop, stopped) = mpsc::channel(1);
        let running = RuleGroupTaskState {
            shared,
            group: group.clone(),
            machine: machine.clone(),
            is_past: false,
            spans: Mutex::default(),
        };
        Self {
            group,
            machine,
            stop,
            task: Some(RuleGroupTask(tokio::spawn(running.run(stopped)))),
        }
    }

    pub(super) fn group(&self) -> &Arc<RuleGroup> {
        &self.group
    }

    pub(super) fn machine(&self) -> Arc<Mutex<GroupMachine>> {
        self.machine.clone()
    }

    pub(super) fn set_settings(&self, settings: GroupMachineSettings) {
        lock(&self.machine).set_settings(settings);
    }

    /// Stops further evaluations of the group. The current one continues; the returned value waits
    /// for its end.
    pub(super) fn stop(&mut self) -> StoppingRuleGroup {
        lock(&self.machine).stop();
        // An error means that the task has ended or was notified before.
        let _ = self.stop.try_send(());
        StoppingRuleGroup {
            machine: self.machine.clone(),
            task: self.task.take(),
        }
    }
}

/// Conditions that the task of a group waits for, in addition to running actions.
struct RuleGroupWakeups {
    /// Maximum time to sleep before the machine is stepped again.
    sleep: Duration,
    /// Instant whose evaluation waits for other groups, if there is one.
    held: Option<RuleInstant>,
}

/// State of a group's task, which performs the actions of the machine. Also used by backfills of
/// the group.
pub(super) struct RuleGroupTaskState {
    pub(super) shared: Arc<RuleManagerState>,
    pub(super) group: Arc<RuleGroup>,
    pub(super) machine: Arc<Mutex<GroupMachine>>,
    /// True for a backfill of past instants: no state is stored and no alert is sent.
    pub(super) is_past: bool,
    /// Span of each rule's evaluation until its samples are written, because the write is a child
    /// of the span.
    pub(super) spans: Mutex<HashMap<usize, SpanContext>>,
}

impl RuleGroupTaskState {
    async fn run(self, mut stopped: mpsc::Receiver<()>) {
        let key = self.group.key();
        let mut under_way = RunningTaskSet::default();
        let mut event = GroupEvent::Woke;
        let mut told = None;
        loop {
            let next = self.step(event, &mut under_way).await;
            let progress = &self.shared.progress;
            progress.record_progress(&key, &self.machine);
            if under_way.is_empty() && lock(&self.machine).is_stopped() {
                return;
            }
            if let Some(instant) = next.held
                && told != Some(instant)
            {
                told = Some(instant);
                event = if progress.is_clear(&key, instant, self.shared.now()) {
                    GroupEvent::Cleared(instant)
                } else {
                    GroupEvent::Woke
                };
                continue;
            }
            event = tokio::select! {
                Some(done) = under_way.next() => self.record_event(done),
                Some(()) = stopped.recv() => GroupEvent::Woke,
                Some(instant) = self.clear(&key, next.held) => GroupEvent::Cleared(instant),
                () = tokio::time::sleep(next.sleep) => GroupEvent::Woke,
            };
        }
    }

    /// Waits until the `held` instant may be evaluated, and returns it.
    async fn clear(&self, key: &str, held: Option<RuleInstant>) -> Option<RuleInstant> {
        // If the instant is not clear at `now`, it is checked again after a sleep.
        let (instant, now) = (held?, self.shared.now());
        self.shared.progress.clear(key, instant, now).await;
        held
    }

    /// Performs the actions of the group's stopped machine at `instant`, until no action is left.
    pub(super) async fn finish(&self, actions: Vec<GroupAction>, instant: RuleInstant) {
        let mut under_way = RunningTaskSet::default();
        self.start_actions(actions, instant, &mut under_way).await;
        while let Some(done) = under_way.next().await {
            let event = self.record_event(done);
            let actions = lock(&self.machine).step(instant, event);
            self.start_actions(actions, instant, &mut under_way).await;
        }
    }

    /// Extracts the event, and keeps the span of an evaluation until its samples are stored.
    fn record_event(&self, outcome: GroupTaskOutcome) -> GroupEvent {
        let GroupTaskOutcome { event, span } = outcome;
        if let GroupEvent::Answered { rule, .. } = &event {
            let mut spans = lock(&self.spans);
            match span {
                Some(span) => drop(spans.insert(*rule, span)),
                None => drop(spans.remove(rule)),
            }
        }
        event
    }

    /// Returns the parent span for storing the samples of `of`.
    fn parent_span(&self, of: AppendOrigin) -> Option<SpanContext> {
        match of {
            AppendOrigin::Rule(rule) => lock(&self.spans).remove(&rule),
            AppendOrigin::Gone | AppendOrigin::Waiting => None,
        }
    }

    /// Passes the event to the machine and starts the actions that it returns.
    async fn step(&self, event: GroupEvent, under_way: &mut RunningTaskSet) -> RuleGroupWakeups {
        let now = self.shared.now();
        let actions = lock(&self.machine).step(now, event);
        self.start_actions(actions, now, under_way).await
    }

    /// Starts the actions of the machine and returns the conditions to wait for.
    async fn start_actions(
        &self,
        actions: Vec<GroupAction>,
        now: RuleInstant,
        under_way: &mut RunningTaskSet,
    ) -> RuleGroupWakeups {
        let mut next = RuleGroupWakeups {
            sleep: SLEEP_MAX,
            held: None,
        };
        for action in actions {
            match action {
                GroupAction::Wait(until) => {
                    // The clock has milliseconds and must have passed the moment, not only be close
                    // to it.
                    let left = until.since(now) + Duration::from_millis(1);
                    next.sleep = left.min(SLEEP_MAX);
                }
                GroupAction::Hold(instant) => next.held = Some(instant),
                GroupAction::Query {
                    rule,
                    instant,
                    is_extra,
                } => {
                    let query = self.query(rule, instant, is_extra);
                    under_way.begin(
                        query_failed_event(rule, "the evaluation panicked: see the log"),
                        query,
                    );
                }
                GroupAction::Append { of, is_late, batch } => {
                    let panicked = GroupEvent::Stored {
                        of,
                        outcome: Err(append_failed()),
                    };
                    under_way.begin(panicked, self.store(of, is_late, *batch));
                }
                GroupAction::Send { .. } | GroupAction::Ended(_) | GroupAction::Backfill(_)
                    if self.is_past => {}
                GroupAction::Backfill(owed) => self.make_up(owed),
                GroupAction::Send { rule, alerts } => {
                    (self.shared.around.notify)(&self.group.rules[rule].query, alerts);
                }
                GroupAction::Restore {
                    rule,
                    matchers,
                    min,
                    max,
                } => {
                    let nothing = GroupEvent::Restored {
                        rule,
                        kept: Vec::new(),
                    };
                    let restore = self.restore(rule, matchers, TimeRange::new(min, max));
                    under_way.begin(nothing, restore);
                }
                GroupAction::Ended(keep) => self.ended(keep).await,
            }
        }
        next
    }

    /// Stores the samples of a rule or of ended series, in a span of the evaluation.
    fn store(
        &self,
        of: AppendOrigin,
        is_late: bool,
        batch: Batch,
    ) -> impl Future<Output = GroupTaskOutcome> + use<> {
        let (shared, group) = (self.shared.clone(), self.group.clone());
        let age = match (self.is_past, is_late) {
            (true, _) => InstantAge::Past,
            (false, true) => InstantAge::MadeUp,
            (false, false) => InstantAge::Live,
        };
        let span = self.parent_span(of);
        async move {
            let outcome = append(&shared, &group, age, batch, span.as_ref()).await;
            GroupEvent::Stored { of, outcome }.into()
        }
    }

    /// Queries the stored state of a rule's alerts, once the query queue has room.
    fn restore(
        &self,
        rule: usize,
        matchers: Vec<Matcher>,
        range: TimeRange,
    ) -> impl Future<Output = GroupTaskOutcome> + use<> {
        let question = self.question(rule, range.max);
        let app = self.shared.around.app.clone();
        let name = self.group.rules[rule].name.clone();
        async move {
            let ask = || app.kept_since(question.clone(), matchers.clone(), range);
            let kept = retry_while_queue_full(ask, pause).await;
            let kept = kept.unwrap_or_else(|e| {
                warn!(
                    alertname = name,
                    error = e,
                    "failed to restore the state of alerts"
                );
                Vec::new()
            });
            GroupEvent::Restored { rule, kept }.into()
        }
    }

    fn question(&self, rule: usize, time: i64) -> RuleQueryInfo {
        RuleQueryInfo {
            tenant: self.group.tenant.clone(),
            expression: self.group.rules[rule].query.clone(),
            time,
            group: RuleGroupName {
                file: self.group.file.clone(),
                name: self.group.name.clone(),
            },
        }
    }

    /// Evaluates a rule at `instant`, once the query queue has room.
    fn query(
        &self,
        rule: usize,
        instant: RuleInstant,
        is_extra: bool,
    ) -> impl Future<Output = GroupTaskOutcome> + use<> {
        let (shared, group) = (self.shared.clone(), self.group.clone());
        let query_offset = lock(&self.machine).query_offset();
        let question = self.question(rule, instant.before(query_offset).ms());
        async move {
            // The semaphores are never closed.
            let _extra = if is_extra {
                shared.extra.acquire().await.ok()
            } else {
                None
            };
            let _turn = shared.turns.acquire().await.ok();
            let ask = || {
                let (group, outside) = (group.clone(), shared.outside());
                let clock = shared.around.env.clock.clone();
                let work = move |queries: &mut dyn firn_rules::rule::RuleQuerier| {
                    let began = clock.monotonic();
                    let moment = RuleEvalContext {
                        instant,
                        query_offset,
                        limit: group.limit,
                        outside: &outside,
                    };
                    let found = group.rules[rule].evaluate(&moment, queries);
                    (found, clock.monotonic().saturating_sub(began))
                };
                shared.around.app.run_rule(question.clone(), work)
            };
            match retry_while_queue_full(ask, pause).await {
                Ok(((found, took), span)) => {
                    shared.metrics.evaluation_duration.observe(took);
                    GroupTaskOutcome {
                        event: GroupEvent::Answered { rule, found, took },
                        span,
                    }
                }
                Err(why) => query_failed_event(rule, why).into(),
            }
        }
    }

    /// Starts a backfill of the instants whose samples the store could not accept.
    fn make_up(&self, owed: BackfillRange) {
        info!(
            group = self.group.name,
            "catching up on evaluations that could not be stored"
        );
        let settings = lock(&self.machine).settings();
        let of = self.machine.clone();
        let backfills = &self.shared.backfills;
        backfills.make_up(self.shared.clone(), &self.group, settings, owed, of);
    }

    async fn ended(&self, keep: Option<SavedGroup>) {
        let took = lock(&self.machine).last_evaluation().took;
        self.shared.metrics.group_duration.observe(took);
        let (Some(journal), Some(saved)) = (self.shared.journal.clone(), keep) else {
            return;
        };
        super::report(spawn_blocking(move || lock(&journal).save(&saved)).await);
    }
}

/// Returns the event of a rule whose query failed, with the error text.
fn query_failed_event(rule: usize, why: impl Into<String>) -> GroupEvent {
    GroupEvent::Answered {
        rule,
        found: Err(RuleError::Query(why.into())),
        took: Duration::ZERO,
    }
}

fn append_failed() -> Error {
    Error::new(ErrorKind::Internal, "the append failed: see the log")
}

fn pause() -> impl Future<Output = ()> {
    tokio::time::sleep(RETRY_PAUSE)
}

/// Repeats the query, with pauses, while the query queue is full. Returns the error if the query
/// itself fails.
async fn retry_while_queue_full<T, A, P>(
    mut ask: impl FnMut() -> A,
    mut pause: impl FnMut() -> P,
) -> Result<T, String>
where
    A: Future<Output = Result<T, RuleQueryError>>,
    P: Future<Output = ()>,
{
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(RuleQueryError::Later(_)) => pause().await,
            Err(e @ RuleQueryError::Failed(_)) => return Err(e.to_string()),
        }
    }
}

/// Stores the samples of a rule as one batch. Both steps are children of `span`.
pub(super) async fn append(
    shared: &RuleManagerState,
    group: &RuleGroup,
    age: InstantAge,
    batch: Batch,
    span: Option<&SpanContext>,
) -> Result<AppendOutcome, Error> {
    if batch.is_empty() {
        return Ok(AppendOutcome::default());
    }
    let pipeline: Arc<Pipeline> = shared.around.pipeline.clone();
    let (tenant, name) = (group.tenant.clone(), group.name.clone());
    let mut part = SpanContext::begin_child_of(span, "ruleAppend");
    part.set_attribute("samples", || batch.sample_count());
    let handed = spawn_blocking(move || {
        let _part = part;
        pipeline.append_rule_results(&tenant, &name, age, &batch)
    });
    let write = handed.await.map_err(|_| append_failed())?;
    let mut commit = SpanContext::begin_child_of(span, "ruleCommit");
    let stored = write.await;
    if let Err(e) = &stored {
        commit.set_error(e);
    }
    stored
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;

    #[tokio::test]
    async fn question_whose_turn_does_not_come_is_asked_again() {
        let later = || RuleQueryError::Later("the queue is full".to_owned());
        let mut asked = 0;
        let mut pauses = 0;
        let ask = || {
            asked += 1;
            ready(if asked < 3 { Err(later()) } else { Ok(asked) })
        };
        let pause = || {
            pauses += 1;
            ready(())
        };
        assert_eq!(retry_while_queue_full(ask, pause).await, Ok(3));
        assert_eq!(pauses, 2);
        let fails = || ready(Err::<(), _>(RuleQueryError::Failed("no".to_owned())));
        let never = || ready(());
        assert_eq!(retry_while_queue_full(fails, never).await, Err("no".into()));
    }
}
