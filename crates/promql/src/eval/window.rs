//! Which samples of a time column each step sees. Worked out once for all series that share the
//! column.

use crate::eval::grid::{Grid, Reach};
use firn_model::sample::TimestampMs;

/// No sample.
const NONE: u32 = u32::MAX;

/// For each step, the samples in its window, as a half-open range of indexes.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    starts: Vec<u32>,
    ends: Vec<u32>,
    samples: u64,
    samples_max: u64,
}

impl Windows {
    /// Works out the windows of `reach` over `times` for all steps of `grid`.
    pub(crate) fn fill(&mut self, times: &[TimestampMs], grid: &Grid, reach: &Reach) {
        self.starts.clear();
        self.ends.clear();
        self.samples = 0;
        self.samples_max = 0;
        let (mut start, mut end) = (0, 0);
        for (step, time) in grid.times().enumerate() {
            let newest = reach.end(time);
            let oldest = newest.saturating_sub(reach.range_ms);
            if step == 0 {
                end = times.partition_point(|t| *t <= newest);
                start = times[..end].partition_point(|t| *t <= oldest);
            } else {
                end = advance(times, end, newest);
                start = advance(times, start, oldest).min(end);
            }
            let samples = (end - start) as u64;
            self.samples += samples;
            self.samples_max = self.samples_max.max(samples);
            self.starts.push(start as u32);
            self.ends.push(end as u32);
        }
    }

    /// The windows that hold samples: the step and the range of indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let ranges = self.starts.iter().zip(&self.ends).enumerate();
        ranges
            .filter(|(_, (start, end))| start < end)
            .map(|(step, (start, end))| (step, *start as usize, *end as usize))
    }

    /// The range of indexes that a step sees; empty if it sees none.
    pub(crate) fn at(&self, step: usize) -> (usize, usize) {
        (self.starts[step] as usize, self.ends[step] as usize)
    }

    /// Samples in all windows together.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Samples in the largest window.
    pub(crate) fn samples_max(&self) -> u64 {
        self.samples_max
    }
}

/// The first index from `from` on whose time is later than `bound`.
fn advance(times: &[TimestampMs], from: usize, bound: TimestampMs) -> usize {
    let rest = times.get(from..).unwrap_or(&[]);
    from + rest.iter().take_while(|t| **t <= bound).count()
}

/// For each step, the newest sample that an instant selector sees.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    indexes: Vec<u32>,
}

impl Newest {
    /// Works out the newest samples within `reach` for all steps of `grid`.
    pub(crate) fn fill(&mut self, times: &[TimestampMs], grid: &Grid, reach: &Reach) {
        self.indexes.clear();
        let mut end = 0;
        for (step, time) in grid.times().enumerate() {
            let newest = reach.end(time);
            let oldest = newest.saturating_sub(reach.range_ms);
            end = match step {
                0 => times.partition_point(|t| *t <= newest),
                _ => advance(times, end, newest),
            };
            let seen = end > 0 && times[end - 1] > oldest;
            self.indexes.push(if seen { end as u32 - 1 } else { NONE });
        }
    }

    /// The steps that see a sample: the step and the sample's index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        let indexes = self.indexes.iter().enumerate();
        indexes
            .filter(|(_, index)| **index != NONE)
            .map(|(step, index)| (step, *index as usize))
    }

    /// Writes for each step the value it sees; a place that sees none is left as it is.
    pub(crate) fn gather(&self, values: &[f64], into: &mut [f64]) {
        for (out, index) in into.iter_mut().zip(&self.indexes) {
            if let Some(value) = values.get(*index as usize) {
                *out = *value;
            }
        }
    }
}

/// Plans by time column, with the memory of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Plans<P> {
    plans: Vec<P>,
    /// For each time column of the batch its plan.
    places: Vec<u32>,
    used: usize,
}

impl<P: Default> Plans<P> {
    /// Forgets what was planned and expects `columns` time columns.
    pub(crate) fn reset(&mut self, columns: usize) {
        self.places.clear();
        self.places.resize(columns, NONE);
        self.used = 0;
    }

    /// The plan of a time column; `fill` makes it the first time.
    pub(crate) fn of(&mut self, column: usize, fill: impl FnOnce(&mut P)) -> &P {
        if self.places[column] == NONE {
            if self.used == self.plans.len() {
                self.plans.push(P::default());
            }
            fill(&mut self.plans[self.used]);
            self.places[column] = self.used as u32;
            self.used += 1;
        }
        &self.plans[self.places[column] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(times: &[i64], grid: Grid, reach: Reach) -> Vec<(usize, usize, usize)> {
        let mut plan = Windows::default();
        plan.fill(times, &grid, &reach);
        plan.iter().collect()
    }

    #[test]
    fn windows_exclude_their_left_edge_and_include_their_right_one() {
        let grid = Grid::between(10, 30, 10);
        let reach = Reach {
            range_ms: 10,
            offset_ms: 0,
            at: None,
        };
        let seen = windows(&[0, 5, 10, 20], grid, reach);
        assert_eq!(seen, [(0, 1, 3), (1, 3, 4)]);
        let pinned = Reach {
            at: Some(10),
            ..reach
        };
        let seen = windows(&[0, 5, 10, 20], grid, pinned);
        assert_eq!(seen, [(0, 1, 3), (1, 1, 3), (2, 1, 3)]);
    }

    #[test]
    fn newest_sample_is_not_older_than_the_lookback() {
        let mut plan = Newest::default();
        let reach = Reach {
            range_ms: 10,
            offset_ms: 5,
            at: None,
        };
        plan.fill(&[0, 5, 7], &Grid::between(4, 24, 5), &reach);
        assert_eq!(plan.iter().collect::<Vec<_>>(), [(1, 0), (2, 2), (3, 2)]);
    }
}
