//! Computes how many samples Prometheus would have read and held for a query that Firn has
//! evaluated.
//!
//! Prometheus maintains the number of samples that it holds. It increases with the results of
//! selectors, with windows and with results of operators, and decreases when an operator is
//! finished. Its maximum is the peak, to which the limit on samples applies. Firn holds fewer
//! samples, in a different order. But the number can be derived from the syntax tree and from the
//! number of samples of each node at each step, which the evaluation recorded in [`SampleTally`].
//! It is therefore computed after the evaluation.
//!
//! The computation uses the syntax tree instead of the plan, because parentheses, folded constants
//! and values that are the same at all steps affect the number. It follows `eval` in
//! `promql/engine.go` of Prometheus, its `QuerySamples`, and `PreprocessExpr` for values that are
//! computed once.

mod steps;

use crate::ast::{
    AggregateExpr, AggregateOp, BinaryExpr, Expr, ExprKind, FunctionCall, SubqueryExpr, ValueType,
    WindowEdges,
};
use crate::depth::ensure_stack;
use crate::eval::tally::{SampleTally, StepSampleExtent};
use crate::functions::FunctionId;
use crate::grid::StepGrid;
use crate::plan::{PlanNode, PlanNodeKind};
use crate::value::SampleCounts;
use rustc_hash::FxHashMap;
use steps::StepSampleCounts;

/// Returns the sample counts of the evaluation of `expr`, whose plan is `node`. Subqueries without
/// a step use `default_step_ms`.
pub(crate) fn from_evaluation(
    expr: &Expr,
    node: &PlanNode,
    grid: StepGrid,
    tally: &SampleTally,
    default_step_ms: i64,
) -> SampleCounts {
    count(expr, node, grid, tally, default_step_ms, false).0
}

/// The samples of plan nodes by their address: those of all steps, and those that were read.
pub(crate) type NodeSamples = FxHashMap<usize, (u64, u64)>;

/// Returns the sample counts like [`from_evaluation`], and those of each plan node, which add up to
/// them.
pub(crate) fn of_nodes(
    expr: &Expr,
    node: &PlanNode,
    grid: StepGrid,
    tally: &SampleTally,
    default_step_ms: i64,
) -> (SampleCounts, NodeSamples) {
    count(expr, node, grid, tally, default_step_ms, true)
}

/// Returns the sample counts, and those of each plan node if `by_node` is set.
fn count(
    expr: &Expr,
    node: &PlanNode,
    grid: StepGrid,
    tally: &SampleTally,
    default_step_ms: i64,
    by_node: bool,
) -> (SampleCounts, NodeSamples) {
    let mut meter = SampleMeter {
        tally,
        default_step_ms,
        by_node,
        held: 0,
        peak: 0,
        within_param: false,
    };
    let mut steps = StepSampleCounts::new(grid.count, by_node);
    meter.count_part((expr, node), grid, &mut steps, false);
    let mut nodes = NodeSamples::default();
    for (node, total, read) in steps.of_nodes() {
        let samples = nodes.entry(node).or_default();
        *samples = (samples.0 + total, samples.1 + read);
    }
    let all = steps.all;
    let counts = SampleCounts {
        total: all.total(),
        read: all.read(),
        peak: meter.peak,
        total_at: all.total_at,
        read_at: all.read_at,
    };
    (counts, nodes)
}

/// An expression and its plan node. The parts of an expression that was folded to a constant share
/// its node.
type Part<'a> = (&'a Expr, &'a PlanNode);

/// Traverses the syntax tree in the same order as the evaluation loop of Prometheus.
struct SampleMeter<'a> {
    tally: &'a SampleTally,
    default_step_ms: i64,
    /// True if the samples of each node are added up separately.
    by_node: bool,
    held: u64,
    peak: u64,
    /// True inside the parameter of an aggregation. Prometheus does not search for constant values
    /// there.
    within_param: bool,
}

impl SampleMeter<'_> {
    /// Records that `samples` additional samples are held temporarily, which may be the new peak.
    fn record_peak(&mut self, samples: u64) {
        self.peak = self.peak.max(self.held + samples);
    }

    /// Sets the number of held samples after an operator has finished.
    fn set_held(&mut self, before: u64, output: u64) {
        self.held = before + output;
        self.record_peak(0);
    }

    /// Counts a part of an expression. A value that is the same at all steps is computed once,
    /// unless it is part of another such value (`within`).
    fn count_part(
        &mut self,
        part: Part<'_>,
        grid: StepGrid,
        steps: &mut StepSampleCounts,
        within: bool,
    ) -> StepSampleExtent {
        if !within && !self.within_param && is_computed_once(part.0, part.1) {
            self.count_once(part, grid, steps)
        } else {
            self.count_value(part, grid, steps)
        }
    }

    fn count_once(
        &mut self,
        part: Part<'_>,
        grid: StepGrid,
        steps: &mut StepSampleCounts,
    ) -> StepSampleExtent {
        if grid.count == 0 {
            return StepSampleExtent::empty(0);
        }
        let mut first = StepSampleCounts::new(1, self.by_node);
        let value = self.count_value(part, grid.first_only(), &mut first);
        steps.add_repeated(first);
        self.held += value.size() * (grid.count as u64 - 1);
        self.record_peak(0);
        value.repeat(grid.count)
    }

    fn count_value(
        &mut self,
        part: Part<'_>,
        grid: StepGrid,
        steps: &mut StepSampleCounts,
    ) -> StepSampleExtent {
        if grid.count == 0 {
            return StepSampleExtent::empty(0);
        }
        ensure_stack(|| self.count_value_node(part, grid, steps))
    }

    fn count_value_node(
        &mut self,
        part: Part<'_>,
        grid: StepGrid,
        steps: &mut StepSampleCounts,
    ) -> StepSampleExtent {
        let (expr, node) = part;
        match &expr.kind {
            ExprKind::Paren(inner) => self.count_value((inner, node), grid, steps),
            ExprKind::Unary(_, inner) => {
                let of_inner = self.count_value((inner, sign_operand(node)), grid, steps);
                match node.value_type {
                    ValueType::Scalar => of_inner,
                    _ => self.tally.rows(node, grid.count),
                }
            }
            ExprKind::Number(_) => {
                let value = StepSampleExtent::from_scalar(grid.count);
                self.count_by_steps(self.held, &[], None, value)
            }
            ExprKind::String(_) => StepSampleExtent::empty(grid.count),
            ExprKind::Vector(selector) if selector.edges == WindowEdges::Smoothed => {
                let windows = self.tally.windows(node, grid.count);
                self.record_peak(windows.rise);
                self.held += windows.left;
                self.tally.rows(node, grid.count)
            }
            ExprKind::Vector(_) => {
                let rows = self.tally.rows(node, grid.count);
                steps.add(node, &rows.sizes);
                self.set_held(self.held, rows.size());
                rows
            }
            ExprKind::Matrix(_) => {
                let windows = self.tally.windows(node, grid.count);
                steps.add_windows(node, &windows.held, &windows.fresh);
                self.record_peak(windows.rise);
                self.held += windows.left;
                StepSampleExtent::empty(grid.count)
            }
            ExprKind::Subquery(subquery) => {
                let (_, inner, inner_grid) = self.count_subquery(subquery, node, grid);
                steps.add_subquery(inner, (grid, inner_grid));
                StepSampleExtent::empty(grid.count)
            }
            ExprKind::Aggregate(aggregate) => self.count_aggregate(aggregate, node, grid, steps),
            ExprKind::Binary(binary) => self.count_binary(binary, node, grid, steps),
            ExprKind::Call(call) => self.count_call(call, node, grid, steps),
        }
    }

    /// Counts an operator that iterates over the steps after its `inputs` were computed. `before`
    /// is the number of samples held before the inputs, and `found` contains samples that the
    /// operator looks up itself.
    fn count_by_steps(
        &mut self,
        before: u64,
        inputs: &[StepSampleExtent],
        found: Option<&StepSampleExtent>,
        output: StepSampleExtent,
    ) -> StepSampleExtent {
        let made = self.held;
        let mut results = 0;
        for (step, size) in output.sizes_passing.iter().enumerate() {
            self.held = made + results;
            for extent in inputs.iter().chain(found) {
                self.held += extent.counts[step];
            }
            self.record_peak(*size);
            results += size;
        }
        self.set_held(before, output.size());
        output
    }

    /// Returns the recorded samples of the node's value. A scalar has one per step.
    fn recorded_output(&self, node: &PlanNode, grid: StepGrid) -> StepSampleExtent {
        match node.value_type {
            ValueType::Scalar => StepSampleExtent::from_scalar(grid.count),
            _ => self.tally.rows(node, grid.count),
        }
    }

    /// Counts the inner expression of a subquery. Returns its value, its samples, and its steps.
    fn count_subquery(
        &mut self,
        subquery: &SubqueryExpr,
        node: &PlanNode,
        grid: StepGrid,
    ) -> (StepSampleExtent, StepSampleCounts, StepGrid) {
        let PlanNodeKind::Subquery(of_plan) = &node.kind else {
            return (
                StepSampleExtent::empty(0),
                StepSampleCounts::new(0, self.by_node),
                grid.first_only(),
            );
        };
        let inner_grid = of_plan.grid(grid, self.default_step_ms);
        let mut inner = StepSampleCounts::new(inner_grid.count, self.by_node);
        let part = (&subquery.expr, &of_plan.inner);
        let value = if of_plan.inner.is_invariant && !self.within_param {
            self.count_once(part, inner_grid, &mut inner)
        } else {
            self.count_value(part, inner_grid, &mut inner)
        };
        (value, inner, inner_grid)
    }

    fn count_aggregate(
        &mut self,
        aggregate: &AggregateExpr,
        node: &PlanNode,
        grid: StepGrid,
        steps: &mut StepSampleCounts,
    ) -> StepSampleExtent {
        let PlanNodeKind::Aggregate(of_plan) = &node.kind else {
            return StepSampleExtent::empty(grid.count);
        };
        let before = self.held;
        let input = (&aggregate.expr, &of_plan.input);
        let output = self.recorded_output(node, grid);
        if aggregate.op == AggregateOp::CountValues {
            let input = self.count_value(input, grid, steps);
            return self.count_by_steps(before, &[input], None, output);
        }
        if let (Some(param), Some(of_param)) = (&aggregate.param, &of_plan.param) {
            let around = std::mem::replace(&mut self.within_param, true);
            self.count_value((param, of_param), grid, steps);
            self.within_param = around;
        }
        self.count_value(input, grid, steps);
        self.set_held(before, output.size());
        output
    }

    fn count_binary(
        &mut self,
        binary: &BinaryExpr,
        node: &PlanNode,
        grid: StepGrid,
        steps: &mut StepSampleCounts,
    ) -> StepSampleExtent {
        let (left, right) = match &node.kind {
            PlanNodeKind::Binary(of_plan) => (&of_plan.left, &of_plan.right),
            _ => (node, node),
        };
        let before = self.held;
        let within = node.is_invariant;
        let left = self.count_part((&binary.left, left), grid, steps, within);
        let right = self.count_part((&binary.right, right), grid, steps, within);
        self.count_by_steps(
            before,
            &[left, right],
            None,
            self.recorded_output(node, grid),
        )
    }

    fn count_call(
        &mut self,
        call: &FunctionCall,
        node: &PlanNode,
        grid: StepGrid,
        steps: &mut StepSampleCounts,
    ) -> StepSampleExtent {
        let of_plan = match &node.kind {
            PlanNodeKind::Call(_, args) => &args[..],
            _ => &[],
        };
        let before = self.held;
        let output = self.recorded_output(node, grid);
        let parts: Vec<Part<'_>> = (call.args.iter().enumerate())
            .map(|(at, arg)| (without_parens(arg), of_plan.get(at).unwrap_or(node)))
            .collect();
        match call.function.id {
            // Prometheus replaces these functions by numbers before the evaluation.
            id if is_number_of_query(id) => return self.count_by_steps(before, &[], None, output),
            FunctionId::Timestamp | FunctionId::StartTimestamp => {
                if let ExprKind::Vector(_) = parts[0].0.kind {
                    return self.count_timestamp(node, parts[0].1, grid, steps);
                }
            }
            FunctionId::LabelReplace | FunctionId::LabelJoin => {
                self.count_value(parts[0], grid, steps);
                return output;
            }
            FunctionId::Info => return self.count_info(node, parts[0], grid, steps),
            _ => {}
        }
        let is_range =
            |(arg, _): &Part<'_>| matches!(arg.kind, ExprKind::Matrix(_) | ExprKind::Subquery(_));
        if let Some(range) = parts.iter().position(is_range) {
            return self.count_window_function(node, &parts, range, grid, steps);
        }
        let mut inputs = Vec::new();
        for part in parts
            .into_iter()
            .filter(|(arg, _)| arg.value_type() != ValueType::String)
        {
            inputs.push(self.count_part(part, grid, steps, node.is_invariant));
        }
        self.count_by_steps(before, &inputs, None, output)
    }

    /// Counts `timestamp` of a selector, which looks up the samples itself.
    fn count_timestamp(
        &mut self,
        node: &PlanNode,
        selector: &PlanNode,
        grid: StepGrid,
        steps: &mut StepSampleCounts,
    ) -> StepSampleExtent {
        let output = self.recorded_output(node, grid);
        let noted = self.tally.rows(selector, grid.count);
        // If the function has no result, the selector was evaluated like any other.
        let found = match noted.size() {
            0 => output.clone(),
            _ => noted,
        };
        steps.add(selector, &found.counts);
        self.count_by_steps(self.held, &[], Some(&found), output)
    }

    fn count_info(
        &mut self,
        node: &PlanNode,
        base: Part<'_>,
        grid: StepGrid,
        steps: &mut StepSampleCounts,
    ) -> StepSampleExtent {
        let base = self.count_part(base, grid, steps, node.is_invariant);
        let infos = StepSampleExtent::from_floats(self.tally.windows(node, grid.count).held);
        steps.add(node, &infos.counts);
        self.set_held(self.held, infos.size());
        // Prometheus continues to hold both sides of the join.
        self.count_by_steps(
            self.held,
            &[base, infos],
            None,
            self.recorded_output(node, grid),
        )
    }

    /// Counts a function of windows. The values of its other arguments remain held.
    fn count_window_function(
        &mut self,
        node: &PlanNode,
        parts: &[Part<'_>],
        range: usize,
        grid: StepGrid,
        steps: &mut StepSampleCounts,
    ) -> StepSampleExtent {
        let mut rows = 0;
        let is_subquery = if let (expr, of_plan) = parts[range]
            && let ExprKind::Subquery(subquery) = &expr.kind
            && let PlanNodeKind::Subquery(planned) = &of_plan.kind
        {
            let (value, inner, inner_grid) = self.count_subquery(subquery, of_plan, grid);
            rows = value.size();
            let grids = (grid, inner_grid);
            steps.merge_read(inner, grids, planned.offset_ms, planned.range_ms);
            true
        } else {
            false
        };
        for (at, part) in parts.iter().enumerate() {
            if at != range {
                self.count_part(*part, grid, steps, node.is_invariant);
            }
        }
        let windows = self.tally.windows(node, grid.count);
        let fresh = if is_subquery {
            vec![0; grid.count]
        } else {
            windows.fresh
        };
        steps.add_windows(parts[range].1, &windows.held, &fresh);
        self.record_peak(windows.rise);
        self.held = (self.held + windows.left).saturating_sub(rows);
        self.recorded_output(node, grid)
    }
}

/// Returns whether the function returns a property of the query. Prometheus replaces its calls by
/// numbers.
fn is_number_of_query(id: FunctionId) -> bool {
    use FunctionId as F;
    matches!(id, F::Start | F::End | F::Range | F::Step)
}

/// Returns the plan node of a sign's operand. A constant includes its sign, so it is its own
/// operand.
fn sign_operand(node: &PlanNode) -> &PlanNode {
    match &node.kind {
        PlanNodeKind::Negate(inner) | PlanNodeKind::Same(inner) => inner,
        _ => node,
    }
}

/// Returns the expression inside any number of parentheses, or the expression itself.
fn without_parens(expr: &Expr) -> &Expr {
    match &expr.kind {
        ExprKind::Paren(inner) => without_parens(inner),
        _ => expr,
    }
}

/// Returns whether Prometheus computes the part once for all steps if its parent is computed at
/// each step.
fn is_computed_once(expr: &Expr, node: &PlanNode) -> bool {
    if !node.is_invariant {
        return false;
    }
    match &expr.kind {
        ExprKind::Paren(inner) => ensure_stack(|| is_computed_once(inner, node)),
        ExprKind::Unary(_, inner) => ensure_stack(|| is_computed_once(inner, sign_operand(node))),
        ExprKind::Aggregate(aggregate) => match &node.kind {
            PlanNodeKind::Aggregate(of_plan) => {
                ensure_stack(|| is_computed_once(&aggregate.expr, &of_plan.input))
            }
            _ => false,
        },
        ExprKind::Vector(_) | ExprKind::Binary(_) => true,
        ExprKind::Call(call) => !is_number_of_query(call.function.id),
        ExprKind::Matrix(_) | ExprKind::Subquery(_) => false,
        ExprKind::Number(_) | ExprKind::String(_) => false,
    }
}
