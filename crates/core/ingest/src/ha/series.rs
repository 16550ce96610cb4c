//! Selects the samples of one series that are sent by several replicas.
//!
//! ```text
//!      distance of a sample to the last stored one, in scrape intervals
//! 0        0.31             0.6                      1.5
//! |-refused-|---------- stored, if of the owner ------------------->
//! |-refused-|------ held ----|----- stored, if there is no owner --->
//! |-refused-|------------- held ----------------------|-- stored, if of another replica, which
//!                                                         owns the series from now on
//! ```
//!
//! The replica whose sample was stored last owns the series. Samples of other replicas are held
//! until the next stored sample shows whether one of them was missing: a distance of more than 1.5
//! intervals is filled with them. After a restart, and after a staleness marker, there is no owner.
//!
//! Old samples are stored only if they fill a gap. This is how a disconnected replica delivers its
//! backlog.
//!
//! Invariants: two stored samples are at least [`NEAR_PERCENT`] of an interval apart, except for
//! repetitions of the newest one. Memory is bounded by [`HELD_MAX`], [`GAPS_MAX`] and
//! [`REPLICA_TRACES`].

use super::interval::ScrapeInterval;
use firn_model::batch::{Batch, HistogramSample};
use firn_model::sample::{START_UNKNOWN, TimestampMs, is_stale};

/// Minimum distance of stored samples, as a percentage of the interval. The guarantee is 30; the
/// rest allows for the error of the estimate.
const NEAR_PERCENT: i64 = 31;

/// Minimum distance of a sample that makes its replica the owner of a series without one. Half an
/// interval, and some jitter: the replica whose next sample is nearer is preferred.
const OWNERLESS_PERCENT: i64 = 60;

/// Distance above which a sample is missing. The guarantee is that no gap exceeds 1.6 intervals;
/// the rest allows for the error of the estimate.
const WIDE_PERCENT: i64 = 150;

/// Maximum number of held samples. Two replicas have at most two within a wide distance.
const HELD_MAX: usize = 4;

/// Maximum number of recorded gaps of a series; older ones are not filled any more.
const GAPS_MAX: usize = 16;

/// Number of replicas whose distances between samples are measured.
const REPLICA_TRACES: usize = 3;

/// Number of a replica within its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaNumber(pub(super) u8);

/// Value of a sample that a replica sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OfferedValue<'a> {
    /// A float with its start timestamp.
    Float {
        /// The value.
        value: f64,
        /// Start timestamp of the counter, or [`START_UNKNOWN`].
        start_time: TimestampMs,
    },
    /// A native histogram.
    Histogram(&'a HistogramSample),
}

impl OfferedValue<'_> {
    fn is_stale(self) -> bool {
        match self {
            OfferedValue::Float { value, .. } => is_stale(value),
            OfferedValue::Histogram(sample) => is_stale(sample.histogram.sum),
        }
    }
}

/// A sample that is stored if the replica that owns the series misses one.
#[derive(Clone, Debug)]
pub(crate) struct HeldSample {
    /// Timestamp in milliseconds.
    pub(crate) time: TimestampMs,
    value: HeldValue,
}

#[derive(Clone, Debug)]
enum HeldValue {
    Float { value: f64, start_time: TimestampMs },
    Histogram(Box<HistogramSample>),
}

impl HeldSample {
    fn new(time: TimestampMs, value: OfferedValue<'_>) -> Self {
        let value = match value {
            OfferedValue::Float { value, start_time } => HeldValue::Float { value, start_time },
            OfferedValue::Histogram(sample) => HeldValue::Histogram(Box::new(sample.clone())),
        };
        Self { time, value }
    }

    /// Adds the sample to the current series of a batch.
    pub(crate) fn push_to(self, batch: &mut Batch) {
        match self.value {
            HeldValue::Float { value, start_time } if start_time == START_UNKNOWN => {
                batch.push_float(self.time, value);
            }
            HeldValue::Float { value, start_time } => {
                batch.push_float_with_start(self.time, value, start_time);
            }
            HeldValue::Histogram(sample) => batch.push_histogram(*sample),
        }
    }
}

/// The time between two stored samples, in which samples may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SampleGap {
    from: TimestampMs,
    to: TimestampMs,
}

/// Newest sample of a replica, stored or not.
#[derive(Clone, Copy, Debug)]
struct ReplicaTrace {
    replica: ReplicaNumber,
    newest: TimestampMs,
}

/// The part of the state that a failed append restores. Taken before the samples of a batch are
/// offered.
#[derive(Clone, Debug)]
pub(super) struct HaSeriesMark {
    last: TimestampMs,
    owner: Option<ReplicaNumber>,
    gaps: Vec<SampleGap>,
}

/// Limits of the distance between a sample and the last stored one, in milliseconds.
struct DistanceLimits {
    near: i64,
    ownerless: i64,
    wide: i64,
}

/// State of one series of a cluster of replicas. Created with the first sample of the series, or
/// from the newest samples of the store.
#[derive(Clone, Debug)]
pub(super) struct HaSeries {
    last: TimestampMs,
    owner: Option<ReplicaNumber>,
    interval: ScrapeInterval,
    traces: [Option<ReplicaTrace>; REPLICA_TRACES],
    /// Samples after `last`, by time. Older ones are removed with the next change.
    held: Vec<HeldSample>,
    /// By time.
    gaps: Vec<SampleGap>,
}

impl HaSeries {
    /// Creates a series without samples, whose first sample is stored.
    pub(super) fn new() -> Self {
        Self {
            last: TimestampMs::MIN,
            owner: None,
            interval: ScrapeInterval::default(),
            traces: [None; REPLICA_TRACES],
            held: Vec::new(),
            gaps: Vec::new(),
        }
    }

    /// Creates a series from its newest stored sample and, if known, the time of the one before.
    pub(super) fn from_stored(newest: TimestampMs, before: Option<TimestampMs>) -> Self {
        let mut series = Self::new();
        series.last = newest;
        if let Some(before) = before {
            series.interval.add_distance(newest.saturating_sub(before));
        }
        series
    }

    /// Returns the newest time of a sample, stored or not.
    pub(super) fn newest(&self) -> TimestampMs {
        let traces = self.traces.iter().flatten().map(|trace| trace.newest);
        traces.fold(self.last, TimestampMs::max)
    }

    /// Returns the estimated interval of the series in milliseconds.
    pub(super) fn interval_ms(&self) -> Option<i64> {
        self.interval.estimate_ms()
    }

    /// Returns the replica whose samples are stored.
    pub(super) fn owner(&self) -> Option<ReplicaNumber> {
        self.owner
    }

    /// Returns whether a sample of `replica` at `time` is stored. Appends held samples that must be
    /// stored before it to `released`, in order of time.
    pub(super) fn offer(
        &mut self,
        replica: ReplicaNumber,
        time: TimestampMs,
        value: OfferedValue<'_>,
        released: &mut Vec<HeldSample>,
    ) -> bool {
        self.trace(replica, time);
        if self.last == TimestampMs::MIN {
            self.store(replica, time, value);
            return true;
        }
        if time <= self.last {
            return self.offer_old(replica, time);
        }
        let distance = time.saturating_sub(self.last);
        let is_owner = self.owner == Some(replica);
        let Some(limits) = self.limits() else {
            if is_owner {
                self.store(replica, time, value);
            } else {
                self.hold(time, value);
            }
            return is_owner;
        };
        let is_stored = match self.owner {
            Some(_) if is_owner => distance >= limits.near,
            Some(_) => distance > limits.wide,
            None => distance >= limits.ownerless,
        };
        if is_stored {
            self.fill_to(time, &limits, released);
            self.store(replica, time, value);
        } else if distance >= limits.near {
            self.hold(time, value);
        }
        is_stored
    }

    /// Returns whether a sample that is not newer than the last stored one is stored: a repetition
    /// of the last one by the owner, or a sample in a gap.
    fn offer_old(&mut self, replica: ReplicaNumber, time: TimestampMs) -> bool {
        if time == self.last {
            return self.owner == Some(replica);
        }
        let Some(limits) = self.limits() else {
            return false;
        };
        let is_around = |gap: &SampleGap| gap.from < time && time < gap.to;
        let Some(at) = self.gaps.iter().position(is_around) else {
            return false;
        };
        let gap = self.gaps[at];
        let (after, before) = (time - gap.from, gap.to - time);
        if gap.to - gap.from <= limits.wide || after < limits.near || before < limits.near {
            return false;
        }
        let parts = [
            SampleGap { to: time, ..gap },
            SampleGap { from: time, ..gap },
        ];
        let wide = parts
            .into_iter()
            .filter(|gap| gap.to - gap.from > limits.wide);
        self.gaps.splice(at..=at, wide);
        true
    }

    fn store(&mut self, replica: ReplicaNumber, time: TimestampMs, value: OfferedValue<'_>) {
        self.last = time;
        // After a staleness marker the replica does not scrape the target any more.
        self.owner = Some(replica).filter(|_| !value.is_stale());
    }

    /// Fills the time between the last stored sample and `time` with held samples if it is wide,
    /// and records the gaps that remain.
    fn fill_to(
        &mut self,
        time: TimestampMs,
        limits: &DistanceLimits,
        released: &mut Vec<HeldSample>,
    ) {
        let mut from = self.last;
        while time.saturating_sub(from) > limits.wide {
            let fits = |held: &&HeldSample| {
                held.time - from >= limits.near && time - held.time >= limits.near
            };
            let near = self.held.iter().rev().filter(fits);
            let mut near = near.filter(|held| held.time - from <= limits.wide);
            let next = near.next().or_else(|| self.held.iter().find(fits));
            let to = next.map_or(time, |held| held.time);
            released.extend(next.cloned());
            if to - from > limits.wide {
                self.record_gap(from, to);
            }
            from = to;
        }
    }

    fn record_gap(&mut self, from: TimestampMs, to: TimestampMs) {
        if self.gaps.len() == GAPS_MAX {
            self.gaps.remove(0);
        }
        self.gaps.push(SampleGap { from, to });
    }

    /// Holds a sample, unless it is a staleness marker, which fills no gap.
    fn hold(&mut self, time: TimestampMs, value: OfferedValue<'_>) {
        self.held.retain(|held| held.time > self.last);
        if value.is_stale() {
            return;
        }
        let at = self.held.partition_point(|held| held.time < time);
        if self.held.get(at).is_some_and(|held| held.time == time) {
            return;
        }
        self.held.insert(at, HeldSample::new(time, value));
        if self.held.len() > HELD_MAX {
            self.held.remove(0);
        }
    }

    /// Measures the distance to the previous sample of the same replica.
    fn trace(&mut self, replica: ReplicaNumber, time: TimestampMs) {
        let known = self.traces.iter_mut().flatten();
        let mut known = known.filter(|trace| trace.replica == replica);
        if let Some(trace) = known.next() {
            if time > trace.newest {
                let distance = time.saturating_sub(trace.newest);
                trace.newest = time;
                self.interval.add_distance(distance);
            }
            return;
        }
        let age = |trace: &Option<ReplicaTrace>| trace.map_or(TimestampMs::MIN, |t| t.newest);
        if let Some(oldest) = self.traces.iter_mut().min_by_key(|trace| age(trace)) {
            *oldest = Some(ReplicaTrace {
                replica,
                newest: time,
            });
        }
    }

    fn limits(&self) -> Option<DistanceLimits> {
        let interval = self.interval.estimate_ms()?;
        let percent = |percent: i64| interval * percent / 100;
        Some(DistanceLimits {
            near: percent(NEAR_PERCENT).max(1),
            ownerless: percent(OWNERLESS_PERCENT).max(1),
            wide: percent(WIDE_PERCENT),
        })
    }

    /// Returns the state to which [`HaSeries::revert`] returns.
    pub(super) fn mark(&self) -> HaSeriesMark {
        HaSeriesMark {
            last: self.last,
            owner: self.owner,
            gaps: self.gaps.clone(),
        }
    }

    /// Returns whether samples were stored since `mark`, other than repetitions.
    pub(super) fn has_changed_since(&self, mark: &HaSeriesMark) -> bool {
        self.last != mark.last || self.gaps != mark.gaps
    }

    /// Returns the time of the last stored sample.
    pub(super) fn last(&self) -> TimestampMs {
        self.last
    }

    /// Reverts the samples since `mark`, whose append failed, so that a repeated request stores
    /// them. `last` is the time of the newest of these samples.
    pub(super) fn revert(&mut self, mark: HaSeriesMark, last: TimestampMs) {
        if self.last == last {
            *self = Self {
                last: mark.last,
                owner: mark.owner,
                gaps: mark.gaps,
                ..std::mem::replace(self, Self::new())
            };
        } else if mark.last != TimestampMs::MIN && last > mark.last {
            self.gaps.retain(|gap| gap.to <= mark.last);
            self.record_gap(mark.last, self.last);
        }
    }
}
