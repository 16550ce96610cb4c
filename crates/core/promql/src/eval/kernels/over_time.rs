//! Functions of a window of floats: `*_over_time`, `irate`, `deriv` and similar ones.
//!
//! Each result is computed with the same operations in the same order as in Prometheus, from the
//! first sample of the window to the last, so the results are equal bit by bit. Overlapping windows
//! share work only where this does not change the bits: for counts, and in [`sums`] and
//! [`extremes`].

mod abreast;
mod extremes;
mod pace;
mod sums;
#[cfg(test)]
mod tests;

use crate::eval::kernels::samples::SampleSlices;
use crate::eval::kernels::window::StepWindows;
use crate::eval::rows::row::ABSENT;
use crate::functions::RangeFunction;
use crate::math::float::{FloatRank, quantile};
use firn_model::cancel::CancelToken;
use firn_model::kahan::KahanSum;
use firn_model::sample::TimestampMs;
use pace::CancelChecker;

/// The arguments of a function at a step, besides the window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepArguments {
    /// The evaluation time in milliseconds, which only `predict_linear` uses.
    pub(crate) time: TimestampMs,
    /// The scalar arguments in order, zero where the function has fewer.
    pub(crate) scalars: [f64; 2],
}

/// Computes all steps whose window contains samples. `arguments` returns the arguments of a step,
/// and `is_fused` is true if the processor has fused multiply-add. Returns early if `cancel` is
/// set; the caller must check this.
#[inline(always)]
pub(crate) fn fill(
    function: RangeFunction,
    is_fused: bool,
    windows: &StepWindows,
    samples: &SampleSlices<'_>,
    arguments: impl Fn(usize) -> StepArguments,
    cancel: &CancelToken,
    out: &mut [f64],
) {
    use RangeFunction as F;
    let mut pace = CancelChecker::new(cancel);
    let values = samples.values;
    if let Some(of) = BatchedWindowFunction::for_function(function) {
        return match of {
            BatchedWindowFunction::Sums(of) => {
                sums::fill(of, is_fused, windows, values, &mut pace, out)
            }
            BatchedWindowFunction::Extremes(of) => {
                extremes::fill(of, windows, values, &mut pace, out)
            }
        };
    }
    if matches!(function, F::Resets | F::Changes) {
        return fill_events(function, windows, samples, &mut pace, out);
    }
    let mut scratch = Vec::new();
    for (step, start, end) in windows.iter() {
        out[step] = match function {
            F::Count => (end - start) as f64,
            F::Present => 1.0,
            F::First => values[start],
            F::Last => values[end - 1],
            _ => {
                if pace.advance_and_check(end - start) {
                    return;
                }
                let window = samples.slice(start, end);
                compute_over_samples(function, &window, arguments(step), &mut scratch)
            }
        };
    }
}

/// A function that depends only on the values of a window and is computed for several windows at
/// once.
#[derive(Clone, Copy, Debug)]
enum BatchedWindowFunction {
    /// A sum, or a function that is computed from sums, such as the mean.
    Sums(sums::WindowSumFunction),
    /// A minimum or maximum, which overlapping windows can share.
    Extremes(extremes::WindowExtreme),
}

impl BatchedWindowFunction {
    /// Returns the implementation of `function`, if it is of this class.
    fn for_function(function: RangeFunction) -> Option<Self> {
        Some(match function {
            RangeFunction::Sum => BatchedWindowFunction::Sums(sums::WindowSumFunction::Sum),
            RangeFunction::Mean => BatchedWindowFunction::Sums(sums::WindowSumFunction::Mean),
            RangeFunction::Variance => {
                BatchedWindowFunction::Sums(sums::WindowSumFunction::Variance)
            }
            RangeFunction::Deviation => {
                BatchedWindowFunction::Sums(sums::WindowSumFunction::Deviation)
            }
            RangeFunction::Min => BatchedWindowFunction::Extremes(extremes::WindowExtreme::Least),
            RangeFunction::Max => {
                BatchedWindowFunction::Extremes(extremes::WindowExtreme::Greatest)
            }
            _ => return None,
        })
    }
}

/// Computes a function that needs the samples of each window in order. [`fill`] computes all other
/// functions, and `rate` computes [`RangeFunction::Extrapolated`].
fn compute_over_samples(
    function: RangeFunction,
    window: &SampleSlices<'_>,
    arguments: StepArguments,
    scratch: &mut Vec<FloatRank>,
) -> f64 {
    use RangeFunction as F;
    let values = window.values;
    let seconds = |time: TimestampMs| time as f64 / 1000.0;
    match function {
        F::LastChange { counter } => last_change(window, counter),
        F::Slope if values.len() < 2 => ABSENT,
        F::Slope => linear_regression(window, window.times[0]).0,
        F::Prediction if values.len() < 2 => ABSENT,
        F::Prediction => {
            let (slope, intercept) = linear_regression(window, arguments.time);
            slope * arguments.scalars[0] + intercept
        }
        F::Smoothing => {
            double_exponential_smoothing(values, arguments.scalars[0], arguments.scalars[1])
        }
        F::Quantile => compute_quantile(arguments.scalars[0], values.iter().copied(), scratch),
        F::MedianDeviation => median_deviation(values, scratch),
        F::FirstTime => seconds(window.times[0]),
        F::LastTime => seconds(window.times[window.times.len() - 1]),
        F::MinTime => seconds(time_of_extreme(window, |value, best| value <= best)),
        F::MaxTime => seconds(time_of_extreme(window, |value, best| value >= best)),
        F::Extrapolated(_)
        | F::Sum
        | F::Mean
        | F::Variance
        | F::Deviation
        | F::Min
        | F::Max
        | F::Resets
        | F::Changes
        | F::Count
        | F::Present
        | F::First
        | F::Last => unreachable!("{function:?} needs no samples of a single window"),
    }
}

/// Returns the timestamp of the best value: of equal ones the last, and of NaN only if all values
/// are NaN.
fn time_of_extreme(window: &SampleSlices<'_>, better: fn(f64, f64) -> bool) -> TimestampMs {
    let (mut best, mut at) = (window.values[0], window.times[0]);
    for (value, time) in window.values.iter().zip(window.times) {
        if better(*value, best) || best.is_nan() {
            (best, at) = (*value, *time);
        }
    }
    at
}

/// Returns the number of resets or changes among the samples of a window.
pub(crate) fn count_events(function: RangeFunction, window: &SampleSlices<'_>) -> f64 {
    let places = 1..window.values.len();
    places.filter(|at| is_event(function, window, *at)).count() as f64
}

/// Returns whether a sample is a reset or a change relative to the previous one.
fn is_event(function: RangeFunction, samples: &SampleSlices<'_>, at: usize) -> bool {
    let (before, now) = (samples.values[at - 1], samples.values[at]);
    match function {
        RangeFunction::Resets => now < before || samples.has_restarted(at),
        _ => before != now && !(before.is_nan() && now.is_nan()),
    }
}

/// Computes the resets or changes of all windows, as differences of their cumulative number.
fn fill_events(
    function: RangeFunction,
    windows: &StepWindows,
    samples: &SampleSlices<'_>,
    pace: &mut CancelChecker<'_>,
    out: &mut [f64],
) {
    if pace.advance_and_check(samples.values.len()) {
        return;
    }
    let mut count = 0u32;
    let up_to = |at| {
        count += u32::from(at > 0 && is_event(function, samples, at));
        count
    };
    let counts: Vec<u32> = (0..samples.values.len()).map(up_to).collect();
    for (step, start, end) in windows.iter() {
        // The first sample of a window has no previous sample in it, so it is not an event.
        out[step] = f64::from(counts[end - 1] - counts[start]);
    }
}

/// Returns the change between the last two samples; for a counter, per second.
fn last_change(window: &SampleSlices<'_>, counter: bool) -> f64 {
    let count = window.values.len();
    if count < 2 {
        return ABSENT;
    }
    let (before, last) = (window.values[count - 2], window.values[count - 1]);
    let restarted = window.has_restarted(count - 1);
    let change = if counter && (last < before || restarted) {
        last
    } else {
        last - before
    };
    if counter {
        change / ((window.times[count - 1] - window.times[count - 2]) as f64 / 1000.0)
    } else {
        change
    }
}

/// Returns the median of the absolute deviations from the median.
fn median_deviation(values: &[f64], scratch: &mut Vec<FloatRank>) -> f64 {
    if values.iter().any(|v| v.is_nan()) {
        return f64::NAN;
    }
    let median = compute_quantile(0.5, values.iter().copied(), scratch);
    compute_quantile(
        0.5,
        values.iter().map(|value| (value - median).abs()),
        scratch,
    )
}

/// Returns a quantile of the values in O(n). Overwrites `scratch` with their ranks, partly ordered.
fn compute_quantile(
    q: f64,
    values: impl Iterator<Item = f64>,
    scratch: &mut Vec<FloatRank>,
) -> f64 {
    scratch.clear();
    scratch.extend(values.map(FloatRank::from_float));
    quantile(q, scratch)
}

/// Returns the slope of the least-squares line, and its value at `origin`.
fn linear_regression(window: &SampleSlices<'_>, origin: TimestampMs) -> (f64, f64) {
    let first = window.values[0];
    if window.values[1..].iter().all(|v| *v == first) {
        return if first.is_infinite() {
            (f64::NAN, f64::NAN)
        } else {
            (0.0, first)
        };
    }
    let [mut x_sum, mut y_sum, mut xy_sum, mut xx_sum] = [KahanSum::default(); 4];
    for (time, y) in window.times.iter().zip(window.values) {
        let x = (time - origin) as f64 / 1e3;
        x_sum = x_sum.plus(x);
        y_sum = y_sum.plus(*y);
        xy_sum = xy_sum.plus(x * y);
        xx_sum = xx_sum.plus(x * x);
    }
    let count = window.values.len() as f64;
    let [x, y, xy, xx] = [x_sum, y_sum, xy_sum, xx_sum].map(KahanSum::total);
    let slope = (xy - x * y / count) / (xx - x * x / count);
    (slope, y / count - slope * x / count)
}

/// Returns the result of Holt's double exponential smoothing (Holt-Winters without seasons).
fn double_exponential_smoothing(values: &[f64], factor: f64, trend_factor: f64) -> f64 {
    if values.len() < 2 {
        return ABSENT;
    }
    let (mut before, mut smoothed) = (0.0, values[0]);
    let mut trend = values[1] - values[0];
    for (at, value) in values.iter().enumerate().skip(1) {
        let scaled = factor * value;
        if at > 1 {
            trend = trend_factor * (smoothed - before) + (1.0 - trend_factor) * trend;
        }
        let carried = (1.0 - factor) * (smoothed + trend);
        (before, smoothed) = (smoothed, scaled + carried);
    }
    smoothed
}
