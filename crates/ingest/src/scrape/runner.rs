//! The task of one target: scrapes it on a fixed schedule until it is stopped.
//!
//! ```text
//! Run(plan) --Leave--> waits for two intervals --> staleness markers, end
//!      ^                        |
//!      '-------- Run(plan) -----'             --EndMarked--> markers at once, end
//!                                             --EndSilently--> end
//! ```
//!
//! Invariant: scrapes of one target never overlap. An order to stop cancels a running fetch without
//! samples, but waits for a running append, so that staleness markers follow it.

use super::failure_log;
use super::plan::Plan;
use super::resources::Resources;
use super::state::{ScrapeState, Scraped};
use super::status::{Health, LastScrape, TargetStatus};
use crate::outcome::WriteOutcome;
use crate::refusals::Sender;
use firn_http_client::Body;
use firn_http_client::MemoryShare;
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimestampMs;
use firn_model::store::Append;
use firn_model::trace::{Span, SpanKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, timeout};
use tracing::{debug, warn};

/// Largest correction of a scrape's timestamp towards the schedule, in milliseconds. Equal steps
/// between timestamps compress to almost nothing, and timers are late by a millisecond; Prometheus
/// does the same.
const ALIGNMENT_MS_MAX: i64 = 2;

/// An order to the task of a target; a later one replaces one that was not handled yet.
#[derive(Clone)]
pub(super) enum Wanted {
    /// Scrape according to the plan.
    Run(Arc<Plan>),
    /// The target has vanished, but may return soon.
    Leave,
    /// End now, with staleness markers.
    EndMarked,
    /// End now, without staleness markers.
    EndSilently,
}

/// The handle of one target's task. Dropping it ends the task without staleness markers.
pub(super) struct Runner {
    wanted: watch::Sender<Wanted>,
    plan: Arc<Plan>,
    status: Arc<TargetStatus>,
    task: JoinHandle<()>,
}

impl Runner {
    /// Starts scraping according to the plan, for the first time after `offset`.
    pub(super) fn start(plan: Arc<Plan>, offset: Duration, resources: Arc<Resources>) -> Self {
        let (wanted, follows) = watch::channel(Wanted::Run(plan.clone()));
        let status = Arc::new(TargetStatus::default());
        let scraping = Scraping {
            state: None,
            plan: plan.clone(),
            status: status.clone(),
            wanted: follows,
            resources,
            schedule_start: None,
        };
        Self {
            wanted,
            plan,
            status,
            task: tokio::spawn(scraping.run(offset)),
        }
    }

    /// Returns the status of the target.
    pub(super) fn status(&self) -> &Arc<TargetStatus> {
        &self.status
    }

    /// Returns the current plan.
    pub(super) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Continues with another plan, or resumes with the same one.
    pub(super) fn run(&mut self, plan: Arc<Plan>) {
        self.plan = plan.clone();
        self.wanted.send_if_modified(|wanted| {
            let is_same = matches!(wanted, Wanted::Run(old) if Arc::ptr_eq(old, &plan));
            *wanted = Wanted::Run(plan);
            !is_same
        });
    }

    /// Sends an order to the task.
    pub(super) fn tell(&self, wanted: Wanted) {
        self.wanted.send_replace(wanted);
    }

    /// Returns whether the task has ended.
    pub(super) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until the task has ended.
    pub(super) async fn join(self) {
        if let Err(e) = self.task.await {
            warn!(error = %e, "scrape task failed");
        }
    }
}

struct Scraping {
    /// State between scrapes; `None` while a thread works on it.
    state: Option<ScrapeState>,
    plan: Arc<Plan>,
    status: Arc<TargetStatus>,
    wanted: watch::Receiver<Wanted>,
    resources: Arc<Resources>,
    schedule_start: Option<TimestampMs>,
}

impl Scraping {
    async fn run(mut self, offset: Duration) {
        let metrics = self.resources.pipeline.metrics();
        metrics.scrape_targets.add(1);
        let mut ticks = ticks(offset, self.plan.target.interval);
        loop {
            tokio::select! {
                biased;
                changed = self.wanted.changed() => {
                    let wanted = match changed {
                        Ok(()) => self.wanted.borrow_and_update().clone(),
                        // The handle was dropped, so that no further order can arrive.
                        Err(_) => Wanted::EndSilently,
                    };
                    match wanted {
                        Wanted::Run(plan) => self.follow(plan, &mut ticks),
                        Wanted::Leave => {
                            if !self.leave(&mut ticks).await {
                                break;
                            }
                        }
                        Wanted::EndMarked => {
                            self.end(self.resources.clock.now_ms()).await;
                            break;
                        }
                        Wanted::EndSilently => break,
                    }
                }
                _ = ticks.tick() => self.scrape().await,
            }
        }
        metrics.scrape_targets.add(-1);
    }

    /// Applies a plan: restarts the schedule if the interval has changed, and reconfigures the
    /// state.
    fn follow(&mut self, plan: Arc<Plan>, ticks: &mut Interval) {
        let old = std::mem::replace(&mut self.plan, plan);
        if old.target.interval != self.plan.target.interval {
            let now = self.resources.clock.now_ms();
            let offset = self.plan.target.offset(now, self.resources.seed());
            *ticks = self::ticks(offset, self.plan.target.interval);
            self.schedule_start = None;
        }
        if let Some(state) = &mut self.state {
            state.reconfigure(self.plan.job.clone(), &self.plan.target);
        }
    }

    /// Waits for the target to return; returns whether it did. Otherwise, marks its series as stale
    /// at the time of the first skipped scrape.
    async fn leave(&mut self, ticks: &mut Interval) -> bool {
        let mut wanted = self.wanted.clone();
        let interval = self.plan.target.interval;
        let clock = self.resources.clock.clone();
        let waited = async {
            ticks.tick().await;
            let time = clock.now_ms();
            ticks.tick().await;
            sleep(interval / 10).await;
            time
        };
        let time = tokio::select! {
            biased;
            // The caller handles the new order.
            _ = wanted.changed() => return true,
            time = waited => time,
        };
        self.end(time).await;
        false
    }

    async fn scrape(&mut self) {
        let name = || "scrape".to_owned();
        let tracer = &self.resources.tracer;
        let mut span = tracer.begin(name, SpanKind::Internal, None);
        span.set("job", || self.plan.job.name.as_str());
        let time = self.scheduled_time();
        let started = self.resources.clock.monotonic();
        let fetched = match &self.plan.refusal {
            Some(refusal) => Err(Error::new(ErrorKind::Limited, refusal.clone())),
            None => {
                let mut wanted = self.wanted.clone();
                let stopped = async {
                    // An error means that the handle was dropped.
                    let stops = |wanted: &Wanted| !matches!(wanted, Wanted::Run(_));
                    let _ = wanted.wait_for(stops).await;
                };
                tokio::select! {
                    biased;
                    () = stopped => return,
                    fetched = fetch(&self.plan, &span) => fetched,
                }
            }
        };
        if let Err(e) = &fetched {
            span.fail(e);
            debug!(url = self.plan.target.url, error = %e, "scrape failed");
            if let Some(path) = &self.plan.job.failure_log_file {
                failure_log::write(path.clone(), &self.plan, time, &e.message).await;
            }
        }
        self.store(fetched, (time, started), &span).await;
    }

    /// Stores the result of the scrape at `time`, which started at the monotonic time `started`.
    async fn store(
        &mut self,
        fetched: Result<Body, Error>,
        (time, started): (TimestampMs, Duration),
        span: &Span,
    ) {
        let clock = self.resources.clock.clone();
        let take = move |state: &mut ScrapeState| {
            let elapsed = || clock.monotonic().saturating_sub(started);
            state.take(fetched, time, elapsed)
        };
        let took = self.append(take, span);
        let Some((made, stored)) = took.await else {
            return;
        };
        let Scraped {
            outcome,
            duration,
            dropped,
        } = made;
        // A scrape that could not be stored counts as failed, whatever the target returned.
        let outcome = outcome.and(stored);
        let metrics = self.resources.pipeline.metrics();
        match &outcome {
            Ok(()) => metrics.scrapes_succeeded.inc(),
            Err(_) => metrics.scrapes_failed.inc(),
        }
        if let Some(dropped) = dropped {
            let pipeline = &self.resources.pipeline;
            pipeline.drop_unseen(&self.sender(), &dropped);
            let (count, reason) = (dropped.sample_count, dropped.reason.as_str());
            self.warn(format!("{count} samples dropped: {reason}"));
        }
        let warning = self.status.last().warning;
        self.status.set_last(LastScrape {
            health: if outcome.is_ok() {
                Health::Up
            } else {
                Health::Down
            },
            error: outcome.err().map_or_else(String::new, |e| e.message),
            warning,
            time: Some(time),
            duration,
        });
    }

    async fn end(&mut self, time: TimestampMs) {
        if self.state.is_some() {
            let end = move |state: &mut ScrapeState| state.end(time);
            self.append(end, &Span::default()).await;
        }
    }

    /// Creates a batch with `make` and stores it, on a thread that may block. Returns the result of
    /// `make`, and whether the store accepted the batch.
    async fn append<T: Send + 'static>(
        &mut self,
        make: impl FnOnce(&mut ScrapeState) -> T + Send + 'static,
        span: &Span,
    ) -> Option<(T, Result<(), Error>)> {
        let mut state = match self.state.take() {
            Some(state) => state,
            None => self.new_state()?,
        };
        let (pipeline, tenant) = (
            self.resources.pipeline.clone(),
            self.plan.target.tenant.clone(),
        );
        let sender = self.sender();
        let slot = self.resources.slot().await;
        state.keep_exemplars(pipeline.takes_exemplars());
        state.set_accepted_times(pipeline.first_sample_times(&tenant, &sender));
        let mut part = span.child("scrapeAppend");
        let appending = spawn_blocking(move || {
            let made = make(&mut state);
            part.set("samples", || state.batch().sample_count());
            if !state.zeros().is_empty() {
                pipeline.append_optional(&tenant, &mut state.zeros());
            }
            let write = pipeline.append_of(&tenant, sender, state.batch());
            (made, write, state)
        });
        let (made, write, state) = match appending.await {
            Ok(appended) => appended,
            Err(e) => {
                warn!(url = self.plan.target.url, error = %e, "failed to store scraped samples");
                return None;
            }
        };
        drop(slot);
        self.state = Some(state);
        self.status.set_warning(String::new());
        let mut commit = span.child("scrapeCommit");
        let written = write.await;
        if let Err(e) = &written {
            commit.fail(e);
        }
        drop(commit);
        match written {
            Ok(appended) => {
                if let Some(complaint) = WriteOutcome::new(Vec::new(), &appended).complaint() {
                    self.warn(complaint);
                }
            }
            Err(e) => {
                let message = format!("failed to store the scrape: {e}");
                self.warn(message.clone());
                return Some((made, Err(Error::new(e.kind, message))));
            }
        }
        Some((made, Ok(())))
    }

    fn new_state(&self) -> Option<ScrapeState> {
        match MemoryShare::new(&self.resources.caches, "cache of series") {
            Ok(memory) => Some(ScrapeState::new(
                self.plan.job.clone(),
                &self.plan.target,
                self.status.clone(),
                self.resources.pipeline.limits().wire,
                memory,
            )),
            Err(e) => {
                self.warn(e.message);
                None
            }
        }
    }

    fn sender(&self) -> Sender {
        Sender::Job(self.plan.job.name.as_str().into())
    }

    fn warn(&self, message: String) {
        debug!(url = self.plan.target.url, message, "scrape");
        self.status.set_warning(message);
    }

    /// Returns the current time, or the scheduled time if that is close enough.
    fn scheduled_time(&mut self) -> TimestampMs {
        let now = self.resources.clock.now_ms();
        let start = *self.schedule_start.get_or_insert(now);
        let step = self.plan.target.interval.as_millis().max(1) as i64;
        let off = (now - start + step / 2).rem_euclid(step) - step / 2;
        let tolerance = ALIGNMENT_MS_MAX.min(step / 100);
        match off.abs() <= tolerance {
            true => now - off,
            false => now,
        }
    }
}

fn ticks(offset: Duration, interval: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + offset, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

async fn fetch(plan: &Plan, span: &Span) -> Result<Body, Error> {
    match timeout(plan.target.timeout, plan.fetch.fetch(span)).await {
        Ok(fetched) => fetched,
        Err(_) => {
            let message = format!("Get \"{}\": context deadline exceeded", plan.target.url);
            Err(Error::new(ErrorKind::Timeout, message))
        }
    }
}
