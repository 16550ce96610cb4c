//! Evaluates function calls whose value is an instant vector.

use super::{Evaluator, not_a_vector};
use crate::ast::{Span, ValueType};
use crate::eval::annotations::Annotations;
use crate::eval::kernels::counter_names::CounterNames;
use crate::eval::kernels::edges::Overhang;
use crate::eval::kernels::elementwise::RowOp;
use crate::eval::kernels::leaf::{Leaf, LeafKind};
use crate::eval::kernels::range_call::RangeCall;
use crate::eval::operators::label_functions::{self, LabelSetter};
use crate::eval::operators::stream::Stream;
use crate::eval::operators::{buckets, info};
use crate::eval::rows::frame::Frame;
use crate::eval::rows::parts::{SERIES_PER_PART, in_parts};
use crate::eval::rows::row::{ABSENT, Row, RowBuffer, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::functions::{Evaluation, Function, FunctionId, OfMetricName, RangeFunction};
use crate::grid::Grid;
use crate::plan::{Node, NodeKind, Selector};
use crate::value::QueryError;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::matcher::MatchOp;
use std::ops::Range;

/// Evaluates a function call that returns an instant vector.
pub(crate) fn vector(
    evaluator: &mut Evaluator<'_>,
    node: &Node,
    function: &'static Function,
    args: &[Node],
    grid: Grid,
) -> Result<Stream, QueryError> {
    let delayed = evaluator.run.delays_names();
    match function.evaluation {
        Evaluation::Range(range) => {
            if range == RangeFunction::Prediction && is_pinned_subquery(&args[0]) {
                evaluator.matrix(&args[0], grid)?;
                return Ok(Frame::new(grid.count).into());
            }
            let leaf = range_leaf(evaluator, node, (range, function), args, grid)?;
            return Ok(Stream::from_leaf(leaf, delayed));
        }
        Evaluation::Float(float) => {
            let input = match args {
                [] => Frame::of_scalars(&evaluation_times(&grid)).into(),
                [arg, ..] => evaluator.vector(arg, grid)?,
            };
            return Ok(input.then(RowOp::Map(float), delayed));
        }
        Evaluation::OfHistogram(of) => {
            let input = evaluator.vector(&args[0], grid)?;
            return Ok(input.then(RowOp::OfHistogram(of), delayed));
        }
        _ => {}
    }
    operator(evaluator, node, function, args, grid)
}

/// Evaluates a call of a function that is implemented by an operator of its own.
fn operator(
    evaluator: &mut Evaluator<'_>,
    node: &Node,
    function: &'static Function,
    args: &[Node],
    grid: Grid,
) -> Result<Stream, QueryError> {
    use FunctionId as F;
    let delayed = evaluator.run.delays_names();
    match function.id {
        F::Round | F::Clamp | F::ClampMax | F::ClampMin => {
            let op = bounded(evaluator, function.id, &args[1..], grid)?;
            Ok(evaluator.vector(&args[0], grid)?.then(op, delayed))
        }
        F::Timestamp | F::StartTimestamp => timestamp(evaluator, function.id, &args[0], grid),
        F::Vector => Ok(Frame::of_scalars(&evaluator.scalar(&args[0], grid)?).into()),
        F::Absent => {
            let input = evaluator
                .vector(&args[0], grid)?
                .with_distinct_series(&mut evaluator.run)?;
            absent(evaluator, &input, &args[0], grid)
        }
        F::AbsentOverTime => {
            let of = (RangeFunction::Present, function);
            let leaf = range_leaf(evaluator, node, of, args, grid)?;
            let input = Stream::from_leaf(leaf, true);
            absent(evaluator, &input, &args[0], grid)
        }
        F::Info => {
            let held_before = evaluator.run.account.held();
            let base = evaluator.own_frame(&args[0], grid)?;
            let frame = info::frame(&mut evaluator.run, (node, args), base, grid)?;
            evaluator.settled(held_before, frame)
        }
        F::LabelReplace | F::LabelJoin => {
            let setter = match function.id {
                F::LabelReplace => LabelSetter::replace(&evaluator.run, args)?,
                _ => LabelSetter::join(args)?,
            };
            let frame = evaluator.own_frame(&args[0], grid)?;
            Ok(setter.apply(&evaluator.run, frame)?.into())
        }
        F::Sort | F::SortDesc | F::SortByLabel | F::SortByLabelDesc => {
            let frame = evaluator.frame(&args[0], grid)?;
            let run = &mut evaluator.run;
            Ok(label_functions::sort(run, node, function.id, args, frame, grid)?.into())
        }
        F::HistogramQuantile | F::HistogramQuantiles | F::HistogramFraction => {
            let scalars = evaluator.scalars(args, grid)?;
            let is_vector = |arg: &&Node| arg.value_type == ValueType::Vector;
            let Some(vector) = args.iter().find(is_vector) else {
                return Err(not_a_vector(node));
            };
            let input = evaluator.frame(vector, grid)?;
            let run = &mut evaluator.run;
            Ok(buckets::frame(run, function, args, (scalars, input), grid)?.into())
        }
        _ => Err(QueryError::Execution(format!(
            "{}: the function is not supported here",
            function.name
        ))),
    }
}

/// Returns whether a range vector is a subquery with `@`. As in Prometheus, `predict_linear` has no
/// result for such a subquery: it is computed once for all steps, unlike the function, which then
/// does not find it.
fn is_pinned_subquery(node: &Node) -> bool {
    matches!(&node.kind, NodeKind::Subquery(subquery) if subquery.at.is_some())
}

/// Returns the position of annotations about a function of a window: its first argument. If this is
/// a subquery, the position is the start of the query, because Prometheus evaluates subqueries to
/// samples without a position first.
fn remark_span(args: &[Node]) -> Span {
    match args[0].kind {
        NodeKind::Subquery(_) => Span { start: 0, end: 0 },
        _ => args[0].span,
    }
}

fn range_leaf(
    evaluator: &mut Evaluator<'_>,
    node: &Node,
    (range_function, function): (RangeFunction, &'static Function),
    args: &[Node],
    grid: Grid,
) -> Result<Leaf, QueryError> {
    let is_range = |arg: &&Node| matches!(arg.kind, NodeKind::Matrix(..) | NodeKind::Subquery(_));
    let Some(range) = args.iter().find(is_range) else {
        return Err(QueryError::Execution(format!(
            "{}: no range vector",
            function.name
        )));
    };
    if let NodeKind::Matrix(selector, _) = &range.kind
        && let Some(overhang) = Overhang::of(selector.edges, 0)
    {
        overhang.check(function).map_err(QueryError::Execution)?;
    }
    let (source, reach, overhang) = evaluator.matrix(range, grid)?;
    let statistics_only = match &range.kind {
        NodeKind::Matrix(selector, _) => selector.statistics_only,
        _ => false,
    };
    let scalars = evaluator.scalars(args, grid)?;
    let reads_starts = function
        .window
        .is_some_and(|window| window.reads_start_times);
    let features = &evaluator.run.options.features;
    let span = remark_span(args);
    let counters = match range_function {
        RangeFunction::Extrapolated(how) if how.counter => {
            let by_type = features.type_and_unit_labels;
            CounterNames::check(&*source, by_type, span, evaluator.run.account)?
        }
        _ => CounterNames::default(),
    };
    let call = RangeCall {
        function: range_function,
        window: function.window,
        keeps_name: function.metric_name == OfMetricName::Kept,
        scalars,
        span,
        counters,
        uses_starts: features.use_start_timestamps && reads_starts,
        overhang,
        cancel: evaluator.run.ctx.cancel.clone(),
    };
    Ok(Leaf {
        source,
        kind: LeafKind::Range(call),
        grid,
        reach,
        statistics_only,
        tally: evaluator.window_tally(node, grid)?,
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
    let mut given = evaluator.scalars(args, grid)?.into_iter();
    let mut next = |otherwise: f64| given.next().unwrap_or_else(|| all(otherwise));
    Ok(match function {
        FunctionId::Round => RowOp::Round(next(1.0)),
        FunctionId::ClampMin => RowOp::Clamp(next(f64::NEG_INFINITY), all(f64::INFINITY)),
        FunctionId::ClampMax => RowOp::Clamp(all(f64::NEG_INFINITY), next(f64::INFINITY)),
        _ => RowOp::Clamp(next(f64::NEG_INFINITY), next(f64::INFINITY)),
    })
}

/// Evaluates `timestamp` and `start_timestamp`. For a selector, they return the times of its
/// samples. For any other expression, `timestamp` returns the evaluation time and `start_timestamp`
/// has no result.
fn timestamp(
    evaluator: &mut Evaluator<'_>,
    function: FunctionId,
    arg: &Node,
    grid: Grid,
) -> Result<Stream, QueryError> {
    let delayed = evaluator.run.delays_names();
    let of_start = function == FunctionId::StartTimestamp;
    let knows_starts = evaluator.run.options.features.use_start_timestamps;
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

/// Returns the vector of `absent`: the value one at all steps where no series has a value.
fn absent(
    evaluator: &mut Evaluator<'_>,
    input: &Stream,
    arg: &Node,
    grid: Grid,
) -> Result<Stream, QueryError> {
    let account = evaluator.run.account;
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
    let all_notes = &mut evaluator.run.notes;
    let merge = |(found, notes): (Vec<bool>, Annotations)| {
        all_notes.merge(notes);
        for (value, found) in values.iter_mut().zip(found) {
            if found {
                *value = ABSENT;
            }
        }
        Ok(())
    };
    let compute = evaluator.run.ctx.compute;
    in_parts(compute, input.len(), SERIES_PER_PART, task, merge)?;
    let mut frame = Frame::new(grid.count);
    let labels = labels_asked_for(arg);
    frame.push(RowLabels::kept(labels), Row::of_floats(&values));
    Ok(frame.into())
}

/// Returns the labels that a selector fixes to one value. As in Prometheus, a second matcher on the
/// same label removes it again.
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
