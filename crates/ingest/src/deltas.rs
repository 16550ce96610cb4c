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
use firn_wire::otlp::{Accumulate, ExplicitPoint, ExponentialPoint, Number, NumberPoint};
use firn_wire::otlp::{Stream, Times};
use firn_wire::remote_write::{Offence, Refusal};
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
const STREAM_BYTES: usize = 2 * (size_of::<Stream>() + size_of::<Kept>());

/// The accumulated value of a stream, as a cumulative point of its kind. The first point of the
/// stream is its initial value.
#[derive(Clone, Debug)]
enum Total {
    Number(NumberPoint),
    Explicit(Box<ExplicitPoint>),
    Exponential(Box<ExponentialPoint>),
}

impl Total {
    fn times(&self) -> Times {
        match self {
            Total::Number(point) => point.times,
            Total::Explicit(point) => point.times,
            Total::Exponential(point) => point.times,
        }
    }

    fn bytes(&self) -> usize {
        STREAM_BYTES
            + match self {
                Total::Number(_) => 0,
                Total::Explicit(point) => {
                    size_of::<ExplicitPoint>() + 8 * (point.counts.len() + point.bounds.len())
                }
                Total::Exponential(point) => {
                    let counts = point.positive.counts.len() + point.negative.counts.len();
                    size_of::<ExponentialPoint>() + 8 * counts
                }
            }
    }
}

#[derive(Clone, Debug)]
struct Kept {
    total: Total,
    /// Properties of the latest point, for recognizing a repetition.
    last: Mark,
    /// Monotonic time at which the latest point arrived.
    seen: Duration,
}

/// Properties that distinguish a point from others with the same end time; a retry has the same
/// mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    start: u64,
    counted: u64,
    sum: u64,
}

impl Mark {
    fn of(times: Times, counted: u64, sum: f64) -> Self {
        Self {
            start: times.start,
            counted,
            sum: sum.to_bits(),
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    tenants: BTreeMap<TenantId, HashMap<Stream, Kept>>,
    bytes: usize,
    searched: Duration,
}

/// The streams of all tenants, with a common memory limit. Owned by the pipeline and lost at a
/// restart.
pub(crate) struct Deltas {
    table: Mutex<Table>,
    clock: Arc<dyn Clock>,
    bytes_max: usize,
}

impl Deltas {
    /// Returns an empty table of streams that is limited to `bytes_max` bytes.
    pub(crate) fn new(clock: Arc<dyn Clock>, bytes_max: usize) -> Self {
        Self {
            table: Mutex::default(),
            clock,
            bytes_max,
        }
    }

    /// Returns an accumulator for the points of one request of `tenant`.
    pub(crate) fn of<'d>(&'d self, tenant: &'d TenantId) -> Adding<'d> {
        Adding {
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

impl fmt::Debug for Deltas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deltas").finish_non_exhaustive()
    }
}

impl Table {
    /// Removes streams that have been silent for long, unless the latest search was very recent.
    fn forget_silent(&mut self, now: Duration) {
        if now.saturating_sub(self.searched) < SEARCH_PAUSE {
            return;
        }
        self.searched = now;
        for streams in self.tenants.values_mut() {
            streams.retain(|_, kept| now.saturating_sub(kept.seen) <= SILENT_MAX);
        }
        self.tenants.retain(|_, streams| !streams.is_empty());
        let kept = self.tenants.values().flat_map(HashMap::values);
        self.bytes = kept.map(|kept| kept.total.bytes()).sum();
    }
}

/// Accumulates the points of one request, with the time of its arrival. Implements [`Accumulate`]
/// for the decoder.
pub(crate) struct Adding<'d> {
    deltas: &'d Deltas,
    tenant: &'d TenantId,
    now: Duration,
}

impl Adding<'_> {
    /// Adds a point to the total of its stream with `add`, or starts the stream with `first`; then
    /// passes the total to `give`. Fails if the point is out of order, has an older start, or does
    /// not fit.
    fn add(
        &self,
        (stream, times, mark): (Stream, Times, Mark),
        first: impl FnOnce() -> Total,
        add: impl FnOnce(&mut Total),
        give: impl FnOnce(&Total),
    ) -> Result<(), Offence> {
        let mut table = lock(&self.deltas.table);
        table.forget_silent(self.now);
        let bytes_before = table.bytes;
        let streams = table.tenants.entry(self.tenant.clone()).or_default();
        let Some(kept) = streams.get_mut(&stream) else {
            let total = first();
            let bytes = total.bytes();
            if bytes_before + bytes > self.deltas.bytes_max {
                return Err(self.no_room());
            }
            give(&total);
            let kept = Kept {
                total,
                last: mark,
                seen: self.now,
            };
            streams.insert(stream, kept);
            table.bytes += bytes;
            return Ok(());
        };
        kept.seen = self.now;
        let known = kept.total.times();
        if times.start < known.start {
            return Err(older_start(times, known));
        }
        let is_repeated = times.time == known.time && mark == kept.last;
        if !is_repeated {
            if times.time <= known.time {
                return Err(out_of_order(times, known));
            }
            let before = kept.total.bytes();
            add(&mut kept.total);
            kept.last = mark;
            let after = kept.total.bytes();
            give(&kept.total);
            table.bytes = (bytes_before + after).saturating_sub(before);
            return Ok(());
        }
        give(&kept.total);
        Ok(())
    }

    fn no_room(&self) -> Offence {
        Offence {
            refusal: Refusal::DeltaLimit,
            message: format!(
                "not enough memory for another delta stream: limit {} bytes",
                self.deltas.bytes_max
            ),
        }
    }
}

fn older_start(times: Times, known: Times) -> Offence {
    Offence {
        refusal: Refusal::DeltaOlderStart,
        message: format!(
            "delta with start time {} belongs to an older series, which starts at {}: several \
             processes may send the same series",
            times.start, known.start
        ),
    }
}

fn out_of_order(times: Times, known: Times) -> Offence {
    Offence {
        refusal: Refusal::DeltaOutOfOrder,
        message: format!(
            "out of order delta at time {}: its series is at time {}",
            times.time, known.time
        ),
    }
}

fn sum_of(a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => match a.checked_add(b) {
            Some(sum) => Number::Int(sum),
            None => Number::Double(a as f64 + b as f64),
        },
        (a, b) => Number::Double(a.to_float() + b.to_float()),
    }
}

/// Returns the total of both sums; `None` if either is unknown, from then on.
fn sum_of_known(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? + b?)
}

impl Accumulate for Adding<'_> {
    fn number(&mut self, stream: Stream, point: &mut NumberPoint) -> Result<(), Offence> {
        let new = *point;
        let mark = Mark::of(new.times, 0, new.value.to_float());
        self.add(
            (stream, new.times, mark),
            || Total::Number(new),
            |total| {
                if let Total::Number(total) = total {
                    total.value = sum_of(total.value, new.value);
                    total.times.time = new.times.time;
                }
            },
            |total| {
                if let Total::Number(total) = total {
                    *point = *total;
                }
            },
        )
    }

    fn explicit(&mut self, stream: Stream, point: &mut ExplicitPoint) -> Result<(), Offence> {
        let new = point.clone();
        let mark = Mark::of(new.times, new.count, new.sum.unwrap_or(f64::NAN));
        self.add(
            (stream, new.times, mark),
            || Total::Explicit(Box::new(new.clone())),
            |total| {
                if let Total::Explicit(total) = total {
                    add_explicit(total, &new);
                }
            },
            |total| {
                if let Total::Explicit(total) = total {
                    point.clone_from(total);
                }
            },
        )
    }

    fn exponential(&mut self, stream: Stream, point: &mut ExponentialPoint) -> Result<(), Offence> {
        let new = point.clone();
        let mark = Mark::of(new.times, new.count, new.sum.unwrap_or(f64::NAN));
        self.add(
            (stream, new.times, mark),
            || Total::Exponential(Box::new(new.clone())),
            |total| {
                if let Total::Exponential(total) = total {
                    exponential::add(total, new.clone());
                }
            },
            |total| {
                if let Total::Exponential(total) = total {
                    point.clone_from(total);
                }
            },
        )
    }
}

/// Adds a histogram with explicit bounds; different bounds restart the total at the new point.
fn add_explicit(total: &mut ExplicitPoint, new: &ExplicitPoint) {
    if total.bounds != new.bounds {
        total.clone_from(new);
        return;
    }
    for (count, more) in total.counts.iter_mut().zip(&new.counts) {
        *count = count.wrapping_add(*more);
    }
    total.count = total.count.wrapping_add(new.count);
    total.sum = sum_of_known(total.sum, new.sum);
    total.times.time = new.times.time;
}
