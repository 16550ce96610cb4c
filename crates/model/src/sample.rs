//! Samples, their timestamps, and the staleness marker.

use std::ops::Range;

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

    /// Where the times that lie in the range stand among `times`, which never fall. A binary search
    /// at each end beyond which there are any.
    #[inline]
    pub fn indexes(&self, times: &[TimestampMs]) -> Range<usize> {
        let end = match times.last() {
            Some(last) if *last > self.max => times.partition_point(|time| *time <= self.max),
            _ => times.len(),
        };
        let start = match times[..end].first() {
            Some(first) if *first < self.min => {
                times[..end].partition_point(|time| *time < self.min)
            }
            _ => 0,
        };
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_of_times_finds_those_between_its_ends() {
        let times = [10, 20, 20, 30];
        let cases = [
            (TimeRange::ALL, 0..4),
            (TimeRange::new(10, 30), 0..4),
            (TimeRange::new(11, 29), 1..3),
            (TimeRange::new(20, 20), 1..3),
            (TimeRange::new(21, 29), 3..3),
            (TimeRange::new(i64::MIN, 9), 0..0),
            (TimeRange::new(31, i64::MAX), 4..4),
            (TimeRange::new(30, 10), 1..1),
        ];
        for (range, found) in cases {
            assert_eq!(range.indexes(&times), found, "{range:?}");
        }
        assert_eq!(TimeRange::ALL.indexes(&[]), 0..0);
    }
}
