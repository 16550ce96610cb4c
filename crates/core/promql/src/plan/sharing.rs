//! Finds equal parts of a plan, so that each is evaluated only once.
//!
//! ```text
//! a / (a + b)          /             Nodes that differ only in their position in the text form
//!                     / \            a class. A class that is used in several places is marked.
//!                    |   +           Its parts count as used once, by the marked class.
//!                     \ / \
//!                      a   b
//! ```
//!
//! The rows of a class are kept if some consumer needs all of them at the same time, or if they are
//! in memory anyway. Streams whose rows are folded while they are read are not kept: reading twice
//! costs less than holding the rows of all series, and only the look-up of their samples is shared.
//!
//! Annotations have a position in the text, and equal parts have different positions. The spans
//! below a marked node therefore are place numbers, and every mark contains the list of positions
//! that these numbers mean at its own place in the text.
//!
//! Invariant: nodes of one class have the same value on the same grid, including annotations. The
//! grid is part of the class as far as the query text determines it; the evaluator compares the
//! actual grids again.

use super::{PlanNode, PlanNodeKind, PlanSelector};
use crate::ast::{
    AggregateGrouping, AggregateOp, BinaryOp, PositionRange, ValueType, VectorMatching,
};
use crate::depth::ensure_stack;
use crate::functions::{FunctionId, RowAccess};
use firn_model::sample::TimestampMs;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The mark of a node whose value is used in several places of the query.
#[derive(Clone, Debug)]
pub(crate) struct SharedNodeMark {
    /// The class of the node. Nodes with the same value have the same class.
    pub(crate) class: u32,
    /// Number of places in the plan that use the value.
    pub(crate) uses: u32,
    /// True if only the samples below the value are shared, not the value itself.
    pub(crate) of_samples: bool,
    /// The span that the node's own evaluation uses. The `span` of [`PlanNode`] is used by the
    /// evaluation of its parents.
    pub(crate) span: PositionRange,
    /// The positions in the text of this node and its descendants, indexed by place number. Inside
    /// another marked node they are place numbers of that node. The first entry is the position of
    /// annotations about the whole query.
    pub(crate) places: Arc<[u32]>,
}

/// Marks the nodes whose values are used in several places.
pub(super) fn mark(node: &mut PlanNode) {
    // With fewer than two selectors no expensive part can occur twice.
    if selectors(node) < 2 {
        return;
    }
    let mut classes = NodeClasses::default();
    let part = classes.classify(node, 0);
    let mut needs = vec![NodeClassUses::default(); classes.known.len()];
    part.survey(NodeConsumer::Rows, &mut needs);
    part.count(&mut needs);
    let mut of_nodes = Vec::new();
    part.list_classes(&mut of_nodes);
    drop(part);
    let marking = SharedNodeMarker { of_nodes, needs };
    marking.mark(node, &mut 0, None);
}

fn selectors(node: &PlanNode) -> usize {
    match &node.kind {
        PlanNodeKind::Vector(_) | PlanNodeKind::Matrix(..) => 1,
        _ => ensure_stack(|| node.children().into_iter().map(selectors).sum()),
    }
}

/// The identity of a class: operation, classes of the children, and grid.
#[derive(PartialEq, Eq, Hash)]
struct NodeClassKey<'a> {
    shape: NodeShape<'a>,
    children: Vec<u32>,
    grid: u32,
}

/// The operation of a node without its children, as part of the identity of its class.
#[derive(PartialEq, Eq, Hash)]
enum NodeShape<'a> {
    Number(u64),
    Text(&'a [u8]),
    Vector(&'a PlanSelector),
    Matrix(&'a PlanSelector, i64),
    Subquery(Window),
    Call(FunctionId),
    Aggregate(AggregateOp, &'a AggregateGrouping),
    Binary(BinaryOp, bool, MatchingKey<'a>),
    Negate,
    Same,
}

/// The vector matching of a binary operation. Fill values are compared by their bits.
#[derive(PartialEq, Eq, Hash)]
struct MatchingKey<'a> {
    matching: (crate::ast::MatchCardinality, bool),
    labels: &'a [String],
    include: &'a [String],
    fill: [Option<u64>; 2],
}

/// Range, step, offset and `@` of a subquery, in milliseconds.
type Window = (i64, Option<i64>, i64, Option<TimestampMs>);

/// Identifies the grid on which a node is evaluated. The grid of the query has the number zero.
#[derive(PartialEq, Eq, Hash)]
enum NodeGridKey {
    /// The first step of another grid, for values that are the same at all steps.
    First(u32),
    /// The inner steps of a subquery that is evaluated on another grid.
    Inside(u32, Window),
}

/// All classes and grids found so far, with their numbers.
#[derive(Default)]
struct NodeClasses<'a> {
    known: FxHashMap<NodeClassKey<'a>, u32>,
    grids: FxHashMap<NodeGridKey, u32>,
}

/// A node, its class, and its children, for the analysis before marking.
struct ClassifiedNode<'a> {
    node: &'a PlanNode,
    class: u32,
    /// True if the node produces rows on demand: see [`is_stream`].
    is_stream: bool,
    children: Vec<ClassifiedNode<'a>>,
}

impl<'a> NodeClasses<'a> {
    fn classify(&mut self, node: &'a PlanNode, outer: u32) -> ClassifiedNode<'a> {
        ensure_stack(|| self.classify_here(node, outer))
    }

    fn classify_here(&mut self, node: &'a PlanNode, outer: u32) -> ClassifiedNode<'a> {
        let is_vector = node.value_type == ValueType::Vector;
        let grid = if node.is_invariant && is_vector {
            self.first_step_grid(outer)
        } else {
            outer
        };
        let mut inner = grid;
        let shape = match &node.kind {
            PlanNodeKind::Number(number) => NodeShape::Number(number.to_bits()),
            PlanNodeKind::Text(text) => NodeShape::Text(text),
            PlanNodeKind::Vector(selector) => NodeShape::Vector(selector),
            PlanNodeKind::Matrix(selector, range_ms) => NodeShape::Matrix(selector, *range_ms),
            PlanNodeKind::Subquery(s) => {
                let window = (s.range_ms, s.step_ms, s.offset_ms, s.at);
                inner = self.number(NodeGridKey::Inside(grid, window));
                NodeShape::Subquery(window)
            }
            PlanNodeKind::Call(function, _) => NodeShape::Call(function.id),
            PlanNodeKind::Aggregate(aggregate) => {
                NodeShape::Aggregate(aggregate.op, &aggregate.grouping)
            }
            PlanNodeKind::Binary(binary) => NodeShape::Binary(
                binary.op,
                binary.returns_bool,
                matching_key(&binary.matching),
            ),
            PlanNodeKind::Negate(_) => NodeShape::Negate,
            PlanNodeKind::Same(_) => NodeShape::Same,
        };
        let children = node.children().into_iter();
        let children: Vec<ClassifiedNode<'a>> = children.map(|c| self.classify(c, inner)).collect();
        let key = NodeClassKey {
            shape,
            children: children.iter().map(|child| child.class).collect(),
            grid,
        };
        let next = self.known.len() as u32;
        ClassifiedNode {
            node,
            class: *self.known.entry(key).or_insert(next),
            is_stream: is_stream(node, &children),
            children,
        }
    }

    fn first_step_grid(&mut self, grid: u32) -> u32 {
        let is_first = |(key, number): (&NodeGridKey, &u32)| {
            *number == grid && matches!(key, NodeGridKey::First(_))
        };
        if self.grids.iter().any(is_first) {
            grid
        } else {
            self.number(NodeGridKey::First(grid))
        }
    }

    fn number(&mut self, key: NodeGridKey) -> u32 {
        let next = self.grids.len() as u32 + 1;
        *self.grids.entry(key).or_insert(next)
    }
}

fn matching_key(matching: &VectorMatching) -> MatchingKey<'_> {
    let bits = |fill: Option<f64>| fill.map(f64::to_bits);
    MatchingKey {
        matching: (matching.cardinality, matching.on),
        labels: &matching.labels,
        include: &matching.include,
        fill: [bits(matching.fill_left), bits(matching.fill_right)],
    }
}

/// The way in which the parent of a node reads its rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeConsumer {
    /// The parent needs all rows at the same time.
    Rows,
    /// The parent reads one row after another and keeps none.
    Scan,
}

/// The uses of a class in the plan, which determine whether it is kept.
#[derive(Clone, Default)]
struct NodeClassUses {
    /// True if the rows of the class are kept for other uses.
    is_kept: bool,
    /// True if only the samples of the class are kept.
    of_samples: bool,
    /// Number of places that use the class, without uses inside of other kept classes.
    uses: u32,
}

impl NodeClassUses {
    fn is_evaluated_once(&self) -> bool {
        self.is_kept || self.of_samples
    }
}

impl ClassifiedNode<'_> {
    /// Determines which classes are kept. `consumer` is the parent's way of reading rows.
    fn survey(&self, consumer: NodeConsumer, needs: &mut [NodeClassUses]) {
        let need = &mut needs[self.class as usize];
        need.of_samples = match &self.node.kind {
            PlanNodeKind::Matrix(..) | PlanNodeKind::Subquery(_) => true,
            PlanNodeKind::Vector(_) => !need.is_kept && consumer == NodeConsumer::Scan,
            _ => false,
        };
        need.is_kept |= match &self.node.kind {
            PlanNodeKind::Call(function, _) if function.id == FunctionId::Scalar => true,
            _ if self.node.value_type != ValueType::Vector => false,
            _ => consumer == NodeConsumer::Rows || !self.is_stream,
        };
        for (at, child) in self.children.iter().enumerate() {
            ensure_stack(|| child.survey(child_consumer(self.node, at, consumer), needs));
        }
    }

    /// Counts the uses of each class. The parts of a kept class count only once.
    fn count(&self, needs: &mut [NodeClassUses]) {
        let need = &mut needs[self.class as usize];
        need.uses += 1;
        if need.is_evaluated_once() && need.uses > 1 {
            return;
        }
        for (at, child) in self.children.iter().enumerate() {
            if !is_selector_only(self.node, at) {
                ensure_stack(|| child.count(needs));
            }
        }
    }

    /// Appends the classes of all nodes to `into`, parents first.
    fn list_classes(&self, into: &mut Vec<u32>) {
        into.push(self.class);
        ensure_stack(|| {
            self.children
                .iter()
                .for_each(|child| child.list_classes(into))
        });
    }
}

impl Drop for ClassifiedNode<'_> {
    fn drop(&mut self) {
        let children = std::mem::take(&mut self.children);
        if !children.is_empty() {
            ensure_stack(|| drop(children));
        }
    }
}

/// Returns the way in which `parent` reads the rows of a child if its own rows are read by
/// `consumer`.
fn child_consumer(parent: &PlanNode, child: usize, consumer: NodeConsumer) -> NodeConsumer {
    match &parent.kind {
        PlanNodeKind::Aggregate(aggregate) if aggregate.op.param_type().is_none() => {
            NodeConsumer::Scan
        }
        PlanNodeKind::Call(function, _) => match function.rows {
            RowAccess::Scanned => NodeConsumer::Scan,
            _ if is_row_operation(parent) && child == 0 => consumer,
            _ => NodeConsumer::Rows,
        },
        _ if is_row_operation(parent) => consumer,
        _ => NodeConsumer::Rows,
    }
}

/// Returns whether a child is not evaluated because its parent only reads its selector.
fn is_selector_only(parent: &PlanNode, child: usize) -> bool {
    let PlanNodeKind::Call(function, args) = &parent.kind else {
        return false;
    };
    match function.id {
        FunctionId::Info => child == 1,
        FunctionId::Timestamp | FunctionId::StartTimestamp => {
            matches!(args[child].kind, PlanNodeKind::Vector(_))
        }
        _ => false,
    }
}

/// Returns whether the node produces rows on demand, from samples or from the rows of another
/// stream.
fn is_stream(node: &PlanNode, children: &[ClassifiedNode<'_>]) -> bool {
    match &node.kind {
        PlanNodeKind::Vector(_) => true,
        PlanNodeKind::Call(function, _) if function.args.contains(&ValueType::Matrix) => {
            function.id != FunctionId::AbsentOverTime
        }
        _ if is_row_operation(node) => {
            let mut children = children.iter();
            let first = children.find(|child| child.node.value_type == ValueType::Vector);
            first.is_some_and(|child| child.is_stream)
        }
        _ => false,
    }
}

/// Returns whether the node changes each row of its only vector independently.
fn is_row_operation(node: &PlanNode) -> bool {
    match &node.kind {
        PlanNodeKind::Negate(_) | PlanNodeKind::Same(_) => true,
        PlanNodeKind::Binary(binary) => {
            let sides = [binary.left.value_type, binary.right.value_type];
            sides.contains(&ValueType::Scalar)
        }
        PlanNodeKind::Call(function, _) => function.rows == RowAccess::Each,
        _ => false,
    }
}

/// The classes of all nodes, parents first, and the uses of each class.
struct SharedNodeMarker {
    of_nodes: Vec<u32>,
    needs: Vec<NodeClassUses>,
}

impl SharedNodeMarker {
    /// Marks `node`, whose index is `next`, and its descendants. `around` contains the places of
    /// the enclosing marked node, if there is one.
    fn mark(&self, node: &mut PlanNode, next: &mut usize, mut around: Option<&mut Vec<u32>>) {
        let class = self.of_nodes[*next];
        *next += 1;
        let start = node.span.start;
        if let Some(around) = &mut around {
            node.span = push_position(start, around);
        }
        let need = &self.needs[class as usize];
        if !need.is_evaluated_once() || need.uses < 2 {
            for child in node.children_mut() {
                ensure_stack(|| self.mark(child, next, around.as_deref_mut()));
            }
            return;
        }
        let mut places = vec![0];
        let span = push_position(start, &mut places);
        for child in node.children_mut() {
            ensure_stack(|| self.mark(child, next, Some(&mut places)));
        }
        if let Some(around) = around {
            for place in &mut places[1..] {
                *place = push_position(*place, around).start;
            }
        }
        node.shared = Some(SharedNodeMark {
            class,
            uses: need.uses,
            of_samples: need.of_samples,
            span,
            places: places.into(),
        });
    }
}

/// Appends a position to the list and returns its place number as a span.
fn push_position(place: u32, places: &mut Vec<u32>) -> PositionRange {
    places.push(place);
    let start = places.len() as u32 - 1;
    PositionRange { start, end: start }
}
