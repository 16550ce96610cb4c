//! Metric metadata for receivers of remote write: attached to the series in version 2.0, sent in
//! separate requests in version 1.0.
//!
//! The metadata table is rebuilt once per `send_interval`, not per request. It is not stored on
//! disk: a receiver that was unreachable gets it with the next interval.

use super::request::write;
use firn_config::config::remote_write::MetadataSettings;
use firn_model::env::Env;
use firn_model::metadata::MetricMetadata;
use firn_model::metrics::Counter;
use firn_model::sync::lock;
use firn_remote_write::RemoteWriteMetadata;
use firn_remote_write::queue::{PASSED_HEADERS, PostAttempt, ReceivedWrite, TargetSettings};
use firn_wire::remote_write::{RemoteWriteVersion, WriteRequestContents, encode_metadata};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// Function that collects the current metadata of all metrics from targets and pushes.
type Learn = Box<dyn Fn() -> RemoteWriteMetadata + Send + Sync>;

/// Delay of the first metadata request after the start, long enough for the first scrapes.
const FIRST: Duration = Duration::from_secs(20);

/// Maximum age of the table when another receiver needs it.
const FRESH: Duration = Duration::from_secs(10);

/// The metadata table shared by all receivers, and counters of sent metadata. It is empty until
/// [`SentMetadataTable::learn_by`] sets a source and a task refreshes it.
#[derive(Default)]
pub struct SentMetadataTable {
    learn: OnceLock<Learn>,
    known: Mutex<Arc<RemoteWriteMetadata>>,
    /// Time of the last refresh by the monotonic clock, or `None` before the first one.
    learned: Mutex<Option<Duration>>,
    /// Counters of sent metadata by the key of the receiver; entries are never removed.
    tallies: Mutex<BTreeMap<String, Arc<SentMetadataCounters>>>,
}

/// Counters of the metadata sent to one receiver, in numbers of metrics. Shown as Prometheus's
/// metadata metrics.
#[derive(Debug, Default)]
pub struct SentMetadataCounters {
    /// Metrics whose metadata the receiver has accepted.
    pub sent: Counter,
    /// Metrics whose metadata the receiver rejected, or that was not delivered within an interval.
    pub failed: Counter,
    /// Metrics whose metadata was sent again, counted once per attempt.
    pub retried: Counter,
    /// Bytes of the compressed requests that the receiver has accepted.
    pub bytes: Counter,
}

impl SentMetadataTable {
    /// Sets the function that collects metadata at each refresh. Later calls have no effect.
    pub fn learn_by(&self, learn: Learn) {
        // The parts of a process are connected once.
        let _ = self.learn.set(learn);
    }

    /// Returns the table of the last refresh, which is empty before the first one.
    pub fn current_table(&self) -> Arc<RemoteWriteMetadata> {
        lock(&self.known).clone()
    }

    /// Returns the counters of a receiver. They are kept when its settings change.
    pub fn counters_for(&self, key: &str) -> Arc<SentMetadataCounters> {
        let mut tallies = lock(&self.tallies);
        tallies.entry(key.to_owned()).or_default().clone()
    }

    /// Rebuilds the table if it is older than [`FRESH`]. Iterates over all targets.
    fn refresh(&self, env: &Env) {
        let now = env.clock.monotonic();
        let mut learned = lock(&self.learned);
        if learned.is_some_and(|at| now.saturating_sub(at) < FRESH) {
            return;
        }
        let Some(learn) = self.learn.get() else {
            return;
        };
        let known = Arc::new(learn());
        *lock(&self.known) = known;
        *learned = Some(now);
    }
}

/// Task that refreshes the metadata table and sends it to one receiver. Started for each receiver
/// that is configured to get metadata.
pub struct MetadataSenderTask {
    /// The metadata table, shared with the tasks of other receivers.
    pub said: Arc<SentMetadataTable>,
    /// Counters that this task updates.
    pub tally: Arc<SentMetadataCounters>,
    /// Interval of the task, and maximum number of metrics per request.
    pub metadata: MetadataSettings,
    /// Connection, timeout and retry settings of the receiver.
    pub settings: TargetSettings,
    /// Remote-write version that the receiver expects, which determines how metadata is sent.
    pub version: RemoteWriteVersion,
    /// Environment with the clock that determines the age of the table.
    pub env: Env,
}

impl MetadataSenderTask {
    /// Refreshes the table and sends it to the receiver once per interval, until the task is
    /// dropped. For version 2.0 it only refreshes the table.
    pub async fn run(self) {
        let mut pause = FIRST.min(self.metadata.interval);
        loop {
            sleep(pause).await;
            pause = self.metadata.interval;
            let (said, env) = (self.said.clone(), self.env.clone());
            let learned = spawn_blocking(move || said.refresh(&env));
            if learned.await.is_ok() && self.version == RemoteWriteVersion::V1 {
                self.send_metadata().await;
            }
        }
    }

    async fn send_metadata(&self) {
        let known = self.said.current_table();
        let all: Vec<MetricMetadata<'_>> = known.iter().collect();
        for some in all.chunks(self.metadata.request_metrics) {
            let body = encode_metadata(some.iter().copied());
            self.post(
                some.len() as u64,
                write(RemoteWriteVersion::V1, body.into()),
            )
            .await;
        }
    }

    /// Posts the metadata of `metrics` metrics, and retries until the next interval is due.
    async fn post(&self, metrics: u64, write: ReceivedWrite) {
        let settings = &self.settings;
        let begun = tokio::time::Instant::now();
        let mut pause = settings.backoff_min;
        let mut attempt = 0;
        loop {
            let named = write.headers.iter();
            let named =
                named.filter_map(|(at, text)| Some((*PASSED_HEADERS.get(*at)?, text.clone())));
            let posting = settings.deliver.post(PostAttempt {
                headers: named.collect(),
                body: write.body.clone(),
                contents: WriteRequestContents::default(),
                metrics,
                attempt,
            });
            attempt += 1;
            let why = match timeout(settings.timeout, posting).await {
                Ok(Ok(answer)) if answer.status / 100 == 2 => {
                    self.tally.sent.add(metrics);
                    self.tally.bytes.add(write.body.len() as u64);
                    return;
                }
                Ok(Ok(answer)) => {
                    let is_final = answer.status / 100 == 4 && answer.status != 429;
                    let why = format!("status {}: {}", answer.status, answer.text.trim());
                    if is_final {
                        return self.fail(metrics, &why);
                    }
                    why
                }
                Ok(Err(why)) => why,
                Err(_) => format!("no answer in {:?}", settings.timeout),
            };
            if begun.elapsed() + pause > self.metadata.interval {
                return self.fail(metrics, &why);
            }
            self.tally.retried.add(metrics);
            sleep(pause).await;
            pause = (pause * 2).min(settings.backoff_max);
        }
    }

    fn fail(&self, metrics: u64, why: &str) {
        self.tally.failed.add(metrics);
        let to = &self.settings.label;
        warn!(
            to,
            error = why,
            metrics,
            "failed to send metric metadata to the receiver"
        );
    }
}
