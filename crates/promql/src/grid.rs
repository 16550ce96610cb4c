//! The steps of an evaluation, and which stretch of data time a selector sees at a step.

use firn_model::sample::{TimeRange, TimestampMs};
use std::ops::Range;

/// Evenly spaced moments at which an expression is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// The first moment.
    pub(crate) start: TimestampMs,
    /// Milliseconds from step to step; positive.
    pub(crate) step_ms: i64,
    /// How many steps.
    pub(crate) count: usize,
    /// Up to where steps were asked for.
    pub(crate) end: TimestampMs,
}

impl Grid {
    /// The steps from `start` to `end`, both included; none if `end < start`.
    pub(crate) fn between(start: TimestampMs, end: TimestampMs, step_ms: i64) -> Self {
        assert!(step_ms > 0, "steps go forward");
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

    /// Only the first step.
    pub(crate) fn first_only(self) -> Self {
        Self {
            count: self.count.min(1),
            end: self.start,
            ..self
        }
    }

    /// Whether it is one moment; a range of a single step is none.
    pub(crate) fn is_instant(&self) -> bool {
        self.start == self.end
    }

    /// The time of a step.
    pub(crate) fn time(&self, step: usize) -> TimestampMs {
        self.start
            .saturating_add(self.step_ms.saturating_mul(step as i64))
    }

    /// The time of the last step; of an empty grid, its start.
    pub(crate) fn last(&self) -> TimestampMs {
        self.time(self.count.saturating_sub(1))
    }

    /// A stretch of the steps.
    pub(crate) fn part(&self, steps: &Range<usize>) -> Grid {
        Grid {
            start: self.time(steps.start),
            count: steps.len(),
            ..*self
        }
    }

    /// The steps at which `reach` may see something of `samples`; all of them if its bounds do not
    /// move on with the steps.
    pub(crate) fn steps_seeing(&self, samples: TimeRange, reach: &Reach) -> Range<usize> {
        self.moving_steps_seeing(samples, reach)
            .unwrap_or(0..self.count)
    }

    fn moving_steps_seeing(&self, samples: TimeRange, reach: &Reach) -> Option<Range<usize>> {
        if reach.at.is_some() {
            return None;
        }
        let steps = i64::try_from(self.count).ok()?;
        let end = self.start.checked_add(self.step_ms.checked_mul(steps)?)?;
        // What a step sees would be cut at the ends of time.
        end.checked_sub(reach.offset_ms)?;
        let first_end = self.start.checked_sub(reach.offset_ms)?;
        first_end.checked_sub(reach.range_ms)?;
        let steps_before = |time: TimestampMs| {
            let behind = time.checked_sub(first_end)?;
            let step = behind.div_euclid(self.step_ms) + i64::from(behind % self.step_ms != 0);
            Some(step.clamp(0, steps) as usize)
        };
        // A step sees a sample from its time on, until the range is over.
        let first = steps_before(samples.min)?;
        let behind = steps_before(samples.max.checked_add(reach.range_ms)?)?;
        Some(first..behind.max(first))
    }

    /// The times of all steps.
    pub(crate) fn times(&self) -> impl Iterator<Item = TimestampMs> + use<> {
        let grid = *self;
        (0..grid.count).map(move |step| grid.time(step))
    }
}

/// A duration in seconds, whole ones and the rest apart, as Go converts it.
pub(crate) fn seconds(duration_ms: i64) -> f64 {
    (duration_ms / 1000) as f64 + (duration_ms % 1000 * 1_000_000) as f64 / 1e9
}

/// How far a selector's data time lies from the evaluation time, and how much of it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Length of the window, left edge excluded: a range, or the lookback.
    pub(crate) range_ms: i64,
    /// `offset`.
    pub(crate) offset_ms: i64,
    /// `@`.
    pub(crate) at: Option<TimestampMs>,
}

impl Reach {
    /// The newest data time seen from `time`.
    pub(crate) fn end(&self, time: TimestampMs) -> TimestampMs {
        self.at.unwrap_or(time).saturating_sub(self.offset_ms)
    }

    /// The data times that all steps of a non-empty grid see together.
    pub(crate) fn time_range(&self, grid: &Grid) -> TimeRange {
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
            let below = |bound: u64| rng.below(bound) as i64;
            let start = below(300) - 150;
            let grid = Grid::between(start, start + below(300), 1 + below(20));
            let reach = Reach {
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
            let found = grid.steps_seeing(samples, &reach);
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
        let grid = Grid::between(i64::MAX - 10, i64::MAX, 5);
        let reach = Reach {
            range_ms: 7,
            offset_ms: 0,
            at: None,
        };
        let samples = TimeRange::new(0, 1);
        assert_eq!(grid.steps_seeing(samples, &reach), 0..grid.count);
    }
}
