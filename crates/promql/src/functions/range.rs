//! The functions of range vectors, as evaluation tells them apart.

/// Which of `rate`, `increase` and `delta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extrapolation {
    /// Whether a fall is a reset and values below zero are impossible.
    pub(crate) counter: bool,
    /// Whether the result is per second.
    pub(crate) per_second: bool,
}

/// A function of a range vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeFunction {
    /// `rate`, `increase`, `delta`
    Extrapolated(Extrapolation),
    /// `irate` if counter, else `idelta`
    LastChange {
        /// Whether it is `irate`.
        counter: bool,
    },
    /// `deriv`
    Slope,
    /// `predict_linear(v, t)`
    Prediction,
    /// `double_exponential_smoothing(v, sf, tf)`
    Smoothing,
    /// `resets`
    Resets,
    /// `changes`
    Changes,
    /// `avg_over_time`
    Mean,
    /// `sum_over_time`
    Sum,
    /// `count_over_time`
    Count,
    /// `present_over_time`
    Present,
    /// `min_over_time`
    Min,
    /// `max_over_time`
    Max,
    /// `first_over_time`
    First,
    /// `last_over_time`
    Last,
    /// `stddev_over_time`
    Deviation,
    /// `stdvar_over_time`
    Variance,
    /// `quantile_over_time(q, v)`
    Quantile,
    /// `mad_over_time`
    MedianDeviation,
    /// `ts_of_first_over_time`
    FirstTime,
    /// `ts_of_last_over_time`
    LastTime,
    /// `ts_of_min_over_time`
    MinTime,
    /// `ts_of_max_over_time`
    MaxTime,
}

impl RangeFunction {
    /// `rate`, `increase` or `delta`.
    pub(crate) const fn extrapolated(counter: bool, per_second: bool) -> Self {
        RangeFunction::Extrapolated(Extrapolation {
            counter,
            per_second,
        })
    }

    /// Whether the function extrapolates the growth of a counter.
    pub(crate) fn is_growth(self) -> bool {
        matches!(self, RangeFunction::Extrapolated(how) if how.counter)
    }
}
