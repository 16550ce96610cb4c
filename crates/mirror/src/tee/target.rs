//! A target: what it is sent, its bounds, how it is reached, and what became of its bodies.

use super::bodies::Write;
use super::pace::{Pace, Tick};
use super::verdict::{Answer, Manner, Trouble};
use bytes::Bytes;
use firn_model::metrics::{Counter, DurationHistogram, Gauge};
use firn_model::sync::lock;
use firn_wire::remote_write::{Contents, Seams};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The answer of a target, or why there is none.
pub type Delivering<'a> = Pin<Box<dyn Future<Output = Result<Answer, String>> + Send + 'a>>;

/// An attempt to deliver a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Posting {
    /// Names are in lower case.
    pub headers: Vec<(&'static str, Bytes)>,
    /// The body.
    pub body: Bytes,
    /// What is in it.
    pub contents: Contents,
    /// Metrics of which it says what they are, and nothing else.
    pub metrics: u64,
    /// How many attempts there were before.
    pub attempt: u32,
}

/// Sends bodies to one target. Dropping what it returns ends the attempt.
pub trait Deliver: Send + Sync {
    /// Posts a request. Follows no redirect.
    fn post(&self, posting: Posting) -> Delivering<'_>;
}

/// A request for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Headers and body.
    pub write: Write,
    /// What it holds, as far as its maker looked; nothing where it is passed on as it came.
    pub contents: Contents,
    /// Where the bodies meet that it is made of.
    pub seams: Seams,
}

/// What a target gets of some bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Lanes of requests: they go side by side, those of one lane one after the other.
    Lanes(Vec<Vec<Request>>),
    /// Nothing.
    Nothing,
    /// They cannot be read, so that no choice can be made.
    Unreadable(String),
}

/// Bodies that are done with together, and what the target gets of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// How many bodies, one at least, that follow each other.
    pub bodies: usize,
    /// What the target gets.
    pub wanted: Wanted,
    /// What the target does not want.
    pub dropped: Contents,
    /// Whether more bodies would make no better one.
    pub is_full: bool,
}

/// Makes of bodies what a target gets. Computes; may be called on any thread.
pub trait Prepare: Send + Sync {
    /// Whether [`Prepare::prepare`] of these copies some bytes at most, so that it need not go to
    /// another thread.
    fn is_quick(&self, writes: &[&Write], is_behind: bool) -> bool;

    /// What the target gets of `writes`, whose messages may have `bytes_max` bytes each: parcels
    /// in their order, for all of them. One that `is_behind` is better off with several lanes.
    fn prepare(&self, writes: &[&Write], bytes_max: usize, is_behind: bool) -> Vec<Parcel>;
}

/// What a configuration says of a target.
#[derive(Clone)]
pub struct TargetSettings {
    /// By what its cursor is known from start to start: its name, or else its URL.
    pub key: String,
    /// What it is called in metrics and in the log: `host:port` unless that is another's too.
    pub label: String,
    /// Bytes that may wait for it.
    pub queue_bytes_max: u64,
    /// How long a body may wait for it, if that is bounded.
    pub queue_age_max: Option<Duration>,
    /// How old a sample may be, by its own time, if that is bounded.
    pub sample_age_max: Option<Duration>,
    /// What it is sent.
    pub prepare: Arc<dyn Prepare>,
    /// How long a body waits for others while its parcel is not full.
    pub fill: Duration,
    /// How long an attempt may take.
    pub timeout: Duration,
    /// The first wait after an attempt that failed; doubled with each further one.
    pub backoff_min: Duration,
    /// The longest one.
    pub backoff_max: Duration,
    /// How its answers are read.
    pub manner: Manner,
    /// How it is reached.
    pub deliver: Arc<dyn Deliver>,
}

/// Why a target never got a body: the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its queue was full.
    QueueFull,
    /// It waited for too long.
    TooOld,
    /// The target answered 4xx.
    Refused,
    /// Filters could not read it.
    Unreadable,
    /// The disk did not give it back.
    Damaged,
}

impl Loss {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::QueueFull,
        Self::TooOld,
        Self::Refused,
        Self::Unreadable,
        Self::Damaged,
    ];

    /// Its name in metrics.
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

/// Counts what requests held.
#[derive(Debug, Default)]
pub struct Tally {
    /// Float samples.
    pub samples: Counter,
    /// Histograms.
    pub histograms: Counter,
    /// Exemplars.
    pub exemplars: Counter,
}

impl Tally {
    /// Adds what one request holds.
    pub fn add(&self, contents: Contents) {
        self.samples.add(contents.samples);
        self.histograms.add(contents.histograms);
        self.exemplars.add(contents.exemplars);
    }
}

/// What was made of the bodies that were looked at last.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    bytes: u64,
    contents: Contents,
}

/// A target at work.
pub struct Target {
    /// What it is called in metrics and in the log.
    pub label: String,
    /// Where the next body begins that it needs.
    cursor: AtomicU64,
    /// Requests that it took.
    pub sent: Counter,
    /// Their bytes, as they were sent.
    pub sent_bytes: Counter,
    /// What they held.
    pub taken: Tally,
    /// What it does not want.
    pub dropped: Tally,
    /// What was too old to be sent, by its own time.
    pub too_old: Tally,
    /// What its full queue gave up, as far as that was noted.
    pub overflowed: Tally,
    /// What requests held that it refused, or did not say that it wrote.
    pub refused: Tally,
    /// Requests that it refused and got again in their parts.
    pub apart: Counter,
    /// What requests held that were sent again, each time.
    pub repeated: Tally,
    /// The time of the newest sample that it took, or refused for good.
    pub newest: Gauge,
    /// The time of the newest sample that was made ready for it.
    pub newest_ready: Gauge,
    /// Lanes of the newest parcel.
    pub lanes: Gauge,
    /// Bodies of which it wants nothing.
    pub filtered: Counter,
    lost: [Counter; Loss::ALL.len()],
    troubles: [Counter; Trouble::ALL.len()],
    /// Attempts that were answered, whatever the answer.
    pub latency: DurationHistogram,
    /// What they take of late, in microseconds.
    recent_us: AtomicU64,
    /// What requests took from their first attempt to their last, in microseconds.
    busy_us: AtomicU64,
    pace: Mutex<Pace>,
    looked: Mutex<Looked>,
    /// 1 while the newest attempt failed.
    pub is_failing: Gauge,
    /// When the oldest body came that waits for it, by the wall clock; 0 if none does.
    pub oldest_ms: Gauge,
}

/// How many attempts weigh in what they take of late.
const RECENT: u32 = 8;

impl Target {
    /// A target whose next body begins at `cursor`.
    pub fn new(label: String, cursor: u64) -> Self {
        Self {
            label,
            cursor: AtomicU64::new(cursor),
            sent: Counter::default(),
            sent_bytes: Counter::default(),
            taken: Tally::default(),
            dropped: Tally::default(),
            too_old: Tally::default(),
            overflowed: Tally::default(),
            refused: Tally::default(),
            apart: Counter::default(),
            repeated: Tally::default(),
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

    /// Where the next body begins that it needs.
    pub fn cursor(&self) -> u64 {
        self.cursor.load(Ordering::Acquire)
    }

    /// It needs nothing before `to` any more. Its courier alone says so.
    pub fn advance(&self, to: u64) {
        self.cursor.store(to, Ordering::Release);
    }

    /// Counts a request that it took, but for what is `missing` of it.
    pub fn count_taken(&self, request: &Request, missing: Contents) {
        self.sent.inc();
        self.sent_bytes.add(request.write.body.len() as u64);
        self.taken.add(request.contents.without(missing));
        self.refused.add(missing);
        self.newest.raise(request.contents.newest);
    }

    /// Counts a request that it refused for good: it is not behind by what that held.
    pub fn count_refused(&self, request: &Request) {
        self.count_lost(Loss::Refused, 1);
        self.refused.add(request.contents);
        self.newest.raise(request.contents.newest);
    }

    /// Notes how long an attempt took that was answered. Lanes that do so at once may each lose
    /// what the other noted, which does not matter.
    pub fn answered_after(&self, duration: Duration) {
        self.latency.observe(duration);
        let (known, new) = (self.recent(), duration);
        let recent = known * (RECENT - 1) / RECENT + new / RECENT;
        let micros = u64::try_from(recent.as_micros()).unwrap_or(u64::MAX);
        self.recent_us.store(micros, Ordering::Relaxed);
    }

    /// Notes that a request is done with, and how long that took.
    pub fn done_after(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.busy_us.fetch_add(micros, Ordering::Relaxed);
    }

    /// Notes what was made of so many bytes of bodies.
    pub fn looked_at(&self, bytes: u64, contents: Contents) {
        if contents.all_samples() > 0 {
            self.newest_ready.raise(contents.newest);
        }
        *lock(&self.looked) = Looked { bytes, contents };
    }

    /// What waits in so many bytes of bodies, if it is as what was looked at last.
    pub fn waiting(&self, bytes: u64) -> Contents {
        let Looked {
            bytes: looked,
            contents,
        } = *lock(&self.looked);
        let share = |count: u64| match looked {
            0 => 0,
            _ => (count as f64 * (bytes as f64 / looked as f64)).round() as u64,
        };
        Contents {
            samples: share(contents.samples),
            histograms: share(contents.histograms),
            exemplars: share(contents.exemplars),
            ..contents
        }
    }

    /// Looks at how fast bodies come, up to `end`, and how fast they go.
    pub fn keep_pace(&self, now: Duration, end: u64) {
        let now = Tick {
            at: now,
            end,
            cursor: self.cursor(),
            busy: Duration::from_micros(self.busy_us.load(Ordering::Relaxed)),
        };
        lock(&self.pace).tick(now);
    }

    /// Lanes that what comes and what waits ask for; none before that is known.
    pub fn lanes_desired(&self) -> Option<f64> {
        lock(&self.pace).desired
    }

    /// What an attempt takes of late.
    pub fn recent(&self) -> Duration {
        Duration::from_micros(self.recent_us.load(Ordering::Relaxed))
    }

    /// Counts bodies that it never gets.
    pub fn count_lost(&self, loss: Loss, bodies: u64) {
        self.lost[loss as usize].add(bodies);
    }

    /// Bodies that it never got.
    pub fn lost(&self, loss: Loss) -> u64 {
        self.lost[loss as usize].get()
    }

    /// Counts an attempt that is repeated.
    pub fn count_trouble(&self, trouble: Trouble) {
        self.troubles[trouble as usize].inc();
    }

    /// Attempts that were repeated.
    pub fn troubles(&self, trouble: Trouble) -> u64 {
        self.troubles[trouble as usize].get()
    }
}
