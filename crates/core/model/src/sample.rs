//! Samples, their timestamps, and the staleness marker.

use std::ops::Range;

/// A timestamp: milliseconds since the Unix epoch, negative before it.
pub type TimestampMs = i64;

/// The bits of the NaN that marks the end of a series (`model/value/value.go` of Prometheus).
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// The bits of the ordinary NaN that is the result of arithmetic in Prometheus.
pub const NORMAL_NAN_BITS: u64 = 0x7ff8_0000_0000_0001;

/// The start timestamp of a sample whose start is unknown.
pub const START_UNKNOWN: TimestampMs = 0;

/// Returns the staleness marker, a NaN with a particular bit pattern.
pub const fn stale_nan() -> f64 {
    f64::from_bits(STALE_NAN_BITS)
}

/// Returns whether `value` is the staleness marker. All other NaN values are not.
#[inline]
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// A time range that includes both ends, like the ranges of PromQL and of the HTTP API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first millisecond of the range, inclusive.
    pub min: TimestampMs,
    /// The last millisecond of the range, which is inclusive, too.
    pub max: TimestampMs,
}

impl TimeRange {
    /// The range that contains all timestamps a sample can have.
    pub const ALL: TimeRange = TimeRange {
        min: i64::MIN,
        max: i64::MAX,
    };

    /// Creates the range from `min` to `max`, both inclusive. It is empty if `min > max`.
    pub const fn new(min: TimestampMs, max: TimestampMs) -> Self {
        Self { min, max }
    }

    /// Returns whether the timestamp `ts` is in the range.
    pub const fn contains(&self, ts: TimestampMs) -> bool {
        self.min <= ts && ts <= self.max
    }

    /// Returns whether both ranges have a millisecond in common.
    pub const fn overlaps(&self, other: &TimeRange) -> bool {
        self.min <= other.max && other.min <= self.max
    }

    /// Returns the shortest range that contains both ranges and any gap between them.
    pub fn hull(self, other: TimeRange) -> Self {
        Self::new(self.min.min(other.min), self.max.max(other.max))
    }

    /// Returns the shortest range that contains the given ranges, or `None` if both are absent.
    pub fn hull_of(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        a.into_iter().chain(b).reduce(Self::hull)
    }

    /// Returns the indexes of the timestamps within the range. `times` must be in ascending order.
    /// Takes constant time at each end if timestamps are evenly spaced.
    #[inline]
    pub fn indexes(&self, times: &[TimestampMs]) -> Range<usize> {
        let end = match times.last() {
            Some(last) if *last > self.max => count_at(times, self.max),
            _ => times.len(),
        };
        let start = match times[..end].first() {
            Some(first) if *first < self.min => count_at(&times[..end], self.min - 1),
            _ => 0,
        };
        start..end
    }
}

/// Returns the number of timestamps that are not later than `bound`. `times` must be in ascending
/// order. The index is first estimated on the assumption that scrapes are evenly spaced; otherwise
/// a binary search finds it.
pub fn count_at(times: &[TimestampMs], bound: TimestampMs) -> usize {
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return 0;
    };
    if *last <= bound {
        return times.len();
    }
    if *first > bound {
        return 0;
    }
    let share = bound.abs_diff(*first) as f64 / last.abs_diff(*first) as f64;
    let place = (share * (times.len() - 1) as f64) as usize;
    let is_it = |count: &usize| {
        let is_seen = |at: usize| times.get(at).is_some_and(|time| *time <= bound);
        count.checked_sub(1).is_some_and(is_seen) && !is_seen(*count)
    };
    // The estimate is off by one if a scrape was late, or if one failed before.
    if let Some(count) = [place + 1, place, place + 2].into_iter().find(is_it) {
        return count;
    }
    times.partition_point(|time| *time <= bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::sim::SimRng;

    #[test]
    fn hull_of_ranges_holds_those_that_are_there() {
        let (early, late) = (TimeRange::new(-5, 3), TimeRange::new(2, 9));
        let both = Some(TimeRange::new(-5, 9));
        assert_eq!(TimeRange::hull_of(Some(early), Some(late)), both);
        assert_eq!(TimeRange::hull_of(Some(late), Some(early)), both);
        assert_eq!(TimeRange::hull_of(None, Some(late)), Some(late));
        assert_eq!(TimeRange::hull_of(Some(early), None), Some(early));
        assert_eq!(TimeRange::hull_of(None, None), None);
    }

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

    #[test]
    fn count_at_a_bound_is_that_of_a_binary_search() {
        let extremes = [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX];
        for seed in 0..2_000 {
            let rng = SimRng::new(seed);
            let mut time = -(rng.next_below(20_000) as i64);
            let mut times: Vec<i64> = std::iter::repeat_with(|| {
                time += match rng.next_below(20) {
                    0 => 1 + rng.next_below(90_000) as i64,
                    n => 1_000 - 40 * (n as i64 % 3),
                };
                time
            })
            .take(rng.next_below(50) as usize)
            .collect();
            if rng.one_in(4) {
                times.extend(extremes);
                times.sort_unstable();
                times.dedup();
            }
            let near = times
                .iter()
                .flat_map(|t| [t.saturating_sub(1), *t, t.saturating_add(1)]);
            for bound in near.chain(extremes) {
                let count = times.partition_point(|time| *time <= bound);
                assert_eq!(
                    count_at(&times, bound),
                    count,
                    "seed {seed}: {bound} in {times:?}"
                );
            }
        }
    }
}
