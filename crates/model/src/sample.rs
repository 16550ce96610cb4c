//! Samples, their timestamps, and the staleness marker.

/// Milliseconds since the Unix epoch; negative before it.
pub type TimestampMs = i64;

/// The bits of the NaN that says "this series ended here" (Prometheus `model/value/value.go`).
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// The bits of the ordinary NaN that Prometheus's own arithmetic produces.
pub const NORMAL_NAN_BITS: u64 = 0x7ff8_0000_0000_0001;

/// The start timestamp of a sample whose start is not known.
pub const START_UNKNOWN: TimestampMs = 0;

/// The staleness marker.
pub const fn stale_nan() -> f64 {
    f64::from_bits(STALE_NAN_BITS)
}

/// Whether `value` is the staleness marker; no other NaN is.
#[inline]
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// A span of time that includes both of its ends, as PromQL and the HTTP API state ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first millisecond of the range.
    pub min: TimestampMs,
    /// The last millisecond of the range, itself included.
    pub max: TimestampMs,
}

impl TimeRange {
    /// All of time.
    pub const ALL: TimeRange = TimeRange {
        min: i64::MIN,
        max: i64::MAX,
    };

    /// The range from `min` to `max`, both included; empty if `min > max`.
    pub const fn new(min: TimestampMs, max: TimestampMs) -> Self {
        Self { min, max }
    }

    /// Whether `ts` lies in the range.
    pub const fn contains(&self, ts: TimestampMs) -> bool {
        self.min <= ts && ts <= self.max
    }

    /// Whether the two ranges share a millisecond.
    pub const fn overlaps(&self, other: &TimeRange) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}
