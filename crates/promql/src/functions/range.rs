//! The functions of range vectors, as the evaluator distinguishes them.

/// The parameters that distinguish `rate`, `increase` and `delta`.
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
    /// The functions `rate`, `increase` and `delta`.
    Extrapolated(Extrapolation),
    /// The functions `irate` and `idelta`, which use the last two samples of the window.
    LastChange {
        /// True for `irate`, false for `idelta`.
        counter: bool,
    },
    /// The function `deriv`.
    Slope,
    /// The function `predict_linear(v, t)`.
    Prediction,
    /// The function `double_exponential_smoothing(v, sf, tf)`.
    Smoothing,
    /// The function `resets`.
    Resets,
    /// The function `changes`.
    Changes,
    /// The function `avg_over_time`.
    Mean,
    /// The function `sum_over_time`.
    Sum,
    /// The function `count_over_time`.
    Count,
    /// The function `present_over_time`.
    Present,
    /// The function `min_over_time`.
    Min,
    /// The function `max_over_time`.
    Max,
    /// The function `first_over_time`.
    First,
    /// The function `last_over_time`.
    Last,
    /// The function `stddev_over_time`.
    Deviation,
    /// The function `stdvar_over_time`.
    Variance,
    /// The function `quantile_over_time(q, v)`.
    Quantile,
    /// The function `mad_over_time`: the median absolute deviation.
    MedianDeviation,
    /// The function `ts_of_first_over_time`.
    FirstTime,
    /// The function `ts_of_last_over_time`.
    LastTime,
    /// The function `ts_of_min_over_time`.
    MinTime,
    /// The function `ts_of_max_over_time`.
    MaxTime,
}

impl RangeFunction {
    /// Returns `rate`, `increase` or `delta`, depending on the parameters.
    pub(crate) const fn extrapolated(counter: bool, per_second: bool) -> Self {
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
