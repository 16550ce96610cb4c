//! Time intervals whose samples are deleted.

use firn_model::sample::{TimeRange, TimestampMs};

/// Disjoint ranges, sorted by time; adjacent ranges are merged. Used for the tombstones of one
/// series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletedIntervals {
    ranges: Vec<TimeRange>,
}

impl DeletedIntervals {
    /// Adds a range, and merges it with those that overlap or adjoin it.
    pub fn add(&mut self, range: TimeRange) {
        if range.min > range.max {
            return;
        }
        let before = range.min.saturating_sub(1);
        let behind = range.max.saturating_add(1);
        let start = self.ranges.partition_point(|known| known.max < before);
        let end = self.ranges.partition_point(|known| known.min <= behind);
        let touched = self.ranges.get(start..end).unwrap_or_default();
        let hull = touched.iter().fold(range, |hull, known| hull.hull(*known));
        self.ranges.splice(start..end.max(start), [hull]);
    }

    /// Returns whether a sample with this timestamp is deleted. Takes logarithmic time.
    pub fn contains(&self, time: TimestampMs) -> bool {
        let index = self.ranges.partition_point(|range| range.max < time);
        self.ranges
            .get(index)
            .is_some_and(|range| range.contains(time))
    }

    /// Returns whether all samples of a range are deleted. That is the case only if a single
    /// interval contains it.
    pub fn contains_range(&self, range: TimeRange) -> bool {
        let index = self.ranges.partition_point(|known| known.max < range.min);
        let known = self.ranges.get(index);
        known.is_some_and(|known| known.contains(range.min) && known.contains(range.max))
    }

    /// Returns the ranges in order. Neighbours never touch each other.
    pub fn ranges(&self) -> &[TimeRange] {
        &self.ranges
    }

    /// Returns whether nothing is deleted.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    #[test]
    fn intervals_hold_what_was_added_in_any_order() {
        for seed in 0..500 {
            let rng = SimRng::new(seed);
            let mut intervals = DeletedIntervals::default();
            let mut wanted = [false; 64];
            for _ in 0..rng.next_below(12) {
                let min = rng.next_below(60) as i64;
                let max = min + rng.next_below(9) as i64 - 1;
                intervals.add(TimeRange::new(min, max));
                wanted.iter_mut().enumerate().for_each(|(time, is_in)| {
                    *is_in |= (min..=max).contains(&(time as i64));
                });
            }
            for (time, is_in) in wanted.iter().enumerate() {
                assert_eq!(
                    intervals.contains(time as i64),
                    *is_in,
                    "seed {seed}: {time}"
                );
            }
            let apart = |w: &[TimeRange]| w[0].max + 1 < w[1].min;
            assert!(intervals.ranges().windows(2).all(apart), "seed {seed}");
        }
    }

    #[test]
    fn intervals_at_the_ends_of_time_touch_nothing_beyond() {
        let mut intervals = DeletedIntervals::default();
        intervals.add(TimeRange::new(i64::MAX, i64::MAX));
        intervals.add(TimeRange::new(i64::MIN, -1));
        intervals.add(TimeRange::new(0, 5));
        assert_eq!(intervals.ranges().len(), 2);
        assert!(intervals.contains(i64::MIN) && intervals.contains(i64::MAX));
        assert!(intervals.contains_range(TimeRange::new(-9, 5)) && !intervals.contains(6));
        assert!(!intervals.contains_range(TimeRange::new(5, i64::MAX)));
    }
}
