//! The logical plan: the syntax tree with everything settled that does not depend on data.
//!
//! Parentheses are gone, what is made of numbers alone is a number, durations are milliseconds,
//! `@ start()` and the functions `start()`, `end()`, `step()`, `range()` are numbers, and every
//! node knows whether its value is the same at all steps, so that it is computed once.

mod sharing;
mod statistics;
#[cfg(test)]
mod tests;

pub(crate) use sharing::Shared;

use crate::ast::{
    self, AggregateOp, At, BinaryOp, Duration, Edges, Expr, ExprKind, Grouping, Matching, Span,
    UnaryOp, ValueType,
};
use crate::depth::deeper;
use crate::durations::seconds_of_nanos;
use crate::functions::{Evaluation, Function, FunctionId};
use crate::grid::{Grid, Reach, seconds};
use crate::math::operators::of_scalars;
use crate::request::EvalTime;
use firn_model::matcher::Matcher;
use firn_model::sample::TimestampMs;

/// A node of the plan.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// What it computes.
    pub(crate) kind: NodeKind,
    /// Where it stands in the text.
    pub(crate) span: Span,
    /// The type of its value.
    pub(crate) value_type: ValueType,
    /// Whether its value is the same at all steps.
    pub(crate) is_invariant: bool,
    /// Set if its value is needed in other places too.
    pub(crate) shared: Option<Shared>,
}

impl Node {
    /// Where remarks of its own evaluation stand.
    pub(crate) fn own_span(&self) -> Span {
        match &self.shared {
            Some(shared) if !shared.of_samples => shared.span,
            _ => self.span,
        }
    }

    /// What is left where a node was taken away.
    fn gap() -> Self {
        Self {
            kind: NodeKind::Number(0.0),
            span: Span::default(),
            value_type: ValueType::Scalar,
            is_invariant: true,
            shared: None,
        }
    }

    /// The nodes right below.
    fn children(&self) -> Vec<&Node> {
        match &self.kind {
            NodeKind::Number(_) | NodeKind::Text(_) => Vec::new(),
            NodeKind::Vector(_) | NodeKind::Matrix(..) => Vec::new(),
            NodeKind::Subquery(subquery) => vec![&subquery.inner],
            NodeKind::Call(_, args) => args.iter().collect(),
            NodeKind::Aggregate(aggregate) => {
                let param = aggregate.param.as_ref();
                param.into_iter().chain([&aggregate.input]).collect()
            }
            NodeKind::Binary(binary) => vec![&binary.left, &binary.right],
            NodeKind::Negate(inner) | NodeKind::Same(inner) => vec![inner],
        }
    }

    /// [`Node::children`], to be changed.
    fn children_mut(&mut self) -> Vec<&mut Node> {
        match &mut self.kind {
            NodeKind::Number(_) | NodeKind::Text(_) => Vec::new(),
            NodeKind::Vector(_) | NodeKind::Matrix(..) => Vec::new(),
            NodeKind::Subquery(subquery) => vec![&mut subquery.inner],
            NodeKind::Call(_, args) => args.iter_mut().collect(),
            NodeKind::Aggregate(aggregate) => {
                let param = aggregate.param.as_mut();
                param.into_iter().chain([&mut aggregate.input]).collect()
            }
            NodeKind::Binary(binary) => vec![&mut binary.left, &mut binary.right],
            NodeKind::Negate(inner) | NodeKind::Same(inner) => vec![inner],
        }
    }
}

/// The kinds of nodes.
#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    /// A number.
    Number(f64),
    /// A string.
    Text(Vec<u8>),
    /// An instant vector selector.
    Vector(Selector),
    /// A range vector selector, with its range.
    Matrix(Selector, i64),
    /// A subquery.
    Subquery(Box<Subquery>),
    /// A function call.
    Call(&'static Function, Vec<Node>),
    /// An aggregation.
    Aggregate(Box<Aggregate>),
    /// A binary operation.
    Binary(Box<Binary>),
    /// Change of sign.
    Negate(Box<Node>),
    /// `+a`: the value of `a`, which is no selector any more.
    Same(Box<Node>),
}

/// Series and how their samples are picked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Selector {
    /// All conditions.
    pub(crate) matchers: Vec<Matcher>,
    /// `offset`.
    pub(crate) offset_ms: i64,
    /// `@`.
    pub(crate) at: Option<TimestampMs>,
    /// `anchored`, `smoothed`.
    pub(crate) edges: Edges,
    /// Whether of histograms nothing matters but count and sum.
    pub(crate) statistics_only: bool,
}

/// A subquery.
#[derive(Clone, Debug)]
pub(crate) struct Subquery {
    /// What is evaluated.
    pub(crate) inner: Node,
    /// The window.
    pub(crate) range_ms: i64,
    /// The step, if there is one.
    pub(crate) step_ms: Option<i64>,
    /// `offset`.
    pub(crate) offset_ms: i64,
    /// `@`.
    pub(crate) at: Option<TimestampMs>,
}

impl Subquery {
    /// The range and the modifiers.
    pub(crate) fn reach(&self) -> Reach {
        Reach {
            range_ms: self.range_ms,
            offset_ms: self.offset_ms,
            at: self.at,
        }
    }

    /// The multiples of its step that the windows of the steps of `grid` hold.
    pub(crate) fn grid(&self, grid: Grid, default_step_ms: i64) -> Grid {
        let reach = self.reach();
        let step_ms = self.step_ms.unwrap_or(default_step_ms).max(1);
        let oldest = reach.end(grid.start).saturating_sub(self.range_ms);
        let mut start = step_ms * (oldest / step_ms);
        if start <= oldest {
            start = start.saturating_add(step_ms);
        }
        Grid::between(start, reach.end(grid.last()), step_ms)
    }
}

/// An aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    /// The operator.
    pub(crate) op: AggregateOp,
    /// What is aggregated.
    pub(crate) input: Node,
    /// The parameter.
    pub(crate) param: Option<Node>,
    /// The groups; names sorted and unique.
    pub(crate) grouping: Grouping,
}

/// A binary operation.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    /// The operator.
    pub(crate) op: BinaryOp,
    /// Left side.
    pub(crate) left: Node,
    /// Right side.
    pub(crate) right: Node,
    /// `bool`.
    pub(crate) returns_bool: bool,
    /// How elements are paired.
    pub(crate) matching: Matching,
}

impl Drop for Binary {
    fn drop(&mut self) {
        let sides =
            [&mut self.left, &mut self.right].map(|side| std::mem::replace(side, Node::gap()));
        deeper(|| drop(sides));
    }
}

/// The query's own times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryTimes {
    /// The first step.
    pub(crate) start: TimestampMs,
    /// The end as it was asked for.
    pub(crate) end: TimestampMs,
    /// The step; zero in an instant query.
    pub(crate) step_ms: i64,
    /// The step in nanoseconds; its whole milliseconds are `step_ms`.
    pub(crate) step_ns: i64,
}

impl QueryTimes {
    /// The times of a query that is evaluated at `time`.
    pub(crate) fn of(time: EvalTime) -> Self {
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

    /// The steps.
    pub(crate) fn grid(&self) -> Grid {
        Grid::between(self.start, self.end, self.step_ms.max(1))
    }
}

/// Plans an expression whose durations are settled.
pub(crate) fn plan(expr: &Expr, times: &QueryTimes) -> Node {
    let mut node = plan_apart(expr, times);
    sharing::mark(&mut node);
    node
}

/// Like [`plan`], but evaluates equal parts at each of their places.
pub(crate) fn plan_apart(expr: &Expr, times: &QueryTimes) -> Node {
    let mut node = plan_node(expr, times);
    statistics::mark(&mut node);
    node
}

fn plan_node(expr: &Expr, times: &QueryTimes) -> Node {
    deeper(|| plan_node_here(expr, times))
}

fn plan_node_here(expr: &Expr, times: &QueryTimes) -> Node {
    let (kind, is_invariant) = match &expr.kind {
        ExprKind::Paren(inner) => return plan_node(inner, times),
        ExprKind::Number(number) => (NodeKind::Number(number.value), true),
        ExprKind::String(text) => (NodeKind::Text(text.clone()), true),
        ExprKind::Vector(vector) => {
            let selector = plan_selector(vector, times);
            let pinned = selector.at.is_some();
            (NodeKind::Vector(selector), pinned)
        }
        ExprKind::Matrix(matrix) => {
            let selector = plan_selector(&matrix.vector, times);
            let pinned = selector.at.is_some();
            (NodeKind::Matrix(selector, millis(&matrix.range)), pinned)
        }
        ExprKind::Subquery(subquery) => plan_subquery(subquery, times),
        ExprKind::Call(call) => plan_call(call, times),
        ExprKind::Aggregate(aggregate) => plan_aggregate(aggregate, times),
        ExprKind::Binary(binary) => plan_binary(binary, times),
        ExprKind::Unary(op, inner) => {
            let inner = Box::new(plan_node(inner, times));
            let is_invariant = inner.is_invariant;
            let kind = match (op, &inner.kind) {
                (UnaryOp::Plus, NodeKind::Number(number)) => NodeKind::Number(*number),
                (UnaryOp::Minus, NodeKind::Number(number)) => NodeKind::Number(-number),
                (UnaryOp::Plus, _) => NodeKind::Same(inner),
                (UnaryOp::Minus, _) => NodeKind::Negate(inner),
            };
            (kind, is_invariant)
        }
    };
    Node {
        value_type: value_type(expr, &kind),
        kind,
        span: expr.span,
        is_invariant,
        shared: None,
    }
}

/// The type of an expression that became `kind`: operators have that of their operands.
fn value_type(expr: &Expr, kind: &NodeKind) -> ValueType {
    match kind {
        NodeKind::Binary(binary) => {
            let sides = [binary.left.value_type, binary.right.value_type];
            match sides == [ValueType::Scalar; 2] {
                true => ValueType::Scalar,
                false => ValueType::Vector,
            }
        }
        NodeKind::Negate(inner) | NodeKind::Same(inner) => inner.value_type,
        NodeKind::Number(_) => ValueType::Scalar,
        _ => expr.value_type(),
    }
}

/// The milliseconds of a duration, settled before.
fn millis(duration: &Duration) -> i64 {
    match duration {
        Duration::Millis(ms) => *ms,
        Duration::Expr(_) => unreachable!("durations are settled before planning"),
    }
}

fn plan_at(at: Option<At>, times: &QueryTimes) -> Option<TimestampMs> {
    at.map(|at| match at {
        At::Time(time) => time,
        At::Start => times.start,
        At::End => times.end,
    })
}

fn plan_selector(vector: &ast::VectorSelector, times: &QueryTimes) -> Selector {
    Selector {
        matchers: vector.matchers.clone(),
        offset_ms: millis(&vector.offset),
        at: plan_at(vector.at, times),
        edges: vector.edges,
        statistics_only: false,
    }
}

fn plan_subquery(subquery: &ast::Subquery, times: &QueryTimes) -> (NodeKind, bool) {
    let at = plan_at(subquery.at, times);
    let node = NodeKind::Subquery(Box::new(Subquery {
        inner: plan_node(&subquery.expr, times),
        range_ms: millis(&subquery.range),
        step_ms: subquery.step.as_ref().map(millis),
        offset_ms: millis(&subquery.offset),
        at,
    }));
    (node, at.is_some())
}

fn plan_call(call: &ast::Call, times: &QueryTimes) -> (NodeKind, bool) {
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
        return (NodeKind::Number(number), true);
    }
    let args: Vec<Node> = call.args.iter().map(|arg| plan_node(arg, times)).collect();
    let folded = match (call.function.id, &args[..]) {
        (FunctionId::Pi, _) => Some(std::f64::consts::PI),
        (_, [a, b]) => match call.function.evaluation {
            Evaluation::OfScalars(f) => of_numbers(a, b, f),
            _ => None,
        },
        _ => None,
    };
    if let Some(number) = folded {
        return (NodeKind::Number(number), true);
    }
    let pinned = args.iter().all(|arg| arg.is_invariant);
    let is_invariant = match call.function.id {
        // The time of a sample is fixed only if the sample is.
        FunctionId::Timestamp => pinned && matches!(args[0].kind, NodeKind::Vector(_)),
        _ => pinned && !call.function.changes_with_time,
    };
    (NodeKind::Call(call.function, args), is_invariant)
}

/// What `f` makes of two nodes that are numbers.
fn of_numbers(left: &Node, right: &Node, f: impl Fn(f64, f64) -> f64) -> Option<f64> {
    match (&left.kind, &right.kind) {
        (NodeKind::Number(left), NodeKind::Number(right)) => Some(f(*left, *right)),
        _ => None,
    }
}

fn plan_aggregate(aggregate: &ast::Aggregate, times: &QueryTimes) -> (NodeKind, bool) {
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names.dedup();
        names
    };
    let input = plan_node(&aggregate.expr, times);
    // Upstream does not look at the parameter here.
    let is_invariant = input.is_invariant;
    let node = NodeKind::Aggregate(Box::new(Aggregate {
        op: aggregate.op,
        input,
        param: aggregate
            .param
            .as_ref()
            .map(|param| plan_node(param, times)),
        grouping: match &aggregate.grouping {
            Grouping::By(names) => Grouping::By(sorted(names)),
            Grouping::Without(names) => Grouping::Without(sorted(names)),
        },
    }));
    (node, is_invariant)
}

fn plan_binary(binary: &ast::Binary, times: &QueryTimes) -> (NodeKind, bool) {
    let (left, right) = (
        plan_node(&binary.left, times),
        plan_node(&binary.right, times),
    );
    let operator = |left, right| of_scalars(binary.op, left, right);
    if let Some(number) = of_numbers(&left, &right, operator) {
        return (NodeKind::Number(number), true);
    }
    let is_invariant = left.is_invariant && right.is_invariant;
    let node = NodeKind::Binary(Box::new(Binary {
        op: binary.op,
        left,
        right,
        returns_bool: binary.returns_bool,
        matching: binary.matching.clone().unwrap_or_default(),
    }));
    (node, is_invariant)
}
