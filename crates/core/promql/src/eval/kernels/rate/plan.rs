//! The plan of rates, which depends only on timestamps and is computed once per time column: the
//! first and the last sample of each step, and the factor of the extrapolation.

use crate::eval::kernels::window::{StepWindows, WindowStretch};
use crate::functions::Extrapolation;
use crate::grid::{SelectorWindow, StepGrid};
use firn_model::sample::TimestampMs;
use std::ops::Range;

/// The times of one window in seconds: the sampled interval, and the extrapolated intervals on both
/// sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateSpread {
    pub(super) sampled: f64,
    pub(super) to_start: f64,
    pub(super) to_end: f64,
}

impl RateSpread {
    /// Computes the times of `count` samples from `first` to `last`, in the window that ends at
    /// `end`.
    #[inline(always)]
    pub(super) fn compute(
        first: TimestampMs,
        last: TimestampMs,
        count: usize,
        end: TimestampMs,
        range: i64,
    ) -> Self {
        let seconds = |ms: i64| ms as f64 / 1000.0;
        let sampled = seconds(last - first);
        let average = sampled / (count - 1) as f64;
        let threshold = average * 1.1;
        let near = |distance: f64| {
            if distance >= threshold {
                average / 2.0
            } else {
                distance
            }
        };
        Self {
            sampled,
            to_start: near(seconds(first - (end - range))),
            to_end: near(seconds(end - last)),
        }
    }

    #[inline(always)]
    pub(super) fn factor(&self, to_start: f64, divisor: f64) -> f64 {
        (self.sampled + to_start + self.to_end) / self.sampled / divisor
    }

    /// Returns the factor for a counter whose first value is `first` and which grew by `change`.
    /// The extrapolation to the start is limited so that the counter is not below zero there.
    pub(super) fn factor_above_zero(&self, first: f64, change: f64, divisor: f64) -> f64 {
        let mut to_start = self.to_start;
        if change > 0.0 && first >= 0.0 {
            let to_zero = self.sampled * (first / change);
            if to_zero < to_start {
                to_start = to_zero;
            }
        }
        self.factor(to_start, divisor)
    }
}

/// Consecutive steps whose windows advance by equal strides, so that a simple loop computes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowRun {
    pub(super) step: usize,
    pub(super) len: usize,
    /// Indexes of the first and the last sample of the first window.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) stride: usize,
}

impl WindowRun {
    /// Extends the run by the next step if its window continues the run. Returns whether it does.
    fn try_extend(&mut self, step: usize, first: usize, last: usize) -> bool {
        let end = self.len - 1;
        let (Some(by_first), Some(by_last)) = (
            first.checked_sub(self.first + end * self.stride),
            last.checked_sub(self.last + end * self.stride),
        ) else {
            return false;
        };
        let fits = step == self.step + self.len && by_first == by_last;
        if fits && (self.len == 1 || by_first == self.stride) {
            self.stride = by_first;
            self.len += 1;
            return true;
        }
        false
    }
}

/// The plan of a time column. Its memory is reused for other columns.
#[derive(Debug, Default)]
pub(crate) struct RatePlan {
    windows: StepWindows,
    runs: Vec<WindowRun>,
    /// True if the runs cover all steps, so that every step has a result.
    is_full: bool,
    /// The extrapolation factor of each step. Valid only for steps that a run covers.
    pub(super) factors: Vec<f64>,
    /// The right edge of each step's window in milliseconds.
    edges: Vec<TimestampMs>,
}

impl RatePlan {
    /// Plans all steps of `grid` for samples with these timestamps.
    #[inline(always)]
    pub(crate) fn fill(
        &mut self,
        times: &[i64],
        grid: &StepGrid,
        reach: &SelectorWindow,
        how: Extrapolation,
    ) {
        self.windows.fill(times, grid, reach);
        self.find_runs();
        self.is_full = self.runs.iter().map(|run| run.len).sum::<usize>() == grid.count;
        self.factors.resize(grid.count, 0.0);
        self.edges.clear();
        self.edges.extend(grid.times().map(|time| reach.end(time)));
        let divisor = how.divisor(reach);
        for run in &self.runs {
            let steps = run.step..run.step + run.len;
            let (edges, factors) = (&self.edges[steps.clone()], &mut self.factors[steps]);
            let factors = factors.iter_mut().zip(edges);
            let (count, range_ms) = (run.last - run.first + 1, reach.range_ms);
            let factor = |first: TimestampMs, last: TimestampMs, edge: TimestampMs| {
                let spread = RateSpread::compute(first, last, count, edge, range_ms);
                spread.factor(spread.to_start, divisor)
            };
            if run.stride == 1 {
                // All loads are contiguous.
                let firsts = &times[run.first..run.first + run.len];
                let lasts = &times[run.last..run.last + run.len];
                for ((out, edge), (first, last)) in factors.zip(firsts.iter().zip(lasts)) {
                    *out = factor(*first, *last, *edge);
                }
            } else {
                for (i, (out, edge)) in factors.enumerate() {
                    let at = i * run.stride;
                    *out = factor(times[run.first + at], times[run.last + at], *edge);
                }
            }
        }
    }

    /// Finds the runs of steps whose windows contain at least two samples.
    fn find_runs(&mut self) {
        self.runs.clear();
        let stretches = self.windows.stretches();
        for stretch in stretches.filter(|stretch| stretch.samples() >= 2) {
            add_stretch(&mut self.runs, stretch);
        }
    }

    /// Returns the windows of all steps, including empty ones.
    pub(crate) fn windows(&self) -> &StepWindows {
        &self.windows
    }

    /// Returns whether the windows of all steps contain at least two samples.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the runs of steps whose windows contain at least two samples.
    pub(super) fn runs(&self) -> &[WindowRun] {
        &self.runs
    }
}

/// Adds the steps of a stretch to the runs. The result equals that of adding them one by one.
fn add_stretch(runs: &mut Vec<WindowRun>, stretch: WindowStretch) {
    for i in 0..stretch.len {
        add_step(runs, stretch.step + i, stretch.start + i..stretch.end + i);
        // The first step may end a run with a different stride.
        if let Some(run) = runs.last_mut().filter(|run| run.stride == 1) {
            run.len += stretch.len - i - 1;
            return;
        }
    }
}

/// Adds a step whose window contains `samples` to the runs.
fn add_step(runs: &mut Vec<WindowRun>, step: usize, samples: Range<usize>) {
    let run = WindowRun {
        step,
        len: 1,
        first: samples.start,
        last: samples.end - 1,
        stride: 1,
    };
    let continued = match runs.last_mut() {
        Some(known) => known.try_extend(step, run.first, run.last),
        None => false,
    };
    if !continued {
        runs.push(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    #[test]
    fn runs_of_any_windows_are_those_found_step_by_step() {
        for seed in 0..2_000 {
            let rng = SimRng::new(seed);
            let mut time = 0;
            let times: Vec<i64> = std::iter::repeat_with(|| {
                // Mostly regular, sometimes late, rarely a gap.
                time += match rng.next_below(40) {
                    0 => 5_000 + rng.next_below(60_000) as i64,
                    1..4 => 900 + rng.next_below(200) as i64,
                    _ => 1_000,
                };
                time
            })
            .take(rng.next_below(120) as usize)
            .collect();
            let step_ms = [1_000, 500, 2_000][seed as usize % 3];
            let grid = StepGrid::from_bounds(0, 100_000, step_ms);
            let reach = SelectorWindow {
                range_ms: 1 + rng.next_below(12_000) as i64,
                offset_ms: 0,
                at: None,
            };
            let mut plan = RatePlan::default();
            plan.windows.fill(&times, &grid, &reach);
            plan.find_runs();
            let mut runs = Vec::new();
            for (step, start, end) in plan.windows.iter().filter(|(_, s, e)| e - s >= 2) {
                add_step(&mut runs, step, start..end);
            }
            assert_eq!(plan.runs, runs, "seed {seed}");
        }
    }
}
