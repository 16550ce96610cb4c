//! Walks a plan and makes values of its nodes: streams of vectors, rows of scalars.

use crate::ast::{BinaryOp, Edges, ValueType};
use crate::depth::deeper;
use crate::eval::account::{Account, storage_error};
use crate::eval::annotations::Annotations;
use crate::eval::edges::Overhang;
use crate::eval::elementwise::{RowOp, ScalarOp, of_scalars};
use crate::eval::frame::{Frame, Row, RowBuffer};
use crate::eval::grid::{Grid, Reach};
use crate::eval::heads::Head;
use crate::eval::kinds::refuse_all;
use crate::eval::leaf::{Leaf, LeafKind};
use crate::eval::ranges::{SERIES_PER_PART, in_parts};
use crate::eval::reuse::{SharedValue, SharedValues};
use crate::eval::source::{Resampled, Selected, Source};
use crate::eval::stream::{Stream, same_labelset};
use crate::eval::{aggregate, binary, calls, go_math};
use crate::functions::FunctionId;
use crate::plan::{Binary, Node, NodeKind, Selector, Subquery};
use crate::value::QueryError;
use crate::{Context, Options};
use firn_model::budget::Reservation;
use firn_model::labels::Labels;
use firn_model::store::SelectRequest;
use std::ops::Range;
use std::sync::Arc;

/// What a level of an evaluation takes of the stack: 2.5 kB were measured for operators, 5 kB for
/// subqueries, and a plan's other walks are over by then.
const LEVEL_BYTES: usize = 4 << 10;

/// One evaluation of a query.
pub(crate) struct Evaluator<'a> {
    /// What the query runs on.
    pub(crate) ctx: &'a Context<'a>,
    /// What it uses.
    pub(crate) account: &'a Account<'a>,
    /// Its bounds and switches.
    pub(crate) options: &'a Options,
    /// What it has to say so far.
    pub(crate) notes: Annotations,
    /// Values that are needed again.
    pub(crate) shared: SharedValues,
    /// Whether a part is under way that is the same at all steps.
    within_invariant: bool,
}

impl<'a> Evaluator<'a> {
    /// An evaluation that has not begun.
    pub(crate) fn new(
        ctx: &'a Context<'a>,
        account: &'a Account<'a>,
        options: &'a Options,
    ) -> Self {
        Self {
            ctx,
            account,
            options,
            notes: Annotations::default(),
            shared: SharedValues::default(),
            within_invariant: false,
        }
    }

    /// Whether metric names are dropped at the end of the evaluation instead of by each operator.
    pub(crate) fn delays_names(&self) -> bool {
        self.options.features.delayed_name_removal
    }

    /// The value of a node that is an instant vector, as operators see it that go step by step: of
    /// a float and a histogram at one step they see the float, and no histogram from there on.
    pub(crate) fn vector(&mut self, node: &Node, grid: Grid) -> Result<Stream, QueryError> {
        let stream = self.vector_of_kinds(node, grid)?;
        match may_hold_both(node) {
            true => stream.of_one_kind(self.account),
            false => Ok(stream),
        }
    }

    /// The value of a node that is an instant vector. Where series became one there may be a float
    /// and a histogram at one step.
    fn vector_of_kinds(&mut self, node: &Node, grid: Grid) -> Result<Stream, QueryError> {
        let _stack = self.account.reserve(LEVEL_BYTES)?;
        deeper(|| self.vector_of_kinds_here(node, grid))
    }

    fn vector_of_kinds_here(&mut self, node: &Node, grid: Grid) -> Result<Stream, QueryError> {
        self.account.check()?;
        if grid.count == 0 {
            return Ok(Frame::new(0).into());
        }
        if node.is_invariant && !self.within_invariant {
            self.within_invariant = true;
            let value = self.invariant(node, grid);
            self.within_invariant = false;
            return value;
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

    /// As [`Evaluator::vector`], wherever else the value is needed.
    fn vector_of(&mut self, node: &Node, grid: Grid) -> Result<Stream, QueryError> {
        let delayed = self.delays_names();
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
            NodeKind::Aggregate(inner) => aggregate::vector(self, inner, node.own_span(), grid),
            NodeKind::Binary(operation) => self.binary(node, operation, grid),
            NodeKind::Negate(inner) => self
                .vector_of_kinds(inner, grid)?
                .then(RowOp::Negate, delayed)
                .with_distinct_series(self.ctx.compute, self.account, &mut self.notes),
            NodeKind::Same(inner) => self.vector_of_kinds(inner, grid),
            _ => Err(not_a_vector(node)),
        }
    }

    /// The value of a node that is an instant vector, all rows at once.
    pub(crate) fn frame(&mut self, node: &Node, grid: Grid) -> Result<Arc<Frame>, QueryError> {
        let stream = self.vector(node, grid)?;
        self.rows_of(stream)
    }

    /// The same with all values, as whoever takes whole rows sees them.
    pub(crate) fn frame_of_kinds(
        &mut self,
        node: &Node,
        grid: Grid,
    ) -> Result<Arc<Frame>, QueryError> {
        let stream = self.vector_of_kinds(node, grid)?;
        self.rows_of(stream)
    }

    /// As [`Evaluator::frame_of_kinds`], to be changed: a copy if others need it too.
    pub(crate) fn own_frame(&mut self, node: &Node, grid: Grid) -> Result<Frame, QueryError> {
        let frame = self.frame_of_kinds(node, grid)?;
        Arc::try_unwrap(frame).or_else(|frame| frame.duplicate(self.account))
    }

    fn rows_of(&mut self, stream: Stream) -> Result<Arc<Frame>, QueryError> {
        stream.into_frame(self.ctx.compute, self.account, &mut self.notes)
    }

    /// A vector that is the same at all steps: computed at the first one. One sample of a series is
    /// repeated; of two, upstream knows no answer.
    fn invariant(&mut self, node: &Node, grid: Grid) -> Result<Stream, QueryError> {
        if grid.is_instant() && !may_hold_both(node) {
            return self.vector_of_kinds(node, grid);
        }
        let before = self.account.total();
        let once = self.frame_of_kinds(node, grid.first_only())?;
        if once.holds_both() {
            return Err(QueryError::Execution("unexpected number of samples".into()));
        }
        if grid.is_instant() {
            return Ok(once.into());
        }
        let read = self.account.total() - before;
        self.account.set_total(before + read * grid.count as u64);
        let copies = once.samples() * (grid.count as u64 - 1);
        self.account.hold(copies)?;
        let bytes = once.len() * grid.count * size_of::<f64>();
        let memory = self.account.reserve(bytes)?;
        let mut frame = once.repeat(grid.count, self.account)?;
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
                (false, false) => return binary::vector(self, node, operation, grid),
                (true, _) => (&operation.right, &operation.left, true),
                (false, true) => (&operation.left, &operation.right, false),
            };
        let memory = self.account.reserve(grid.count * size_of::<f64>())?;
        let scalars = self.scalar(scalar, grid)?;
        if scalar_left && matches!(operation.op, BinaryOp::TrimUpper | BinaryOp::TrimLower) {
            let frame = self.frame(vector, grid)?;
            refuse_all(operation.op, node.own_span(), &frame, &mut self.notes);
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
        let delayed = self.delays_names();
        Ok(self.vector(vector, grid)?.then(op, delayed))
    }

    /// The value of a node that is a scalar: one number a step.
    pub(crate) fn scalar(&mut self, node: &Node, grid: Grid) -> Result<Vec<f64>, QueryError> {
        self.account.check()?;
        let _stack = self.account.reserve(LEVEL_BYTES)?;
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

    fn scalar_of(&mut self, node: &Node, grid: Grid) -> Result<Vec<f64>, QueryError> {
        match &node.kind {
            NodeKind::Number(number) => Ok(vec![*number; grid.count]),
            NodeKind::Same(inner) => self.scalar(inner, grid),
            NodeKind::Negate(inner) => {
                let values = self.scalar(inner, grid)?;
                Ok(values.into_iter().map(|value| -value).collect())
            }
            NodeKind::Binary(operation) => {
                let left = self.scalar(&operation.left, grid)?;
                let _left_memory = self.account.reserve(size_of_val(&left[..]))?;
                let right = self.scalar(&operation.right, grid)?;
                let pairs = left.into_iter().zip(right);
                Ok(pairs.map(|(l, r)| of_scalars(operation.op, l, r)).collect())
            }
            NodeKind::Call(function, args) => match function.id {
                FunctionId::Time => Ok(grid.times().map(|time| time as f64 / 1000.0).collect()),
                FunctionId::MaxOf => self.of_two_scalars(args, grid, go_math::max),
                FunctionId::MinOf => self.of_two_scalars(args, grid, go_math::min),
                FunctionId::Scalar => {
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
        args: &[Node],
        grid: Grid,
        f: fn(f64, f64) -> f64,
    ) -> Result<Vec<f64>, QueryError> {
        let left = self.scalar(&args[0], grid)?;
        let _left_memory = self.account.reserve(size_of_val(&left[..]))?;
        let right = self.scalar(&args[1], grid)?;
        Ok(left.into_iter().zip(right).map(|(l, r)| f(l, r)).collect())
    }

    /// For each step the only float of a vector, or NaN.
    fn only_elements(&mut self, stream: &Stream, grid: Grid) -> Result<Vec<f64>, QueryError> {
        use crate::eval::frame::is_absent;
        let mut counts = vec![0u32; grid.count];
        let mut values = vec![f64::NAN; grid.count];
        let account = self.account;
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
        let all_notes = &mut self.notes;
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
        in_parts(self.ctx.compute, stream.len(), SERIES_PER_PART, task, merge)?;
        let only = counts.into_iter().zip(values);
        Ok(only
            .map(|(n, v)| if n == 1 { v } else { f64::NAN })
            .collect())
    }

    /// A leaf over the series that an instant selector finds.
    pub(crate) fn selector_leaf(
        &mut self,
        node: &Node,
        selector: &Selector,
        kind: LeafKind,
        grid: Grid,
    ) -> Result<Leaf, QueryError> {
        let lookback_ms = self.options.lookback_ms;
        let mut reach = Reach {
            range_ms: lookback_ms,
            offset_ms: selector.offset_ms,
            at: selector.at,
        };
        let ahead_ms = match selector.edges {
            // As far ahead as back.
            Edges::Smoothed => lookback_ms,
            _ => 0,
        };
        let loaded = Reach {
            range_ms: lookback_ms.saturating_add(ahead_ms),
            offset_ms: reach.offset_ms.saturating_sub(ahead_ms),
            ..reach
        };
        let source = match &node.shared {
            Some(shared) if shared.of_samples => {
                let value = self.once(shared, grid, |evaluator| {
                    let source = evaluator.select(selector, &loaded, &grid, false)?;
                    Ok(SharedValue::Series(source))
                })?;
                match value {
                    SharedValue::Series(source) => source,
                    _ => return Err(not_a_vector(node)),
                }
            }
            _ => {
                let is_newest = matches!(kind, LeafKind::Newest | LeafKind::NewestTime);
                // All steps see the same sample.
                let newest_only =
                    is_newest && grid.count == 1 && loaded == reach && reach.at.is_none();
                self.select(selector, &loaded, &grid, newest_only)?
            }
        };
        match kind {
            LeafKind::Smoothed(_) => reach = loaded,
            LeafKind::NewestTime | LeafKind::NewestStart if reach.at.is_some() => {
                // Upstream looks at the time of `@`, among the samples that the offset leaves.
                let later_ms = reach.offset_ms.saturating_neg().max(0);
                reach.offset_ms = loaded.offset_ms.max(0);
                let range_ms = lookback_ms.saturating_sub(reach.offset_ms);
                reach.range_ms = range_ms.saturating_sub(later_ms).max(0);
            }
            _ => {}
        }
        Ok(Leaf {
            source,
            kind,
            grid,
            reach,
            statistics_only: selector.statistics_only,
            idle: Default::default(),
        })
    }

    fn select(
        &mut self,
        selector: &Selector,
        reach: &Reach,
        grid: &Grid,
        newest_only: bool,
    ) -> Result<Arc<dyn Source>, QueryError> {
        let request = SelectRequest {
            tenant: self.ctx.tenant,
            matchers: &selector.matchers,
            range: reach.time_range(grid),
            newest_only,
            cancel: self.ctx.cancel,
            budget: self.ctx.budget,
            series: self.account.series(),
        };
        let selection = self.ctx.store.select(request).map_err(storage_error)?;
        self.account.reads_from(&*selection);
        Ok(Arc::new(Selected::new(selection, &selector.matchers)))
    }

    /// The samples that a range vector is made of.
    pub(crate) fn matrix(&mut self, node: &Node, grid: Grid) -> Result<RangeVector, QueryError> {
        let Some(shared) = &node.shared else {
            return self.matrix_of(node, grid);
        };
        let value = self.once(shared, grid, |evaluator| {
            Ok(SharedValue::Range(evaluator.matrix_of(node, grid)?))
        })?;
        match value {
            SharedValue::Range(range) => Ok(range),
            _ => Err(not_a_vector(node)),
        }
    }

    fn matrix_of(&mut self, node: &Node, grid: Grid) -> Result<RangeVector, QueryError> {
        match &node.kind {
            NodeKind::Matrix(selector, range_ms) => {
                let mut reach = Reach {
                    range_ms: *range_ms,
                    offset_ms: selector.offset_ms,
                    at: selector.at,
                };
                let overhang = Overhang::of(selector.edges, self.options.lookback_ms);
                if let Some(overhang) = overhang {
                    reach = overhang.widen(reach);
                }
                let source = self.select(selector, &reach, &grid, false)?;
                Ok((source, reach, overhang))
            }
            NodeKind::Subquery(subquery) => {
                let before = self.account.total();
                let (frame, inner, reach) = self.subquery(subquery, grid)?;
                // The samples of the rows are counted when windows are made of them.
                self.account.set_total(before);
                Ok((Arc::new(Resampled::new(frame, &inner)), reach, None))
            }
            _ => Err(not_a_vector(node)),
        }
    }

    /// Evaluates the inside of a subquery at every multiple of its step that its windows hold.
    pub(crate) fn subquery(
        &mut self,
        subquery: &Subquery,
        grid: Grid,
    ) -> Result<(Frame, Grid, Reach), QueryError> {
        let reach = Reach {
            range_ms: subquery.range_ms,
            offset_ms: subquery.offset_ms,
            at: subquery.at,
        };
        let step_ms = subquery
            .step_ms
            .unwrap_or(self.options.default_subquery_step_ms)
            .max(1);
        let oldest = reach.end(grid.start).saturating_sub(subquery.range_ms);
        let mut start = step_ms * (oldest / step_ms);
        if start <= oldest {
            start = start.saturating_add(step_ms);
        }
        let inner_grid = Grid::between(start, reach.end(grid.last()), step_ms);
        let memory = self.reserve_steps(&inner_grid)?;
        let around = std::mem::replace(&mut self.within_invariant, false);
        let mut frame = match subquery.inner.value_type {
            ValueType::Scalar => {
                let values = self.scalar(&subquery.inner, inner_grid)?;
                scalar_frame(&values)
            }
            _ => self.own_frame(&subquery.inner, inner_grid)?,
        };
        self.within_invariant = around;
        if frame.holds_both() {
            // A range vector has one sample at a time.
            return Err(same_labelset());
        }
        frame.keep(memory);
        Ok((frame, inner_grid, reach))
    }

    /// Memory for what operators keep a step, whatever the number of series: rows in work, windows,
    /// scalars. The text of a query alone decides how long a subquery's grid is, so it is asked
    /// for before any of it is allocated.
    fn reserve_steps(&self, grid: &Grid) -> Result<Reservation, QueryError> {
        const STEP_BYTES: usize = 64;
        self.account.admit(grid.count as u64)?;
        let threads = self.ctx.compute.threads().max(1);
        let bytes = grid.count.saturating_mul(STEP_BYTES);
        self.account.reserve(bytes.saturating_mul(threads))
    }
}

/// Whether upstream makes one series of equal ones by adding up their lists of floats and of
/// histograms.
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

/// Series of a range vector, what a step sees of them, and how much of that lies beyond the range
/// of an anchored or smoothed one.
pub(crate) type RangeVector = (Arc<dyn Source>, Reach, Option<Overhang>);

/// A frame of one series without labels.
pub(crate) fn scalar_frame(values: &[f64]) -> Frame {
    let mut frame = Frame::new(values.len());
    let head = Head {
        labels: Labels::empty(),
        drops_name: false,
    };
    let row = Row::of_floats(values);
    frame.push(head, row);
    frame
}

fn not_a_vector(node: &Node) -> QueryError {
    QueryError::Execution(format!("unexpected {} in evaluation", node.value_type))
}
