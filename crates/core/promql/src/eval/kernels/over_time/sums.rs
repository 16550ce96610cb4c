//! The functions `sum_over_time`, `avg_over_time`, `stddev_over_time` and `stdvar_over_time`.
//!
//! Prometheus adds the values of a window from first to last with compensation. Two faster methods
//! give the same bits. If all values are integers, and so small that a float represents their sums
//! exactly, nothing is ever rounded, so the sum of a window is the difference of two cumulative
//! sums. Otherwise several windows are added at the same time, each in its own order.

use super::abreast::{LANES, ParallelWindows};
use super::pace::CancelChecker;
use crate::eval::kernels::window::StepWindows;
use crate::math::integers::{SMALL, round_to_float, round_to_integer, to_float};
use crate::math::quotient::{PreparedDivisor, divide_by_inverse, divide_plainly};
use firn_model::kahan::{KahanSum, RunningMean};

/// The function of a window's values that is computed from sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowSumFunction {
    /// The sum of the values, for `sum_over_time`.
    Sum,
    /// The arithmetic mean, for `avg_over_time`.
    Mean,
    /// The population variance, for `stdvar_over_time`.
    Variance,
    /// The population standard deviation: the square root of the variance.
    Deviation,
}

/// Computes all windows that contain samples. `is_fused` is true if the processor has fused
/// multiply-add.
#[inline(always)]
pub(super) fn fill(
    of: WindowSumFunction,
    is_fused: bool,
    windows: &StepWindows,
    values: &[f64],
    pace: &mut CancelChecker<'_>,
    out: &mut [f64],
) {
    let is_sum = matches!(of, WindowSumFunction::Sum | WindowSumFunction::Mean);
    let longest = windows.samples_max() as f64;
    if is_sum && greatest_integer(values).is_some_and(|value| value * longest <= SMALL as f64) {
        return compute_integer_sums(of, is_fused, windows, values, pace, out);
    }
    for abreast in ParallelWindows::group_windows(windows) {
        if pace.advance_and_check(abreast.samples()) {
            return;
        }
        match of {
            WindowSumFunction::Sum | WindowSumFunction::Mean => {
                compute_sums(of, &abreast, values, out)
            }
            WindowSumFunction::Variance | WindowSumFunction::Deviation => {
                compute_variances(of, &abreast, values, out)
            }
        }
    }
}

/// The state of a variance computed by Welford's method with compensation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct VarianceState {
    count: f64,
    mean: KahanSum,
    squares: KahanSum,
}

impl VarianceState {
    #[inline(always)]
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let delta = value - self.mean.total();
        self.mean = self.mean.plus(delta / self.count);
        self.squares = self.squares.plus(delta * (value - self.mean.total()));
    }
}

impl WindowSumFunction {
    /// Returns the result of a non-empty window, computed as in Prometheus.
    pub(super) fn compute_window(self, values: &[f64]) -> f64 {
        match self {
            WindowSumFunction::Sum => {
                self.sum(add_values(KahanSum::default(), values), values.len())
            }
            WindowSumFunction::Mean => {
                let mut mean = RunningMean::new(values[0]);
                values[1..].iter().for_each(|value| mean.add(*value));
                mean.value()
            }
            WindowSumFunction::Variance | WindowSumFunction::Deviation => {
                let mut squares = VarianceState::default();
                values.iter().for_each(|value| squares.add(*value));
                self.squares(&squares)
            }
        }
    }

    /// Returns the result for a window of `count` samples with this sum. For a mean, the sum must
    /// not have overflowed.
    fn sum(self, sum: KahanSum, count: usize) -> f64 {
        match self {
            WindowSumFunction::Mean => sum.sum / count as f64 + sum.lost / count as f64,
            _ if sum.sum.is_infinite() => sum.sum,
            _ => sum.total(),
        }
    }

    fn squares(self, squares: &VarianceState) -> f64 {
        let variance = squares.squares.total() / squares.count;
        match self {
            WindowSumFunction::Deviation => variance.sqrt(),
            _ => variance,
        }
    }
}

fn add_values(sum: KahanSum, values: &[f64]) -> KahanSum {
    values.iter().fold(sum, |sum, value| sum.plus(*value))
}

/// Returns the largest magnitude of `values`, if all of them are integers. Odd integers above 2^51
/// and negative zero do not count as integers here.
#[inline(always)]
fn greatest_integer(values: &[f64]) -> Option<f64> {
    let (mut greatest, mut differs) = (0, 0);
    for value in values {
        differs |= round_to_float(*value).to_bits() ^ value.to_bits();
        // Magnitudes of floats have the same order as their bits.
        greatest = i64::max(greatest, value.abs().to_bits() as i64);
    }
    let greatest = f64::from_bits(greatest as u64);
    (differs == 0 && greatest.is_finite()).then_some(greatest)
}

/// Computes sums or means of integers as differences of cumulative sums. The cumulative sums may
/// wrap around; their differences are still correct.
#[inline(always)]
fn compute_integer_sums(
    of: WindowSumFunction,
    is_fused: bool,
    windows: &StepWindows,
    values: &[f64],
    pace: &mut CancelChecker<'_>,
    out: &mut [f64],
) {
    if pace.advance_and_check(values.len()) {
        return;
    }
    let mut sum = 0i64;
    let mut sums = Vec::with_capacity(values.len() + 1);
    sums.push(sum);
    sums.extend(values.iter().map(|value| {
        sum = sum.wrapping_add(round_to_integer(*value));
        sum
    }));
    for stretch in windows.stretches() {
        let ends = &sums[stretch.behind_start(stretch.samples())];
        let starts = &sums[stretch.behind_start(0)];
        let divisor = match of {
            WindowSumFunction::Mean => stretch.samples() as f64,
            _ => 1.0,
        };
        let divisor = PreparedDivisor::new(divisor);
        let out = &mut out[stretch.steps()];
        if is_fused {
            divide_differences(divide_by_inverse, ends, starts, divisor, out)
        } else {
            divide_differences(divide_plainly, ends, starts, divisor, out)
        }
    }
}

/// Writes the differences `ends - starts`, divided by `divisor`.
#[inline(always)]
fn divide_differences(
    divide: impl Fn(f64, PreparedDivisor) -> f64,
    ends: &[i64],
    starts: &[i64],
    divisor: PreparedDivisor,
    out: &mut [f64],
) {
    for (out, (end, start)) in out.iter_mut().zip(ends.iter().zip(starts)) {
        *out = divide(to_float(end.wrapping_sub(*start)), divisor);
    }
}

/// Computes the sums or means of several windows at the same time.
#[inline(always)]
fn compute_sums(of: WindowSumFunction, abreast: &ParallelWindows, values: &[f64], out: &mut [f64]) {
    let sums = add_up(values, abreast);
    for (lane, sum) in sums.into_iter().enumerate() {
        let window = abreast.window(lane, values);
        let sum = add_values(sum, &window[abreast.shortest_len()..]);
        out[abreast.steps[lane]] = match of {
            // If the sum overflows, the mean is computed with a different method.
            WindowSumFunction::Mean if !sum.sum.is_finite() => of.compute_window(window),
            _ => of.sum(sum, window.len()),
        };
    }
}

/// Returns the sums of the first samples of all windows, up to the length of the shortest one.
#[inline(always)]
fn add_up(values: &[f64], abreast: &ParallelWindows) -> [KahanSum; LANES] {
    let mut sums = [KahanSum::default(); LANES];
    abreast.scan(values, |values| {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = sum.plus(value);
        }
    });
    sums
}

/// Computes the variances of several windows at the same time.
#[inline(always)]
fn compute_variances(
    of: WindowSumFunction,
    abreast: &ParallelWindows,
    values: &[f64],
    out: &mut [f64],
) {
    let squares = add_squares(values, abreast);
    for (lane, mut squares) in squares.into_iter().enumerate() {
        let rest = &abreast.window(lane, values)[abreast.shortest_len()..];
        rest.iter().for_each(|value| squares.add(*value));
        out[abreast.steps[lane]] = of.squares(&squares);
    }
}

/// Returns the variances of the first samples of all windows, up to the length of the shortest one.
#[inline(always)]
fn add_squares(values: &[f64], abreast: &ParallelWindows) -> [VarianceState; LANES] {
    let mut squares = [VarianceState::default(); LANES];
    abreast.scan(values, |values| {
        for (squares, value) in squares.iter_mut().zip(values) {
            squares.add(value);
        }
    });
    squares
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    #[test]
    fn sums_means_and_variances_are_compensated() {
        assert_eq!(
            WindowSumFunction::Mean.compute_window(&[1e100, 1.0, -1e100]),
            1.0 / 3.0
        );
        assert_eq!(
            WindowSumFunction::Mean.compute_window(&[f64::MAX, f64::MAX]),
            f64::MAX
        );
        assert_eq!(
            WindowSumFunction::Sum.compute_window(&[f64::INFINITY, 1.0]),
            f64::INFINITY
        );
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(WindowSumFunction::Variance.compute_window(&values), 4.0);
        assert_eq!(WindowSumFunction::Deviation.compute_window(&values), 2.0);
    }

    #[test]
    fn greatest_integer_is_found_among_integers_alone() {
        let large = (1u64 << 53) as f64;
        for (values, want) in [
            (vec![], Some(0.0)),
            (vec![3.0, -7.0, 0.0], Some(7.0)),
            (vec![large / 4.0 - 1.0], Some(large / 4.0 - 1.0)),
            (vec![large / 4.0 + 1.0], None),
            (vec![1.0, 0.5], None),
            (vec![large / 8.0 + 0.5], None),
            (vec![-0.0], None),
            (vec![f64::NAN, 1.0], None),
            (vec![f64::INFINITY], None),
        ] {
            assert_eq!(greatest_integer(&values), want, "{values:?}");
        }
    }

    #[test]
    fn quotients_of_either_way_are_those_of_the_division() {
        for seed in 0..500 {
            let rng = SimRng::new(seed);
            let [ends, starts] = [(); 2].map(|()| {
                let integer = |_| rng.next_u64() as i64 >> 14;
                (0..rng.next_below(30)).map(integer).collect::<Vec<i64>>()
            });
            let count = 1 + rng.next_below(1 << rng.next_below(20));
            let divisor = PreparedDivisor::new(count as f64);
            for divide in [divide_by_inverse, divide_plainly] {
                let mut quotients = vec![0.0; ends.len().min(starts.len())];
                divide_differences(divide, &ends, &starts, divisor, &mut quotients);
                for (i, quotient) in quotients.iter().enumerate() {
                    let difference = ends[i] - starts[i];
                    assert_eq!(*quotient, difference as f64 / count as f64, "seed {seed}");
                }
            }
        }
    }
}
