//! The function table: one row a function says all that the crate knows of it. The parser, the type
//! checker, the planner and the evaluator read it, and so may a front end.
//!
//! Invariant: rows are sorted by name, and every [`FunctionId`] has exactly one row.

mod range;
mod table;

pub(crate) use range::{Extrapolation, RangeFunction};
pub use table::FUNCTIONS;

use crate::ast::{Edges, ValueType};
use firn_model::histogram::Histogram;

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

/// How the evaluator computes a function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Evaluation {
    /// A function of each float; histograms have no result.
    Float(fn(f64) -> f64),
    /// A function of each histogram; floats have no result.
    OfHistogram(fn(&Histogram) -> f64),
    /// A function of two scalars.
    OfScalars(fn(f64, f64) -> f64),
    /// A function of the window of each series.
    Range(RangeFunction),
    /// A number that the times of the query fix.
    QueryTime,
    /// An operation on the row of each series with further arguments.
    RowOp,
    /// An operator of its own, chosen by [`FunctionId`].
    Operator,
}

/// What a function needs of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Samples without which there is no result.
    pub samples_min: usize,
    /// Whether the result is extrapolated to the edges of the window.
    pub extrapolates: bool,
    /// Whether start timestamps change the result.
    pub reads_start_times: bool,
    /// Whether the selector may be `anchored`, which adds the sample before the window.
    pub anchored: bool,
    /// Whether the selector may be `smoothed`, which interpolates at both edges.
    pub smoothed: bool,
}

/// What a function does to native histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfHistograms {
    /// They have no result.
    Ignored,
    /// They have a result like floats, or one of their own.
    Used,
    /// The function reads count and sum alone.
    CountAndSum,
    /// The function reads all buckets.
    Buckets,
}

/// What a function does to the metric name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfMetricName {
    /// The result is another metric.
    Dropped,
    /// The result is the same metric.
    Kept,
    /// The arguments decide.
    Set,
}

/// How a function takes the rows of its vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// It changes each row by itself.
    Each,
    /// It reads one row after the other and keeps none.
    Scanned,
    /// It needs all rows at once.
    All,
}

/// A row of the table.
#[derive(Debug)]
pub struct Function {
    /// The name in PromQL.
    pub name: &'static str,
    /// The name in code.
    pub id: FunctionId,
    /// Types of the arguments; with `variadic` the last may be left out or repeated.
    pub args: &'static [ValueType],
    /// 0: as many arguments as `args`; n: up to n more than all but the last; -1: any number.
    pub variadic: i32,
    /// The type of the result.
    pub returns: ValueType,
    /// Whether the function needs `promql-experimental-functions`.
    pub experimental: bool,
    /// What a function of a range vector needs of its window.
    pub window: Option<Window>,
    /// What becomes of native histograms.
    pub histograms: OfHistograms,
    /// What becomes of the metric name.
    pub metric_name: OfMetricName,
    /// Whether the value changes with the evaluation time although the arguments do not.
    pub changes_with_time: bool,
    /// What the function computes, in a line.
    pub doc: &'static str,
    /// A call that has a result.
    pub example: &'static str,
    pub(crate) evaluation: Evaluation,
    pub(crate) rows: Rows,
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Function {}

/// The function called `name`; names are case-sensitive.
pub fn lookup(name: &str) -> Option<&'static Function> {
    let found = FUNCTIONS.binary_search_by(|f| f.name.cmp(name)).ok()?;
    FUNCTIONS.get(found)
}

/// A row with what mostly follows from how the function is evaluated.
const fn row(
    name: &'static str,
    id: FunctionId,
    args: &'static [ValueType],
    returns: ValueType,
    evaluation: Evaluation,
) -> Function {
    let window = match evaluation {
        Evaluation::Range(_) => Some(Window {
            samples_min: 1,
            extrapolates: false,
            reads_start_times: false,
            anchored: false,
            smoothed: false,
        }),
        _ => None,
    };
    let rows = match evaluation {
        Evaluation::Float(_) | Evaluation::OfHistogram(_) | Evaluation::RowOp => Rows::Each,
        _ => Rows::All,
    };
    Function {
        name,
        id,
        args,
        variadic: 0,
        returns,
        experimental: false,
        window,
        histograms: OfHistograms::Ignored,
        metric_name: OfMetricName::Dropped,
        changes_with_time: false,
        doc: "",
        example: "",
        evaluation,
        rows,
    }
}

/// Defines methods that change one field of a row.
macro_rules! columns {
    ($($method:ident: $($field:ident).+ = $value:expr;)*) => {
        impl Function {
            $(const fn $method(mut self) -> Self {
                self.$($field).+ = $value;
                self
            })*
        }
    };
}

columns! {
    experimental: experimental = true;
    changes_with_time: changes_with_time = true;
    scanned: rows = Rows::Scanned;
    uses_histograms: histograms = OfHistograms::Used;
    reads_count_and_sum: histograms = OfHistograms::CountAndSum;
    reads_buckets: histograms = OfHistograms::Buckets;
    keeps_name: metric_name = OfMetricName::Kept;
    sets_labels: metric_name = OfMetricName::Set;
}

/// Defines methods that change one field of the window of a row.
macro_rules! window_columns {
    ($($method:ident: $field:ident = $value:expr;)*) => {
        impl Function {
            $(const fn $method(mut self) -> Self {
                if let Some(window) = &mut self.window {
                    window.$field = $value;
                }
                self
            })*
        }
    };
}

window_columns! {
    needs_two_samples: samples_min = 2;
    extrapolates: extrapolates = true;
    reads_start_times: reads_start_times = true;
    anchored: anchored = true;
    smoothed: smoothed = true;
}

impl Function {
    const fn variadic(mut self, variadic: i32) -> Self {
        self.variadic = variadic;
        self
    }

    const fn says(mut self, doc: &'static str, example: &'static str) -> Self {
        self.doc = doc;
        self.example = example;
        self
    }

    /// Whether a selector of the function's window may have these edges.
    pub(crate) fn takes_edges(&self, edges: Edges) -> bool {
        self.window.is_some_and(|window| match edges {
            Edges::Plain => true,
            Edges::Anchored => window.anchored,
            Edges::Smoothed => window.smoothed,
        })
    }

    /// Whether the value changes with the evaluation time or with the times of the query.
    pub(crate) fn reads_time(&self) -> bool {
        self.changes_with_time || matches!(self.evaluation, Evaluation::QueryTime)
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
    fn functions_have_a_window_where_they_take_a_range_vector_and_all_are_documented() {
        for function in &FUNCTIONS {
            let takes_range = function.args.contains(&ValueType::Matrix);
            let is_absence = function.id == FunctionId::AbsentOverTime;
            assert_eq!(
                function.window.is_some(),
                takes_range && !is_absence,
                "{function:?}"
            );
            assert!(function.doc.ends_with('.'), "{}", function.name);
            assert!(function.example.contains(&format!("{}(", function.name)));
        }
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
