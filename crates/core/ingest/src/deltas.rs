//! Accumulates OTLP delta points to the cumulative values of their streams.
//!
//! ```text
//! point of a stream --> newer than the stored total? --> added --> total, as a cumulative point
//!                           \--> rejected
//! ```
//!
//! Semantics are those of the collector's `deltatocumulative`, which upstream uses: a stream
//! restarts after five minutes of silence, and when the process restarts. In addition, a point that
//! is repeated directly after its first transmission, by a sender that did not receive the
//! response, returns the same total as the first one instead of being lost.
//!
//! Invariant: the streams never use more memory than their limit. A stream that does not fit is
//! rejected.

mod exponential;
#[cfg(test)]
mod tests;

use firn_model::env::Clock;
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_wire::otlp::{
    AccumulateDeltas, ExplicitHistogramPoint, ExponentialHistogramPoint, NumberPoint, PointNumber,
};
use firn_wire::otlp::{OtlpStreamId, PointTimes};
use firn_wire::remote_write::{SeriesRejection, WriteRejectionReason};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time without points after which a stream is forgotten.
const SILENT_MAX: Duration = Duration::from_secs(5 * 60);

/// Pause between two searches for silent streams.
const SEARCH_PAUSE: Duration = Duration::from_secs(60);

/// Memory of a stream without its buckets in bytes: its entry in a hash table that may be half
/// empty.
const STREAM_BYTES: usize = 2 * (size_of::<OtlpStreamId>() + size_of::<DeltaStream>());

/// The accumulated value of a stream, as a cumulative point of its kind. The first point of the
/// stream is its initial value.
#[derive(Clone, Debug)]
enum DeltaTotal {
    Number(NumberPoint),
    Explicit(Box<ExplicitHistogramPoint>),
    Exponential(Box<ExponentialHistogramPoint>),
}

impl DeltaTotal {
    fn point_times(&self) -> PointTimes {
        match self {
            DeltaTotal::Number(point) => point.times,
            DeltaTotal::Explicit(point) => point.times,
            DeltaTotal::Exponential(point) => point.times,
        }
    }

    fn memory_bytes(&self) -> usize {
        STREAM_BYTES
            + match self {
                DeltaTotal::Number(_) => 0,
                DeltaTotal::Explicit(point) => {
                    size_of::<ExplicitHistogramPoint>()
                        + 8 * (point.counts.len() + point.bounds.len())
                }
                DeltaTotal::Exponential(point) => {
                    let counts = point.positive.counts.len() + point.negative.counts.len();
                    size_of::<ExponentialHistogramPoint>() + 8 * counts
                }
            }
    }
}

#[derive(Clone, Debug)]
struct DeltaStream {
    total: DeltaTotal,
    /// Properties of the latest point, for recognizing a repetition.
    last: DeltaPointKey,
    /// Monotonic time at which the latest point arrived.
    seen: Duration,
}

/// Properties that distinguish a point from others with the same end time; a retry has the same
/// mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DeltaPointKey {
    start: u64,
    counted: u64,
    sum: u64,
}

impl DeltaPointKey {
    fn from_point(times: PointTimes, counted: u64, sum: f64) -> Self {
        Self {
            start: times.start,
            counted,
            sum: sum.to_bits(),
        }
    }
}

#[derive(Debug, Default)]
struct DeltaStreamTable {
    tenants: BTreeMap<TenantId, HashMap<OtlpStreamId, DeltaStream>>,
    bytes: usize,
    searched: Duration,
}

/// The streams of all tenants, with a common memory limit. Owned by the pipeline and lost at a
/// restart.
pub(crate) struct DeltaStreams {
    table: Mutex<DeltaStreamTable>,
    clock: Arc<dyn Clock>,
    bytes_max: usize,
}

impl DeltaStreams {
    /// Returns an empty table of streams that is limited to `bytes_max` bytes.
    pub(crate) fn new(clock: Arc<dyn Clock>, bytes_max: usize) -> Self {
        Self {
            table: Mutex::default(),
            clock,
            bytes_max,
        }
    }

    /// Returns an accumulator for the points of one request of `tenant`.
    pub(crate) fn accumulator_for<'d>(
        &'d self,
        tenant: &'d TenantId,
    ) -> DeltaRequestAccumulator<'d> {
        DeltaRequestAccumulator {
            deltas: self,
            tenant,
            now: self.clock.monotonic(),
        }
    }

    /// Returns the memory of all streams in bytes, including their hash table entries.
    pub(crate) fn memory_bytes(&self) -> usize {
        lock(&self.table).bytes
    }
}

impl fmt::Debug for DeltaStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deltas").finish_non_exhaustive()
    }
}

impl DeltaStreamTable {
    /// Removes streams that have been silent for long, unless the latest search was very recent.
    fn remove_silent_streams(&mut self, now: Duration) {
        if now.saturating_sub(self.searched) < SEARCH_PAUSE {
            return;
        }
        self.searched = now;
        for streams in self.tenants.values_mut() {
            streams.retain(|_, kept| now.saturating_sub(kept.seen) <= SILENT_MAX);
        }
        self.tenants.retain(|_, streams| !streams.is_empty());
        let kept = self.tenants.values().flat_map(HashMap::values);
        self.bytes = kept.map(|kept| kept.total.memory_bytes()).sum();
    }
}

/// Accumulates the points of one request, with the time of its arrival. Implements
/// [`AccumulateDeltas`] for the decoder.
pub(crate) struct DeltaRequestAccumulator<'d> {
    deltas: &'d DeltaStreams,
    tenant: &'d TenantId,
    now: Duration,
}

impl DeltaRequestAccumulator<'_> {
    /// Adds a point to the total of its stream with `add`, or starts the stream with `first`; then
    /// passes the total to `give`. Fails if the point is out of order, has an older start, or does
    /// not fit.
    fn add_point(
        &self,
        stream: OtlpStreamId,
        times: PointTimes,
        mark: DeltaPointKey,
        first: impl FnOnce() -> DeltaTotal,
        add: impl FnOnce(&mut DeltaTotal),
        give: impl FnOnce(&DeltaTotal),
    ) -> Result<(), SeriesRejection> {
        let mut table = lock(&self.deltas.table);
        table.remove_silent_streams(self.now);
        let bytes_before = table.bytes;
        let streams = table.tenants.entry(self.tenant.clone()).or_default();
        let Some(kept) = streams.get_mut(&stream) else {
            let total = first();
            let bytes = total.memory_bytes();
            if bytes_before + bytes > self.deltas.bytes_max {
                return Err(self.memory_limit_offence());
            }
            give(&total);
            let kept = DeltaStream {
                total,
                last: mark,
                seen: self.now,
            };
            streams.insert(stream, kept);
            table.bytes += bytes;
            return Ok(());
        };
        kept.seen = self.now;
        let known = kept.total.point_times();
        if times.start < known.start {
            return Err(older_start_offence(times, known));
        }
        let is_repeated = times.time == known.time && mark == kept.last;
        if !is_repeated {
            if times.time <= known.time {
                return Err(out_of_order_offence(times, known));
            }
            let before = kept.total.memory_bytes();
            add(&mut kept.total);
            kept.last = mark;
            let after = kept.total.memory_bytes();
            give(&kept.total);
            table.bytes = (bytes_before + after).saturating_sub(before);
            return Ok(());
        }
        give(&kept.total);
        Ok(())
    }

    fn memory_limit_offence(&self) -> SeriesRejection {
        SeriesRejection {
            refusal: WriteRejectionReason::DeltaLimit,
            message: format!(
                "not enough memory for another delta stream: limit {} bytes",
                self.deltas.bytes_max
            ),
        }
    }
}

fn older_start_offence(times: PointTimes, known: PointTimes) -> SeriesRejection {
    SeriesRejection {
        refusal: WriteRejectionReason::DeltaOlderStart,
        message: format!(
            "delta with start time {} belongs to an older series, which starts at {}: several \
             processes may send the same series",
            times.start, known.start
        ),
    }
}

fn out_of_order_offence(times: PointTimes, known: PointTimes) -> SeriesRejection {
    SeriesRejection {
        refusal: WriteRejectionReason::DeltaOutOfOrder,
        message: format!(
            "out of order delta at time {}: its series is at time {}",
            times.time, known.time
        ),
    }
}

fn add_numbers(a: PointNumber, b: PointNumber) -> PointNumber {
    match (a, b) {
        (PointNumber::Int(a), PointNumber::Int(b)) => match a.checked_add(b) {
            Some(sum) => PointNumber::Int(sum),
            None => PointNumber::Double(a as f64 + b as f64),
        },
        (a, b) => PointNumber::Double(a.to_float() + b.to_float()),
    }
}

/// Returns the total of both sums; `None` if either is unknown, from then on.
fn add_known_sums(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? + b?)
}

impl AccumulateDeltas for DeltaRequestAccumulator<'_> {
    fn accumulate_number(
        &mut self,
        stream: OtlpStreamId,
        point: &mut NumberPoint,
    ) -> Result<(), SeriesRejection> {
        let new = *point;
        let mark = DeltaPointKey::from_point(new.times, 0, new.value.to_float());
        self.add_point(
            stream,
            new.times,
            mark,
            || DeltaTotal::Number(new),
            |total| {
                if let DeltaTotal::Number(total) = total {
                    total.value = add_numbers(total.value, new.value);
                    total.times.time = new.times.time;
                }
            },
            |total| {
                if let DeltaTotal::Number(total) = total {
                    *point = *total;
                }
            },
        )
    }

    fn accumulate_explicit(
        &mut self,
        stream: OtlpStreamId,
        point: &mut ExplicitHistogramPoint,
    ) -> Result<(), SeriesRejection> {
        let new = point.clone();
        let mark = DeltaPointKey::from_point(new.times, new.count, new.sum.unwrap_or(f64::NAN));
        self.add_point(
            stream,
            new.times,
            mark,
            || DeltaTotal::Explicit(Box::new(new.clone())),
            |total| {
                if let DeltaTotal::Explicit(total) = total {
                    add_explicit_histogram(total, &new);
                }
            },
            |total| {
                if let DeltaTotal::Explicit(total) = total {
                    point.clone_from(total);
                }
            },
        )
    }

    fn accumulate_exponential(
        &mut self,
        stream: OtlpStreamId,
        point: &mut ExponentialHistogramPoint,
    ) -> Result<(), SeriesRejection> {
        let new = point.clone();
        let mark = DeltaPointKey::from_point(new.times, new.count, new.sum.unwrap_or(f64::NAN));
        self.add_point(
            stream,
            new.times,
            mark,
            || DeltaTotal::Exponential(Box::new(new.clone())),
            |total| {
                if let DeltaTotal::Exponential(total) = total {
                    exponential::add_histogram(total, new.clone());
                }
            },
            |total| {
                if let DeltaTotal::Exponential(total) = total {
                    point.clone_from(total);
                }
            },
        )
    }
}

/// Adds a histogram with explicit bounds; different bounds restart the total at the new point.
fn add_explicit_histogram(total: &mut ExplicitHistogramPoint, new: &ExplicitHistogramPoint) {
    if total.bounds != new.bounds {
        total.clone_from(new);
        return;
    }
    for (count, more) in total.counts.iter_mut().zip(&new.counts) {
        *count = count.wrapping_add(*more);
    }
    total.count = total.count.wrapping_add(new.count);
    total.sum = add_known_sums(total.sum, new.sum);
    total.times.time = new.times.time;
}
