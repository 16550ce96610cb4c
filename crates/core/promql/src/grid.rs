//! The steps of an evaluation, and the range of data time that a selector reads at each step.

use firn_model::sample::{TimeRange, TimestampMs};
use std::ops::Range;

/// Evenly spaced times at which an expression is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepGrid {
    /// The time of the first step in milliseconds.
    pub(crate) start: TimestampMs,
    /// Distance between steps in milliseconds; always positive, also for an instant query.
    pub(crate) step_ms: i64,
    /// The number of steps, which may be zero for a subquery.
    pub(crate) count: usize,
    /// The requested end. The last step may be earlier, because it is a multiple of the step width.
    pub(crate) end: TimestampMs,
}

impl StepGrid {
    /// Returns the steps from `start` to `end`, both inclusive. Empty if `end < start`; panics if
    /// `step_ms` is not positive.
    pub(crate) fn from_bounds(start: TimestampMs, end: TimestampMs, step_ms: i64) -> Self {
        assert!(step_ms > 0, "step of {step_ms} ms, at least 1");
        let count = match end.checked_sub(start) {
            Some(span) if span >= 0 => (span / step_ms) as usize + 1,
            _ => 0,
        };
        Self {
            start,
            step_ms,
            count,
            end,
        }
    }

    /// Returns a grid with only the first step of `self`.
    pub(crate) fn first_only(self) -> Self {
        Self {
            count: self.count.min(1),
            end: self.start,
            ..self
        }
    }

    /// Returns whether this is the grid of an instant query. A range query with a single step is
    /// not, unless it ends at its start.
    pub(crate) fn is_instant(&self) -> bool {
        self.start == self.end
    }

    /// Returns the time of a step, limited to the range of timestamps.
    pub(crate) fn time(&self, step: usize) -> TimestampMs {
        self.start
            .saturating_add(self.step_ms.saturating_mul(step as i64))
    }

    /// Returns the time of the last step, or the start of an empty grid.
    pub(crate) fn last(&self) -> TimestampMs {
        self.time(self.count.saturating_sub(1))
    }

    /// Returns the grid of a range of the steps.
    pub(crate) fn slice(&self, steps: &Range<usize>) -> StepGrid {
        let count = self.count;
        assert!(steps.end <= count, "steps {steps:?} of {count}");
        StepGrid {
            start: self.time(steps.start),
            count: steps.len(),
            ..*self
        }
    }

    /// Returns the steps whose window may contain a sample of `samples`: all steps if the windows
    /// do not move with the steps (`@`).
    pub(crate) fn steps_covering(
        &self,
        samples: TimeRange,
        reach: &SelectorWindow,
    ) -> Range<usize> {
        self.moving_steps_covering(samples, reach)
            .unwrap_or(0..self.count)
    }

    fn moving_steps_covering(
        &self,
        samples: TimeRange,
        reach: &SelectorWindow,
    ) -> Option<Range<usize>> {
        if reach.at.is_some() {
            return None;
        }
        let steps = i64::try_from(self.count).ok()?;
        let end = self.start.checked_add(self.step_ms.checked_mul(steps)?)?;
        // At the limits of the timestamp range windows would be cut, so the arithmetic must not
        // overflow.
        end.checked_sub(reach.offset_ms)?;
        let first_end = self.start.checked_sub(reach.offset_ms)?;
        first_end.checked_sub(reach.range_ms)?;
        let steps_before = |time: TimestampMs| {
            let behind = time.checked_sub(first_end)?;
            let step = behind.div_euclid(self.step_ms) + i64::from(behind % self.step_ms != 0);
            Some(step.clamp(0, steps) as usize)
        };
        // A window contains a sample from the sample's time on until the range has passed.
        let first = steps_before(samples.min)?;
        let behind = steps_before(samples.max.checked_add(reach.range_ms)?)?;
        Some(first..behind.max(first))
    }

    /// Returns the times of all steps in ascending order.
    pub(crate) fn times(&self) -> impl Iterator<Item = TimestampMs> + use<> {
        let grid = *self;
        (0..grid.count).map(move |step| grid.time(step))
    }
}

/// Converts a duration to seconds. Whole seconds and the remainder are converted separately, like
/// `QueryDuration.Seconds` of Go, so that the result has the same bits.
pub(crate) fn seconds(duration_ms: i64) -> f64 {
    (duration_ms / 1000) as f64 + (duration_ms % 1000 * 1_000_000) as f64 / 1e9
}

/// The position of a selector's window relative to the evaluation time, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelectorWindow {
    /// Length of the window in milliseconds: the range, or the lookback of an instant selector. The
    /// left edge is excluded.
    pub(crate) range_ms: i64,
    /// The `offset` modifier in milliseconds; a positive offset shifts the window into the past.
    pub(crate) offset_ms: i64,
    /// The timestamp of the `@` modifier in milliseconds, if present. It replaces the evaluation
    /// time.
    pub(crate) at: Option<TimestampMs>,
}

impl SelectorWindow {
    /// Returns the newest data time in the window at the evaluation time `time`.
    pub(crate) fn end(&self, time: TimestampMs) -> TimestampMs {
        self.at.unwrap_or(time).saturating_sub(self.offset_ms)
    }

    /// Returns the data time covered by the windows of all steps together. The grid must not be
    /// empty.
    pub(crate) fn time_range(&self, grid: &StepGrid) -> TimeRange {
        let oldest = self.end(grid.start).saturating_sub(self.range_ms);
        TimeRange::new(oldest.saturating_add(1), self.end(grid.last()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    #[test]
    fn steps_that_see_samples_are_those_whose_window_overlaps_them() {
        for seed in 0..3_000 {
            let rng = SimRng::new(seed);
            let below = |bound: u64| rng.next_below(bound) as i64;
            let start = below(300) - 150;
            let grid = StepGrid::from_bounds(start, start + below(300), 1 + below(20));
            let reach = SelectorWindow {
                range_ms: 1 + below(60),
                offset_ms: below(80) - 40,
                at: rng.one_in(10).then(|| below(100)),
            };
            let min = below(600) - 300;
            let samples = TimeRange::new(min, min + below(100));
            let sees = |step: &usize| {
                let newest = reach.end(grid.time(*step));
                let window = TimeRange::new(newest - reach.range_ms + 1, newest);
                window.overlaps(&samples)
            };
            let found = grid.steps_covering(samples, &reach);
            match reach.at {
                Some(_) => assert_eq!(found, 0..grid.count, "seed {seed}"),
                None => {
                    let expected: Vec<usize> = (0..grid.count).filter(sees).collect();
                    assert_eq!(found.collect::<Vec<_>>(), expected, "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn steps_at_the_ends_of_time_are_all_looked_at() {
        let grid = StepGrid::from_bounds(i64::MAX - 10, i64::MAX, 5);
        let reach = SelectorWindow {
            range_ms: 7,
            offset_ms: 0,
            at: None,
        };
        let samples = TimeRange::new(0, 1);
        assert_eq!(grid.steps_covering(samples, &reach), 0..grid.count);
    }
}
