//! The functions `rate`, `increase` and `delta`: the change over a window, extrapolated to its
//! edges.
//!
//! All properties that depend only on timestamps are planned once per time column, in [`plan`]: the
//! first and the last sample of each step, and the factor of the extrapolation. The result for a
//! counter that never decreases is then `(last - first) * factor`, in a loop over steps that the
//! compiler vectorizes. The rule that a counter is not extrapolated below zero depends on values.
//! It may apply if the counter's first value is smaller than the extrapolated increase; such rows
//! are then recomputed exactly.
//!
//! The results of both methods equal those of Prometheus bit by bit, because the order of
//! operations is the same.

mod plan;

use crate::eval::kernels::samples::SampleSlices;
use crate::functions::Extrapolation;
use crate::grid::{SelectorWindow, StepGrid, seconds};
use firn_model::sample::TimestampMs;
pub(crate) use plan::RatePlan;
use plan::RateSpread;

/// A factor that compensates for rounding errors in the search for windows to which the zero rule
/// may apply.
const ROUNDED_UP: f64 = 1.0 + 1e-9;

impl Extrapolation {
    /// Returns the divisor of the change: the seconds of the range, or one.
    fn divisor(self, reach: &SelectorWindow) -> f64 {
        if self.per_second {
            seconds(reach.range_ms)
        } else {
            1.0
        }
    }

    /// Returns the factor by which the growth of a window of histograms is extrapolated. `grown`
    /// contains the first count and its increase.
    pub(crate) fn factor(
        self,
        times: &SampleSlices<'_>,
        from_start: bool,
        grown: (f64, f64),
        edge: TimestampMs,
        range: i64,
    ) -> f64 {
        let divisor = if self.per_second { seconds(range) } else { 1.0 };
        if from_start {
            return times.spread_from_start(edge).factor(0.0, divisor);
        }
        let (first, last) = (times.times[0], times.times[times.times.len() - 1]);
        let spread = RateSpread::compute(first, last, times.times.len(), edge, range);
        if self.counter {
            spread.factor_above_zero(grown.0, grown.1, divisor)
        } else {
            spread.factor(spread.to_start, divisor)
        }
    }

    /// Writes the results of all steps that have one.
    ///
    /// No value may be a staleness marker. For a counter, the caller must pass the result of
    /// [`is_non_decreasing`].
    #[inline(always)]
    pub(crate) fn fill(
        self,
        plan: &RatePlan,
        samples: &SampleSlices<'_>,
        rising: bool,
        grid: &StepGrid,
        reach: &SelectorWindow,
        out: &mut [f64],
    ) {
        assert_eq!(out.len(), grid.count, "places of the row, and steps");
        let (values, divisor) = (samples.values, self.divisor(reach));
        // Returns the exact result of a step whose window is `start..end`.
        let exact = |step: usize, start: usize, end: usize, change: f64| {
            let (first, last) = (samples.times[start], samples.times[end - 1]);
            let edge = reach.end(grid.time(step));
            let spread = RateSpread::compute(first, last, end - start, edge, reach.range_ms);
            change * spread.factor_above_zero(values[start], change, divisor)
        };
        if self.counter && !rising {
            return fill_with_resets(plan, values, exact, out);
        }
        if self.counter && is_constant(values) {
            for run in plan.runs() {
                out[run.step..run.step + run.len].fill(0.0);
            }
            return;
        }
        let near_zero = fill_runs(plan, values, divisor, out);
        if self.counter && near_zero {
            for (step, start, end) in plan.windows().iter() {
                if end - start >= 2 {
                    out[step] = exact(step, start, end, values[end - 1] - values[start]);
                }
            }
        }
    }

    /// Computes a row like [`Extrapolation::fill`], for samples with start timestamps. Returns the
    /// steps in whose windows start timestamps overlap with the previous sample.
    pub(crate) fn fill_with_starts(
        self,
        plan: &RatePlan,
        samples: &SampleSlices<'_>,
        grid: &StepGrid,
        reach: &SelectorWindow,
        out: &mut [f64],
    ) -> Vec<usize> {
        let mut overlaps = Vec::new();
        for (step, start, end) in plan.windows().iter() {
            let edge = reach.end(grid.time(step));
            let window = samples.slice(start, end);
            if window.has_overlapping_start() {
                overlaps.push(step);
            }
            if let Some(value) = window.extrapolate(edge, reach.range_ms, self.divisor(reach)) {
                out[step] = value;
            }
        }
        overlaps
    }
}

/// Returns whether no value is less than the previous one and none is NaN.
pub(crate) fn is_non_decreasing(values: &[f64]) -> bool {
    let next = values.get(1..).unwrap_or(&[]);
    // There is no branch per value, so that the compiler vectorizes the loop. A NaN fails the
    // comparison with its neighbours.
    let pairs = values.iter().zip(next);
    let never_falls = pairs.fold(true, |ok, (a, b)| ok & (b >= a));
    never_falls && !values.first().is_some_and(|first| first.is_nan())
}

/// Returns whether all `values`, which never decrease, are the same number with the same sign. This
/// applies to about half of all counters (46 % in the benchmark fleet).
fn is_constant(values: &[f64]) -> bool {
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        return false;
    };
    let is_one = first.to_bits() == last.to_bits() && first.is_finite();
    let is_same = |value: &f64| value.to_bits() == first.to_bits();
    is_one && (*first != 0.0 || values.iter().all(is_same))
}

/// Writes `(last - first) * factor` of all runs. Returns whether the zero rule may apply to a step.
#[inline(always)]
fn fill_runs(plan: &RatePlan, values: &[f64], divisor: f64, out: &mut [f64]) -> bool {
    let undivided = divisor * ROUNDED_UP;
    let mut near_zero = false;
    for run in plan.runs() {
        let steps = run.step..run.step + run.len;
        let out = &mut out[steps.clone()];
        let factors = &plan.factors[steps];
        if run.stride == 1 {
            let firsts = &values[run.first..run.first + run.len];
            let lasts = &values[run.last..run.last + run.len];
            // All loads are contiguous.
            near_zero |= fill_run(firsts.iter(), lasts.iter(), factors, undivided, out);
        } else {
            let every = |from: usize| {
                let places = (0..run.len).map(move |i| from + i * run.stride);
                places.map(|at| &values[at])
            };
            near_zero |= fill_run(every(run.first), every(run.last), factors, undivided, out);
        }
    }
    near_zero
}

/// Writes the results of steps from the first and last values of their windows. Returns whether the
/// zero rule may apply to one of them.
#[inline(always)]
fn fill_run<'a>(
    firsts: impl Iterator<Item = &'a f64>,
    lasts: impl Iterator<Item = &'a f64>,
    factors: &[f64],
    undivided: f64,
    out: &mut [f64],
) -> bool {
    let mut near_zero = false;
    let windows = firsts.zip(lasts).zip(factors);
    for (out, ((first, last), factor)) in out.iter_mut().zip(windows) {
        let change = last - first;
        *out = change * factor;
        // The increase added at the start is at most the increase added at both ends.
        near_zero |= *first < *out * undivided - change;
    }
    near_zero
}

/// Computes the row of a counter that decreases. The values before each reset in a window are
/// added, oldest first. `exact` computes the result of a step from its window and the change.
fn fill_with_resets(
    plan: &RatePlan,
    values: &[f64],
    exact: impl Fn(usize, usize, usize, f64) -> f64,
    out: &mut [f64],
) {
    let next = values.get(1..).unwrap_or(&[]);
    let falls: Vec<usize> = (0..next.len()).filter(|i| next[*i] < values[*i]).collect();
    for (step, start, end) in plan.windows().iter() {
        if end - start < 2 {
            continue;
        }
        let mut change = values[end - 1] - values[start];
        let from = falls.partition_point(|at| *at < start);
        for at in falls[from..].iter().take_while(|at| **at + 1 < end) {
            change += values[*at];
        }
        out[step] = exact(step, start, end, change);
    }
}

impl SampleSlices<'_> {
    /// Returns the growth of the counter in a window that ends at `edge`. A start timestamp inside
    /// the window counts as a sample with the value zero.
    fn extrapolate(&self, edge: TimestampMs, range: i64, divisor: f64) -> Option<f64> {
        let count = self.values.len();
        let (first, last) = (*self.times.first()?, *self.times.last()?);
        let from_start = self.starts_within(edge, range);
        let mut change = self.values[count - 1] - self.values[0];
        for at in 1..count {
            if self.values[at] < self.values[at - 1] || self.has_restarted(at) {
                change += self.values[at - 1];
            }
        }
        if from_start {
            change += self.values[0];
            return Some(change * self.spread_from_start(edge).factor(0.0, divisor));
        }
        if count < 2 {
            return None;
        }
        let spread = RateSpread::compute(first, last, count, edge, range);
        Some(change * spread.factor_above_zero(self.values[0], change, divisor))
    }

    /// Returns the times of a window whose counter started at the start timestamp of its first
    /// sample.
    fn spread_from_start(&self, edge: i64) -> RateSpread {
        let count = self.times.len();
        let (first, last) = (self.times[0], self.times[count - 1]);
        let average = match count {
            1 => 0.0,
            _ => (last - first) as f64 / 1000.0 / (count - 1) as f64,
        };
        let to_end = (edge - last) as f64 / 1000.0;
        RateSpread {
            sampled: (last - self.starts[0]) as f64 / 1000.0,
            to_start: 0.0,
            to_end: if to_end >= average * 1.1 {
                average / 2.0
            } else {
                to_end
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::rows::row::{ABSENT, is_absent};

    const RATE: Extrapolation = Extrapolation {
        counter: true,
        per_second: true,
    };

    /// Computes the rate of a window in the simplest way, as the oracle of the tests.
    fn plain(times: &[i64], values: &[f64], edge: i64, range: i64) -> Option<f64> {
        let inside: Vec<usize> = (0..times.len())
            .filter(|i| times[*i] > edge - range && times[*i] <= edge)
            .collect();
        if inside.len() < 2 {
            return None;
        }
        let (first, last) = (inside[0], inside[inside.len() - 1]);
        let mut change = values[last] - values[first];
        for pair in inside.windows(2) {
            if values[pair[1]] < values[pair[0]] {
                change += values[pair[0]];
            }
        }
        let sampled = (times[last] - times[first]) as f64 / 1000.0;
        let average = sampled / (inside.len() - 1) as f64;
        let mut to_start = (times[first] - (edge - range)) as f64 / 1000.0;
        let mut to_end = (edge - times[last]) as f64 / 1000.0;
        if to_start >= average * 1.1 {
            to_start = average / 2.0;
        }
        if change > 0.0 && values[first] >= 0.0 {
            to_start = to_start.min(sampled * (values[first] / change));
        }
        if to_end >= average * 1.1 {
            to_end = average / 2.0;
        }
        Some(change * ((sampled + to_start + to_end) / sampled / (range as f64 / 1000.0)))
    }

    fn check(times: &[i64], values: &[f64], step_ms: i64, range_ms: i64) {
        let grid = StepGrid::from_bounds(0, 100_000, step_ms);
        let reach = SelectorWindow {
            range_ms,
            offset_ms: 0,
            at: None,
        };
        let mut plan = RatePlan::default();
        plan.fill(times, &grid, &reach, RATE);
        let mut got = vec![ABSENT; grid.count];
        let samples = SampleSlices {
            times,
            values,
            starts: &[],
        };
        RATE.fill(
            &plan,
            &samples,
            is_non_decreasing(values),
            &grid,
            &reach,
            &mut got,
        );
        for (time, got) in grid.times().zip(got) {
            match plain(times, values, time, range_ms) {
                None => assert!(is_absent(got), "at {time}: {got}"),
                Some(want) => assert_eq!(got.to_bits(), want.to_bits(), "at {time}"),
            }
        }
    }

    #[test]
    fn rate_of_planned_windows_equals_the_plain_rate_bit_for_bit() {
        let times: Vec<i64> = (0..100).map(|i| i * 1000 + (i * i) % 7).collect();
        let grows: Vec<f64> = (0..100).map(|i| 1e6 + f64::from(i) * 0.7).collect();
        let from_zero: Vec<f64> = (0..100).map(|i| f64::from(i) * 0.3).collect();
        let constant = vec![7.5; 100];
        let resets: Vec<f64> = (0..100).map(|i| f64::from(i % 13) * 1.1).collect();
        for values in [grows, from_zero, constant, resets] {
            for (step_ms, range_ms) in [(1000, 10_000), (700, 5_000), (3000, 9_500), (10, 2_500)] {
                check(&times, &values, step_ms, range_ms);
            }
        }
    }
}
