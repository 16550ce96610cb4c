//! Deltas of OTLP added up: what was counted since each stream began.
//!
//! ```text
//! point of a stream --> newer than what is kept? --> added --> what is kept, as a point
//!                           \--> refused
//! ```
//!
//! Meaning is that of the collector's `deltatocumulative`, which upstream uses: a stream that was
//! silent for five minutes begins anew, and so does every one with the process. Beyond that, a
//! point that comes a second time right after the first, as a sender does that did not hear the
//! answer, gives what the first one gave instead of being lost.
//!
//! Invariant: the streams take their limit of memory at most. A stream that there is no room for is
//! refused.

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

/// A stream without a point for so long is forgotten.
const SILENT_MAX: Duration = Duration::from_secs(5 * 60);

/// How often silent streams are looked for.
const SEARCH_PAUSE: Duration = Duration::from_secs(60);

/// What a stream takes besides its buckets: its entry in a table that is half empty.
const STREAM_BYTES: usize = 2 * (size_of::<Stream>() + size_of::<Kept>());

/// What was counted of a stream.
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
    /// What says whether a point is the last one again.
    last: Mark,
    /// When a point came, by the monotonic clock.
    seen: Duration,
}

/// What tells a point from others with the same times.
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

/// The streams of all senders.
pub(crate) struct Deltas {
    table: Mutex<Table>,
    clock: Arc<dyn Clock>,
    bytes_max: usize,
}

impl Deltas {
    /// No streams yet, with room for `bytes_max`.
    pub(crate) fn new(clock: Arc<dyn Clock>, bytes_max: usize) -> Self {
        Self {
            table: Mutex::default(),
            clock,
            bytes_max,
        }
    }

    /// Adds up what a request of `tenant` brings.
    pub(crate) fn of<'d>(&'d self, tenant: &'d TenantId) -> Adding<'d> {
        Adding {
            deltas: self,
            tenant,
            now: self.clock.monotonic(),
        }
    }

    /// Bytes of memory that the streams take.
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
    /// Forgets streams that were silent for long, if that was not looked for just now.
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

/// Adds up points of one request.
pub(crate) struct Adding<'d> {
    deltas: &'d Deltas,
    tenant: &'d TenantId,
    now: Duration,
}

impl Adding<'_> {
    /// Adds a point by `add` to what is kept of its stream, which becomes `first` if there is
    /// nothing; hands what is kept then to `give`.
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

/// The sum of both sums, if both are known.
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

/// Adds a histogram with explicit bounds; with other bounds it begins anew.
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
