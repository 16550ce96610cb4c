//! Evaluates function calls whose value is an instant vector.

use super::{Evaluator, not_a_vector};
use crate::ast::{PositionRange, ValueType};
use crate::eval::annotations::QueryAnnotations;
use crate::eval::kernels::counter_names::CounterNames;
use crate::eval::kernels::edges::SelectorOverhang;
use crate::eval::kernels::elementwise::RowOp;
use crate::eval::kernels::leaf::{EvalLeaf, EvalLeafKind};
use crate::eval::kernels::range_call::RangeCall;
use crate::eval::operators::label_functions::{self, LabelSetter};
use crate::eval::operators::stream::SeriesStream;
use crate::eval::operators::{buckets, info};
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::parts::{SERIES_PER_PART, run_in_parts};
use crate::eval::rows::row::{ABSENT, StepRow, StepRowBuffer, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::functions::{Function, FunctionEvaluation, FunctionId, MetricNameEffect, RangeFunction};
use crate::grid::StepGrid;
use crate::plan::{PlanNode, PlanNodeKind, PlanSelector};
use crate::value::PromqlError;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::matcher::MatchOp;
use std::ops::Range;

/// Evaluates a function call that returns an instant vector.
pub(crate) fn evaluate_vector_call(
    evaluator: &mut Evaluator<'_>,
    node: &PlanNode,
    function: &'static Function,
    args: &[PlanNode],
    grid: StepGrid,
) -> Result<SeriesStream, PromqlError> {
    let delayed = evaluator.run.delays_names();
    match function.evaluation {
        FunctionEvaluation::Range(range) => {
            if range == RangeFunction::Prediction && is_pinned_subquery(&args[0]) {
                evaluator.evaluate_matrix(&args[0], grid)?;
                return Ok(SeriesFrame::new(grid.count).into());
            }
            let leaf = build_range_leaf(evaluator, node, range, function, args, grid)?;
            return Ok(SeriesStream::from_leaf(leaf, delayed));
        }
        FunctionEvaluation::Float(float) => {
            let input = match args {
                [] => SeriesFrame::from_scalars(&evaluation_times(&grid)).into(),
                [arg, ..] => evaluator.evaluate_vector(arg, grid)?,
            };
            return Ok(input.add_operation(RowOp::Map(float), delayed));
        }
        FunctionEvaluation::OfHistogram(of) => {
            let input = evaluator.evaluate_vector(&args[0], grid)?;
            return Ok(input.add_operation(RowOp::OfHistogram(of), delayed));
        }
        _ => {}
    }
    evaluate_operator_call(evaluator, node, function, args, grid)
}

/// Evaluates a call of a function that is implemented by an operator of its own.
fn evaluate_operator_call(
    evaluator: &mut Evaluator<'_>,
    node: &PlanNode,
    function: &'static Function,
    args: &[PlanNode],
    grid: StepGrid,
) -> Result<SeriesStream, PromqlError> {
    use FunctionId as F;
    let delayed = evaluator.run.delays_names();
    match function.id {
        F::Round | F::Clamp | F::ClampMax | F::ClampMin => {
            let op = evaluate_clamp(evaluator, function.id, &args[1..], grid)?;
            Ok(evaluator
                .evaluate_vector(&args[0], grid)?
                .add_operation(op, delayed))
        }
        F::Timestamp | F::StartTimestamp => {
            evaluate_timestamp(evaluator, function.id, &args[0], grid)
        }
        F::Vector => {
            Ok(SeriesFrame::from_scalars(&evaluator.evaluate_scalar(&args[0], grid)?).into())
        }
        F::Absent => {
            let input = evaluator
                .evaluate_vector(&args[0], grid)?
                .with_distinct_series(&mut evaluator.run)?;
            evaluate_absent(evaluator, &input, &args[0], grid)
        }
        F::AbsentOverTime => {
            let present = RangeFunction::Present;
            let leaf = build_range_leaf(evaluator, node, present, function, args, grid)?;
            let input = SeriesStream::from_leaf(leaf, true);
            evaluate_absent(evaluator, &input, &args[0], grid)
        }
        F::Info => {
            let held_before = evaluator.run.account.held();
            let base = evaluator.evaluate_owned_frame(&args[0], grid)?;
            let frame = info::evaluate_info(&mut evaluator.run, node, args, base, grid)?;
            evaluator.settle_operator(held_before, frame)
        }
        F::LabelReplace | F::LabelJoin => {
            let setter = match function.id {
                F::LabelReplace => LabelSetter::new_label_replace(&evaluator.run, args)?,
                _ => LabelSetter::new_label_join(args)?,
            };
            let frame = evaluator.evaluate_owned_frame(&args[0], grid)?;
            Ok(setter.apply(&evaluator.run, frame)?.into())
        }
        F::Sort | F::SortDesc | F::SortByLabel | F::SortByLabelDesc => {
            let frame = evaluator.evaluate_frame(&args[0], grid)?;
            let run = &mut evaluator.run;
            Ok(label_functions::evaluate_sort(run, node, function.id, args, frame, grid)?.into())
        }
        F::HistogramQuantile | F::HistogramQuantiles | F::HistogramFraction => {
            let scalars = evaluator.evaluate_scalar_arguments(args, grid)?;
            let is_vector = |arg: &&PlanNode| arg.value_type == ValueType::Vector;
            let Some(vector) = args.iter().find(is_vector) else {
                return Err(not_a_vector(node));
            };
            let input = evaluator.evaluate_frame(vector, grid)?;
            let run = &mut evaluator.run;
            Ok(buckets::evaluate_buckets(run, function, args, scalars, input, grid)?.into())
        }
        _ => Err(PromqlError::Execution(format!(
            "{}: the function is not supported here",
            function.name
        ))),
    }
}

/// Returns whether a range vector is a subquery with `@`. `predict_linear` has no result for such a
/// subquery, as in Prometheus: the subquery is evaluated once before all steps, and the function
/// does not find its samples at the later steps.
fn is_pinned_subquery(node: &PlanNode) -> bool {
    matches!(&node.kind, PlanNodeKind::Subquery(subquery) if subquery.at.is_some())
}

/// Returns the position of annotations about a function of a window: its first argument. If this is
/// a subquery, the position is the start of the query, because Prometheus evaluates subqueries to
/// samples without a position first.
fn remark_span(args: &[PlanNode]) -> PositionRange {
    match args[0].kind {
        PlanNodeKind::Subquery(_) => PositionRange { start: 0, end: 0 },
        _ => args[0].span,
    }
}

fn build_range_leaf(
    evaluator: &mut Evaluator<'_>,
    node: &PlanNode,
    range_function: RangeFunction,
    function: &'static Function,
    args: &[PlanNode],
    grid: StepGrid,
) -> Result<EvalLeaf, PromqlError> {
    let is_range = |arg: &&PlanNode| {
        matches!(
            arg.kind,
            PlanNodeKind::Matrix(..) | PlanNodeKind::Subquery(_)
        )
    };
    let Some(range) = args.iter().find(is_range) else {
        return Err(PromqlError::Execution(format!(
            "{}: no range vector",
            function.name
        )));
    };
    if let PlanNodeKind::Matrix(selector, _) = &range.kind
        && let Some(overhang) = SelectorOverhang::from_edges(selector.edges, 0)
    {
        overhang.check(function).map_err(PromqlError::Execution)?;
    }
    let (source, reach, overhang) = evaluator.evaluate_matrix(range, grid)?;
    let statistics_only = match &range.kind {
        PlanNodeKind::Matrix(selector, _) => selector.statistics_only,
        _ => false,
    };
    let scalars = evaluator.evaluate_scalar_arguments(args, grid)?;
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
        keeps_name: function.metric_name == MetricNameEffect::Kept,
        scalars,
        span,
        counters,
        uses_starts: features.use_start_timestamps && reads_starts,
        overhang,
        cancel: evaluator.run.ctx.cancel.clone(),
    };
    Ok(EvalLeaf {
        source,
        kind: EvalLeafKind::Range(call),
        grid,
        reach,
        statistics_only,
        tally: evaluator.window_tally(node, grid)?,
        idle: Default::default(),
    })
}

fn evaluation_times(grid: &StepGrid) -> Vec<f64> {
    grid.times().map(|time| (time / 1000) as f64).collect()
}

fn evaluate_clamp(
    evaluator: &mut Evaluator<'_>,
    function: FunctionId,
    args: &[PlanNode],
    grid: StepGrid,
) -> Result<RowOp, PromqlError> {
    let all = |value: f64| vec![value; grid.count];
    let mut given = evaluator.evaluate_scalar_arguments(args, grid)?.into_iter();
    let mut next = |otherwise: f64| given.next().unwrap_or_else(|| all(otherwise));
    Ok(match function {
        FunctionId::Round => RowOp::Round(next(1.0)),
        FunctionId::ClampMin => RowOp::Clamp(next(f64::NEG_INFINITY), all(f64::INFINITY)),
        FunctionId::ClampMax => RowOp::Clamp(all(f64::NEG_INFINITY), next(f64::INFINITY)),
        _ => RowOp::Clamp(next(f64::NEG_INFINITY), next(f64::INFINITY)),
    })
}

/// Evaluates `timestamp` and `start_timestamp`. For a selector, they return the times of
/// its samples. For any other expression, `evaluate_timestamp` returns the evaluation time and
/// `start_timestamp` has no result.
fn evaluate_timestamp(
    evaluator: &mut Evaluator<'_>,
    function: FunctionId,
    arg: &PlanNode,
    grid: StepGrid,
) -> Result<SeriesStream, PromqlError> {
    let delayed = evaluator.run.delays_names();
    let of_start = function == FunctionId::StartTimestamp;
    let knows_starts = evaluator.run.options.features.use_start_timestamps;
    match &arg.kind {
        PlanNodeKind::Vector(selector) if !of_start || knows_starts => {
            let kind = if of_start {
                EvalLeafKind::NewestStart
            } else {
                EvalLeafKind::NewestTime
            };
            let leaf = evaluator.build_selector_leaf(arg, selector, kind, grid)?;
            Ok(SeriesStream::from_leaf(leaf, delayed))
        }
        _ if of_start => {
            evaluator.evaluate_frame(arg, grid)?;
            Ok(SeriesFrame::new(grid.count).into())
        }
        _ => Ok(evaluator
            .evaluate_vector(arg, grid)?
            .add_operation(RowOp::Time(grid), delayed)),
    }
}

/// Returns the vector of `absent`: the value one at all steps where no series has a value.
fn evaluate_absent(
    evaluator: &mut Evaluator<'_>,
    input: &SeriesStream,
    arg: &PlanNode,
    grid: StepGrid,
) -> Result<SeriesStream, PromqlError> {
    let account = evaluator.run.account;
    let task = |part: Range<usize>| {
        let mut notes = QueryAnnotations::default();
        let mut found = vec![false; grid.count];
        let mut each = |_: usize, row: &mut StepRowBuffer, _: &mut QueryAnnotations| {
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
    let merge = |(found, notes): (Vec<bool>, QueryAnnotations)| {
        all_notes.merge(notes);
        for (value, found) in values.iter_mut().zip(found) {
            if found {
                *value = ABSENT;
            }
        }
        Ok(())
    };
    let compute = evaluator.run.ctx.compute;
    run_in_parts(compute, input.len(), SERIES_PER_PART, task, merge)?;
    let mut frame = SeriesFrame::new(grid.count);
    let labels = fixed_labels(arg);
    frame.push(
        RowLabels::from_labels(labels),
        StepRow::from_floats(&values),
    );
    Ok(frame.into())
}

/// Returns the labels that a selector fixes to one value. As in Prometheus, a second matcher on the
/// same label removes it again.
fn fixed_labels(arg: &PlanNode) -> Labels {
    let (PlanNodeKind::Vector(PlanSelector { matchers, .. })
    | PlanNodeKind::Matrix(PlanSelector { matchers, .. }, _)) = &arg.kind
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
