//! The function table of PromQL. One row contains all properties of a function; the parser, the
//! type checker, the planner, the evaluator and user interfaces read it.
//!
//! Invariant: rows are sorted by name, and every [`FunctionId`] has exactly one row.

mod range;
mod table;

pub(crate) use range::{Extrapolation, RangeFunction};
pub use table::FUNCTIONS;

use crate::ast::{ValueType, WindowEdges};
use firn_model::histogram::Histogram;

/// Identifies a function in the evaluator. Variants are named after the PromQL functions.
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

/// The way in which the evaluator computes a function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FunctionEvaluation {
    /// A function of each float. Histograms have no result.
    Float(fn(f64) -> f64),
    /// A function of each histogram. Floats have no result.
    OfHistogram(fn(&Histogram) -> f64),
    /// A function of two scalars, such as `min_of`. The planner folds it if both are constant.
    OfScalars(fn(f64, f64) -> f64),
    /// A function of the window of each series, such as `rate`. `eval/kernels/over_time.rs` or
    /// `rate.rs` computes it from floats, `mixed.rs` for series with histograms.
    Range(RangeFunction),
    /// A number that depends only on the start, end and step of the query.
    QueryTime,
    /// An operation on the row of each series, with further arguments.
    RowOp,
    /// An operator with an implementation of its own, selected by [`FunctionId`].
    Operator,
}

/// The requirements of a function on the window of its range vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionWindow {
    /// Minimum number of samples in the window; with fewer the function has no result. With 1 the
    /// kernel must return a value for every window with a sample, because `dispatch.rs` marks such
    /// rows as full.
    pub samples_min: usize,
    /// True if the result is extrapolated to the edges of the window.
    pub extrapolates: bool,
    /// True if the start timestamps of samples change the result.
    pub reads_start_times: bool,
    /// True if the selector may be `anchored`, which adds the last sample before the window.
    pub anchored: bool,
    /// True if the selector may be `smoothed`, which interpolates values at both edges of the
    /// window.
    pub smoothed: bool,
}

/// The treatment of native histograms by a function. The planner uses it to read histograms without
/// buckets where possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistogramTreatment {
    /// The function has no result for histograms, so that the planner may leave out buckets.
    /// `eval/kernels/mixed.rs` decides whether it adds an annotation about ignored histograms.
    Ignored,
    /// The function has a result for histograms, either the same as for floats or a different one.
    Used,
    /// The function reads only the count and the sum of histograms.
    CountAndSum,
    /// The function reads all buckets of histograms, so they must not be omitted.
    Buckets,
}

/// The effect of a function on the metric name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricNameEffect {
    /// The result is a different metric: the name is dropped.
    Dropped,
    /// The result is the same metric: the name is kept.
    Kept,
    /// The arguments of the call determine the metric name and other labels, as for
    /// `label_replace`.
    Set,
}

/// The way in which a function reads the rows of its vector argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowAccess {
    /// The function transforms each row independently of all others.
    Each,
    /// The function reads one row after another and retains none.
    Scanned,
    /// The function requires all rows at the same time.
    All,
}

/// A row of the function table: the signature, properties and implementation of one function.
#[derive(Debug)]
pub struct Function {
    /// The name of the function in PromQL, by which [`lookup`] finds it.
    pub name: &'static str,
    /// The identifier of the function, by which the evaluator selects an operator.
    pub id: FunctionId,
    /// The types of the arguments. If the function is variadic, the last argument may be omitted or
    /// repeated.
    pub args: &'static [ValueType],
    /// 0: exactly the arguments in `args`. n > 0: the last argument may be left out, or given up to
    /// n times. -1: it may be left out, or repeated without a limit.
    pub variadic: i32,
    /// The type of the result, which the type checker compares with the context of the call.
    pub returns: ValueType,
    /// True if the function is experimental and requires the feature
    /// `promql-experimental-functions`.
    pub experimental: bool,
    /// The window requirements of a function of a range vector. `None` for all other functions.
    pub window: Option<FunctionWindow>,
    /// The treatment of native histograms, which determines whether their buckets are read.
    pub histograms: HistogramTreatment,
    /// The effect on the metric name and on other metadata labels.
    pub metric_name: MetricNameEffect,
    /// True if the value changes with the evaluation time although the arguments do not change.
    pub changes_with_time: bool,
    /// A description of the function in one line, for user interfaces.
    pub doc: &'static str,
    /// An example: a call that has a result. A test evaluates all examples.
    pub example: &'static str,
    pub(crate) evaluation: FunctionEvaluation,
    pub(crate) rows: RowAccess,
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Function {}

/// Returns the function called `name`, or `None`. Names are case-sensitive; O(log n).
pub fn lookup(name: &str) -> Option<&'static Function> {
    let found = FUNCTIONS.binary_search_by(|f| f.name.cmp(name)).ok()?;
    FUNCTIONS.get(found)
}

/// Creates a row whose properties follow from the kind of evaluation. The methods below change the
/// properties that differ.
const fn row(
    name: &'static str,
    id: FunctionId,
    args: &'static [ValueType],
    returns: ValueType,
    evaluation: FunctionEvaluation,
) -> Function {
    let window = match evaluation {
        FunctionEvaluation::Range(_) => Some(FunctionWindow {
            samples_min: 1,
            extrapolates: false,
            reads_start_times: false,
            anchored: false,
            smoothed: false,
        }),
        _ => None,
    };
    let rows = match evaluation {
        FunctionEvaluation::Float(_)
        | FunctionEvaluation::OfHistogram(_)
        | FunctionEvaluation::RowOp => RowAccess::Each,
        _ => RowAccess::All,
    };
    Function {
        name,
        id,
        args,
        variadic: 0,
        returns,
        experimental: false,
        window,
        histograms: HistogramTreatment::Ignored,
        metric_name: MetricNameEffect::Dropped,
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
    scanned: rows = RowAccess::Scanned;
    uses_histograms: histograms = HistogramTreatment::Used;
    reads_count_and_sum: histograms = HistogramTreatment::CountAndSum;
    reads_buckets: histograms = HistogramTreatment::Buckets;
    keeps_name: metric_name = MetricNameEffect::Kept;
    sets_labels: metric_name = MetricNameEffect::Set;
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

    const fn doc(mut self, doc: &'static str, example: &'static str) -> Self {
        self.doc = doc;
        self.example = example;
        self
    }

    /// Returns whether a selector in the function's argument may have these edges.
    pub(crate) fn supports_edges(&self, edges: WindowEdges) -> bool {
        self.window.is_some_and(|window| match edges {
            WindowEdges::Plain => true,
            WindowEdges::Anchored => window.anchored,
            WindowEdges::Smoothed => window.smoothed,
        })
    }

    /// Returns whether the value changes with the evaluation time or with the start, end or step of
    /// the query.
    pub(crate) fn depends_on_time(&self) -> bool {
        self.changes_with_time || matches!(self.evaluation, FunctionEvaluation::QueryTime)
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
        for function in FUNCTIONS {
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
        for function in FUNCTIONS {
            assert_eq!(lookup(function.name), Some(function));
        }
        for name in ["", "RATE", "sum", "rate_over_time"] {
            assert_eq!(lookup(name), None, "{name}");
        }
    }
}
