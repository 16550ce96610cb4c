//! A target: its configuration, the requests that it receives, and the metrics of their delivery.

use super::bodies::ReceivedWrite;
use super::pace::{TargetProgress, TargetRates};
use super::verdict::{DeliveryMode, RetryReason, TargetResponse};
use bytes::Bytes;
use firn_model::metrics::{Counter, DurationHistogram, Gauge};
use firn_model::sync::lock;
use firn_wire::remote_write::{MergedRequestBounds, WriteRequestContents};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A future with the response of a target, or the reason why there is none.
pub type Delivering<'a> = Pin<Box<dyn Future<Output = Result<TargetResponse, String>> + Send + 'a>>;

/// An attempt to deliver a request, as it is passed to the transport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostAttempt {
    /// Headers of the stored request, with names in lower case.
    pub headers: Vec<(&'static str, Bytes)>,
    /// The compressed request body as it is sent.
    pub body: Bytes,
    /// Counts of its contents; all zero if it was not decoded.
    pub contents: WriteRequestContents,
    /// Number of metrics for which the request contains metadata; it contains nothing else then.
    pub metrics: u64,
    /// Number of earlier attempts with this request.
    pub attempt: u32,
}

/// Transport that sends requests to one target over HTTP, implemented by the caller. Dropping a
/// returned future cancels the attempt.
pub trait DeliveryTransport: Send + Sync {
    /// Posts a request and returns its response without following redirects.
    fn post(&self, posting: PostAttempt) -> Delivering<'_>;
}

/// A request for a target, made from one or several bodies by [`RequestPreparer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Headers and body of the request, in the format of the log.
    pub write: ReceivedWrite,
    /// Counts of its contents; all zero for a request that is forwarded without being decoded.
    pub contents: WriteRequestContents,
    /// Boundaries of the bodies from which it was made.
    pub seams: MergedRequestBounds,
}

/// The part of some bodies that a target receives, as [`RequestPreparer`] determines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedBodies {
    /// Lanes of requests. Lanes are sent in parallel, and the requests of a lane one after the
    /// other.
    Lanes(Vec<Vec<Request>>),
    /// No series is selected, so that the bodies are completed without a request.
    Nothing,
    /// The bodies cannot be decoded, so that no series can be selected.
    Unreadable(String),
}

/// Consecutive bodies that are completed together, and the requests that are made from them. The
/// cursor moves only after all of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestParcel {
    /// Number of bodies that the parcel consists of; at least one.
    pub bodies: usize,
    /// The requests for the target, or the reason why there are none.
    pub wanted: WantedBodies,
    /// Counts of the contents that the target does not want.
    pub dropped: WriteRequestContents,
    /// Whether waiting for further bodies has no advantage, because requests are full.
    pub is_full: bool,
}

/// Prepares requests from bodies for one target. Implementations do no I/O and may be called on any
/// thread.
pub trait RequestPreparer: Send + Sync {
    /// Returns whether [`RequestPreparer::prepare`] for these bodies copies only some bytes, so
    /// that it can run on the current thread.
    fn is_quick(&self, writes: &[&ReceivedWrite], is_behind: bool) -> bool;

    /// Prepares parcels for all of `writes`, in their order. Each message may have at most
    /// `bytes_max` bytes. `is_behind` is set for a target with a backlog, which benefits from
    /// several lanes.
    fn prepare(
        &self,
        writes: &[&ReceivedWrite],
        bytes_max: usize,
        is_behind: bool,
    ) -> Vec<RequestParcel>;
}

/// Configuration of a target, which [`super::Mirror::apply`] may replace while the target runs.
#[derive(Clone)]
pub struct TargetSettings {
    /// Identifier of its cursor across restarts: its name, or else its URL.
    pub key: String,
    /// Name in metrics and logs: `host:port`, unless another target has the same.
    pub label: String,
    /// Maximum size of its queue in bytes, beyond which the oldest bodies are dropped.
    pub queue_bytes_max: u64,
    /// Maximum time that a body may be queued; `None` for no limit.
    pub queue_age_max: Option<Duration>,
    /// Maximum age of samples by their timestamps; `None` for no limit.
    pub sample_age_max: Option<Duration>,
    /// Selects and prepares the series that it receives, on the CPU only.
    pub prepare: Arc<dyn RequestPreparer>,
    /// Maximum time that a body waits for further ones to fill a parcel.
    pub fill: Duration,
    /// Timeout of an attempt, after which it is repeated.
    pub timeout: Duration,
    /// Pause after the first failed attempt, which is doubled after each further one.
    pub backoff_min: Duration,
    /// Maximum pause between attempts, at which doubling ends.
    pub backoff_max: Duration,
    /// How its response statuses are interpreted, forwarder or sender.
    pub manner: DeliveryMode,
    /// Transport over which its requests are sent.
    pub deliver: Arc<dyn DeliveryTransport>,
}

/// Reason why a target never received a body; used as a label of the metric of lost bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLossReason {
    /// The queue exceeded its maximum size, and this body was the oldest.
    QueueFull,
    /// The body was queued for longer than the limit permits.
    TooOld,
    /// The target rejected it for good, in most cases with a 4xx status.
    Refused,
    /// The body could not be decoded to apply the filters.
    Unreadable,
    /// The body could not be read from disk, or was damaged there.
    Damaged,
}

impl BodyLossReason {
    /// All reasons, in the order of the metric's series.
    pub const ALL: [Self; 5] = [
        Self::QueueFull,
        Self::TooOld,
        Self::Refused,
        Self::Unreadable,
        Self::Damaged,
    ];

    /// Returns the value of the metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::TooOld => "too_old",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
            Self::Damaged => "damaged",
        }
    }
}

/// Counters for the contents of requests, by the kinds of data that remote write counts.
#[derive(Debug, Default)]
pub struct RequestContentCounters {
    /// Number of float samples in these requests.
    pub samples: Counter,
    /// Number of native histograms in these requests.
    pub histograms: Counter,
    /// Number of exemplars in these requests.
    pub exemplars: Counter,
}

impl RequestContentCounters {
    /// Adds the counts of one request, ignoring metadata.
    pub fn add(&self, contents: WriteRequestContents) {
        self.samples.add(contents.samples);
        self.histograms.add(contents.histograms);
        self.exemplars.add(contents.exemplars);
    }
}

/// Length and contents of the bodies that were prepared last, from which the backlog is estimated.
#[derive(Clone, Copy, Debug, Default)]
struct PreparedContents {
    bytes: u64,
    contents: WriteRequestContents,
}

/// A running target with its cursor and metrics, shared by its courier, the log and scrapes.
pub struct DeliveryTarget {
    /// Name of the target in metrics and logs.
    pub label: String,
    /// Position of the next body that it needs; moved only by its courier.
    cursor: AtomicU64,
    /// Number of requests that it accepted with 2xx.
    pub sent: Counter,
    /// Total length of the accepted bodies as sent, compressed.
    pub sent_bytes: Counter,
    /// Contents of accepted requests, without those that it did not report as written.
    pub taken: RequestContentCounters,
    /// Contents that were filtered out before sending.
    pub dropped: RequestContentCounters,
    /// Contents that were too old by their timestamps and not sent.
    pub too_old: RequestContentCounters,
    /// Contents of bodies dropped from a full queue, for bodies that were stored with counts.
    pub overflowed: RequestContentCounters,
    /// Contents that it rejected or did not report as written.
    pub refused: RequestContentCounters,
    /// Number of rejected requests that were sent again in parts.
    pub apart: Counter,
    /// Contents of requests that were repeated, counted for each repetition.
    pub repeated: RequestContentCounters,
    /// Timestamp of the newest sample that it accepted or rejected for good.
    pub newest: Gauge,
    /// Timestamp of the newest sample that was prepared for it.
    pub newest_ready: Gauge,
    /// Number of lanes of the parcel that was sent last.
    pub lanes: Gauge,
    /// Number of bodies without selected series, which were not sent.
    pub filtered: Counter,
    lost: [Counter; BodyLossReason::ALL.len()],
    troubles: [Counter; RetryReason::ALL.len()],
    /// Duration of attempts that received a response, whatever its status.
    pub latency: DurationHistogram,
    /// Moving average of the duration of these attempts in microseconds.
    recent_us: AtomicU64,
    /// Total time from the first to the last attempt of all requests, in microseconds.
    busy_us: AtomicU64,
    pace: Mutex<TargetRates>,
    looked: Mutex<PreparedContents>,
    /// 1 if the newest attempt failed, otherwise 0.
    pub is_failing: Gauge,
    /// Wall-clock arrival time of the oldest queued body; 0 if the queue is empty.
    pub oldest_ms: Gauge,
}

/// Number of attempts over which the recent duration is averaged.
const RECENT: u32 = 8;

impl DeliveryTarget {
    /// Creates a target whose next body begins at `cursor`.
    pub fn new(label: String, cursor: u64) -> Self {
        Self {
            label,
            cursor: AtomicU64::new(cursor),
            sent: Counter::default(),
            sent_bytes: Counter::default(),
            taken: RequestContentCounters::default(),
            dropped: RequestContentCounters::default(),
            too_old: RequestContentCounters::default(),
            overflowed: RequestContentCounters::default(),
            refused: RequestContentCounters::default(),
            apart: Counter::default(),
            repeated: RequestContentCounters::default(),
            newest: Gauge::default(),
            newest_ready: Gauge::default(),
            lanes: Gauge::default(),
            filtered: Counter::default(),
            lost: Default::default(),
            troubles: Default::default(),
            latency: DurationHistogram::default(),
            recent_us: AtomicU64::new(0),
            busy_us: AtomicU64::new(0),
            pace: Mutex::default(),
            looked: Mutex::default(),
            is_failing: Gauge::default(),
            oldest_ms: Gauge::default(),
        }
    }

    /// Returns the position of the next body that it needs.
    pub fn cursor(&self) -> u64 {
        self.cursor.load(Ordering::Acquire)
    }

    /// Moves the cursor to `to`, before which the target needs nothing. Called only by its courier.
    pub fn advance(&self, to: u64) {
        self.cursor.store(to, Ordering::Release);
    }

    /// Counts an accepted request, except for the contents that are `missing`.
    pub fn count_taken(&self, request: &Request, missing: WriteRequestContents) {
        self.sent.inc();
        self.sent_bytes.add(request.write.body.len() as u64);
        self.taken.add(request.contents.without(missing));
        self.refused.add(missing);
        self.newest.set_max(request.contents.newest);
    }

    /// Counts a request that was rejected for good. Its samples do not count as backlog.
    pub fn count_refused(&self, request: &Request) {
        self.count_lost(BodyLossReason::Refused, 1);
        self.refused.add(request.contents);
        self.newest.set_max(request.contents.newest);
    }

    /// Records the duration of an attempt that received a response. Parallel lanes may overwrite
    /// each other's update of the recent duration, which is harmless.
    pub fn record_attempt_duration(&self, duration: Duration) {
        self.latency.observe(duration);
        let (known, new) = (self.recent(), duration);
        let recent = known * (RECENT - 1) / RECENT + new / RECENT;
        let micros = u64::try_from(recent.as_micros()).unwrap_or(u64::MAX);
        self.recent_us.store(micros, Ordering::Relaxed);
    }

    /// Records the total duration of a request with all its attempts, whether it was completed or
    /// not.
    pub fn record_request_duration(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.busy_us.fetch_add(micros, Ordering::Relaxed);
    }

    /// Records the contents of the bodies that were prepared last, and their length in bytes.
    pub fn record_prepared(&self, bytes: u64, contents: WriteRequestContents) {
        if contents.all_samples() > 0 {
            self.newest_ready.set_max(contents.newest);
        }
        *lock(&self.looked) = PreparedContents { bytes, contents };
    }

    /// Estimates the contents of `bytes` queued bytes from the bodies that were prepared last.
    pub fn waiting(&self, bytes: u64) -> WriteRequestContents {
        let PreparedContents {
            bytes: looked,
            contents,
        } = *lock(&self.looked);
        let share = |count: u64| match looked {
            0 => 0,
            _ => (count as f64 * (bytes as f64 / looked as f64)).round() as u64,
        };
        WriteRequestContents {
            samples: share(contents.samples),
            histograms: share(contents.histograms),
            exemplars: share(contents.exemplars),
            ..contents
        }
    }

    /// Updates the rates at which bodies arrive, up to the position `end`, and are delivered.
    pub fn keep_pace(&self, now: Duration, end: u64) {
        let now = TargetProgress {
            at: now,
            end,
            cursor: self.cursor(),
            busy: Duration::from_micros(self.busy_us.load(Ordering::Relaxed)),
        };
        lock(&self.pace).tick(now);
    }

    /// Returns the number of lanes that incoming bodies and backlog require, or `None` before the
    /// first estimate.
    pub fn desired_lanes(&self) -> Option<f64> {
        lock(&self.pace).desired
    }

    /// Returns the moving average of the duration of an attempt; zero before the first.
    pub fn recent(&self) -> Duration {
        Duration::from_micros(self.recent_us.load(Ordering::Relaxed))
    }

    /// Counts bodies that the target never receives, by reason.
    pub fn count_lost(&self, loss: BodyLossReason, bodies: u64) {
        self.lost[loss as usize].add(bodies);
    }

    /// Returns the number of bodies that the target never received for this reason.
    pub fn lost_bodies(&self, loss: BodyLossReason) -> u64 {
        self.lost[loss as usize].get()
    }

    /// Counts a failed attempt that is repeated, by reason.
    pub fn count_trouble(&self, trouble: RetryReason) {
        self.troubles[trouble as usize].inc();
    }

    /// Returns the number of attempts that failed for this reason and were repeated.
    pub fn repeated_attempts(&self, trouble: RetryReason) -> u64 {
        self.troubles[trouble as usize].get()
    }
}
