//! Scraping: fetching what a target exposes, at fixed times, into the store.
//!
//! ```text
//! timer -> Fetch -> ScrapeState (parse, staleness, report) -> one batch -> Pipeline::append
//! ```
//!
//! [`Scraper`] owns the task of one target; [`ScrapeState`] is what it remembers from scrape to
//! scrape, and pure. The semantics are those of Prometheus's scrape loop: a series that vanishes
//! gets a staleness marker, a failed scrape makes all of them vanish, and five series report on the
//! scrape itself.
//!
//! Invariant: a scrape is one batch, so that a query sees all of it or nothing; scrapes of one
//! target never overlap.

mod state;
#[cfg(test)]
mod tests;

pub use state::ScrapeState;

use crate::pipeline::Pipeline;
use firn_model::env::Clock;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;
use firn_model::tenant::TenantId;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{debug, warn};

/// How often Firn scrapes itself: often enough that a first look at the page shows a curve within a
/// minute, at a cost of some hundred samples.
pub const SELF_SCRAPE_INTERVAL: Duration = Duration::from_secs(5);

/// How targets know who asks.
pub(crate) const USER_AGENT: &str = concat!("Firn/", env!("CARGO_PKG_VERSION"));

/// How far a scrape's time may be moved onto the schedule. Equal steps between timestamps compress
/// to almost nothing, and timers are late by a millisecond; Prometheus does the same.
const ALIGNMENT_MS_MAX: i64 = 2;

/// A fetch under way.
pub type Fetching<'f> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>> + Send + 'f>>;

/// Gets the exposition of a target: over HTTP, or from this process itself. It bounds the size of
/// what it returns; timeouts are the caller's, who drops the future.
pub trait Fetch: Send + Sync {
    /// Asks once.
    fn fetch(&self) -> Fetching<'_>;
}

/// What to scrape, and how.
#[derive(Clone, Debug)]
pub struct Target {
    /// Whose data it becomes.
    pub tenant: TenantId,
    /// Labels that every series gets, `job` and `instance` among them.
    pub labels: Labels,
    /// Time from scrape to scrape.
    pub interval: Duration,
    /// The longest that a fetch may take.
    pub timeout: Duration,
    /// Whether scraped labels win over the target's.
    pub honor_labels: bool,
    /// Whether times in the exposition count.
    pub honor_timestamps: bool,
}

impl Target {
    /// This process as a target: job `firn`, and `instance` is where it listens.
    pub fn itself(instance: &str) -> Self {
        Self {
            tenant: TenantId::anonymous(),
            labels: Labels::from_pairs([("job", "firn"), ("instance", instance)]),
            interval: SELF_SCRAPE_INTERVAL,
            timeout: SELF_SCRAPE_INTERVAL,
            honor_labels: false,
            honor_timestamps: true,
        }
    }
}

/// The task that scrapes one target until it is stopped.
#[derive(Debug)]
#[must_use = "the task ends when this is dropped"]
pub struct Scraper {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Scraper {
    /// Starts scraping, at once and then at every interval. Must be called inside a tokio runtime.
    pub fn start(
        target: Target,
        fetch: Arc<dyn Fetch>,
        pipeline: Arc<Pipeline>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let scrape_loop = ScrapeLoop {
            state: ScrapeState::new(&target, pipeline.limits().wire),
            target,
            fetch,
            pipeline,
            clock,
            schedule_start: None,
        };
        Self {
            stop,
            task: tokio::spawn(scrape_loop.run(stopped)),
        }
    }

    /// Stops scraping and waits until the staleness markers of the target's series are stored.
    pub async fn stop(self) {
        // The task may have ended already; then nobody listens, and nothing is left to stop.
        let _ = self.stop.send(());
        if let Err(e) = self.task.await {
            warn!(error = %e, "scrape task did not end well");
        }
    }
}

struct ScrapeLoop {
    target: Target,
    state: ScrapeState,
    fetch: Arc<dyn Fetch>,
    pipeline: Arc<Pipeline>,
    clock: Arc<dyn Clock>,
    schedule_start: Option<TimestampMs>,
}

impl ScrapeLoop {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let metrics = self.pipeline.metrics();
        metrics.scrape_targets.add(1);
        let mut ticks = interval(self.target.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                _ = ticks.tick() => {}
            }
            let time = self.scheduled_time();
            let started = self.clock.monotonic();
            // A stop ends a fetch, whose samples are not in the store yet, but waits for an append:
            // staleness markers come after the samples.
            let fetched = tokio::select! {
                biased;
                _ = &mut stopped => break,
                fetched = self.fetch() => fetched,
            };
            self.store(fetched, time, started).await;
        }
        self.end().await;
        metrics.scrape_targets.add(-1);
    }

    async fn fetch(&self) -> Result<Vec<u8>, Error> {
        match timeout(self.target.timeout, self.fetch.fetch()).await {
            Ok(fetched) => fetched,
            Err(_) => {
                let message = format!("scrape timed out after {:?}", self.target.timeout);
                Err(Error::new(ErrorKind::Timeout, message))
            }
        }
    }

    /// Stores what came of the scrape at `time` that began when the clock stood at `started`.
    async fn store(
        &mut self,
        fetched: Result<Vec<u8>, Error>,
        time: TimestampMs,
        started: Duration,
    ) {
        let duration = self.clock.monotonic().saturating_sub(started);
        let outcome = self.state.take(fetched, time, duration);
        let metrics = self.pipeline.metrics();
        match &outcome {
            Ok(()) => metrics.scrapes_succeeded.inc(),
            Err(e) => {
                metrics.scrapes_failed.inc();
                debug!(target = %self.target.labels, error = %e, "scrape failed");
            }
        }
        self.append().await;
    }

    async fn end(&mut self) {
        self.state.end(self.clock.now_ms());
        self.append().await;
    }

    /// Stores the batch, on a thread that may wait for the store's locks.
    async fn append(&mut self) {
        let (pipeline, tenant) = (self.pipeline.clone(), self.target.tenant.clone());
        let batch = self.state.lend_batch();
        let appending = spawn_blocking(move || (pipeline.append(&tenant, &batch), batch));
        let (write, batch) = match appending.await {
            Ok(appended) => appended,
            Err(e) => {
                warn!(target = %self.target.labels, error = %e, "scrape not stored");
                return;
            }
        };
        self.state.give_back(batch);
        match write.await {
            Ok(outcome) => {
                if let Some(complaint) = outcome.complaint() {
                    debug!(target = %self.target.labels, %complaint, "scraped samples dropped");
                }
            }
            Err(e) => warn!(target = %self.target.labels, error = %e, "scrape not stored"),
        }
    }

    /// Now, or the time on the schedule if that is as good as now.
    fn scheduled_time(&mut self) -> TimestampMs {
        let now = self.clock.now_ms();
        let start = *self.schedule_start.get_or_insert(now);
        let step = self.target.interval.as_millis().max(1) as i64;
        let off = (now - start + step / 2).rem_euclid(step) - step / 2;
        let tolerance = ALIGNMENT_MS_MAX.min(step / 100);
        match off.abs() <= tolerance {
            true => now - off,
            false => now,
        }
    }
}
