//! Traverses a plan and evaluates its nodes: vectors as streams of rows, scalars as one number per
//! step.

mod calls;
mod reuse;
mod selectors;

use self::reuse::{SharedValue, SharedValueCache};
use crate::ast::{AggregateOp, BinaryOp, PositionRange, ValueType, WindowEdges};
use crate::depth::ensure_stack;
use crate::eval::annotations::QueryAnnotations;
use crate::eval::kernels::elementwise::{RowOp, ScalarOp};
use crate::eval::kernels::kinds::add_refusals;
use crate::eval::kernels::leaf::EvalLeafKind;
use crate::eval::operators::stream::SeriesStream;
use crate::eval::operators::{aggregate, binary, count_values, quantiles, topk};
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::parts::{SERIES_PER_PART, run_in_parts};
use crate::eval::rows::row::{StepRowBuffer, is_absent};
use crate::eval::run::EvalContext;
use crate::eval::tally::WindowTally;
use crate::functions::{FunctionEvaluation, FunctionId};
use crate::grid::StepGrid;
use crate::math::operators::apply_to_scalars;
use crate::plan::{PlanAggregate, PlanBinary, PlanNode, PlanNodeKind};
use crate::value::PromqlError;
use std::ops::Range;
use std::sync::Arc;

/// Stack usage of one level of an evaluation in bytes. Measurements showed 2.5 kB for operators and
/// 5 kB for subqueries. Other traversals of the plan have finished before the evaluation.
const LEVEL_BYTES: usize = 4 << 10;

/// The evaluator of one query, which traverses its plan.
pub(crate) struct Evaluator<'a> {
    /// The state of the evaluation that operators use, such as the account and the annotations.
    pub(crate) run: EvalContext<'a>,
    /// Values that other nodes of the plan will use again.
    shared: SharedValueCache,
    /// True while the current node is part of a node whose value is the same at all steps.
    within_invariant: bool,
}

impl<'a> Evaluator<'a> {
    /// Creates an evaluator for one query. It has not evaluated any node yet.
    pub(crate) fn new(run: EvalContext<'a>) -> Self {
        Self {
            run,
            shared: SharedValueCache::default(),
            within_invariant: false,
        }
    }

    /// Evaluates an instant vector for an operator that iterates over steps. If a series has a
    /// float and a histogram at one step, the operator gets the float, and no histograms from this
    /// step on.
    pub(crate) fn evaluate_vector(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<SeriesStream, PromqlError> {
        let stream = self.evaluate_mixed_vector(node, grid)?;
        if !may_mix_kinds(node) || !stream.has_mixed_steps() {
            return Ok(stream);
        }
        self.run.notes.mark_range_dependent();
        let stream = stream.keep_one_kind(self.run.account)?;
        if let Some(tally) = self.run.tally {
            let (rows, _) = tally.node_tallies(node, grid.count, self.run.account)?;
            stream.recount(&rows);
        }
        Ok(stream)
    }

    /// Evaluates an instant vector. If several series became equal and were merged, one step may
    /// have both a float and a histogram.
    fn evaluate_mixed_vector(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<SeriesStream, PromqlError> {
        let _stack = self.run.account.reserve(LEVEL_BYTES)?;
        self.measure(node, |evaluator| {
            ensure_stack(|| evaluator.evaluate_mixed_vector_node(node, grid))
        })
    }

    /// Calls `evaluate` and assigns its time and memory to the node if the query is analyzed.
    fn measure<T>(&mut self, node: &PlanNode, evaluate: impl FnOnce(&mut Self) -> T) -> T {
        let Some(meter) = self.run.account.meter().cloned() else {
            return evaluate(self);
        };
        meter.enter(node);
        let value = evaluate(self);
        meter.leave();
        value
    }

    fn evaluate_mixed_vector_node(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<SeriesStream, PromqlError> {
        self.run.account.check()?;
        if grid.count == 0 {
            return Ok(SeriesFrame::new(0).into());
        }
        if node.is_invariant && !self.within_invariant {
            self.within_invariant = true;
            let value = self.evaluate_invariant(node, grid);
            self.within_invariant = false;
            return value;
        }
        if let Some(tally) = self.run.tally {
            let (rows, _) = tally.node_tallies(node, grid.count, self.run.account)?;
            return Ok(self.evaluate_unshared_vector(node, grid)?.with_tally(rows));
        }
        match &node.shared {
            Some(shared) if !shared.of_samples => {
                let value = self.get_or_evaluate(shared, grid, |evaluator| {
                    let stream = evaluator.evaluate_unshared_vector(node, grid)?;
                    Ok(SharedValue::Rows(evaluator.collect_rows(stream)?))
                })?;
                match value {
                    SharedValue::Rows(frame) => Ok(frame.into()),
                    _ => Err(not_a_vector(node)),
                }
            }
            _ => self.evaluate_unshared_vector(node, grid),
        }
    }

    /// Returns the tally for the windows of a node, if samples are counted.
    pub(crate) fn window_tally(
        &self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<Option<Arc<WindowTally>>, PromqlError> {
        let Some(tally) = self.run.tally else {
            return Ok(None);
        };
        let (_, windows) = tally.node_tallies(node, grid.count, self.run.account)?;
        Ok(Some(windows))
    }

    /// Evaluates an instant vector like [`Evaluator::vector`], but ignores that its value may be
    /// shared.
    fn evaluate_unshared_vector(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<SeriesStream, PromqlError> {
        let delayed = self.run.delays_names();
        match &node.kind {
            PlanNodeKind::Vector(selector) => {
                let kind = match selector.edges {
                    WindowEdges::Smoothed => EvalLeafKind::Smoothed(node.own_span()),
                    WindowEdges::Plain | WindowEdges::Anchored => EvalLeafKind::Newest,
                };
                let leaf = self.build_selector_leaf(node, selector, kind, grid)?;
                Ok(SeriesStream::from_leaf(leaf, delayed))
            }
            PlanNodeKind::Call(function, args) => {
                calls::evaluate_vector_call(self, node, function, args, grid)
            }
            PlanNodeKind::Aggregate(inner) => self.evaluate_aggregate(inner, node.own_span(), grid),
            PlanNodeKind::Binary(operation) => self.evaluate_binary(node, operation, grid),
            PlanNodeKind::Negate(inner) => self
                .evaluate_mixed_vector(inner, grid)?
                .add_operation(RowOp::Negate, delayed)
                .with_distinct_series(&mut self.run),
            PlanNodeKind::Same(inner) => self.evaluate_mixed_vector(inner, grid),
            _ => Err(not_a_vector(node)),
        }
    }

    /// Evaluates an instant vector and returns all its rows.
    pub(crate) fn evaluate_frame(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<Arc<SeriesFrame>, PromqlError> {
        let stream = self.evaluate_vector(node, grid)?;
        self.collect_rows(stream)
    }

    /// Evaluates an instant vector and returns all its rows. A row may have a float and a histogram
    /// at one step.
    pub(crate) fn evaluate_mixed_frame(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<Arc<SeriesFrame>, PromqlError> {
        let stream = self.evaluate_mixed_vector(node, grid)?;
        self.collect_rows(stream)
    }

    /// Returns the rows of [`Evaluator::evaluate_mixed_frame`] for modification. Copies them if
    /// other nodes share them.
    pub(crate) fn evaluate_owned_frame(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<SeriesFrame, PromqlError> {
        let frame = self.evaluate_mixed_frame(node, grid)?;
        Arc::try_unwrap(frame).or_else(|frame| frame.duplicate(self.run.account))
    }

    fn collect_rows(&mut self, stream: SeriesStream) -> Result<Arc<SeriesFrame>, PromqlError> {
        stream.into_frame(&mut self.run)
    }

    /// Evaluates a vector that is the same at all steps, at the first step only, and repeats its
    /// samples. Fails if a series has both a float and a histogram, for which Prometheus has no
    /// result either.
    fn evaluate_invariant(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<SeriesStream, PromqlError> {
        if grid.is_instant() && !may_mix_kinds(node) {
            return self.evaluate_mixed_vector(node, grid);
        }
        let before = self.run.account.total();
        let once = self.evaluate_mixed_frame(node, grid.first_only())?;
        if once.has_mixed_steps() {
            return Err(PromqlError::Execution(
                "unexpected number of samples".into(),
            ));
        }
        if grid.is_instant() {
            return Ok(once.into());
        }
        let read = self.run.account.total() - before;
        self.run
            .account
            .set_total(before + read * grid.count as u64);
        let copies = once.samples() * (grid.count as u64 - 1);
        self.run.account.hold_samples(copies)?;
        let bytes = once.len() * grid.count * size_of::<f64>();
        let memory = self.run.account.reserve(bytes)?;
        let mut frame = once.repeat(grid.count, self.run.account)?;
        frame.hold_reservation(memory);
        Ok(frame.into())
    }

    fn evaluate_binary(
        &mut self,
        node: &PlanNode,
        operation: &PlanBinary,
        grid: StepGrid,
    ) -> Result<SeriesStream, PromqlError> {
        let is_scalar = |side: &PlanNode| side.value_type == ValueType::Scalar;
        let (vector, scalar, scalar_left) =
            match (is_scalar(&operation.left), is_scalar(&operation.right)) {
                (false, false) => return self.evaluate_vector_binary(node, operation, grid),
                (true, _) => (&operation.right, &operation.left, true),
                (false, true) => (&operation.left, &operation.right, false),
            };
        let memory = self.run.account.reserve(grid.count * size_of::<f64>())?;
        let scalars = self.evaluate_scalar(scalar, grid)?;
        if scalar_left && matches!(operation.op, BinaryOp::TrimUpper | BinaryOp::TrimLower) {
            let frame = self.evaluate_frame(vector, grid)?;
            add_refusals(operation.op, node.own_span(), &frame, &mut self.run.notes);
            return Ok(SeriesFrame::new(grid.count).into());
        }
        let op = RowOp::Scalar(ScalarOp {
            op: operation.op,
            scalars,
            scalar_left,
            returns_bool: operation.returns_bool,
            span: node.own_span(),
            _memory: memory,
        });
        let delayed = self.run.delays_names();
        Ok(self
            .evaluate_vector(vector, grid)?
            .add_operation(op, delayed))
    }

    fn evaluate_vector_binary(
        &mut self,
        node: &PlanNode,
        operation: &PlanBinary,
        grid: StepGrid,
    ) -> Result<SeriesStream, PromqlError> {
        let held_before = self.run.account.held();
        let left = self.evaluate_frame(&operation.left, grid)?;
        let right = self.evaluate_frame(&operation.right, grid)?;
        let frame = binary::evaluate_vectors(&mut self.run, node, operation, left, right, grid)?;
        self.settle_operator(held_before, frame)
    }

    fn evaluate_aggregate(
        &mut self,
        node: &PlanAggregate,
        span: PositionRange,
        grid: StepGrid,
    ) -> Result<SeriesStream, PromqlError> {
        let held_before = self.run.account.held();
        let frame = match node.op {
            AggregateOp::CountValues => {
                let label = count_values::label_name(node)?;
                let input = self.evaluate_frame(&node.input, grid)?;
                count_values::evaluate_count_values(&self.run, node, &label, input, grid)?
            }
            AggregateOp::Quantile => {
                let (params, input) = self.evaluate_param_and_input(node, grid)?;
                quantiles::evaluate_quantiles(&mut self.run, node, params, input, grid)?
            }
            op if op.param_type().is_some() => {
                let (params, input) = self.evaluate_param_and_input(node, grid)?;
                topk::evaluate_topk(&mut self.run, node, params, input, span, grid)?
            }
            _ => {
                let input = self.evaluate_vector(&node.input, grid)?;
                aggregate::evaluate_fold(&mut self.run, node, input, grid)?
            }
        };
        self.settle_operator(held_before, frame)
    }

    /// Evaluates the parameter of an aggregation at each step, and the rows of its input.
    fn evaluate_param_and_input(
        &mut self,
        node: &PlanAggregate,
        grid: StepGrid,
    ) -> Result<(Vec<f64>, Arc<SeriesFrame>), PromqlError> {
        let params = match &node.param {
            Some(param) => self.evaluate_scalar(param, grid)?,
            None => vec![0.0; grid.count],
        };
        Ok((params, self.evaluate_frame(&node.input, grid)?))
    }

    /// Completes an operator: only its result and the `held_before` samples remain held.
    fn settle_operator(
        &self,
        held_before: u64,
        frame: SeriesFrame,
    ) -> Result<SeriesStream, PromqlError> {
        self.run.account.settle_held(held_before, frame.samples())?;
        Ok(frame.into())
    }

    /// Evaluates a scalar and returns one number per step.
    pub(crate) fn evaluate_scalar(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<Vec<f64>, PromqlError> {
        self.run.account.check()?;
        let _stack = self.run.account.reserve(LEVEL_BYTES)?;
        let Some(shared) = &node.shared else {
            return self.measure(node, |evaluator| {
                ensure_stack(|| evaluator.evaluate_unshared_scalar(node, grid))
            });
        };
        let value = self.get_or_evaluate(shared, grid, |evaluator| {
            let numbers = ensure_stack(|| evaluator.evaluate_unshared_scalar(node, grid))?;
            Ok(SharedValue::Numbers(numbers.into()))
        })?;
        match value {
            SharedValue::Numbers(numbers) => Ok(numbers.to_vec()),
            _ => Err(not_a_vector(node)),
        }
    }

    /// Evaluates all scalar arguments of a call in order; other arguments are skipped.
    fn evaluate_scalar_arguments(
        &mut self,
        args: &[PlanNode],
        grid: StepGrid,
    ) -> Result<Vec<Vec<f64>>, PromqlError> {
        let are_scalars = |arg: &&PlanNode| arg.value_type == ValueType::Scalar;
        let scalars = args.iter().filter(are_scalars);
        scalars.map(|arg| self.evaluate_scalar(arg, grid)).collect()
    }

    fn evaluate_unshared_scalar(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<Vec<f64>, PromqlError> {
        match &node.kind {
            PlanNodeKind::Number(number) => Ok(vec![*number; grid.count]),
            PlanNodeKind::Same(inner) => self.evaluate_scalar(inner, grid),
            PlanNodeKind::Negate(inner) => {
                let values = self.evaluate_scalar(inner, grid)?;
                Ok(values.into_iter().map(|value| -value).collect())
            }
            PlanNodeKind::Binary(operation) => {
                let sides = [&operation.left, &operation.right];
                self.evaluate_scalar_pair(sides, grid, |l, r| apply_to_scalars(operation.op, l, r))
            }
            PlanNodeKind::Call(function, args) => match (function.evaluation, function.id) {
                (FunctionEvaluation::OfScalars(f), _) => {
                    self.evaluate_scalar_pair([&args[0], &args[1]], grid, f)
                }
                (_, FunctionId::Time) => {
                    Ok(grid.times().map(|time| time as f64 / 1000.0).collect())
                }
                (_, FunctionId::Scalar) => {
                    let stream = self.evaluate_vector(&args[0], grid)?;
                    self.single_elements(&stream, grid)
                }
                _ => Err(not_a_vector(node)),
            },
            _ => Err(not_a_vector(node)),
        }
    }

    fn evaluate_scalar_pair(
        &mut self,
        [left, right]: [&PlanNode; 2],
        grid: StepGrid,
        f: impl Fn(f64, f64) -> f64,
    ) -> Result<Vec<f64>, PromqlError> {
        let left = self.evaluate_scalar(left, grid)?;
        let _left_memory = self.run.account.reserve(size_of_val(&left[..]))?;
        let right = self.evaluate_scalar(right, grid)?;
        assert_eq!(left.len(), right.len(), "steps of both sides");
        Ok(left.into_iter().zip(right).map(|(l, r)| f(l, r)).collect())
    }

    /// Returns the only float of a vector at each step, or NaN if there is not exactly one.
    fn single_elements(
        &mut self,
        stream: &SeriesStream,
        grid: StepGrid,
    ) -> Result<Vec<f64>, PromqlError> {
        let mut counts = vec![0u32; grid.count];
        let mut values = vec![f64::NAN; grid.count];
        let account = self.run.account;
        let task = |part: Range<usize>| {
            let mut notes = QueryAnnotations::default();
            let (mut counts, mut values) = (vec![0u32; grid.count], vec![f64::NAN; grid.count]);
            let mut each = |_: usize, row: &mut StepRowBuffer, _: &mut QueryAnnotations| {
                for (step, value) in row.values.iter().enumerate() {
                    if !is_absent(*value) {
                        counts[step] += 1;
                        values[step] = *value;
                    }
                }
                Ok(())
            };
            stream.scan(part, account, &mut notes, &mut each)?;
            Ok((counts, values, notes))
        };
        let all_notes = &mut self.run.notes;
        let merge = |(part_counts, part_values, notes): (Vec<u32>, Vec<f64>, QueryAnnotations)| {
            all_notes.merge(notes);
            for step in 0..grid.count {
                if part_counts[step] > 0 {
                    counts[step] += part_counts[step];
                    values[step] = part_values[step];
                }
            }
            Ok(())
        };
        run_in_parts(
            self.run.ctx.compute,
            stream.len(),
            SERIES_PER_PART,
            task,
            merge,
        )?;
        let only = counts.into_iter().zip(values);
        Ok(only
            .map(|(n, v)| if n == 1 { v } else { f64::NAN })
            .collect())
    }
}

/// Returns whether Prometheus merges equal series of the node's value by concatenating their lists
/// of floats and of histograms.
fn may_mix_kinds(node: &PlanNode) -> bool {
    match &node.kind {
        PlanNodeKind::Negate(_) => true,
        PlanNodeKind::Call(function, _) => {
            matches!(
                function.id,
                FunctionId::LabelReplace | FunctionId::LabelJoin
            )
        }
        PlanNodeKind::Same(inner) => may_mix_kinds(inner),
        _ => false,
    }
}

fn not_a_vector(node: &PlanNode) -> PromqlError {
    PromqlError::Execution(format!("unexpected {} in evaluation", node.value_type))
}
