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
use super::plan::ScrapePlan;
use super::resources::ScrapeResources;
use super::state::{ScrapeResult, ScrapeState};
use super::target::first_scrape_delay;
use firn_http_client::DecodedBody;
use firn_http_client::MemoryShare;
use firn_ingest::SampleSender;
use firn_ingest::WriteOutcome;
use firn_ingest::targets::{LastScrape, TargetHealth, TargetStatus};
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimestampMs;
use firn_model::store::Append;
use firn_model::trace::{SpanKind, TraceSpan};
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
pub(super) enum ScrapeLoopOrder {
    /// Scrape according to the plan.
    Run(Arc<ScrapePlan>),
    /// The target has vanished, but may return soon.
    Leave,
    /// End now, with staleness markers.
    EndMarked,
    /// End now, without staleness markers.
    EndSilently,
}

/// The handle of one target's task. Dropping it ends the task without staleness markers.
pub(super) struct ScrapeLoopHandle {
    wanted: watch::Sender<ScrapeLoopOrder>,
    plan: Arc<ScrapePlan>,
    status: Arc<TargetStatus>,
    task: JoinHandle<()>,
}

impl ScrapeLoopHandle {
    /// Starts scraping according to the plan, for the first time after `offset`.
    pub(super) fn start_task(
        plan: Arc<ScrapePlan>,
        offset: Duration,
        resources: Arc<ScrapeResources>,
    ) -> Self {
        let (wanted, follows) = watch::channel(ScrapeLoopOrder::Run(plan.clone()));
        let status = Arc::new(TargetStatus::default());
        let scraping = ScrapeLoop {
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
            task: tokio::spawn(scraping.run_loop(offset)),
        }
    }

    /// Returns the status of the target.
    pub(super) fn status(&self) -> &Arc<TargetStatus> {
        &self.status
    }

    /// Returns the current plan.
    pub(super) fn plan(&self) -> &Arc<ScrapePlan> {
        &self.plan
    }

    /// Continues with another plan, or resumes with the same one.
    pub(super) fn run_plan(&mut self, plan: Arc<ScrapePlan>) {
        self.plan = plan.clone();
        self.wanted.send_if_modified(|wanted| {
            let is_same = matches!(wanted, ScrapeLoopOrder::Run(old) if Arc::ptr_eq(old, &plan));
            *wanted = ScrapeLoopOrder::Run(plan);
            !is_same
        });
    }

    /// Sends an order to the task.
    pub(super) fn send_order(&self, wanted: ScrapeLoopOrder) {
        self.wanted.send_replace(wanted);
    }

    /// Returns whether the task has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until the task has ended.
    pub(super) async fn wait_until_finished(self) {
        if let Err(e) = self.task.await {
            warn!(error = %e, "scrape task failed");
        }
    }
}

struct ScrapeLoop {
    /// State between scrapes; `None` while a thread works on it.
    state: Option<ScrapeState>,
    plan: Arc<ScrapePlan>,
    status: Arc<TargetStatus>,
    wanted: watch::Receiver<ScrapeLoopOrder>,
    resources: Arc<ScrapeResources>,
    schedule_start: Option<TimestampMs>,
}

impl ScrapeLoop {
    async fn run_loop(mut self, offset: Duration) {
        let metrics = self.resources.pipeline.metrics();
        metrics.scrape_targets.add(1);
        let mut ticks = new_schedule(offset, self.plan.target.interval);
        loop {
            tokio::select! {
                biased;
                changed = self.wanted.changed() => {
                    let wanted = match changed {
                        Ok(()) => self.wanted.borrow_and_update().clone(),
                        // The handle was dropped, so that no further order can arrive.
                        Err(_) => ScrapeLoopOrder::EndSilently,
                    };
                    match wanted {
                        ScrapeLoopOrder::Run(plan) => self.apply_plan(plan, &mut ticks),
                        ScrapeLoopOrder::Leave => {
                            if !self.await_return(&mut ticks).await {
                                break;
                            }
                        }
                        ScrapeLoopOrder::EndMarked => {
                            self.end_series(self.resources.clock.now_ms()).await;
                            break;
                        }
                        ScrapeLoopOrder::EndSilently => break,
                    }
                }
                _ = ticks.tick() => self.scrape_once().await,
            }
        }
        metrics.scrape_targets.add(-1);
    }

    /// Applies a plan: restarts the schedule if the interval has changed, and reconfigures the
    /// state.
    fn apply_plan(&mut self, plan: Arc<ScrapePlan>, ticks: &mut Interval) {
        let old = std::mem::replace(&mut self.plan, plan);
        if old.target.interval != self.plan.target.interval {
            let now = self.resources.clock.now_ms();
            let offset = first_scrape_delay(&self.plan.target, now, self.resources.seed());
            *ticks = self::new_schedule(offset, self.plan.target.interval);
            self.schedule_start = None;
        }
        if let Some(state) = &mut self.state {
            state.reconfigure(self.plan.job.clone(), &self.plan.target);
        }
    }

    /// Waits for the target to return; returns whether it did. Otherwise, marks its series as stale
    /// at the time of the first skipped scrape.
    async fn await_return(&mut self, ticks: &mut Interval) -> bool {
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
        self.end_series(time).await;
        false
    }

    async fn scrape_once(&mut self) {
        let name = || "scrape".to_owned();
        let tracer = &self.resources.tracer;
        let mut span = tracer.start_trace(name, SpanKind::Internal, None);
        span.set_attribute("job", || self.plan.job.name.as_str());
        let time = self.scheduled_time();
        let started = self.resources.clock.monotonic();
        let fetched = match &self.plan.refusal {
            Some(refusal) => Err(Error::new(ErrorKind::Limited, refusal.clone())),
            None => {
                let mut wanted = self.wanted.clone();
                let stopped = async {
                    // An error means that the handle was dropped.
                    let stops =
                        |wanted: &ScrapeLoopOrder| !matches!(wanted, ScrapeLoopOrder::Run(_));
                    let _ = wanted.wait_for(stops).await;
                };
                tokio::select! {
                    biased;
                    () = stopped => return,
                    fetched = fetch_body(&self.plan, &span) => fetched,
                }
            }
        };
        if let Err(e) = &fetched {
            span.set_error(e);
            debug!(url = self.plan.target.url, error = %e, "scrape failed");
            if let Some(path) = &self.plan.job.failure_log_file {
                failure_log::append_failure(path.clone(), &self.plan, time, &e.message).await;
            }
        }
        self.store_scrape(fetched, time, started, &span).await;
    }

    /// Stores the result of the scrape at `time`, which started at the monotonic time `started`.
    async fn store_scrape(
        &mut self,
        fetched: Result<DecodedBody, Error>,
        time: TimestampMs,
        started: Duration,
        span: &TraceSpan,
    ) {
        let clock = self.resources.clock.clone();
        let take = move |state: &mut ScrapeState| {
            let elapsed = || clock.monotonic().saturating_sub(started);
            state.process_response(fetched, time, elapsed)
        };
        let took = self.append_built_batch(take, span);
        let Some((made, stored)) = took.await else {
            return;
        };
        let ScrapeResult {
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
            pipeline.count_dropped(&self.sample_sender(), &dropped);
            let (count, reason) = (dropped.sample_count, dropped.reason.as_str());
            self.set_warning(format!("{count} samples dropped: {reason}"));
        }
        let warning = self.status.last_scrape().warning;
        self.status.set_last(LastScrape {
            health: if outcome.is_ok() {
                TargetHealth::Up
            } else {
                TargetHealth::Down
            },
            error: outcome.err().map_or_else(String::new, |e| e.message),
            warning,
            time: Some(time),
            duration,
        });
    }

    async fn end_series(&mut self, time: TimestampMs) {
        if self.state.is_some() {
            let end = move |state: &mut ScrapeState| state.mark_all_stale(time);
            self.append_built_batch(end, &TraceSpan::default()).await;
        }
    }

    /// Creates a batch with `make` and stores it, on a thread that may block. Returns the result of
    /// `make`, and whether the store accepted the batch.
    async fn append_built_batch<T: Send + 'static>(
        &mut self,
        make: impl FnOnce(&mut ScrapeState) -> T + Send + 'static,
        span: &TraceSpan,
    ) -> Option<(T, Result<(), Error>)> {
        let mut state = match self.state.take() {
            Some(state) => state,
            None => self.new_scrape_state()?,
        };
        let (pipeline, tenant) = (
            self.resources.pipeline.clone(),
            self.plan.target.tenant.clone(),
        );
        let sender = self.sample_sender();
        let slot = self.resources.acquire_parse_permit().await;
        state.keep_exemplars(pipeline.can_store_exemplars());
        state.set_accepted_times(pipeline.first_sample_times(&tenant, &sender));
        let mut part = span.begin_child("scrapeAppend");
        let appending = spawn_blocking(move || {
            let made = make(&mut state);
            part.set_attribute("samples", || state.batch().sample_count());
            if !state.zeros().is_empty() {
                pipeline.append_optional(&tenant, &mut state.zeros());
            }
            let write = pipeline.append_from_sender(&tenant, sender, state.batch());
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
        let mut commit = span.begin_child("scrapeCommit");
        let written = write.await;
        if let Err(e) = &written {
            commit.set_error(e);
        }
        drop(commit);
        match written {
            Ok(appended) => {
                if let Some(complaint) = WriteOutcome::new(Vec::new(), &appended).error_text() {
                    self.set_warning(complaint);
                }
            }
            Err(e) => {
                let message = format!("failed to store the scrape: {e}");
                self.set_warning(message.clone());
                return Some((made, Err(Error::new(e.kind, message))));
            }
        }
        Some((made, Ok(())))
    }

    fn new_scrape_state(&self) -> Option<ScrapeState> {
        match MemoryShare::new(&self.resources.caches, "cache of series") {
            Ok(memory) => Some(ScrapeState::new(
                self.plan.job.clone(),
                &self.plan.target,
                self.status.clone(),
                self.resources.pipeline.limits().wire,
                memory,
            )),
            Err(e) => {
                self.set_warning(e.message);
                None
            }
        }
    }

    fn sample_sender(&self) -> SampleSender {
        SampleSender::Job(self.plan.job.name.as_str().into())
    }

    fn set_warning(&self, message: String) {
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
        if off.abs() <= tolerance {
            now - off
        } else {
            now
        }
    }
}

fn new_schedule(offset: Duration, interval: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + offset, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

async fn fetch_body(plan: &ScrapePlan, span: &TraceSpan) -> Result<DecodedBody, Error> {
    match timeout(plan.target.timeout, plan.fetch.start_fetch(span)).await {
        Ok(fetched) => fetched,
        Err(_) => {
            let message = format!("Get \"{}\": context deadline exceeded", plan.target.url);
            Err(Error::new(ErrorKind::Timeout, message))
        }
    }
}
