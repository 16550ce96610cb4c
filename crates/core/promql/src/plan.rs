//! The logical plan: the syntax tree after all decisions that do not depend on data.
//!
//! The planner removes parentheses and folds constant numbers. It replaces durations with
//! milliseconds, and `@ start()` and the functions `start()`, `end()`, `step()` and `range()` with
//! numbers. It also determines which values are the same at all steps, so that they are computed
//! only once.

mod sharing;
mod statistics;
#[cfg(test)]
mod tests;

pub(crate) use sharing::SharedNodeMark;

use crate::ast::{
    self, AggregateGrouping, AggregateOp, AtModifier, BinaryOp, Expr, ExprKind, PositionRange,
    QueryDuration, UnaryOp, ValueType, VectorMatching, WindowEdges,
};
use crate::depth::ensure_stack;
use crate::durations::seconds_of_nanos;
use crate::functions::{Function, FunctionEvaluation, FunctionId};
use crate::grid::{SelectorWindow, StepGrid, seconds};
use crate::math::operators::apply_to_scalars;
use crate::request::EvalTime;
use firn_model::matcher::Matcher;
use firn_model::sample::TimestampMs;

/// A node of the plan. The evaluator computes its value at all steps of a grid.
#[derive(Clone, Debug)]
pub(crate) struct PlanNode {
    /// The operation of the node, which contains its operands.
    pub(crate) kind: PlanNodeKind,
    /// The position in the query text, or a place number if the node is part of a shared node; see
    /// [`SharedNodeMark`].
    pub(crate) span: PositionRange,
    /// The type of the node's value, which determines how the evaluator computes it.
    pub(crate) value_type: ValueType,
    /// True if the value is the same at all steps.
    pub(crate) is_invariant: bool,
    /// Set if other nodes of the plan have the same value, so that it is evaluated once for all.
    pub(crate) shared: Option<SharedNodeMark>,
}

impl PlanNode {
    /// Returns the position of annotations that the node's own evaluation adds.
    pub(crate) fn own_span(&self) -> PositionRange {
        match &self.shared {
            Some(shared) if !shared.of_samples => shared.span,
            _ => self.span,
        }
    }

    /// Returns a placeholder for a node that was moved out of the plan.
    fn placeholder() -> Self {
        Self {
            kind: PlanNodeKind::Number(0.0),
            span: PositionRange::default(),
            value_type: ValueType::Scalar,
            is_invariant: true,
            shared: None,
        }
    }

    /// Calls `visit` with this node and all its descendants, parents before children.
    pub(crate) fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a PlanNode)) {
        visit(self);
        for child in self.children() {
            ensure_stack(|| child.visit(visit));
        }
    }

    /// Returns the direct children of the node, the parameter of an aggregation first.
    fn children(&self) -> Vec<&PlanNode> {
        match &self.kind {
            PlanNodeKind::Number(_) | PlanNodeKind::Text(_) => Vec::new(),
            PlanNodeKind::Vector(_) | PlanNodeKind::Matrix(..) => Vec::new(),
            PlanNodeKind::Subquery(subquery) => vec![&subquery.inner],
            PlanNodeKind::Call(_, args) => args.iter().collect(),
            PlanNodeKind::Aggregate(aggregate) => {
                let param = aggregate.param.as_ref();
                param.into_iter().chain([&aggregate.input]).collect()
            }
            PlanNodeKind::Binary(binary) => vec![&binary.left, &binary.right],
            PlanNodeKind::Negate(inner) | PlanNodeKind::Same(inner) => vec![inner],
        }
    }

    /// Returns the direct children for modification, in the same order as [`PlanNode::children`].
    fn children_mut(&mut self) -> Vec<&mut PlanNode> {
        match &mut self.kind {
            PlanNodeKind::Number(_) | PlanNodeKind::Text(_) => Vec::new(),
            PlanNodeKind::Vector(_) | PlanNodeKind::Matrix(..) => Vec::new(),
            PlanNodeKind::Subquery(subquery) => vec![&mut subquery.inner],
            PlanNodeKind::Call(_, args) => args.iter_mut().collect(),
            PlanNodeKind::Aggregate(aggregate) => {
                let param = aggregate.param.as_mut();
                param.into_iter().chain([&mut aggregate.input]).collect()
            }
            PlanNodeKind::Binary(binary) => vec![&mut binary.left, &mut binary.right],
            PlanNodeKind::Negate(inner) | PlanNodeKind::Same(inner) => vec![inner],
        }
    }
}

/// The operations of plan nodes. Unlike the syntax tree, the plan has neither parentheses nor
/// duration expressions.
#[derive(Clone, Debug)]
pub(crate) enum PlanNodeKind {
    /// A constant number, possibly the result of constant folding.
    Number(f64),
    /// A constant string, as raw bytes without quotes.
    Text(Vec<u8>),
    /// An instant vector selector, which reads the newest sample within the lookback.
    Vector(PlanSelector),
    /// A range vector selector and its range in milliseconds.
    Matrix(PlanSelector, i64),
    /// A subquery: an expression that is evaluated at the inner steps of a window.
    Subquery(Box<PlanSubquery>),
    /// A function call with its planned arguments, in the order of the query.
    Call(&'static Function, Vec<PlanNode>),
    /// An aggregation of a vector into groups, with an optional parameter.
    Aggregate(Box<PlanAggregate>),
    /// A binary operation on scalars or vectors that is not constant.
    Binary(Box<PlanBinary>),
    /// A change of sign, `-a`, of a scalar or a vector.
    Negate(Box<PlanNode>),
    /// The expression `+a`: the value of `a`, which is no longer treated as a selector.
    Same(Box<PlanNode>),
}

/// A selector: its matchers, and the modifiers that determine the samples it reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlanSelector {
    /// All matchers, including that of the metric name, in the order of the syntax tree.
    pub(crate) matchers: Vec<Matcher>,
    /// The `offset` modifier in milliseconds, zero if it is absent.
    pub(crate) offset_ms: i64,
    /// The timestamp of the `@` modifier, if present. `start()` and `end()` have been replaced.
    pub(crate) at: Option<TimestampMs>,
    /// The `anchored` or `smoothed` modifier, which changes the samples at the edges of the window.
    pub(crate) edges: WindowEdges,
    /// True if only the count and the sum of histograms are needed, so their buckets are not read.
    pub(crate) statistics_only: bool,
}

/// A subquery: a window over the values of an expression at inner steps.
#[derive(Clone, Debug)]
pub(crate) struct PlanSubquery {
    /// The expression that is evaluated at each inner step.
    pub(crate) inner: PlanNode,
    /// The length of the window in milliseconds, which is positive.
    pub(crate) range_ms: i64,
    /// The step in milliseconds, or `None` for the default step.
    pub(crate) step_ms: Option<i64>,
    /// The `offset` modifier in milliseconds, zero if it is absent.
    pub(crate) offset_ms: i64,
    /// The timestamp of the `@` modifier, if present. `start()` and `end()` have been replaced.
    pub(crate) at: Option<TimestampMs>,
}

impl PlanSubquery {
    /// Returns the position and length of the window, for reading the samples of the inner
    /// expression.
    pub(crate) fn window(&self) -> SelectorWindow {
        SelectorWindow {
            range_ms: self.range_ms,
            offset_ms: self.offset_ms,
            at: self.at,
        }
    }

    /// Returns the inner steps: all multiples of the subquery's step in the windows of the steps of
    /// `grid`.
    pub(crate) fn grid(&self, grid: StepGrid, default_step_ms: i64) -> StepGrid {
        let reach = self.window();
        let step_ms = self.step_ms.unwrap_or(default_step_ms).max(1);
        let oldest = reach.end(grid.start).saturating_sub(self.range_ms);
        let mut start = step_ms * (oldest / step_ms);
        if start <= oldest {
            start = start.saturating_add(step_ms);
        }
        StepGrid::from_bounds(start, reach.end(grid.last()), step_ms)
    }
}

/// An aggregation of a vector into groups, as the operators receive it.
#[derive(Clone, Debug)]
pub(crate) struct PlanAggregate {
    /// The aggregation operator, which selects the implementation.
    pub(crate) op: AggregateOp,
    /// The aggregated vector, which is evaluated after the parameter.
    pub(crate) input: PlanNode,
    /// The parameter of operators such as `topk`: a scalar or a string.
    pub(crate) param: Option<PlanNode>,
    /// The labels that form the groups; names are sorted and unique.
    pub(crate) grouping: AggregateGrouping,
}

/// A binary operation on scalars or vectors. Sides that are both constant have been folded.
#[derive(Clone, Debug)]
pub(crate) struct PlanBinary {
    /// The infix operator, which determines the class of the operation.
    pub(crate) op: BinaryOp,
    /// The operand on the left side: a scalar or an instant vector.
    pub(crate) left: PlanNode,
    /// The operand on the right side: a scalar or an instant vector.
    pub(crate) right: PlanNode,
    /// True if a comparison has the `bool` modifier and returns 0 or 1.
    pub(crate) returns_bool: bool,
    /// The vector matching. It has no effect if one side is a scalar.
    pub(crate) matching: VectorMatching,
}

impl Drop for PlanBinary {
    fn drop(&mut self) {
        let sides = [&mut self.left, &mut self.right]
            .map(|side| std::mem::replace(side, PlanNode::placeholder()));
        ensure_stack(|| drop(sides));
    }
}

/// The start, end and step of the query, which replace `start()`, `end()`, `step()` and `range()`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryTimes {
    /// The time of the first step in milliseconds.
    pub(crate) start: TimestampMs,
    /// The requested end, which may be later than the last step.
    pub(crate) end: TimestampMs,
    /// The step in whole milliseconds; zero in an instant query.
    pub(crate) step_ms: i64,
    /// The step in nanoseconds. Its whole milliseconds are `step_ms`.
    pub(crate) step_ns: i64,
}

impl QueryTimes {
    /// Returns the times of a query evaluated at `time`.
    pub(crate) fn from_eval_time(time: EvalTime) -> Self {
        let (start, end, step_ns) = match time {
            EvalTime::Instant(time) => (time, time, 0),
            EvalTime::Range {
                start,
                end,
                step_ns,
            } => (start, end, step_ns),
        };
        Self {
            start,
            end,
            step_ms: time.step_ms(),
            step_ns,
        }
    }

    /// Returns the steps of the query. An instant query has exactly one.
    pub(crate) fn grid(&self) -> StepGrid {
        StepGrid::from_bounds(self.start, self.end, self.step_ms.max(1))
    }
}

/// Creates the plan of an expression and marks its common parts. Durations must have been resolved.
pub(crate) fn plan(expr: &Expr, times: &QueryTimes) -> PlanNode {
    let mut node = plan_unshared(expr, times);
    sharing::mark(&mut node);
    node
}

/// Creates the plan of an expression like [`plan`], but equal parts are evaluated separately.
pub(crate) fn plan_unshared(expr: &Expr, times: &QueryTimes) -> PlanNode {
    let mut node = plan_node(expr, times);
    statistics::mark(&mut node);
    node
}

fn plan_node(expr: &Expr, times: &QueryTimes) -> PlanNode {
    ensure_stack(|| plan_node_here(expr, times))
}

fn plan_node_here(expr: &Expr, times: &QueryTimes) -> PlanNode {
    let (kind, is_invariant) = match &expr.kind {
        ExprKind::Paren(inner) => return plan_node(inner, times),
        ExprKind::Number(number) => (PlanNodeKind::Number(number.value), true),
        ExprKind::String(text) => (PlanNodeKind::Text(text.clone()), true),
        ExprKind::Vector(vector) => {
            let selector = plan_selector(vector, times);
            let pinned = selector.at.is_some();
            (PlanNodeKind::Vector(selector), pinned)
        }
        ExprKind::Matrix(matrix) => {
            let selector = plan_selector(&matrix.vector, times);
            let pinned = selector.at.is_some();
            (
                PlanNodeKind::Matrix(selector, millis(&matrix.range)),
                pinned,
            )
        }
        ExprKind::Subquery(subquery) => plan_subquery(subquery, times),
        ExprKind::Call(call) => plan_call(call, times),
        ExprKind::Aggregate(aggregate) => plan_aggregate(aggregate, times),
        ExprKind::Binary(binary) => plan_binary(binary, times),
        ExprKind::Unary(op, inner) => {
            let inner = Box::new(plan_node(inner, times));
            let is_invariant = inner.is_invariant;
            let kind = match (op, &inner.kind) {
                (UnaryOp::Plus, PlanNodeKind::Number(number)) => PlanNodeKind::Number(*number),
                (UnaryOp::Minus, PlanNodeKind::Number(number)) => PlanNodeKind::Number(-number),
                (UnaryOp::Plus, _) => PlanNodeKind::Same(inner),
                (UnaryOp::Minus, _) => PlanNodeKind::Negate(inner),
            };
            (kind, is_invariant)
        }
    };
    PlanNode {
        value_type: value_type(expr, &kind),
        kind,
        span: expr.span,
        is_invariant,
        shared: None,
    }
}

/// Returns the type of the value of an expression whose operation is `kind`. The type of an
/// operator follows from its operands.
fn value_type(expr: &Expr, kind: &PlanNodeKind) -> ValueType {
    match kind {
        PlanNodeKind::Binary(binary) => {
            let sides = [binary.left.value_type, binary.right.value_type];
            if sides == [ValueType::Scalar; 2] {
                ValueType::Scalar
            } else {
                ValueType::Vector
            }
        }
        PlanNodeKind::Negate(inner) | PlanNodeKind::Same(inner) => inner.value_type,
        PlanNodeKind::Number(_) => ValueType::Scalar,
        _ => expr.value_type(),
    }
}

/// Returns the milliseconds of a duration. Panics if the duration has not been resolved.
fn millis(duration: &QueryDuration) -> i64 {
    match duration {
        QueryDuration::Millis(ms) => *ms,
        QueryDuration::Expr(_) => unreachable!("durations are settled before planning"),
    }
}

fn plan_at(at: Option<AtModifier>, times: &QueryTimes) -> Option<TimestampMs> {
    at.map(|at| match at {
        AtModifier::Time(time) => time,
        AtModifier::Start => times.start,
        AtModifier::End => times.end,
    })
}

fn plan_selector(vector: &ast::VectorSelector, times: &QueryTimes) -> PlanSelector {
    PlanSelector {
        matchers: vector.matchers.clone(),
        offset_ms: millis(&vector.offset),
        at: plan_at(vector.at, times),
        edges: vector.edges,
        statistics_only: false,
    }
}

fn plan_subquery(subquery: &ast::SubqueryExpr, times: &QueryTimes) -> (PlanNodeKind, bool) {
    let at = plan_at(subquery.at, times);
    let node = PlanNodeKind::Subquery(Box::new(PlanSubquery {
        inner: plan_node(&subquery.expr, times),
        range_ms: millis(&subquery.range),
        step_ms: subquery.step.as_ref().map(millis),
        offset_ms: millis(&subquery.offset),
        at,
    }));
    (node, at.is_some())
}

fn plan_call(call: &ast::FunctionCall, times: &QueryTimes) -> (PlanNodeKind, bool) {
    let moment = |ms: i64| ms as f64 / 1000.0;
    let number = match call.function.id {
        FunctionId::Start => Some(moment(times.start)),
        FunctionId::End => Some(moment(times.end)),
        FunctionId::Range => Some(seconds(times.end - times.start)),
        FunctionId::Step if times.start == times.end => Some(0.0),
        FunctionId::Step => Some(seconds_of_nanos(times.step_ns)),
        _ => None,
    };
    if let Some(number) = number {
        return (PlanNodeKind::Number(number), true);
    }
    let args: Vec<PlanNode> = call.args.iter().map(|arg| plan_node(arg, times)).collect();
    let folded = match (call.function.id, &args[..]) {
        (FunctionId::Pi, _) => Some(std::f64::consts::PI),
        (_, [a, b]) => match call.function.evaluation {
            FunctionEvaluation::OfScalars(f) => fold_numbers(a, b, f),
            _ => None,
        },
        _ => None,
    };
    if let Some(number) = folded {
        return (PlanNodeKind::Number(number), true);
    }
    let pinned = args.iter().all(|arg| arg.is_invariant);
    let is_invariant = match call.function.id {
        // The timestamp of a sample is constant only if the sample is always the same.
        FunctionId::Timestamp => pinned && matches!(args[0].kind, PlanNodeKind::Vector(_)),
        _ => pinned && !call.function.changes_with_time,
    };
    (PlanNodeKind::Call(call.function, args), is_invariant)
}

/// Returns the result of `f` if both nodes are constant numbers.
fn fold_numbers(left: &PlanNode, right: &PlanNode, f: impl Fn(f64, f64) -> f64) -> Option<f64> {
    match (&left.kind, &right.kind) {
        (PlanNodeKind::Number(left), PlanNodeKind::Number(right)) => Some(f(*left, *right)),
        _ => None,
    }
}

fn plan_aggregate(aggregate: &ast::AggregateExpr, times: &QueryTimes) -> (PlanNodeKind, bool) {
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names.dedup();
        names
    };
    let input = plan_node(&aggregate.expr, times);
    // Prometheus does not consider the parameter here.
    let is_invariant = input.is_invariant;
    let node = PlanNodeKind::Aggregate(Box::new(PlanAggregate {
        op: aggregate.op,
        input,
        param: aggregate
            .param
            .as_ref()
            .map(|param| plan_node(param, times)),
        grouping: match &aggregate.grouping {
            AggregateGrouping::By(names) => AggregateGrouping::By(sorted(names)),
            AggregateGrouping::Without(names) => AggregateGrouping::Without(sorted(names)),
        },
    }));
    (node, is_invariant)
}

fn plan_binary(binary: &ast::BinaryExpr, times: &QueryTimes) -> (PlanNodeKind, bool) {
    let (left, right) = (
        plan_node(&binary.left, times),
        plan_node(&binary.right, times),
    );
    let operator = |left, right| apply_to_scalars(binary.op, left, right);
    if let Some(number) = fold_numbers(&left, &right, operator) {
        return (PlanNodeKind::Number(number), true);
    }
    let is_invariant = left.is_invariant && right.is_invariant;
    let node = PlanNodeKind::Binary(Box::new(PlanBinary {
        op: binary.op,
        left,
        right,
        returns_bool: binary.returns_bool,
        matching: binary.matching.clone().unwrap_or_default(),
    }));
    (node, is_invariant)
}
