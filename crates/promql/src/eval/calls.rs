//! Function calls whose value is an instant vector.

use crate::ast::Span;
use crate::eval::annotations::Annotations;
use crate::eval::counter_names::CounterNames;
use crate::eval::edges::Overhang;
use crate::eval::elementwise::{RowOp, float_function};
use crate::eval::evaluator::{Evaluator, scalar_frame};
use crate::eval::frame::{ABSENT, Frame, Row, RowBuffer, is_absent};
use crate::eval::grid::Grid;
use crate::eval::heads::Head;
use crate::eval::leaf::{Leaf, LeafKind, RangeCall};
use crate::eval::over_time::RangeFunction;
use crate::eval::ranges::{SERIES_PER_PART, in_parts};
use crate::eval::rate::Extrapolation;
use crate::eval::stream::Stream;
use crate::eval::{buckets, info, label_functions};
use crate::functions::{Function, FunctionId};
use crate::histogram::{FloatHistogram, totals};
use crate::plan::{Node, NodeKind, Selector};
use crate::value::QueryError;
use firn_model::histogram::Histogram;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::matcher::MatchOp;
use std::ops::Range;

/// The value of a call.
pub(crate) fn vector(
    evaluator: &mut Evaluator<'_>,
    node: &Node,
    function: &'static Function,
    args: &[Node],
    grid: Grid,
) -> Result<Stream, QueryError> {
    use FunctionId as F;
    let delayed = evaluator.delays_names();
    if let Some(range) = range_function(function.id) {
        if range == RangeFunction::Prediction && is_pinned_subquery(&args[0]) {
            evaluator.matrix(&args[0], grid)?;
            return Ok(Frame::new(grid.count).into());
        }
        let leaf = range_leaf(evaluator, range, function.name, args, grid)?;
        return Ok(Stream::from_leaf(leaf, delayed));
    }
    if let Some(float) = float_function(function.id) {
        let input = match args {
            [] => scalar_frame(&evaluation_times(&grid)).into(),
            [arg, ..] => evaluator.vector(arg, grid)?,
        };
        return Ok(input.then(RowOp::Map(float), delayed));
    }
    match function.id {
        F::Round | F::Clamp | F::ClampMax | F::ClampMin => {
            let op = bounded(evaluator, function.id, &args[1..], grid)?;
            Ok(evaluator.vector(&args[0], grid)?.then(op, delayed))
        }
        F::Timestamp | F::StartTimestamp => timestamp(evaluator, function.id, &args[0], grid),
        F::Vector => Ok(scalar_frame(&evaluator.scalar(&args[0], grid)?).into()),
        F::Absent => {
            let input = evaluator.vector(&args[0], grid)?.with_distinct_series(
                evaluator.ctx.compute,
                evaluator.account,
                &mut evaluator.notes,
            )?;
            absent(evaluator, &input, &args[0], grid)
        }
        F::AbsentOverTime => {
            let leaf = range_leaf(evaluator, RangeFunction::Present, function.name, args, grid)?;
            let input = Stream::from_leaf(leaf, true);
            absent(evaluator, &input, &args[0], grid)
        }
        F::Info => info::vector(evaluator, args, grid),
        F::LabelReplace => label_functions::replace(evaluator, args, grid),
        F::LabelJoin => label_functions::join(evaluator, args, grid),
        F::Sort | F::SortDesc | F::SortByLabel | F::SortByLabelDesc => {
            label_functions::sort(evaluator, node, function.id, args, grid)
        }
        F::HistogramQuantile | F::HistogramQuantiles | F::HistogramFraction => {
            buckets::vector(evaluator, function, args, grid)
        }
        F::HistogramCount
        | F::HistogramSum
        | F::HistogramAvg
        | F::HistogramStddev
        | F::HistogramStdvar => {
            let op = RowOp::OfHistogram(statistic(function.id));
            Ok(evaluator.vector(&args[0], grid)?.then(op, delayed))
        }
        _ => Err(QueryError::Execution(format!(
            "{}: the function is not supported here",
            function.name
        ))),
    }
}

/// A number that a histogram has.
fn statistic(function: FunctionId) -> fn(&Histogram) -> f64 {
    use FunctionId as F;
    match function {
        F::HistogramCount => |histogram| totals(histogram).0,
        F::HistogramSum => |histogram| totals(histogram).1,
        F::HistogramAvg => |histogram| {
            let (count, sum) = totals(histogram);
            sum / count
        },
        F::HistogramStddev => |histogram| FloatHistogram::from(histogram).variance().sqrt(),
        _ => |histogram| FloatHistogram::from(histogram).variance(),
    }
}

/// The function of a window that a PromQL function is, if it is one.
fn range_function(function: FunctionId) -> Option<RangeFunction> {
    use FunctionId as F;
    use RangeFunction as R;
    let extrapolated = |counter, per_second| {
        R::Extrapolated(Extrapolation {
            counter,
            per_second,
        })
    };
    Some(match function {
        F::Rate => extrapolated(true, true),
        F::Increase => extrapolated(true, false),
        F::Delta => extrapolated(false, false),
        F::Irate => R::LastChange { counter: true },
        F::Idelta => R::LastChange { counter: false },
        F::Deriv => R::Slope,
        F::PredictLinear => R::Prediction,
        F::DoubleExponentialSmoothing => R::Smoothing,
        F::Resets => R::Resets,
        F::Changes => R::Changes,
        F::AvgOverTime => R::Mean,
        F::SumOverTime => R::Sum,
        F::CountOverTime => R::Count,
        F::PresentOverTime => R::Present,
        F::MinOverTime => R::Min,
        F::MaxOverTime => R::Max,
        F::FirstOverTime => R::First,
        F::LastOverTime => R::Last,
        F::StddevOverTime => R::Deviation,
        F::StdvarOverTime => R::Variance,
        F::QuantileOverTime => R::Quantile,
        F::MadOverTime => R::MedianDeviation,
        F::TsOfFirstOverTime => R::FirstTime,
        F::TsOfLastOverTime => R::LastTime,
        F::TsOfMinOverTime => R::MinTime,
        F::TsOfMaxOverTime => R::MaxTime,
        _ => return None,
    })
}

/// Whether a range vector is a subquery with `@`. As upstream, `predict_linear` makes nothing of
/// one: there it is computed once for all steps, and the function, which is not, misses it.
fn is_pinned_subquery(node: &Node) -> bool {
    matches!(&node.kind, NodeKind::Subquery(subquery) if subquery.at.is_some())
}

/// Where remarks on a function of a window stand: at its first argument. A subquery there has no
/// place in upstream, which evaluates it to samples first; remarks stand at the query's beginning.
fn remark_span(args: &[Node]) -> Span {
    match args[0].kind {
        NodeKind::Subquery(_) => Span { start: 0, end: 0 },
        _ => args[0].span,
    }
}

fn range_leaf(
    evaluator: &mut Evaluator<'_>,
    function: RangeFunction,
    name: &'static str,
    args: &[Node],
    grid: Grid,
) -> Result<Leaf, QueryError> {
    let is_range = |arg: &&Node| matches!(arg.kind, NodeKind::Matrix(..) | NodeKind::Subquery(_));
    let Some(range) = args.iter().find(is_range) else {
        return Err(QueryError::Execution(format!("{name}: no range vector")));
    };
    if let NodeKind::Matrix(selector, _) = &range.kind
        && let Some(overhang) = Overhang::of(selector.edges, 0)
    {
        overhang.check(name).map_err(QueryError::Execution)?;
    }
    let (source, reach, overhang) = evaluator.matrix(range, grid)?;
    let statistics_only = match &range.kind {
        NodeKind::Matrix(selector, _) => selector.statistics_only,
        _ => false,
    };
    let mut scalars = Vec::new();
    for arg in args.iter().filter(|arg| !is_range(arg)) {
        scalars.push(evaluator.scalar(arg, grid)?);
    }
    let features = &evaluator.options.features;
    let span = remark_span(args);
    let counters = match function {
        RangeFunction::Extrapolated(how) if how.counter => {
            let by_type = features.type_and_unit_labels;
            CounterNames::check(&*source, by_type, span, evaluator.account)?
        }
        _ => CounterNames::default(),
    };
    let call = RangeCall {
        function,
        scalars,
        span,
        counters,
        uses_starts: features.use_start_timestamps && function.uses_starts(),
        overhang,
        cancel: evaluator.ctx.cancel.clone(),
    };
    Ok(Leaf {
        source,
        kind: LeafKind::Range(call),
        grid,
        reach,
        statistics_only,
        idle: Default::default(),
    })
}

fn evaluation_times(grid: &Grid) -> Vec<f64> {
    grid.times().map(|time| (time / 1000) as f64).collect()
}

fn bounded(
    evaluator: &mut Evaluator<'_>,
    function: FunctionId,
    args: &[Node],
    grid: Grid,
) -> Result<RowOp, QueryError> {
    let all = |value: f64| vec![value; grid.count];
    let mut given = Vec::new();
    for arg in args {
        given.push(evaluator.scalar(arg, grid)?);
    }
    let mut given = given.into_iter();
    let mut next = |otherwise: f64| given.next().unwrap_or_else(|| all(otherwise));
    Ok(match function {
        FunctionId::Round => RowOp::Round(next(1.0)),
        FunctionId::ClampMin => RowOp::Clamp(next(f64::NEG_INFINITY), all(f64::INFINITY)),
        FunctionId::ClampMax => RowOp::Clamp(all(f64::NEG_INFINITY), next(f64::INFINITY)),
        _ => RowOp::Clamp(next(f64::NEG_INFINITY), next(f64::INFINITY)),
    })
}

/// `timestamp` and `start_timestamp`: of a selector those of its samples; of another expression the
/// evaluation time, and nothing.
fn timestamp(
    evaluator: &mut Evaluator<'_>,
    function: FunctionId,
    arg: &Node,
    grid: Grid,
) -> Result<Stream, QueryError> {
    let delayed = evaluator.delays_names();
    let of_start = function == FunctionId::StartTimestamp;
    let knows_starts = evaluator.options.features.use_start_timestamps;
    match &arg.kind {
        NodeKind::Vector(selector) if !of_start || knows_starts => {
            let kind = match of_start {
                true => LeafKind::NewestStart,
                false => LeafKind::NewestTime,
            };
            let leaf = evaluator.selector_leaf(arg, selector, kind, grid)?;
            Ok(Stream::from_leaf(leaf, delayed))
        }
        _ if of_start => {
            evaluator.frame(arg, grid)?;
            Ok(Frame::new(grid.count).into())
        }
        _ => Ok(evaluator
            .vector(arg, grid)?
            .then(RowOp::Time(grid), delayed)),
    }
}

/// One wherever no series has a value.
fn absent(
    evaluator: &mut Evaluator<'_>,
    input: &Stream,
    arg: &Node,
    grid: Grid,
) -> Result<Stream, QueryError> {
    let account = evaluator.account;
    let task = |part: Range<usize>| {
        let mut notes = Annotations::default();
        let mut found = vec![false; grid.count];
        let mut each = |_: usize, row: &mut RowBuffer, _: &mut Annotations| {
            for (found, value) in found.iter_mut().zip(&row.values) {
                *found |= !is_absent(*value);
            }
            for (step, _) in &row.histograms {
                found[*step as usize] = true;
            }
            Ok(())
        };
        input.scan(part, account, &mut notes, &mut each)?;
        Ok((found, notes))
    };
    let mut values = vec![1.0; grid.count];
    let all_notes = &mut evaluator.notes;
    let merge = |(found, notes): (Vec<bool>, Annotations)| {
        all_notes.merge(notes);
        for (value, found) in values.iter_mut().zip(found) {
            if found {
                *value = ABSENT;
            }
        }
        Ok(())
    };
    let compute = evaluator.ctx.compute;
    in_parts(compute, input.len(), SERIES_PER_PART, task, merge)?;
    let mut frame = Frame::new(grid.count);
    let head = Head {
        labels: labels_asked_for(arg),
        drops_name: false,
    };
    let row = Row::of_floats(&values);
    frame.push(head, row);
    Ok(frame.into())
}

/// The labels that a selector fixes to one value. A second matcher on a label takes it out again,
/// as upstream.
fn labels_asked_for(arg: &Node) -> Labels {
    let (NodeKind::Vector(Selector { matchers, .. })
    | NodeKind::Matrix(Selector { matchers, .. }, _)) = &arg.kind
    else {
        return Labels::empty();
    };
    let mut builder = LabelsBuilder::default();
    let mut fixed: Vec<&str> = Vec::new();
    for matcher in matchers.iter().filter(|m| m.name() != METRIC_NAME) {
        if matcher.op() == MatchOp::Equal && !fixed.contains(&matcher.name()) {
            builder.set(matcher.name(), matcher.value());
            fixed.push(matcher.name());
        } else {
            builder.remove(matcher.name());
        }
    }
    builder.build()
}
