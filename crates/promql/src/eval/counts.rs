//! How many samples upstream's loop would have read and held for a query that was evaluated here.
//!
//! Upstream keeps one number of samples that it holds. It goes up with what selectors find, with
//! windows and with results, and back where an operator is done; the highest is the peak, which
//! the limit on samples is about. Firn holds less, and in another order. But the number follows
//! from the tree of the expression and from how many samples each of its nodes has at each step,
//! which the evaluation noted ([`Tally`]); so it is worked out here when all is over.
//!
//! The tree is the syntax tree, because parentheses, numbers made of numbers, and what is computed
//! once for all steps count there. Follows `eval` of upstream's `promql/engine.go`, its
//! `QuerySamples`, and `PreprocessExpr` for what is computed once.

use crate::ast::{
    Aggregate, AggregateOp, Binary, Call, Edges, Expr, ExprKind, Subquery, ValueType,
};
use crate::depth::deeper;
use crate::eval::tally::{Extent, Tally};
use crate::functions::FunctionId;
use crate::grid::Grid;
use crate::plan::{Node, NodeKind};
use crate::value::SampleCounts;

/// The samples of the evaluation of `expr`, whose plan is `node`; each subquery without a step has
/// the given one, in milliseconds.
pub(crate) fn of(
    expr: &Expr,
    node: &Node,
    grid: Grid,
    (tally, default_step_ms): (&Tally, i64),
) -> SampleCounts {
    let mut meter = Meter {
        tally,
        default_step_ms,
        held: 0,
        peak: 0,
        within_param: false,
    };
    let mut steps = Steps::new(grid.count);
    meter.part((expr, node), grid, &mut steps, false);
    SampleCounts {
        total: steps.total(),
        read: steps.read(),
        peak: meter.peak,
        total_at: steps.total_at,
        read_at: steps.read_at,
    }
}

/// An expression and its node. The parts of an expression that became a number have its node.
type Part<'a> = (&'a Expr, &'a Node);

/// The samples of each step of one evaluation; a subquery is an evaluation of its own.
struct Steps {
    total_at: Vec<u64>,
    read_at: Vec<u64>,
}

impl Steps {
    fn new(count: usize) -> Self {
        Self {
            total_at: vec![0; count],
            read_at: vec![0; count],
        }
    }

    fn total(&self) -> u64 {
        self.total_at.iter().sum()
    }

    fn read(&self) -> u64 {
        self.read_at.iter().sum()
    }

    /// Adds samples that are read at each step.
    fn add(&mut self, samples_at: &[u64]) {
        self.add_windows(samples_at, samples_at);
    }

    fn add_windows(&mut self, held: &[u64], fresh: &[u64]) {
        for (step, (held, fresh)) in held.iter().zip(fresh).enumerate() {
            self.total_at[step] += held;
            self.read_at[step] += fresh;
        }
    }

    /// Adds what the steps of a subquery read, each at the first step that may see it. With a
    /// window of `range_ms` those count for nothing that lie between two windows.
    fn merge_read(&mut self, inner: &Steps, grids: (Grid, Grid), offset_ms: i64, range_ms: i64) {
        let (grid, inner_grid) = grids;
        if grid.count <= 1 {
            self.read_at[0] += inner.read();
            return;
        }
        for (step, read) in inner.read_at.iter().enumerate() {
            let time = inner_grid.time(step).saturating_add(offset_ms);
            let behind = time.saturating_sub(grid.start).max(0);
            let first = behind / grid.step_ms + i64::from(behind % grid.step_ms != 0);
            let outer = (first as usize).min(grid.count - 1);
            let is_between = range_ms > 0 && time <= grid.time(outer).saturating_sub(range_ms);
            if !is_between {
                self.read_at[outer] += read;
            }
        }
    }
}

/// Walks the tree as upstream's loop does.
struct Meter<'a> {
    tally: &'a Tally,
    default_step_ms: i64,
    held: u64,
    peak: u64,
    /// Whether it is in the parameter of an aggregation: upstream does not look what is the same
    /// at all steps there.
    within_param: bool,
}

impl Meter<'_> {
    /// Notes that `samples` more are held for a moment.
    fn glimpse(&mut self, samples: u64) {
        self.peak = self.peak.max(self.held + samples);
    }

    /// Sets what is held when an operator is done.
    fn settle(&mut self, before: u64, output: u64) {
        self.held = before + output;
        self.glimpse(0);
    }

    /// A part of an expression; what is the same at all steps is computed once, unless what is
    /// around it is.
    fn part(&mut self, part: Part<'_>, grid: Grid, steps: &mut Steps, within: bool) -> Extent {
        match !within && !self.within_param && is_computed_once(part) {
            true => self.once(part, grid, steps),
            false => self.value(part, grid, steps),
        }
    }

    fn once(&mut self, part: Part<'_>, grid: Grid, steps: &mut Steps) -> Extent {
        if grid.count == 0 {
            return Extent::none(0);
        }
        let mut first = Steps::new(1);
        let value = self.value(part, grid.first_only(), &mut first);
        let total = first.total();
        steps.total_at.iter_mut().for_each(|at| *at += total);
        steps.read_at[0] += first.read();
        self.held += value.size() * (grid.count as u64 - 1);
        self.glimpse(0);
        value.repeated(grid.count)
    }

    fn value(&mut self, part: Part<'_>, grid: Grid, steps: &mut Steps) -> Extent {
        if grid.count == 0 {
            return Extent::none(0);
        }
        deeper(|| self.value_here(part, grid, steps))
    }

    fn value_here(&mut self, part: Part<'_>, grid: Grid, steps: &mut Steps) -> Extent {
        let (expr, node) = part;
        match &expr.kind {
            ExprKind::Paren(inner) => self.value((inner, node), grid, steps),
            ExprKind::Unary(_, inner) => {
                let of_inner = self.value((inner, operand(node)), grid, steps);
                match node.value_type {
                    ValueType::Scalar => of_inner,
                    _ => self.tally.rows(node, grid.count),
                }
            }
            ExprKind::Number(_) => {
                let value = Extent::of_scalar(grid.count);
                self.by_steps(self.held, &[], None, value)
            }
            ExprKind::String(_) => Extent::none(grid.count),
            ExprKind::Vector(selector) if selector.edges == Edges::Smoothed => {
                let windows = self.tally.windows(node, grid.count);
                self.glimpse(windows.rise);
                self.held += windows.left;
                self.tally.rows(node, grid.count)
            }
            ExprKind::Vector(_) => {
                let rows = self.tally.rows(node, grid.count);
                steps.add(&rows.sizes);
                self.settle(self.held, rows.size());
                rows
            }
            ExprKind::Matrix(_) => {
                let windows = self.tally.windows(node, grid.count);
                steps.add_windows(&windows.held, &windows.fresh);
                self.glimpse(windows.rise);
                self.held += windows.left;
                Extent::none(grid.count)
            }
            ExprKind::Subquery(subquery) => {
                let (_, inner, inner_grid) = self.subquery((subquery, node), grid);
                if let Some(last) = steps.total_at.last_mut() {
                    *last += inner.total();
                }
                steps.merge_read(&inner, (grid, inner_grid), 0, 0);
                Extent::none(grid.count)
            }
            ExprKind::Aggregate(aggregate) => self.aggregate((aggregate, node), grid, steps),
            ExprKind::Binary(binary) => self.binary((binary, node), grid, steps),
            ExprKind::Call(call) => self.call((call, node), grid, steps),
        }
    }

    /// An operator that goes step by step over the values of its `inputs`, after they were made;
    /// before them `before` were held. `found` are samples that it looks up itself.
    fn by_steps(
        &mut self,
        before: u64,
        inputs: &[Extent],
        found: Option<&Extent>,
        output: Extent,
    ) -> Extent {
        let made = self.held;
        let mut results = 0;
        for (step, size) in output.sizes_passing.iter().enumerate() {
            self.held = made + results;
            for extent in inputs.iter().chain(found) {
                self.held += extent.counts[step];
            }
            self.glimpse(*size);
            results += size;
        }
        self.settle(before, output.size());
        output
    }

    /// The value of a node as it was noted.
    fn output(&self, node: &Node, grid: Grid) -> Extent {
        match node.value_type {
            ValueType::Scalar => Extent::of_scalar(grid.count),
            _ => self.tally.rows(node, grid.count),
        }
    }

    /// The inside of a subquery, its samples, and its steps.
    fn subquery(
        &mut self,
        (subquery, node): (&Subquery, &Node),
        grid: Grid,
    ) -> (Extent, Steps, Grid) {
        let NodeKind::Subquery(of_plan) = &node.kind else {
            return (Extent::none(0), Steps::new(0), grid.first_only());
        };
        let inner_grid = of_plan.grid(grid, self.default_step_ms);
        let mut inner = Steps::new(inner_grid.count);
        let part = (&subquery.expr, &of_plan.inner);
        let value = match of_plan.inner.is_invariant && !self.within_param {
            true => self.once(part, inner_grid, &mut inner),
            false => self.value(part, inner_grid, &mut inner),
        };
        (value, inner, inner_grid)
    }

    fn aggregate(
        &mut self,
        (aggregate, node): (&Aggregate, &Node),
        grid: Grid,
        steps: &mut Steps,
    ) -> Extent {
        let NodeKind::Aggregate(of_plan) = &node.kind else {
            return Extent::none(grid.count);
        };
        let before = self.held;
        let input = (&aggregate.expr, &of_plan.input);
        let output = self.output(node, grid);
        if aggregate.op == AggregateOp::CountValues {
            let input = self.value(input, grid, steps);
            return self.by_steps(before, &[input], None, output);
        }
        if let (Some(param), Some(of_param)) = (&aggregate.param, &of_plan.param) {
            let around = std::mem::replace(&mut self.within_param, true);
            self.value((param, of_param), grid, steps);
            self.within_param = around;
        }
        self.value(input, grid, steps);
        self.settle(before, output.size());
        output
    }

    fn binary(
        &mut self,
        (binary, node): (&Binary, &Node),
        grid: Grid,
        steps: &mut Steps,
    ) -> Extent {
        let (left, right) = match &node.kind {
            NodeKind::Binary(of_plan) => (&of_plan.left, &of_plan.right),
            _ => (node, node),
        };
        let before = self.held;
        let within = node.is_invariant;
        let left = self.part((&binary.left, left), grid, steps, within);
        let right = self.part((&binary.right, right), grid, steps, within);
        self.by_steps(before, &[left, right], None, self.output(node, grid))
    }

    fn call(&mut self, (call, node): (&Call, &Node), grid: Grid, steps: &mut Steps) -> Extent {
        let of_plan = match &node.kind {
            NodeKind::Call(_, args) => &args[..],
            _ => &[],
        };
        let before = self.held;
        let output = self.output(node, grid);
        let parts: Vec<Part<'_>> = (call.args.iter().enumerate())
            .map(|(at, arg)| (plain(arg), of_plan.get(at).unwrap_or(node)))
            .collect();
        match call.function.id {
            // They are numbers before anything is evaluated.
            id if is_number_of_query(id) => return self.by_steps(before, &[], None, output),
            FunctionId::Timestamp | FunctionId::StartTimestamp => {
                if let ExprKind::Vector(_) = parts[0].0.kind {
                    return self.timestamp(node, parts[0], grid, steps);
                }
            }
            FunctionId::LabelReplace | FunctionId::LabelJoin => {
                self.value(parts[0], grid, steps);
                return output;
            }
            FunctionId::Info => return self.info(node, parts[0], grid, steps),
            _ => {}
        }
        let is_range =
            |(arg, _): &Part<'_>| matches!(arg.kind, ExprKind::Matrix(_) | ExprKind::Subquery(_));
        if let Some(range) = parts.iter().position(is_range) {
            return self.of_windows(node, &parts, range, grid, steps);
        }
        let mut inputs = Vec::new();
        for part in parts
            .into_iter()
            .filter(|(arg, _)| arg.value_type() != ValueType::String)
        {
            inputs.push(self.part(part, grid, steps, node.is_invariant));
        }
        self.by_steps(before, &inputs, None, output)
    }

    /// `timestamp` of a selector, which looks up the samples itself.
    fn timestamp(
        &mut self,
        node: &Node,
        (_, selector): Part<'_>,
        grid: Grid,
        steps: &mut Steps,
    ) -> Extent {
        let output = self.output(node, grid);
        let noted = self.tally.rows(selector, grid.count);
        // Where the function has no result the selector was evaluated as others are.
        let found = match noted.size() {
            0 => output.clone(),
            _ => noted,
        };
        steps.add(&found.counts);
        self.by_steps(self.held, &[], Some(&found), output)
    }

    fn info(&mut self, node: &Node, base: Part<'_>, grid: Grid, steps: &mut Steps) -> Extent {
        let base = self.part(base, grid, steps, node.is_invariant);
        let infos = Extent::of_floats(self.tally.windows(node, grid.count).held);
        steps.add(&infos.counts);
        self.settle(self.held, infos.size());
        // Upstream goes on holding what it joins.
        self.by_steps(self.held, &[base, infos], None, self.output(node, grid))
    }

    /// A function of windows. What its other arguments took stays held.
    fn of_windows(
        &mut self,
        node: &Node,
        parts: &[Part<'_>],
        range: usize,
        grid: Grid,
        steps: &mut Steps,
    ) -> Extent {
        let mut rows = 0;
        let is_subquery = if let (expr, of_plan) = parts[range]
            && let ExprKind::Subquery(subquery) = &expr.kind
            && let NodeKind::Subquery(planned) = &of_plan.kind
        {
            let (value, inner, inner_grid) = self.subquery((subquery, of_plan), grid);
            rows = value.size();
            let grids = (grid, inner_grid);
            steps.merge_read(&inner, grids, planned.offset_ms, planned.range_ms);
            true
        } else {
            false
        };
        for (at, part) in parts.iter().enumerate() {
            if at != range {
                self.part(*part, grid, steps, node.is_invariant);
            }
        }
        let windows = self.tally.windows(node, grid.count);
        let fresh = match is_subquery {
            true => vec![0; grid.count],
            false => windows.fresh,
        };
        steps.add_windows(&windows.held, &fresh);
        self.glimpse(windows.rise);
        self.held = (self.held + windows.left).saturating_sub(rows);
        self.output(node, grid)
    }
}

/// Whether the function says what the query was asked with: upstream puts numbers in its place.
fn is_number_of_query(id: FunctionId) -> bool {
    use FunctionId as F;
    matches!(id, F::Start | F::End | F::Range | F::Step)
}

/// The operand of a sign; a number has its sign in itself.
fn operand(node: &Node) -> &Node {
    match &node.kind {
        NodeKind::Negate(inner) | NodeKind::Same(inner) => inner,
        _ => node,
    }
}

/// An expression without parentheses around it.
fn plain(expr: &Expr) -> &Expr {
    match &expr.kind {
        ExprKind::Paren(inner) => plain(inner),
        _ => expr,
    }
}

/// Whether upstream computes the part once for all steps where it stands below one that it does
/// not compute once.
fn is_computed_once((expr, node): Part<'_>) -> bool {
    if !node.is_invariant {
        return false;
    }
    match &expr.kind {
        ExprKind::Paren(inner) => deeper(|| is_computed_once((inner, node))),
        ExprKind::Unary(_, inner) => deeper(|| is_computed_once((inner, operand(node)))),
        ExprKind::Aggregate(aggregate) => match &node.kind {
            NodeKind::Aggregate(of_plan) => {
                deeper(|| is_computed_once((&aggregate.expr, &of_plan.input)))
            }
            _ => false,
        },
        ExprKind::Vector(_) | ExprKind::Binary(_) => true,
        ExprKind::Call(call) => !is_number_of_query(call.function.id),
        ExprKind::Matrix(_) | ExprKind::Subquery(_) => false,
        ExprKind::Number(_) | ExprKind::String(_) => false,
    }
}
