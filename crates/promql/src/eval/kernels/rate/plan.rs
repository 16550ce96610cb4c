//! What rates need that depends on times alone, planned once for a time column: for every step the
//! first and the last sample and the factor of the extrapolation.

use crate::eval::kernels::window::{Stretch, Windows};
use crate::functions::Extrapolation;
use crate::grid::{Grid, Reach};
use crate::math::integers;
use crate::math::integers::SMALL;
use crate::math::quotient::{Divisor, by_inverse, plainly};
use firn_model::sample::TimestampMs;
use multiversion::multiversion;
use multiversion::target::target_cfg_f;
use std::ops::Range;

const MS_PER_SECOND: Divisor = Divisor::new(1000.0);

/// The float that any integer is nearest to.
#[inline(always)]
fn float_of_any(int: i64) -> f64 {
    int as f64
}

/// Times of one window, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    pub(super) sampled: f64,
    pub(super) to_start: f64,
    pub(super) to_end: f64,
}

impl Spread {
    /// Of `count` samples from `first` to `last` in the window that ends at `end`.
    #[inline(always)]
    pub(super) fn of(
        first: TimestampMs,
        last: TimestampMs,
        count: usize,
        end: TimestampMs,
        range: i64,
    ) -> Self {
        let gaps = Divisor::new((count - 1) as f64);
        let how = (float_of_any, plainly);
        Self::divided((first, last), gaps, (end - range, end), how)
    }

    /// Of samples from one time to another with so many gaps between them, in the window between
    /// the second pair. `float` makes floats of integers, `divide` gives the quotients.
    #[inline(always)]
    fn divided(
        (first, last): (TimestampMs, TimestampMs),
        gaps: Divisor,
        (start, end): (TimestampMs, TimestampMs),
        (float, divide): (impl Fn(i64) -> f64, impl Fn(f64, Divisor) -> f64),
    ) -> Self {
        let seconds = |ms: i64| divide(float(ms), MS_PER_SECOND);
        let sampled = seconds(last - first);
        let average = divide(sampled, gaps);
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
            to_start: near(seconds(first - start)),
            to_end: near(seconds(end - last)),
        }
    }

    #[inline(always)]
    pub(super) fn factor(&self, to_start: f64, divisor: f64) -> f64 {
        self.stretched(to_start) / divisor
    }

    #[inline(always)]
    fn stretched(&self, to_start: f64) -> f64 {
        (self.sampled + to_start + self.to_end) / self.sampled
    }

    /// The factor for a counter that was `first` and grew by `change`.
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

/// Steps whose windows move on by equal strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) step: usize,
    pub(super) len: usize,
    /// The first sample of the first window, and the last one.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) stride: usize,
}

impl Run {
    /// Takes in the step after the run if its window continues it.
    fn continues(&mut self, step: usize, first: usize, last: usize) -> bool {
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

/// The plan of a time column.
#[derive(Debug, Default)]
pub(crate) struct RatePlan {
    windows: Windows,
    runs: Vec<Run>,
    /// Whether they are all steps.
    is_full: bool,
    /// By step; meaningful where a run covers it.
    pub(super) factors: Vec<f64>,
    /// By step: the newest time that it sees.
    edges: Vec<TimestampMs>,
    /// For what they were worked out: it is the same for all columns of a leaf.
    edges_of: Option<(Grid, Reach)>,
    times: Vec<TimestampMs>,
    range_ms: i64,
    divisor: f64,
}

impl RatePlan {
    /// Plans all steps of `grid` for samples at `times`.
    pub(crate) fn fill(&mut self, times: &[i64], grid: &Grid, reach: &Reach, how: Extrapolation) {
        self.windows.fill(times, grid, reach);
        self.range_ms = reach.range_ms;
        self.times.clear();
        self.times.extend_from_slice(times);
        if self.edges_of != Some((*grid, *reach)) {
            self.edges_of = Some((*grid, *reach));
            self.edges.clear();
            self.edges.extend(grid.times().map(|time| reach.end(time)));
        }
        self.find_runs();
        self.is_full = self.runs.iter().map(|run| run.len).sum::<usize>() == grid.count;
        self.factors.resize(grid.count, 0.0);
        self.divisor = how.divisor(reach);
        for run in &self.runs {
            let steps = run.step..run.step + run.len;
            let of_run = OfRun {
                gaps: Divisor::new((run.last - run.first) as f64),
                range_ms: reach.range_ms,
                divisor: Divisor::new(self.divisor),
            };
            let (edges, factors) = (&self.edges[steps.clone()], &mut self.factors[steps]);
            if run.stride == 1 {
                let firsts = &times[run.first..run.first + run.len];
                let lasts = &times[run.last..run.last + run.len];
                fill_dense(of_run, firsts, lasts, edges, factors);
            } else {
                let every = |from: usize| {
                    let places = (0..run.len).map(move |i| from + i * run.stride);
                    places.map(|at| &times[at])
                };
                let ends = every(run.first).zip(every(run.last));
                of_run.fill(ends, edges, factors, (float_of_any, plainly));
            }
        }
    }

    /// Finds the steps with two samples at least.
    fn find_runs(&mut self) {
        self.runs.clear();
        let stretches = self.windows.stretches();
        for stretch in stretches.filter(|stretch| stretch.samples() >= 2) {
            add_stretch(&mut self.runs, stretch);
        }
    }

    /// The windows.
    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// What changes are divided by.
    pub(super) fn divisor(&self) -> f64 {
        self.divisor
    }

    /// Whether the windows of all steps hold two samples at least.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The steps whose windows hold two samples at least.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The times of the window of a step that a run covers.
    pub(super) fn spread(&self, step: usize) -> Spread {
        let (start, end) = self.windows.at(step);
        let (first, last) = (self.times[start], self.times[end - 1]);
        Spread::of(first, last, end - start, self.edges[step], self.range_ms)
    }
}

/// Adds the steps of a stretch to the runs as one by one.
fn add_stretch(runs: &mut Vec<Run>, stretch: Stretch) {
    for i in 0..stretch.len {
        add_step(runs, stretch.step + i, stretch.start + i..stretch.end + i);
        // The first may end a run of another stride.
        if let Some(run) = runs.last_mut().filter(|run| run.stride == 1) {
            run.len += stretch.len - i - 1;
            return;
        }
    }
}

/// Adds a step that sees `samples` to the runs.
fn add_step(runs: &mut Vec<Run>, step: usize, samples: Range<usize>) {
    let run = Run {
        step,
        len: 1,
        first: samples.start,
        last: samples.end - 1,
        stride: 1,
    };
    let continued = match runs.last_mut() {
        Some(known) => known.continues(step, run.first, run.last),
        None => false,
    };
    if !continued {
        runs.push(run);
    }
}

/// What all windows of a run have in common.
#[derive(Clone, Copy, Debug)]
struct OfRun {
    gaps: Divisor,
    range_ms: i64,
    divisor: Divisor,
}

impl OfRun {
    /// Writes the factors of windows with these first and last times.
    #[inline(always)]
    fn fill<'a>(
        self,
        ends: impl Iterator<Item = (&'a TimestampMs, &'a TimestampMs)>,
        edges: &[TimestampMs],
        factors: &mut [f64],
        (float, divide): (
            impl Fn(i64) -> f64 + Copy,
            impl Fn(f64, Divisor) -> f64 + Copy,
        ),
    ) {
        for (factor, ((first, last), edge)) in factors.iter_mut().zip(ends.zip(edges)) {
            let window = (*edge - self.range_ms, *edge);
            let how = (float, divide);
            let spread = Spread::divided((*first, *last), self.gaps, window, how);
            *factor = divide(spread.stretched(spread.to_start), self.divisor);
        }
    }
}

/// A run whose windows move on by a sample each: all loads are of neighbours.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+fma", "x86_64+avx2+fma"))]
fn fill_dense(
    of_run: OfRun,
    firsts: &[TimestampMs],
    lasts: &[TimestampMs],
    edges: &[TimestampMs],
    factors: &mut [f64],
) {
    let ends = firsts.iter().zip(lasts);
    // No distance in a window is longer than the window.
    match target_cfg_f!(target_feature = "fma") && of_run.range_ms < SMALL {
        true => of_run.fill(ends, edges, factors, (integers::float_of, by_inverse)),
        false => of_run.fill(ends, edges, factors, (float_of_any, plainly)),
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
                // Mostly steady, now and then late, rarely a gap.
                time += match rng.below(40) {
                    0 => 5_000 + rng.below(60_000) as i64,
                    1..4 => 900 + rng.below(200) as i64,
                    _ => 1_000,
                };
                time
            })
            .take(rng.below(120) as usize)
            .collect();
            let step_ms = [1_000, 500, 2_000][seed as usize % 3];
            let grid = Grid::between(0, 100_000, step_ms);
            let reach = Reach {
                range_ms: 1 + rng.below(12_000) as i64,
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

    #[test]
    fn loops_of_this_processor_give_the_factors_of_the_portable_ones() {
        for seed in 0..20_000 {
            let rng = SimRng::new(seed);
            let count = 2 + rng.below(40) as usize;
            let range_ms = 1 + rng.below(1 << rng.below(55)) as i64;
            let seconds = range_ms as f64 / 1000.0;
            let of_run = OfRun {
                gaps: Divisor::new((count - 1) as f64),
                range_ms,
                divisor: Divisor::new([1.0, 300.0, seconds][seed as usize % 3]),
            };
            let len = rng.below(30) as usize;
            let mut time = -(rng.below(90_000) as i64);
            let times: Vec<i64> = std::iter::repeat_with(|| {
                time += 1 + rng.below(20_000) as i64;
                time
            })
            .take(len + count)
            .collect();
            let (firsts, lasts) = (&times[..len], &times[count - 1..count - 1 + len]);
            let late = |last: &i64| last + rng.below(30_000) as i64;
            let edges: Vec<i64> = lasts.iter().map(late).collect();
            let filled = |dense: bool| {
                let mut factors = vec![0.0; len];
                match dense {
                    true => fill_dense(of_run, firsts, lasts, &edges, &mut factors),
                    false => {
                        let ends = firsts.iter().zip(lasts);
                        of_run.fill(ends, &edges, &mut factors, (float_of_any, plainly));
                    }
                }
                factors.into_iter().map(f64::to_bits).collect::<Vec<_>>()
            };
            assert_eq!(filled(true), filled(false), "seed {seed}");
        }
    }
}
