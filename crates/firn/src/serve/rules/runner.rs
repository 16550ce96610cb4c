//! Runs one rule group: a task that passes events to the group's state machine and performs the
//! actions that it returns.
//!
//! Invariant: each action that was started yields exactly one event, even if it fails, so that the
//! group continues.

use super::Shared;
use super::under_way::{Done, UnderWay};
use firn_ingest::{InstantAge, Pipeline};
use firn_model::batch::Batch;
use firn_model::error::{Error, ErrorKind};
use firn_model::matcher::Matcher;
use firn_model::sample::TimeRange;
use firn_model::store::Appended;
use firn_model::sync::lock;
use firn_model::trace::SpanContext;
use firn_rules::group::Group;
use firn_rules::instant::Instant;
use firn_rules::machine::{Action, Event, Machine, MachineSettings, Origin, Owed, SavedGroup};
use firn_rules::rule::{Moment, RuleError};
use firn_server::parts::RuleGroupName;
use firn_server::rules::{RuleQueryError, RuleQuestion};
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
pub(super) struct Runner {
    group: Arc<Group>,
    machine: Arc<Mutex<Machine>>,
    stop: mpsc::Sender<()>,
    /// Task of the group, or `None` once the group is being stopped.
    task: Option<Task>,
}

/// Handle of the task of a group. Dropping it aborts the task, so that no group outlives its
/// runner.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A group that ends after its current evaluation. It is still listed by the API until then.
pub(super) struct Stopping {
    machine: Arc<Mutex<Machine>>,
    task: Option<Task>,
}

impl Stopping {
    /// Waits for the end of the group and returns its machine.
    pub(super) async fn ended(mut self) -> Arc<Mutex<Machine>> {
        if let Some(task) = &mut self.task {
            // An error means that the task was aborted.
            let _ = (&mut task.0).await;
        }
        self.machine
    }
}

impl Runner {
    /// Starts the task of a group, which runs until it is stopped or dropped.
    pub(super) fn start(shared: Arc<Shared>, machine: Machine) -> Self {
        let group = machine.group().clone();
        let machine = Arc::new(Mutex::new(machine));
        let (stop, stopped) = mpsc::channel(1);
        let running = Running {
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
            task: Some(Task(tokio::spawn(running.run(stopped)))),
        }
    }

    pub(super) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    pub(super) fn machine(&self) -> Arc<Mutex<Machine>> {
        self.machine.clone()
    }

    pub(super) fn set_settings(&self, settings: MachineSettings) {
        lock(&self.machine).set_settings(settings);
    }

    /// Stops further evaluations of the group. The current one continues; the returned value waits
    /// for its end.
    pub(super) fn stop(&mut self) -> Stopping {
        lock(&self.machine).stop();
        // An error means that the task has ended or was notified before.
        let _ = self.stop.try_send(());
        Stopping {
            machine: self.machine.clone(),
            task: self.task.take(),
        }
    }
}

/// Conditions that the task of a group waits for, in addition to running actions.
struct Next {
    /// Maximum time to sleep before the machine is stepped again.
    sleep: Duration,
    /// Instant whose evaluation waits for other groups, if there is one.
    held: Option<Instant>,
}

/// State of a group's task, which performs the actions of the machine. Also used by backfills of
/// the group.
pub(super) struct Running {
    pub(super) shared: Arc<Shared>,
    pub(super) group: Arc<Group>,
    pub(super) machine: Arc<Mutex<Machine>>,
    /// True for a backfill of past instants: no state is stored and no alert is sent.
    pub(super) is_past: bool,
    /// Span of each rule's evaluation until its samples are written, because the write is a child
    /// of the span.
    pub(super) spans: Mutex<HashMap<usize, SpanContext>>,
}

impl Running {
    async fn run(self, mut stopped: mpsc::Receiver<()>) {
        let key = self.group.key();
        let mut under_way = UnderWay::default();
        let mut event = Event::Woke;
        let mut told = None;
        loop {
            let next = self.step(event, &mut under_way).await;
            let progress = &self.shared.progress;
            progress.reach(&key, &self.machine);
            if under_way.is_empty() && lock(&self.machine).is_stopped() {
                return;
            }
            if let Some(instant) = next.held
                && told != Some(instant)
            {
                told = Some(instant);
                event = match progress.is_clear(&key, instant, self.shared.now()) {
                    true => Event::Cleared(instant),
                    false => Event::Woke,
                };
                continue;
            }
            event = tokio::select! {
                Some(done) = under_way.next() => self.note(done),
                Some(()) = stopped.recv() => Event::Woke,
                Some(instant) = self.clear(&key, next.held) => Event::Cleared(instant),
                () = tokio::time::sleep(next.sleep) => Event::Woke,
            };
        }
    }

    /// Waits until the `held` instant may be evaluated, and returns it.
    async fn clear(&self, key: &str, held: Option<Instant>) -> Option<Instant> {
        // If the instant is not clear at `now`, it is checked again after a sleep.
        let (instant, now) = (held?, self.shared.now());
        self.shared.progress.clear(key, instant, now).await;
        held
    }

    /// Performs the actions of the group's stopped machine at `instant`, until no action is left.
    pub(super) async fn finish(&self, actions: Vec<Action>, instant: Instant) {
        let mut under_way = UnderWay::default();
        self.perform(actions, instant, &mut under_way).await;
        while let Some(done) = under_way.next().await {
            let event = self.note(done);
            let actions = lock(&self.machine).step(instant, event);
            self.perform(actions, instant, &mut under_way).await;
        }
    }

    /// Extracts the event, and keeps the span of an evaluation until its samples are stored.
    fn note(&self, (event, span): Done) -> Event {
        if let Event::Answered { rule, .. } = &event {
            let mut spans = lock(&self.spans);
            match span {
                Some(span) => drop(spans.insert(*rule, span)),
                None => drop(spans.remove(rule)),
            }
        }
        event
    }

    /// Returns the parent span for storing the samples of `of`.
    fn span_of(&self, of: Origin) -> Option<SpanContext> {
        match of {
            Origin::Rule(rule) => lock(&self.spans).remove(&rule),
            Origin::Gone | Origin::Waiting => None,
        }
    }

    /// Passes the event to the machine and starts the actions that it returns.
    async fn step(&self, event: Event, under_way: &mut UnderWay) -> Next {
        let now = self.shared.now();
        let actions = lock(&self.machine).step(now, event);
        self.perform(actions, now, under_way).await
    }

    /// Starts the actions of the machine and returns the conditions to wait for.
    async fn perform(&self, actions: Vec<Action>, now: Instant, under_way: &mut UnderWay) -> Next {
        let mut next = Next {
            sleep: SLEEP_MAX,
            held: None,
        };
        for action in actions {
            match action {
                Action::Wait(until) => {
                    // The clock has milliseconds and must have passed the moment, not only be close
                    // to it.
                    let left = until.since(now) + Duration::from_millis(1);
                    next.sleep = left.min(SLEEP_MAX);
                }
                Action::Hold(instant) => next.held = Some(instant),
                Action::Query {
                    rule,
                    instant,
                    is_extra,
                } => {
                    let query = self.query(rule, instant, is_extra);
                    under_way.begin(failed(rule, "the evaluation panicked: see the log"), query);
                }
                Action::Append { of, is_late, batch } => {
                    let panicked = Event::Stored {
                        of,
                        outcome: Err(append_failed()),
                    };
                    under_way.begin(panicked, self.store(of, is_late, *batch));
                }
                Action::Send { .. } | Action::Ended(_) | Action::Backfill(_) if self.is_past => {}
                Action::Backfill(owed) => self.make_up(owed),
                Action::Send { rule, alerts } => {
                    (self.shared.around.notify)(&self.group.rules[rule].query, alerts);
                }
                Action::Restore {
                    rule,
                    matchers,
                    min,
                    max,
                } => {
                    let nothing = Event::Restored {
                        rule,
                        kept: Vec::new(),
                    };
                    let restore = self.restore(rule, matchers, TimeRange::new(min, max));
                    under_way.begin(nothing, restore);
                }
                Action::Ended(keep) => self.ended(keep).await,
            }
        }
        next
    }

    /// Stores the samples of a rule or of ended series, in a span of the evaluation.
    fn store(&self, of: Origin, is_late: bool, batch: Batch) -> impl Future<Output = Done> + use<> {
        let (shared, group) = (self.shared.clone(), self.group.clone());
        let age = match (self.is_past, is_late) {
            (true, _) => InstantAge::Past,
            (false, true) => InstantAge::MadeUp,
            (false, false) => InstantAge::Live,
        };
        let span = self.span_of(of);
        async move {
            let outcome = append(&shared, (&group, age), batch, span.as_ref()).await;
            (Event::Stored { of, outcome }, None)
        }
    }

    /// Queries the stored state of a rule's alerts, once the query queue has room.
    fn restore(
        &self,
        rule: usize,
        matchers: Vec<Matcher>,
        range: TimeRange,
    ) -> impl Future<Output = Done> + use<> {
        let question = self.question(rule, range.max);
        let app = self.shared.around.app.clone();
        let name = self.group.rules[rule].name.clone();
        async move {
            let ask = || app.kept_since(question.clone(), matchers.clone(), range);
            let kept = when_it_is_its_turn(ask, pause).await;
            let kept = kept.unwrap_or_else(|e| {
                warn!(
                    alertname = name,
                    error = e,
                    "failed to restore the state of alerts"
                );
                Vec::new()
            });
            (Event::Restored { rule, kept }, None)
        }
    }

    fn question(&self, rule: usize, time: i64) -> RuleQuestion {
        RuleQuestion {
            tenant: self.shared.tenant.clone(),
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
        instant: Instant,
        is_extra: bool,
    ) -> impl Future<Output = Done> + use<> {
        let (shared, group) = (self.shared.clone(), self.group.clone());
        let query_offset = lock(&self.machine).query_offset();
        let question = self.question(rule, instant.before(query_offset).ms());
        async move {
            // The semaphores are never closed.
            let _extra = match is_extra {
                true => shared.extra.acquire().await.ok(),
                false => None,
            };
            let _turn = shared.turns.acquire().await.ok();
            let ask = || {
                let (group, outside) = (group.clone(), shared.outside());
                let clock = shared.around.env.clock.clone();
                let work = move |queries: &mut dyn firn_rules::rule::Queries| {
                    let began = clock.monotonic();
                    let moment = Moment {
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
            match when_it_is_its_turn(ask, pause).await {
                Ok(((found, took), span)) => {
                    shared.metrics.evaluation_duration.observe(took);
                    (Event::Answered { rule, found, took }, span)
                }
                Err(why) => (failed(rule, why), None),
            }
        }
    }

    /// Starts a backfill of the instants whose samples the store could not accept.
    fn make_up(&self, owed: Owed) {
        info!(
            group = self.group.name,
            "catching up on evaluations that could not be stored"
        );
        let settings = lock(&self.machine).settings();
        let of = self.machine.clone();
        let backfills = &self.shared.backfills;
        backfills.make_up(self.shared.clone(), &self.group, settings, (owed, of));
    }

    async fn ended(&self, keep: Option<SavedGroup>) {
        let took = lock(&self.machine).last().took;
        self.shared.metrics.group_duration.observe(took);
        let (Some(journal), Some(saved)) = (self.shared.journal.clone(), keep) else {
            return;
        };
        super::report(spawn_blocking(move || lock(&journal).save(&saved)).await);
    }
}

/// Returns the event of a rule whose query failed, with the error text.
fn failed(rule: usize, why: impl Into<String>) -> Event {
    Event::Answered {
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
async fn when_it_is_its_turn<T, A, P>(
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
    shared: &Shared,
    (group, age): (&Group, InstantAge),
    batch: Batch,
    span: Option<&SpanContext>,
) -> Result<Appended, Error> {
    if batch.is_empty() {
        return Ok(Appended::default());
    }
    let pipeline: Arc<Pipeline> = shared.around.pipeline.clone();
    let (tenant, name) = (shared.tenant.clone(), group.name.clone());
    let mut part = SpanContext::begin_in(span, "ruleAppend");
    part.set("samples", || batch.sample_count());
    let handed = spawn_blocking(move || {
        let _part = part;
        pipeline.append_of_rule(&tenant, &name, age, &batch)
    });
    let write = handed.await.map_err(|_| append_failed())?;
    let mut commit = SpanContext::begin_in(span, "ruleCommit");
    let stored = write.await;
    if let Err(e) = &stored {
        commit.fail(e);
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
        assert_eq!(when_it_is_its_turn(ask, pause).await, Ok(3));
        assert_eq!(pauses, 2);
        let fails = || ready(Err::<(), _>(RuleQueryError::Failed("no".to_owned())));
        let never = || ready(());
        assert_eq!(when_it_is_its_turn(fails, never).await, Err("no".into()));
    }
}
