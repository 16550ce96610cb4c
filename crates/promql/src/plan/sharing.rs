//! Which parts of a plan are equal, so that each is evaluated once for all places that need it.
//!
//! ```text
//! a / (a + b)          /             Nodes that are equal but for where they stand in the text are
//!                     / \            of one class. A class that is needed in two places or more is
//!                    |   +           marked; parts of it are needed once, by it.
//!                     \ / \
//!                      a   b
//! ```
//!
//! A class is kept as rows if some consumer needs all of them at once, or if they are in memory
//! anyway. Streams whose rows are folded one by one as they are read are not: two scans cost less
//! than rows of all series in memory, and their samples are looked up once.
//!
//! Remarks stand at a place in the text, and equal parts stand at different ones. So the spans
//! below a marked node are numbers, and every mark has the list of the places that they mean there.
//!
//! Invariant: nodes of one class have the same value on the same grid, remarks included; the grid
//! is part of the class as far as the text decides it, and the evaluator compares it again.

use super::{Node, NodeKind, Selector};
use crate::ast::{AggregateOp, BinaryOp, Grouping, Matching, Span, ValueType};
use crate::depth::deeper;
use crate::functions::{FunctionId, Rows};
use firn_model::sample::TimestampMs;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The mark of a node whose value is needed in several places.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// Equal for nodes with the same value.
    pub(crate) class: u32,
    /// How often the value is needed.
    pub(crate) uses: u32,
    /// Whether what is shared is the samples below the value.
    pub(crate) of_samples: bool,
    /// The span of the node for its own evaluation; that in the node is for those around it.
    pub(crate) span: Span,
    /// Where the spans of this node and below it stand in the text, or which number they have in
    /// the marked node around this one. The first is that of remarks on the whole query.
    pub(crate) places: Arc<[u32]>,
}

/// Marks the nodes whose values are needed in several places.
pub(super) fn mark(node: &mut Node) {
    // Without two selectors nothing that costs something is there twice.
    if selectors(node) < 2 {
        return;
    }
    let mut classes = Classes::default();
    let part = classes.classify(node, 0);
    let mut needs = vec![Need::default(); classes.known.len()];
    part.survey(Consumer::Rows, &mut needs);
    part.count(&mut needs);
    let mut of_nodes = Vec::new();
    part.list(&mut of_nodes);
    drop(part);
    let marking = Marking { of_nodes, needs };
    marking.mark(node, &mut 0, None);
}

fn selectors(node: &Node) -> usize {
    match &node.kind {
        NodeKind::Vector(_) | NodeKind::Matrix(..) => 1,
        _ => deeper(|| node.children().into_iter().map(selectors).sum()),
    }
}

/// What makes two nodes equal: what they do, of which classes their children are, on which grid.
#[derive(PartialEq, Eq, Hash)]
struct Key<'a> {
    shape: Shape<'a>,
    children: Vec<u32>,
    grid: u32,
}

/// What a node does, without its children.
#[derive(PartialEq, Eq, Hash)]
enum Shape<'a> {
    Number(u64),
    Text(&'a [u8]),
    Vector(&'a Selector),
    Matrix(&'a Selector, i64),
    Subquery(Window),
    Call(FunctionId),
    Aggregate(AggregateOp, &'a Grouping),
    Binary(BinaryOp, bool, Pairs<'a>),
    Negate,
    Same,
}

/// How the elements of two sides are paired.
#[derive(PartialEq, Eq, Hash)]
struct Pairs<'a> {
    matching: (crate::ast::Cardinality, bool),
    labels: &'a [String],
    include: &'a [String],
    fill: [Option<u64>; 2],
}

/// Range, step, offset and `@` of a subquery.
type Window = (i64, Option<i64>, i64, Option<TimestampMs>);

/// Which grid a node is evaluated on; the query's own has the number zero.
#[derive(PartialEq, Eq, Hash)]
enum GridKey {
    /// The first step of another grid.
    First(u32),
    /// The steps of a subquery that is evaluated on another grid.
    Inside(u32, Window),
}

/// Classes and grids that are known.
#[derive(Default)]
struct Classes<'a> {
    known: FxHashMap<Key<'a>, u32>,
    grids: FxHashMap<GridKey, u32>,
}

/// A node and its class.
struct Part<'a> {
    node: &'a Node,
    class: u32,
    /// Whether rows are made as they are asked for: see [`is_stream`].
    is_stream: bool,
    children: Vec<Part<'a>>,
}

impl<'a> Classes<'a> {
    fn classify(&mut self, node: &'a Node, outer: u32) -> Part<'a> {
        deeper(|| self.classify_here(node, outer))
    }

    fn classify_here(&mut self, node: &'a Node, outer: u32) -> Part<'a> {
        let is_vector = node.value_type == ValueType::Vector;
        let grid = match node.is_invariant && is_vector {
            true => self.first_of(outer),
            false => outer,
        };
        let mut inner = grid;
        let shape = match &node.kind {
            NodeKind::Number(number) => Shape::Number(number.to_bits()),
            NodeKind::Text(text) => Shape::Text(text),
            NodeKind::Vector(selector) => Shape::Vector(selector),
            NodeKind::Matrix(selector, range_ms) => Shape::Matrix(selector, *range_ms),
            NodeKind::Subquery(s) => {
                let window = (s.range_ms, s.step_ms, s.offset_ms, s.at);
                inner = self.number(GridKey::Inside(grid, window));
                Shape::Subquery(window)
            }
            NodeKind::Call(function, _) => Shape::Call(function.id),
            NodeKind::Aggregate(aggregate) => Shape::Aggregate(aggregate.op, &aggregate.grouping),
            NodeKind::Binary(binary) => {
                Shape::Binary(binary.op, binary.returns_bool, pairs(&binary.matching))
            }
            NodeKind::Negate(_) => Shape::Negate,
            NodeKind::Same(_) => Shape::Same,
        };
        let children = node.children().into_iter();
        let children: Vec<Part<'a>> = children.map(|c| self.classify(c, inner)).collect();
        let key = Key {
            shape,
            children: children.iter().map(|child| child.class).collect(),
            grid,
        };
        let next = self.known.len() as u32;
        Part {
            node,
            class: *self.known.entry(key).or_insert(next),
            is_stream: is_stream(node, &children),
            children,
        }
    }

    fn first_of(&mut self, grid: u32) -> u32 {
        let is_first =
            |(key, number): (&GridKey, &u32)| *number == grid && matches!(key, GridKey::First(_));
        match self.grids.iter().any(is_first) {
            true => grid,
            false => self.number(GridKey::First(grid)),
        }
    }

    fn number(&mut self, key: GridKey) -> u32 {
        let next = self.grids.len() as u32 + 1;
        *self.grids.entry(key).or_insert(next)
    }
}

fn pairs(matching: &Matching) -> Pairs<'_> {
    let bits = |fill: Option<f64>| fill.map(f64::to_bits);
    Pairs {
        matching: (matching.cardinality, matching.on),
        labels: &matching.labels,
        include: &matching.include,
        fill: [bits(matching.fill_left), bits(matching.fill_right)],
    }
}

/// How the parent takes the rows of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Consumer {
    /// All at once.
    Rows,
    /// One after the other.
    Scan,
}

/// How a class is needed.
#[derive(Clone, Default)]
struct Need {
    /// Whether its value is kept.
    is_kept: bool,
    /// Whether only its samples are kept.
    of_samples: bool,
    /// In how many places.
    uses: u32,
}

impl Need {
    fn is_evaluated_once(&self) -> bool {
        self.is_kept || self.of_samples
    }
}

impl Part<'_> {
    /// Finds out which classes are kept.
    fn survey(&self, consumer: Consumer, needs: &mut [Need]) {
        let need = &mut needs[self.class as usize];
        need.of_samples = match &self.node.kind {
            NodeKind::Matrix(..) | NodeKind::Subquery(_) => true,
            NodeKind::Vector(_) => !need.is_kept && consumer == Consumer::Scan,
            _ => false,
        };
        need.is_kept |= match &self.node.kind {
            NodeKind::Call(function, _) if function.id == FunctionId::Scalar => true,
            _ if self.node.value_type != ValueType::Vector => false,
            _ => consumer == Consumer::Rows || !self.is_stream,
        };
        for (at, child) in self.children.iter().enumerate() {
            deeper(|| child.survey(consumer_of(self.node, at, consumer), needs));
        }
    }

    /// Counts in how many places each class is needed, of kept ones the parts only once.
    fn count(&self, needs: &mut [Need]) {
        let need = &mut needs[self.class as usize];
        need.uses += 1;
        if need.is_evaluated_once() && need.uses > 1 {
            return;
        }
        for (at, child) in self.children.iter().enumerate() {
            if !is_looked_at_only(self.node, at) {
                deeper(|| child.count(needs));
            }
        }
    }

    /// The classes of all nodes, parents first.
    fn list(&self, into: &mut Vec<u32>) {
        into.push(self.class);
        deeper(|| self.children.iter().for_each(|child| child.list(into)));
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let children = std::mem::take(&mut self.children);
        if !children.is_empty() {
            deeper(|| drop(children));
        }
    }
}

/// How a node takes the rows of a child, if its own rows go to `consumer`.
fn consumer_of(parent: &Node, child: usize, consumer: Consumer) -> Consumer {
    match &parent.kind {
        NodeKind::Aggregate(aggregate) if aggregate.op.param_type().is_none() => Consumer::Scan,
        NodeKind::Call(function, _) => match function.rows {
            Rows::Scanned => Consumer::Scan,
            _ if works_on_rows(parent) && child == 0 => consumer,
            _ => Consumer::Rows,
        },
        _ if works_on_rows(parent) => consumer,
        _ => Consumer::Rows,
    }
}

/// Whether a child is not evaluated: its parent reads its selector.
fn is_looked_at_only(parent: &Node, child: usize) -> bool {
    let NodeKind::Call(function, args) = &parent.kind else {
        return false;
    };
    match function.id {
        FunctionId::Info => child == 1,
        FunctionId::Timestamp | FunctionId::StartTimestamp => {
            matches!(args[child].kind, NodeKind::Vector(_))
        }
        _ => false,
    }
}

/// Whether rows are made as they are asked for, from samples or from rows of another stream.
fn is_stream(node: &Node, children: &[Part<'_>]) -> bool {
    match &node.kind {
        NodeKind::Vector(_) => true,
        NodeKind::Call(function, _) if function.args.contains(&ValueType::Matrix) => {
            function.id != FunctionId::AbsentOverTime
        }
        _ if works_on_rows(node) => {
            let mut children = children.iter();
            let first = children.find(|child| child.node.value_type == ValueType::Vector);
            first.is_some_and(|child| child.is_stream)
        }
        _ => false,
    }
}

/// Whether a node changes each row of its only vector by itself.
fn works_on_rows(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Negate(_) | NodeKind::Same(_) => true,
        NodeKind::Binary(binary) => {
            let sides = [binary.left.value_type, binary.right.value_type];
            sides.contains(&ValueType::Scalar)
        }
        NodeKind::Call(function, _) => function.rows == Rows::Each,
        _ => false,
    }
}

/// Classes by node, parents first, and how they are needed.
struct Marking {
    of_nodes: Vec<u32>,
    needs: Vec<Need>,
}

impl Marking {
    /// Marks `node`, whose number is `next`, and those below. `around` are the places of the
    /// marked node that it is part of.
    fn mark(&self, node: &mut Node, next: &mut usize, mut around: Option<&mut Vec<u32>>) {
        let class = self.of_nodes[*next];
        *next += 1;
        let start = node.span.start;
        if let Some(around) = &mut around {
            node.span = numbered(start, around);
        }
        let need = &self.needs[class as usize];
        if !need.is_evaluated_once() || need.uses < 2 {
            for child in node.children_mut() {
                deeper(|| self.mark(child, next, around.as_deref_mut()));
            }
            return;
        }
        let mut places = vec![0];
        let span = numbered(start, &mut places);
        for child in node.children_mut() {
            deeper(|| self.mark(child, next, Some(&mut places)));
        }
        if let Some(around) = around {
            for place in &mut places[1..] {
                *place = numbered(*place, around).start;
            }
        }
        node.shared = Some(Shared {
            class,
            uses: need.uses,
            of_samples: need.of_samples,
            span,
            places: places.into(),
        });
    }
}

/// The number of a place, as a span.
fn numbered(place: u32, places: &mut Vec<u32>) -> Span {
    places.push(place);
    let start = places.len() as u32 - 1;
    Span { start, end: start }
}
