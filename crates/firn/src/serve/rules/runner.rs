//! One group as it runs: a task that gives its machine events, and does what it says.

use super::Shared;
use firn_ingest::Pipeline;
use firn_model::batch::Batch;
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimeRange;
use firn_model::store::Appended;
use firn_model::sync::lock;
use firn_model::trace::SpanContext;
use firn_rules::group::Group;
use firn_rules::instant::Instant;
use firn_rules::machine::{Action, Event, Machine, MachineSettings, Origin, SavedGroup};
use firn_rules::rule::{Moment, RuleError};
use firn_rules::view::BackfillRequest;
use firn_server::parts::RuleGroupName;
use firn_server::rules::{RuleQueryError, RuleQuestion};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tracing::{info, warn};

/// The longest sleep: the clock may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(5);

/// Between two tries to get a turn in the queue of queries.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What an action ended with, and the span of the evaluation if it is in a trace.
type Done = (Event, Option<SpanContext>);

/// A group that runs. When it is dropped, what it does ends at once.
pub(super) struct Runner {
    group: Arc<Group>,
    machine: Arc<Mutex<Machine>>,
    stop: mpsc::Sender<()>,
    task: JoinHandle<()>,
}

impl Runner {
    /// Starts a group.
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
            task: tokio::spawn(running.run(stopped)),
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

    /// Ends the group once its evaluation has ended, and gives its machine.
    pub(super) async fn stop(mut self) -> Arc<Mutex<Machine>> {
        lock(&self.machine).stop();
        // It fails if the task is over.
        let _ = self.stop.send(()).await;
        let _ = (&mut self.task).await;
        self.machine.clone()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the task of a group has.
pub(super) struct Running {
    pub(super) shared: Arc<Shared>,
    pub(super) group: Arc<Group>,
    pub(super) machine: Arc<Mutex<Machine>>,
    /// Whether it is about times that are gone: nothing is kept or sent.
    pub(super) is_past: bool,
    /// The span of each rule's evaluation whose samples were not handed on yet: writing them is a
    /// part of it.
    pub(super) spans: Mutex<HashMap<usize, SpanContext>>,
}

impl Running {
    async fn run(self, mut stopped: mpsc::Receiver<()>) {
        let mut under_way = JoinSet::new();
        let mut event = Event::Woke;
        loop {
            let wake = self.step(event, &mut under_way).await;
            if under_way.is_empty() && lock(&self.machine).is_stopped() {
                return;
            }
            event = tokio::select! {
                Some(done) = under_way.join_next() => match done {
                    Ok(done) => self.note(done),
                    Err(e) => {
                        // The group cannot go on without the outcome; the log has the panic.
                        warn!(group = self.group.name, error = %e, "a rule group has ended");
                        return;
                    }
                },
                Some(()) = stopped.recv() => Event::Woke,
                () = tokio::time::sleep(wake) => Event::Woke,
            };
        }
    }

    /// Evaluates the group, which was stopped, at `instant`.
    pub(super) async fn evaluate_at(&self, instant: Instant) {
        let mut under_way = JoinSet::new();
        let actions = lock(&self.machine).begin_at(instant);
        self.perform(actions, instant, &mut under_way).await;
        while let Some(Ok(done)) = under_way.join_next().await {
            let event = self.note(done);
            let actions = lock(&self.machine).step(instant, event);
            self.perform(actions, instant, &mut under_way).await;
        }
    }

    /// What happened; the span of an evaluation is kept until what it made is stored.
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

    /// The span that storing what `of` made is a part of.
    fn span_of(&self, of: Origin) -> Option<SpanContext> {
        match of {
            Origin::Rule(rule) => lock(&self.spans).remove(&rule),
            Origin::Gone | Origin::Waiting => None,
        }
    }

    /// Tells the machine what happened and starts what it says; the time to sleep.
    async fn step(&self, event: Event, under_way: &mut JoinSet<Done>) -> Duration {
        let now = self.shared.now();
        let actions = lock(&self.machine).step(now, event);
        self.perform(actions, now, under_way).await
    }

    /// Starts what the machine says; the time to sleep.
    async fn perform(
        &self,
        actions: Vec<Action>,
        now: Instant,
        under_way: &mut JoinSet<Done>,
    ) -> Duration {
        let mut sleep = SLEEP_MAX;
        for action in actions {
            match action {
                Action::Wait(until) => {
                    // A clock in milliseconds must have passed the moment, not just come near it.
                    let left = until.since(now) + Duration::from_millis(1);
                    sleep = left.min(SLEEP_MAX);
                }
                Action::Query {
                    rule,
                    instant,
                    is_extra,
                } => {
                    let query = self.query(rule, instant, is_extra);
                    under_way.spawn(query);
                }
                Action::Append { of, is_late, batch } => {
                    let (shared, group) = (self.shared.clone(), self.group.clone());
                    let is_past = is_late || self.is_past;
                    let span = self.span_of(of);
                    under_way.spawn(async move {
                        let stored = append(&shared, (&group, is_past), *batch, span.as_ref());
                        let outcome = stored.await;
                        (Event::Stored { of, outcome }, None)
                    });
                }
                Action::Send { .. } | Action::Save(_) | Action::Backfill { .. } if self.is_past => {
                }
                Action::Backfill { start, end } => self.backfill(start, end),
                Action::Send { rule, alerts } => {
                    (self.shared.around.notify)(&self.group.rules[rule].query, alerts);
                }
                Action::Restore {
                    rule,
                    matchers,
                    min,
                    max,
                } => {
                    let question = self.question(rule, max);
                    let app = self.shared.around.app.clone();
                    let name = self.group.rules[rule].name.clone();
                    under_way.spawn(async move {
                        let range = TimeRange::new(min, max);
                        let kept = app.kept_since(question, matchers, range).await;
                        let kept = kept.unwrap_or_else(|e| {
                            warn!(alertname = name, error = %e, "alerts are not restored");
                            Vec::new()
                        });
                        (Event::Restored { rule, kept }, None)
                    });
                }
                Action::Save(saved) => self.save(saved).await,
            }
        }
        sleep
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

    /// Evaluates a rule, when it is its turn.
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
            let failed = |why: String| Event::Answered {
                rule,
                found: Err(RuleError::Query(why)),
                took: Duration::ZERO,
            };
            // The semaphores are never closed.
            let _extra = match is_extra {
                true => shared.extra.acquire().await.ok(),
                false => None,
            };
            let _turn = shared.turns.acquire().await.ok();
            loop {
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
                match shared.around.app.run_rule(question.clone(), work).await {
                    Ok(((found, took), span)) => {
                        shared.metrics.evaluation_duration.observe(took);
                        return (Event::Answered { rule, found, took }, span);
                    }
                    Err(RuleQueryError::Later(_)) => tokio::time::sleep(RETRY_PAUSE).await,
                    Err(e @ RuleQueryError::Failed(_)) => return (failed(e.to_string()), None),
                }
            }
        }
    }

    /// Makes up for what the store could not take.
    fn backfill(&self, start: Instant, end: Instant) {
        let request = BackfillRequest {
            group: self.group.name.clone(),
            file: self.group.file.clone(),
            start,
            end,
        };
        let settings = lock(&self.machine).settings();
        let backfills = &self.shared.backfills;
        let begun = backfills.begin(self.shared.clone(), &self.group, settings, request);
        match begun {
            Ok(_) => info!(group = self.group.name, "make up for what was not stored"),
            Err(e) => warn!(
                group = self.group.name,
                error = e,
                "what was not stored is lost"
            ),
        }
    }

    async fn save(&self, saved: SavedGroup) {
        let took = lock(&self.machine).last().took;
        self.shared.metrics.group_duration.observe(took);
        let Some(journal) = self.shared.journal.clone() else {
            return;
        };
        super::report(spawn_blocking(move || lock(&journal).save(&saved)).await);
    }
}

/// Stores what a rule made: in one piece. Both steps are parts of `span`.
pub(super) async fn append(
    shared: &Shared,
    (group, is_past): (&Group, bool),
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
        pipeline.append_of_rule(&tenant, &name, is_past, &batch)
    });
    let failed = |_| Error::new(ErrorKind::Internal, "the append failed: see the log");
    let write = handed.await.map_err(failed)?;
    let mut commit = SpanContext::begin_in(span, "ruleCommit");
    let stored = write.await;
    if let Err(e) = &stored {
        commit.fail(e);
    }
    stored
}
