//! `rate`, `increase`, `delta`: the change of a window, extrapolated to its edges.
//!
//! What depends on times alone is planned once for a time column ([`plan`]): for every step the
//! first and the last sample, and the factor of the extrapolation. A counter that never fell is
//! then `(last - first) * factor`, in a loop over steps that the compiler vectorises. The rule that
//! a counter is not extrapolated below zero needs values: it may apply where the counter began
//! below what the extrapolation adds, and a row where it may is done again exactly.
//!
//! Results equal upstream's bit for bit: the order of operations is the same on both ways.

mod plan;

use crate::eval::rows::row::is_zero;
use crate::functions::Extrapolation;
use crate::grid::{Grid, Reach, seconds};
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use multiversion::multiversion;
pub(crate) use plan::RatePlan;
use plan::Spread;

/// Makes what the zero rule is looked for by err on the safe side of rounding.
const ROUNDED_UP: f64 = 1.0 + 1e-9;

impl Extrapolation {
    /// What the change is divided by.
    fn divisor(self, reach: &Reach) -> f64 {
        if self.per_second {
            seconds(reach.range_ms)
        } else {
            1.0
        }
    }

    /// The factor by which the growth of a window of histograms is extrapolated. `grown` is the
    /// first count and how much it grew.
    pub(crate) fn factor(
        self,
        times: &Started<'_>,
        from_start: bool,
        grown: (f64, f64),
        edge: TimestampMs,
        range: i64,
    ) -> f64 {
        let divisor = match self.per_second {
            true => seconds(range),
            false => 1.0,
        };
        if from_start {
            return times.spread_from_start(edge).factor(0.0, divisor);
        }
        let (first, last) = (times.times[0], times.times[times.times.len() - 1]);
        let spread = Spread::of(first, last, times.times.len(), edge, range);
        match self.counter {
            true => spread.factor_above_zero(grown.0, grown.1, divisor),
            false => spread.factor(spread.to_start, divisor),
        }
    }

    /// Writes the results of all steps that have one; returns whether it is known of all that they
    /// are zero. No value is a staleness marker, and of a counter's it is known whether they rise,
    /// as [`rises`] says.
    pub(crate) fn fill(
        self,
        plan: &RatePlan,
        (values, rising): (&[f64], bool),
        out: &mut [f64],
    ) -> bool {
        let divisor = plan.divisor();
        if self.counter && !rising {
            fill_with_resets(plan, values, divisor, out);
            return false;
        }
        if self.counter && stands_still(values) {
            for run in plan.runs() {
                out[run.step..run.step + run.len].fill(0.0);
            }
            return true;
        }
        let near_zero = fill_runs(plan, values, divisor, out);
        if self.counter && near_zero {
            for (step, start, end) in plan.windows().iter() {
                if end - start >= 2 {
                    let change = values[end - 1] - values[start];
                    out[step] = exact(plan, step, values[start], change, divisor);
                }
            }
        }
        false
    }

    /// Like [`Extrapolation::fill`], for samples with start timestamps; returns the steps in whose
    /// window some overlap the sample before.
    pub(crate) fn fill_with_starts(
        self,
        plan: &RatePlan,
        samples: &Started<'_>,
        grid: &Grid,
        reach: &Reach,
        out: &mut [f64],
    ) -> Vec<usize> {
        let mut overlaps = Vec::new();
        for (step, start, end) in plan.windows().iter() {
            let edge = reach.end(grid.time(step));
            let window = samples.slice(start, end);
            if window.overlaps() {
                overlaps.push(step);
            }
            if let Some(value) = window.extrapolate(edge, reach.range_ms, self.divisor(reach)) {
                out[step] = value;
            }
        }
        overlaps
    }
}

/// Whether no value is less than the one before and none is a NaN.
pub(crate) fn rises(values: &[f64]) -> bool {
    !values.first().is_some_and(|first| first.is_nan()) && never_falls(values)
}

/// Whether no value is less than the one before; a NaN next to another value counts as a fall.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn never_falls(values: &[f64]) -> bool {
    never_falls_plainly(values)
}

#[inline(always)]
fn never_falls_plainly(values: &[f64]) -> bool {
    let next = values.get(1..).unwrap_or(&[]);
    values
        .iter()
        .zip(next)
        .fold(true, |ok, (a, b)| ok & (b >= a))
}

/// Whether all of `values`, none of which falls, are one number of one sign, as those of half of
/// all counters are (46 % in the fleet of the gates).
fn stands_still(values: &[f64]) -> bool {
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        return false;
    };
    let is_one = first.to_bits() == last.to_bits() && first.is_finite();
    is_one && (*first != 0.0 || is_zero(values))
}

/// `(last - first) * factor`; returns whether the zero rule may apply somewhere.
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
            near_zero |= fill_dense_run(firsts, lasts, factors, undivided, out);
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

/// A run whose windows move on by a sample each: all loads are of neighbours.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn fill_dense_run(
    firsts: &[f64],
    lasts: &[f64],
    factors: &[f64],
    undivided: f64,
    out: &mut [f64],
) -> bool {
    fill_run(firsts.iter(), lasts.iter(), factors, undivided, out)
}

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
        // What is added at the start is not more than what is added at both ends.
        near_zero |= *first < *out * undivided - change;
    }
    near_zero
}

/// The exact result of a counter's step.
fn exact(plan: &RatePlan, step: usize, first: f64, change: f64, divisor: f64) -> f64 {
    change * plan.spread(step).factor_above_zero(first, change, divisor)
}

/// A counter that fell: what was lost at each fall inside a window is added, oldest first.
fn fill_with_resets(plan: &RatePlan, values: &[f64], divisor: f64, out: &mut [f64]) {
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
        out[step] = exact(plan, step, values[start], change, divisor);
    }
}

/// Samples of a counter with the times at which it started to count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started<'a> {
    /// Timestamps.
    pub(crate) times: &'a [TimestampMs],
    /// Values; none if the samples are histograms.
    pub(crate) values: &'a [f64],
    /// Start timestamps, as many as timestamps.
    pub(crate) starts: &'a [TimestampMs],
}

impl<'a> Started<'a> {
    /// Samples `start..end`.
    pub(crate) fn slice(&self, start: usize, end: usize) -> Started<'a> {
        Started {
            times: &self.times[start..end],
            values: self.values.get(start..end).unwrap_or(&[]),
            starts: &self.starts[start..end],
        }
    }

    /// Whether the counter started anew between sample `at` and the one before.
    pub(crate) fn restarted(&self, at: usize) -> bool {
        let (before, start) = (self.times[at - 1], self.starts[at]);
        if start == START_UNKNOWN || start >= self.times[at] || start < before {
            return false;
        }
        if start > before {
            return true;
        }
        // It starts where the sample before stands: a delta, if that one's own start is known.
        let previous = self.starts[at - 1];
        previous <= before && previous != START_UNKNOWN && previous != before
    }

    /// Whether a start lies before the sample before, and is not that one's start.
    pub(crate) fn overlaps(&self) -> bool {
        (1..self.times.len()).any(|at| {
            let start = self.starts[at];
            start != START_UNKNOWN && start < self.times[at - 1] && start != self.starts[at - 1]
        })
    }

    /// Whether the counter is known to have started from zero inside the window that ends at
    /// `edge`, before its first sample.
    pub(crate) fn starts_within(&self, edge: TimestampMs, range: i64) -> bool {
        let (Some(start), Some(first)) = (self.starts.first(), self.times.first()) else {
            return false;
        };
        *start != START_UNKNOWN && *start > edge - range && start < first
    }

    /// The counter's growth in a window that ends at `edge`. A start inside the window is a
    /// sample of zero.
    fn extrapolate(&self, edge: TimestampMs, range: i64, divisor: f64) -> Option<f64> {
        let count = self.values.len();
        let (first, last) = (*self.times.first()?, *self.times.last()?);
        let from_start = self.starts_within(edge, range);
        let mut change = self.values[count - 1] - self.values[0];
        for at in 1..count {
            if self.values[at] < self.values[at - 1] || self.restarted(at) {
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
        let spread = Spread::of(first, last, count, edge, range);
        Some(change * spread.factor_above_zero(self.values[0], change, divisor))
    }

    /// The times of a window whose counter started at its first sample's start.
    fn spread_from_start(&self, edge: i64) -> Spread {
        let count = self.times.len();
        let (first, last) = (self.times[0], self.times[count - 1]);
        let average = match count {
            1 => 0.0,
            _ => (last - first) as f64 / 1000.0 / (count - 1) as f64,
        };
        let to_end = (edge - last) as f64 / 1000.0;
        Spread {
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
    use crate::eval::rows::row::{ABSENT, is_absent, is_zero_plainly};
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    const RATE: Extrapolation = Extrapolation {
        counter: true,
        per_second: true,
    };

    /// The rate of a window, written down plainly.
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
        let grid = Grid::between(0, 100_000, step_ms);
        let reach = Reach {
            range_ms,
            offset_ms: 0,
            at: None,
        };
        let mut plan = RatePlan::default();
        plan.fill(times, &grid, &reach, RATE);
        let mut got = vec![ABSENT; grid.count];
        RATE.fill(&plan, (values, rises(values)), &mut got);
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

    #[test]
    fn loops_of_this_processor_give_the_bits_of_the_portable_ones() {
        for seed in 0..500 {
            let rng = SimRng::new(seed);
            let mut sum = 0.0;
            let mut value = || match rng.below(60) {
                0 => f64::NAN,
                1 => 0.0,
                2 => f64::from_bits(rng.next_u64() >> 2),
                n => {
                    sum += n as f64 / 7.0;
                    sum
                }
            };
            let count = rng.below(40) as usize;
            let [firsts, lasts, factors] =
                [(); 3].map(|()| (0..count).map(|_| value()).collect::<Vec<f64>>());
            let falls = [never_falls(&firsts), never_falls_plainly(&firsts)];
            assert_eq!(falls[0], falls[1], "seed {seed}");
            let mut zeros = vec![0.0; count];
            zeros[rng.below(count.max(1) as u64) as usize..].fill([0.0, -0.0][seed as usize % 2]);
            assert_eq!(is_zero(&zeros), is_zero_plainly(&zeros), "seed {seed}");
            let (mut out, mut plain) = (vec![ABSENT; count], vec![ABSENT; count]);
            let near = fill_dense_run(&firsts, &lasts, &factors, 300.0, &mut out);
            let ends = (firsts.iter(), lasts.iter());
            let plain_near = fill_run(ends.0, ends.1, &factors, 300.0, &mut plain);
            assert_eq!(near, plain_near, "seed {seed}");
            let one_nan = |v: &f64| if v.is_nan() { f64::NAN } else { *v };
            let bits = |row: &[f64]| row.iter().map(|v| one_nan(v).to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&out), bits(&plain), "seed {seed}");
        }
    }
}
