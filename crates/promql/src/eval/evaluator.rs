//! Traverses a plan and evaluates its nodes: vectors as streams of rows, scalars as one number per
//! step.

mod calls;
mod reuse;
mod selectors;

use self::reuse::{SharedValue, SharedValues};
use crate::ast::{AggregateOp, BinaryOp, Edges, Span, ValueType};
use crate::depth::deeper;
use crate::eval::annotations::Annotations;
use crate::eval::kernels::elementwise::{RowOp, ScalarOp};
use crate::eval::kernels::kinds::refuse_all;
use crate::eval::kernels::leaf::LeafKind;
use crate::eval::operators::stream::Stream;
use crate::eval::operators::{aggregate, binary, count_values, quantiles, topk};
use crate::eval::rows::frame::Frame;
use crate::eval::rows::parts::{SERIES_PER_PART, in_parts};
use crate::eval::rows::row::{RowBuffer, is_absent};
use crate::eval::run::Run;
use crate::eval::tally::WindowTally;
use crate::functions::{Evaluation, FunctionId};
use crate::grid::Grid;
use crate::math::operators::of_scalars;
use crate::plan::{Aggregate, Binary, Node, NodeKind};
use crate::value::QueryError;
use std::ops::Range;
use std::sync::Arc;

/// Stack usage of one level of an evaluation in bytes. Measurements showed 2.5 kB for operators and
/// 5 kB for subqueries. Other traversals of the plan have finished before the evaluation.
const LEVEL_BYTES: usize = 4 << 10;

/// The evaluator of one query, which traverses its plan.
pub(crate) struct Evaluator<'a> {
    /// The state of the evaluation that operators use, such as the account and the annotations.
    pub(crate) run: Run<'a>,
    /// Values that other nodes of the plan will use again.
    shared: SharedValues,
    /// True while the current node is part of a node whose value is the same at all steps.
    within_invariant: bool,
}

impl<'a> Evaluator<'a> {
    /// Creates an evaluator for one query. It has not evaluated any node yet.
    pub(crate) fn new(run: Run<'a>) -> Self {
        Self {
            run,
            shared: SharedValues::default(),
            within_invariant: false,
        }
    }

    /// Evaluates an instant vector for an operator that iterates over steps. If a series has a
    /// float and a histogram at one step, the operator gets the float, and no histograms from this
    /// step on.
    pub(crate) fn vector(&mut self, node: &Node, grid: Grid) -> Result<Stream, QueryError> {
        let stream = self.vector_of_kinds(node, grid)?;
        if !may_hold_both(node) || !stream.holds_both() {
            return Ok(stream);
        }
        let stream = stream.of_one_kind(self.run.account)?;
        if let Some(tally) = self.run.tally {
            let (rows, _) = tally.of(node, grid.count, self.run.account)?;
            stream.recount(&rows);
        }
        Ok(stream)
    }

    /// Evaluates an instant vector. If several series became equal and were merged, one step may
    /// have both a float and a histogram.
    fn vector_of_kinds(&mut self, node: &Node, grid: Grid) -> Result<Stream, QueryError> {
        let _stack = self.run.account.reserve(LEVEL_BYTES)?;
        deeper(|| self.vector_of_kinds_here(node, grid))
    }

    fn vector_of_kinds_here(&mut self, node: &Node, grid: Grid) -> Result<Stream, QueryError> {
        self.run.account.check()?;
        if grid.count == 0 {
            return Ok(Frame::new(0).into());
        }
        if node.is_invariant && !self.within_invariant {
            self.within_invariant = true;
            let value = self.invariant(node, grid);
            self.within_invariant = false;
            return value;
        }
        if let Some(tally) = self.run.tally {
            let (rows, _) = tally.of(node, grid.count, self.run.account)?;
            return Ok(self.vector_of(node, grid)?.counted(rows));
        }
        match &node.shared {
            Some(shared) if !shared.of_samples => {
                let value = self.once(shared, grid, |evaluator| {
                    let stream = evaluator.vector_of(node, grid)?;
                    Ok(SharedValue::Rows(evaluator.rows_of(stream)?))
                })?;
                match value {
                    SharedValue::Rows(frame) => Ok(frame.into()),
                    _ => Err(not_a_vector(node)),
                }
            }
            _ => self.vector_of(node, grid),
        }
    }

    /// Returns the tally for the windows of a node, if samples are counted.
    pub(crate) fn window_tally(
        &self,
        node: &Node,
        grid: Grid,
    ) -> Result<Option<Arc<WindowTally>>, QueryError> {
        let Some(tally) = self.run.tally else {
            return Ok(None);
        };
        let (_, windows) = tally.of(node, grid.count, self.run.account)?;
        Ok(Some(windows))
    }

    /// Evaluates an instant vector like [`Evaluator::vector`], but ignores that its value may be
    /// shared.
    fn vector_of(&mut self, node: &Node, grid: Grid) -> Result<Stream, QueryError> {
        let delayed = self.run.delays_names();
        match &node.kind {
            NodeKind::Vector(selector) => {
                let kind = match selector.edges {
                    Edges::Smoothed => LeafKind::Smoothed(node.own_span()),
                    Edges::Plain | Edges::Anchored => LeafKind::Newest,
                };
                let leaf = self.selector_leaf(node, selector, kind, grid)?;
                Ok(Stream::from_leaf(leaf, delayed))
            }
            NodeKind::Call(function, args) => calls::vector(self, node, function, args, grid),
            NodeKind::Aggregate(inner) => self.aggregate(inner, node.own_span(), grid),
            NodeKind::Binary(operation) => self.binary(node, operation, grid),
            NodeKind::Negate(inner) => self
                .vector_of_kinds(inner, grid)?
                .then(RowOp::Negate, delayed)
                .with_distinct_series(&mut self.run),
            NodeKind::Same(inner) => self.vector_of_kinds(inner, grid),
            _ => Err(not_a_vector(node)),
        }
    }

    /// Evaluates an instant vector and returns all its rows.
    pub(crate) fn frame(&mut self, node: &Node, grid: Grid) -> Result<Arc<Frame>, QueryError> {
        let stream = self.vector(node, grid)?;
        self.rows_of(stream)
    }

    /// Evaluates an instant vector and returns all its rows. A row may have a float and a histogram
    /// at one step.
    pub(crate) fn frame_of_kinds(
        &mut self,
        node: &Node,
        grid: Grid,
    ) -> Result<Arc<Frame>, QueryError> {
        let stream = self.vector_of_kinds(node, grid)?;
        self.rows_of(stream)
    }

    /// Returns the rows of [`Evaluator::frame_of_kinds`] for modification. Copies them if other
    /// nodes share them.
    pub(crate) fn own_frame(&mut self, node: &Node, grid: Grid) -> Result<Frame, QueryError> {
        let frame = self.frame_of_kinds(node, grid)?;
        Arc::try_unwrap(frame).or_else(|frame| frame.duplicate(self.run.account))
    }

    fn rows_of(&mut self, stream: Stream) -> Result<Arc<Frame>, QueryError> {
        stream.into_frame(&mut self.run)
    }

    /// Evaluates a vector that is the same at all steps, at the first step only, and repeats its
    /// samples. Fails if a series has both a float and a histogram, for which Prometheus has no
    /// result either.
    fn invariant(&mut self, node: &Node, grid: Grid) -> Result<Stream, QueryError> {
        if grid.is_instant() && !may_hold_both(node) {
            return self.vector_of_kinds(node, grid);
        }
        let before = self.run.account.total();
        let once = self.frame_of_kinds(node, grid.first_only())?;
        if once.holds_both() {
            return Err(QueryError::Execution("unexpected number of samples".into()));
        }
        if grid.is_instant() {
            return Ok(once.into());
        }
        let read = self.run.account.total() - before;
        self.run
            .account
            .set_total(before + read * grid.count as u64);
        let copies = once.samples() * (grid.count as u64 - 1);
        self.run.account.hold(copies)?;
        let bytes = once.len() * grid.count * size_of::<f64>();
        let memory = self.run.account.reserve(bytes)?;
        let mut frame = once.repeat(grid.count, self.run.account)?;
        frame.keep(memory);
        Ok(frame.into())
    }

    fn binary(
        &mut self,
        node: &Node,
        operation: &Binary,
        grid: Grid,
    ) -> Result<Stream, QueryError> {
        let is_scalar = |side: &Node| side.value_type == ValueType::Scalar;
        let (vector, scalar, scalar_left) =
            match (is_scalar(&operation.left), is_scalar(&operation.right)) {
                (false, false) => return self.binary_of_vectors(node, operation, grid),
                (true, _) => (&operation.right, &operation.left, true),
                (false, true) => (&operation.left, &operation.right, false),
            };
        let memory = self.run.account.reserve(grid.count * size_of::<f64>())?;
        let scalars = self.scalar(scalar, grid)?;
        if scalar_left && matches!(operation.op, BinaryOp::TrimUpper | BinaryOp::TrimLower) {
            let frame = self.frame(vector, grid)?;
            refuse_all(operation.op, node.own_span(), &frame, &mut self.run.notes);
            return Ok(Frame::new(grid.count).into());
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
        Ok(self.vector(vector, grid)?.then(op, delayed))
    }

    fn binary_of_vectors(
        &mut self,
        node: &Node,
        operation: &Binary,
        grid: Grid,
    ) -> Result<Stream, QueryError> {
        let held_before = self.run.account.held();
        let left = self.frame(&operation.left, grid)?;
        let right = self.frame(&operation.right, grid)?;
        let frame = binary::frame(&mut self.run, node, operation, (left, right), grid)?;
        self.settled(held_before, frame)
    }

    fn aggregate(
        &mut self,
        node: &Aggregate,
        span: Span,
        grid: Grid,
    ) -> Result<Stream, QueryError> {
        let held_before = self.run.account.held();
        let frame = match node.op {
            AggregateOp::CountValues => {
                let label = count_values::label_name(node)?;
                let input = self.frame(&node.input, grid)?;
                count_values::frame(&self.run, node, (&label, input), grid)?
            }
            AggregateOp::Quantile => {
                let inputs = self.param_and_input(node, grid)?;
                quantiles::frame(&mut self.run, node, inputs, grid)?
            }
            op if op.param_type().is_some() => {
                let inputs = self.param_and_input(node, grid)?;
                topk::frame(&mut self.run, node, inputs, span, grid)?
            }
            _ => {
                let input = self.vector(&node.input, grid)?;
                aggregate::frame(&mut self.run, node, input, grid)?
            }
        };
        self.settled(held_before, frame)
    }

    /// Evaluates the parameter of an aggregation at each step, and the rows of its input.
    fn param_and_input(
        &mut self,
        node: &Aggregate,
        grid: Grid,
    ) -> Result<(Vec<f64>, Arc<Frame>), QueryError> {
        let params = match &node.param {
            Some(param) => self.scalar(param, grid)?,
            None => vec![0.0; grid.count],
        };
        Ok((params, self.frame(&node.input, grid)?))
    }

    /// Completes an operator: only its result and the `held_before` samples remain held.
    fn settled(&self, held_before: u64, frame: Frame) -> Result<Stream, QueryError> {
        self.run.account.settle(held_before, frame.samples())?;
        Ok(frame.into())
    }

    /// Evaluates a scalar and returns one number per step.
    pub(crate) fn scalar(&mut self, node: &Node, grid: Grid) -> Result<Vec<f64>, QueryError> {
        self.run.account.check()?;
        let _stack = self.run.account.reserve(LEVEL_BYTES)?;
        let Some(shared) = &node.shared else {
            return deeper(|| self.scalar_of(node, grid));
        };
        let value = self.once(shared, grid, |evaluator| {
            let numbers = deeper(|| evaluator.scalar_of(node, grid))?;
            Ok(SharedValue::Numbers(numbers.into()))
        })?;
        match value {
            SharedValue::Numbers(numbers) => Ok(numbers.to_vec()),
            _ => Err(not_a_vector(node)),
        }
    }

    /// Evaluates all scalar arguments of a call in order; other arguments are skipped.
    fn scalars(&mut self, args: &[Node], grid: Grid) -> Result<Vec<Vec<f64>>, QueryError> {
        let are_scalars = |arg: &&Node| arg.value_type == ValueType::Scalar;
        let scalars = args.iter().filter(are_scalars);
        scalars.map(|arg| self.scalar(arg, grid)).collect()
    }

    fn scalar_of(&mut self, node: &Node, grid: Grid) -> Result<Vec<f64>, QueryError> {
        match &node.kind {
            NodeKind::Number(number) => Ok(vec![*number; grid.count]),
            NodeKind::Same(inner) => self.scalar(inner, grid),
            NodeKind::Negate(inner) => {
                let values = self.scalar(inner, grid)?;
                Ok(values.into_iter().map(|value| -value).collect())
            }
            NodeKind::Binary(operation) => {
                let sides = [&operation.left, &operation.right];
                self.of_two_scalars(sides, grid, |l, r| of_scalars(operation.op, l, r))
            }
            NodeKind::Call(function, args) => match (function.evaluation, function.id) {
                (Evaluation::OfScalars(f), _) => self.of_two_scalars([&args[0], &args[1]], grid, f),
                (_, FunctionId::Time) => {
                    Ok(grid.times().map(|time| time as f64 / 1000.0).collect())
                }
                (_, FunctionId::Scalar) => {
                    let stream = self.vector(&args[0], grid)?;
                    self.only_elements(&stream, grid)
                }
                _ => Err(not_a_vector(node)),
            },
            _ => Err(not_a_vector(node)),
        }
    }

    fn of_two_scalars(
        &mut self,
        [left, right]: [&Node; 2],
        grid: Grid,
        f: impl Fn(f64, f64) -> f64,
    ) -> Result<Vec<f64>, QueryError> {
        let left = self.scalar(left, grid)?;
        let _left_memory = self.run.account.reserve(size_of_val(&left[..]))?;
        let right = self.scalar(right, grid)?;
        Ok(left.into_iter().zip(right).map(|(l, r)| f(l, r)).collect())
    }

    /// Returns the only float of a vector at each step, or NaN if there is not exactly one.
    fn only_elements(&mut self, stream: &Stream, grid: Grid) -> Result<Vec<f64>, QueryError> {
        let mut counts = vec![0u32; grid.count];
        let mut values = vec![f64::NAN; grid.count];
        let account = self.run.account;
        let task = |part: Range<usize>| {
            let mut notes = Annotations::default();
            let (mut counts, mut values) = (vec![0u32; grid.count], vec![f64::NAN; grid.count]);
            let mut each = |_: usize, row: &mut RowBuffer, _: &mut Annotations| {
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
        let merge = |(part_counts, part_values, notes): (Vec<u32>, Vec<f64>, Annotations)| {
            all_notes.merge(notes);
            for step in 0..grid.count {
                if part_counts[step] > 0 {
                    counts[step] += part_counts[step];
                    values[step] = part_values[step];
                }
            }
            Ok(())
        };
        in_parts(
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
fn may_hold_both(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Negate(_) => true,
        NodeKind::Call(function, _) => {
            matches!(
                function.id,
                FunctionId::LabelReplace | FunctionId::LabelJoin
            )
        }
        NodeKind::Same(inner) => may_hold_both(inner),
        _ => false,
    }
}

fn not_a_vector(node: &Node) -> QueryError {
    QueryError::Execution(format!("unexpected {} in evaluation", node.value_type))
}
