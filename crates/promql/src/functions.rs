//! The function table: one row a function, read by the parser, the type checker, the evaluator and
//! the documentation.
//!
//! Invariant: rows are sorted by name, and every [`FunctionId`] has exactly one row.

use crate::ast::ValueType;

/// Identifies a function to the evaluator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FunctionId {
    Abs,
    Absent,
    AbsentOverTime,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    AvgOverTime,
    Ceil,
    Changes,
    Clamp,
    ClampMax,
    ClampMin,
    Cos,
    Cosh,
    CountOverTime,
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    DaysInMonth,
    Deg,
    Delta,
    Deriv,
    DoubleExponentialSmoothing,
    End,
    Exp,
    FirstOverTime,
    Floor,
    HistogramAvg,
    HistogramCount,
    HistogramFraction,
    HistogramQuantile,
    HistogramQuantiles,
    HistogramStddev,
    HistogramStdvar,
    HistogramSum,
    Hour,
    Idelta,
    Increase,
    Info,
    Irate,
    LabelJoin,
    LabelReplace,
    LastOverTime,
    Ln,
    Log10,
    Log2,
    MadOverTime,
    MaxOf,
    MaxOverTime,
    MinOf,
    MinOverTime,
    Minute,
    Month,
    Pi,
    PredictLinear,
    PresentOverTime,
    QuantileOverTime,
    Rad,
    Range,
    Rate,
    Resets,
    Round,
    Scalar,
    Sgn,
    Sin,
    Sinh,
    Sort,
    SortByLabel,
    SortByLabelDesc,
    SortDesc,
    Sqrt,
    Start,
    StartTimestamp,
    StddevOverTime,
    StdvarOverTime,
    Step,
    SumOverTime,
    Tan,
    Tanh,
    Time,
    Timestamp,
    TsOfFirstOverTime,
    TsOfLastOverTime,
    TsOfMaxOverTime,
    TsOfMinOverTime,
    Vector,
    Year,
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// The name in PromQL.
    pub name: &'static str,
    /// Who it is for the evaluator.
    pub id: FunctionId,
    /// Types of the arguments; with `variadic` the last may be left out or repeated.
    pub args: &'static [ValueType],
    /// As upstream: 0 fixed, n up to n more than all arguments but the last, -1 any number.
    pub variadic: i32,
    /// The type of the result.
    pub returns: ValueType,
    /// Needs `promql-experimental-functions`.
    pub experimental: bool,
}

const S: ValueType = ValueType::Scalar;
const T: ValueType = ValueType::String;
const V: ValueType = ValueType::Vector;
const M: ValueType = ValueType::Matrix;

/// All functions of Prometheus 3.14, sorted by name.
#[rustfmt::skip]
pub static FUNCTIONS: [Function; 90] = [
    row("abs", FunctionId::Abs, &[V], V),
    row("absent", FunctionId::Absent, &[V], V),
    row("absent_over_time", FunctionId::AbsentOverTime, &[M], V),
    row("acos", FunctionId::Acos, &[V], V),
    row("acosh", FunctionId::Acosh, &[V], V),
    row("asin", FunctionId::Asin, &[V], V),
    row("asinh", FunctionId::Asinh, &[V], V),
    row("atan", FunctionId::Atan, &[V], V),
    row("atanh", FunctionId::Atanh, &[V], V),
    row("avg_over_time", FunctionId::AvgOverTime, &[M], V),
    row("ceil", FunctionId::Ceil, &[V], V),
    row("changes", FunctionId::Changes, &[M], V),
    row("clamp", FunctionId::Clamp, &[V, S, S], V),
    row("clamp_max", FunctionId::ClampMax, &[V, S], V),
    row("clamp_min", FunctionId::ClampMin, &[V, S], V),
    row("cos", FunctionId::Cos, &[V], V),
    row("cosh", FunctionId::Cosh, &[V], V),
    row("count_over_time", FunctionId::CountOverTime, &[M], V),
    row("day_of_month", FunctionId::DayOfMonth, &[V], V).variadic(1),
    row("day_of_week", FunctionId::DayOfWeek, &[V], V).variadic(1),
    row("day_of_year", FunctionId::DayOfYear, &[V], V).variadic(1),
    row("days_in_month", FunctionId::DaysInMonth, &[V], V).variadic(1),
    row("deg", FunctionId::Deg, &[V], V),
    row("delta", FunctionId::Delta, &[M], V),
    row("deriv", FunctionId::Deriv, &[M], V),
    row("double_exponential_smoothing", FunctionId::DoubleExponentialSmoothing,
        &[M, S, S], V).experimental(),
    row("end", FunctionId::End, &[], S).experimental(),
    row("exp", FunctionId::Exp, &[V], V),
    row("first_over_time", FunctionId::FirstOverTime, &[M], V),
    row("floor", FunctionId::Floor, &[V], V),
    row("histogram_avg", FunctionId::HistogramAvg, &[V], V),
    row("histogram_count", FunctionId::HistogramCount, &[V], V),
    row("histogram_fraction", FunctionId::HistogramFraction, &[S, S, V], V),
    row("histogram_quantile", FunctionId::HistogramQuantile, &[S, V], V),
    row("histogram_quantiles", FunctionId::HistogramQuantiles,
        &[V, T, S, S], V).variadic(9).experimental(),
    row("histogram_stddev", FunctionId::HistogramStddev, &[V], V),
    row("histogram_stdvar", FunctionId::HistogramStdvar, &[V], V),
    row("histogram_sum", FunctionId::HistogramSum, &[V], V),
    row("hour", FunctionId::Hour, &[V], V).variadic(1),
    row("idelta", FunctionId::Idelta, &[M], V),
    row("increase", FunctionId::Increase, &[M], V),
    row("info", FunctionId::Info, &[V, V], V).variadic(1).experimental(),
    row("irate", FunctionId::Irate, &[M], V),
    row("label_join", FunctionId::LabelJoin, &[V, T, T, T], V).variadic(-1),
    row("label_replace", FunctionId::LabelReplace, &[V, T, T, T, T], V),
    row("last_over_time", FunctionId::LastOverTime, &[M], V),
    row("ln", FunctionId::Ln, &[V], V),
    row("log10", FunctionId::Log10, &[V], V),
    row("log2", FunctionId::Log2, &[V], V),
    row("mad_over_time", FunctionId::MadOverTime, &[M], V).experimental(),
    row("max_of", FunctionId::MaxOf, &[S, S], S).experimental(),
    row("max_over_time", FunctionId::MaxOverTime, &[M], V),
    row("min_of", FunctionId::MinOf, &[S, S], S).experimental(),
    row("min_over_time", FunctionId::MinOverTime, &[M], V),
    row("minute", FunctionId::Minute, &[V], V).variadic(1),
    row("month", FunctionId::Month, &[V], V).variadic(1),
    row("pi", FunctionId::Pi, &[], S),
    row("predict_linear", FunctionId::PredictLinear, &[M, S], V),
    row("present_over_time", FunctionId::PresentOverTime, &[M], V),
    row("quantile_over_time", FunctionId::QuantileOverTime, &[S, M], V),
    row("rad", FunctionId::Rad, &[V], V),
    row("range", FunctionId::Range, &[], S).experimental(),
    row("rate", FunctionId::Rate, &[M], V),
    row("resets", FunctionId::Resets, &[M], V),
    row("round", FunctionId::Round, &[V, S], V).variadic(1),
    row("scalar", FunctionId::Scalar, &[V], S),
    row("sgn", FunctionId::Sgn, &[V], V),
    row("sin", FunctionId::Sin, &[V], V),
    row("sinh", FunctionId::Sinh, &[V], V),
    row("sort", FunctionId::Sort, &[V], V),
    row("sort_by_label", FunctionId::SortByLabel, &[V, T], V).variadic(-1).experimental(),
    row("sort_by_label_desc", FunctionId::SortByLabelDesc, &[V, T], V).variadic(-1).experimental(),
    row("sort_desc", FunctionId::SortDesc, &[V], V),
    row("sqrt", FunctionId::Sqrt, &[V], V),
    row("start", FunctionId::Start, &[], S).experimental(),
    row("start_timestamp", FunctionId::StartTimestamp, &[V], V).experimental(),
    row("stddev_over_time", FunctionId::StddevOverTime, &[M], V),
    row("stdvar_over_time", FunctionId::StdvarOverTime, &[M], V),
    row("step", FunctionId::Step, &[], S).experimental(),
    row("sum_over_time", FunctionId::SumOverTime, &[M], V),
    row("tan", FunctionId::Tan, &[V], V),
    row("tanh", FunctionId::Tanh, &[V], V),
    row("time", FunctionId::Time, &[], S),
    row("timestamp", FunctionId::Timestamp, &[V], V),
    row("ts_of_first_over_time", FunctionId::TsOfFirstOverTime, &[M], V).experimental(),
    row("ts_of_last_over_time", FunctionId::TsOfLastOverTime, &[M], V).experimental(),
    row("ts_of_max_over_time", FunctionId::TsOfMaxOverTime, &[M], V).experimental(),
    row("ts_of_min_over_time", FunctionId::TsOfMinOverTime, &[M], V).experimental(),
    row("vector", FunctionId::Vector, &[S], V),
    row("year", FunctionId::Year, &[V], V).variadic(1),
];

/// The function called `name`; names are case-sensitive.
pub fn lookup(name: &str) -> Option<&'static Function> {
    let found = FUNCTIONS.binary_search_by(|f| f.name.cmp(name)).ok()?;
    FUNCTIONS.get(found)
}

const fn row(
    name: &'static str,
    id: FunctionId,
    args: &'static [ValueType],
    returns: ValueType,
) -> Function {
    Function {
        name,
        id,
        args,
        variadic: 0,
        returns,
        experimental: false,
    }
}

impl Function {
    const fn variadic(mut self, variadic: i32) -> Self {
        self.variadic = variadic;
        self
    }

    const fn experimental(mut self) -> Self {
        self.experimental = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn functions_table_is_sorted_and_ids_are_unique() {
        assert!(FUNCTIONS.windows(2).all(|w| w[0].name < w[1].name));
        let ids: HashSet<_> = FUNCTIONS.iter().map(|f| f.id).collect();
        assert_eq!(ids.len(), FUNCTIONS.len());
    }

    #[test]
    fn functions_lookup_finds_every_row_and_nothing_else() {
        for function in &FUNCTIONS {
            assert_eq!(lookup(function.name), Some(function));
        }
        for name in ["", "RATE", "sum", "rate_over_time"] {
            assert_eq!(lookup(name), None, "{name}");
        }
    }
}
