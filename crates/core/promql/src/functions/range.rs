//! The functions of range vectors.
//!
//! Each variant has its computation in `eval/kernels/over_time.rs` (`rate`, `increase` and `delta`:
//! `eval/kernels/rate.rs`) and its treatment of native histograms in `compute_outcome` of
//! `eval/kernels/mixed.rs`.

/// The parameters that distinguish `rate`, `increase` and `delta`, which share one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extrapolation {
    /// True for a counter: a decreasing value is a counter reset, and values below zero are
    /// impossible.
    pub(crate) counter: bool,
    /// True if the result is divided by the seconds of the window.
    pub(crate) per_second: bool,
}

/// A function of a range vector. The evaluator selects the kernel by this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeFunction {
    /// The functions `rate`, `increase` and `delta`: the change over the window, extrapolated to
    /// its edges.
    Extrapolated(Extrapolation),
    /// The functions `irate` and `idelta`, which use the last two samples of the window.
    LastChange {
        /// True for `irate`, which is per second; false for `idelta`.
        counter: bool,
    },
    /// The function `deriv`: the slope of the least-squares line, per second.
    Slope,
    /// The function `predict_linear(v, t)`: the value of the least-squares line after `t` seconds.
    Prediction,
    /// The function `double_exponential_smoothing(v, sf, tf)` with a smoothing and a trend factor.
    Smoothing,
    /// The function `resets`: the number of counter resets in the window.
    Resets,
    /// The function `changes`: the number of changes of the value in the window.
    Changes,
    /// The function `avg_over_time`: the arithmetic mean of all samples.
    Mean,
    /// The function `sum_over_time`: the sum of all samples.
    Sum,
    /// The function `count_over_time`: the number of samples.
    Count,
    /// The function `present_over_time`: the constant one.
    Present,
    /// The function `min_over_time`: the smallest float.
    Min,
    /// The function `max_over_time`: the largest float.
    Max,
    /// The function `first_over_time`: the oldest sample in the window.
    First,
    /// The function `last_over_time`: the newest sample in the window.
    Last,
    /// The function `stddev_over_time`: the population standard deviation of the floats.
    Deviation,
    /// The function `stdvar_over_time`: the population variance of the floats.
    Variance,
    /// The function `quantile_over_time(q, v)`: the interpolated quantile of the floats.
    Quantile,
    /// The function `mad_over_time`: the median absolute deviation of the floats.
    MedianDeviation,
    /// The function `ts_of_first_over_time`: the timestamp of the oldest sample, in seconds.
    FirstTime,
    /// The function `ts_of_last_over_time`: the timestamp of the newest sample, in seconds.
    LastTime,
    /// The function `ts_of_min_over_time`: the timestamp of the last smallest float, in seconds.
    MinTime,
    /// The function `ts_of_max_over_time`: the timestamp of the last largest float, in seconds.
    MaxTime,
}

impl RangeFunction {
    /// Returns `rate`, `increase` or `delta`, depending on the parameters.
    pub(crate) const fn from_extrapolation(counter: bool, per_second: bool) -> Self {
        RangeFunction::Extrapolated(Extrapolation {
            counter,
            per_second,
        })
    }

    /// Returns whether the function extrapolates the growth of a counter: `rate` or `increase`.
    pub(crate) fn is_growth(self) -> bool {
        matches!(self, RangeFunction::Extrapolated(how) if how.counter)
    }
}
