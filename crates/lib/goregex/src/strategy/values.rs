//! The finite set of values that a tree matches, if there is one and it is small.

use crate::class::CharClass;
use crate::tree::{RegexNode, RegexRepeat};
use crate::value_set::ValueSet;
use regex_syntax::hir::Look;

/// Maximum number of values that consecutive alternatives may multiply to. An index looks up each
/// of them, and a thousand look-ups cost less than running an automaton over the values of a common
/// label.
const PRODUCT_MAX: usize = 1024;

/// Maximum size of such a product in bytes. The size of an explicit alternation is limited by its
/// text.
const PRODUCT_BYTES_MAX: usize = 1 << 20;

type Values = Vec<Vec<u8>>;

/// Returns the values that match `tree`, or `None` if there are too many or they cannot be listed.
pub(super) fn list_values(tree: &RegexNode) -> Option<ValueSet> {
    let edges = PatternEdges {
        start: true,
        end: true,
    };
    Some(node_values(tree, edges)?.into_iter().collect())
}

/// Whether a part is at the start and at the end of the pattern, where `^` and `$` match.
#[derive(Clone, Copy)]
struct PatternEdges {
    start: bool,
    end: bool,
}

fn node_values(node: &RegexNode, edges: PatternEdges) -> Option<Values> {
    match node {
        RegexNode::Empty => Some(vec![Vec::new()]),
        RegexNode::Literal(text) => Some(vec![text.clone().into_bytes()]),
        RegexNode::Class(class) => class_values(class),
        RegexNode::Look(Look::Start | Look::StartLF) if edges.start => Some(vec![Vec::new()]),
        RegexNode::Look(Look::End | Look::EndLF) if edges.end => Some(vec![Vec::new()]),
        RegexNode::Capture(node, _) => node_values(node, edges),
        RegexNode::Concat(nodes) => concat_values(nodes, edges),
        RegexNode::Alternation(nodes) => {
            let mut values = Vec::with_capacity(nodes.len());
            for node in nodes {
                values.append(&mut node_values(node, edges)?);
            }
            Some(values)
        }
        RegexNode::Repeat(node, repeat) => repeat_values(node, *repeat),
        RegexNode::AnyChar | RegexNode::Look(_) => None,
    }
}

fn class_values(class: &CharClass) -> Option<Values> {
    let class = class.plain_ranges()?;
    let count: usize = class.iter().map(|r| r.len()).sum();
    if count > PRODUCT_MAX {
        return None;
    }
    let chars = class.iter().flat_map(|r| r.start()..=r.end());
    Some(chars.map(|c| c.to_string().into_bytes()).collect())
}

fn concat_values(nodes: &[RegexNode], edges: PatternEdges) -> Option<Values> {
    let is_look = |n: &RegexNode| matches!(n, RegexNode::Look(_));
    let looks_before = nodes.iter().take_while(|n| is_look(n)).count();
    let looks_behind = nodes.iter().rev().take_while(|n| is_look(n)).count();
    let mut values = vec![Vec::new()];
    for (i, node) in nodes.iter().enumerate() {
        let edges = PatternEdges {
            start: edges.start && i <= looks_before,
            end: edges.end && i + looks_behind + 1 >= nodes.len(),
        };
        values = cross_product(values, &node_values(node, edges)?)?;
    }
    Some(values)
}

fn repeat_values(node: &RegexNode, repeat: RegexRepeat) -> Option<Values> {
    let inside = PatternEdges {
        start: false,
        end: false,
    };
    let max = repeat.max?;
    let once = node_values(node, inside)?;
    let mut values = Vec::new();
    let mut power = vec![Vec::new()];
    for times in 0..=max {
        if times >= repeat.min {
            values.extend(power.iter().cloned());
        }
        if times < max {
            power = cross_product(power, &once)?;
        }
        check_size(values.len(), values.iter().map(Vec::len).sum())?;
    }
    Some(values)
}

/// Returns every value of `left` followed by every value of `right`.
fn cross_product(left: Values, right: &Values) -> Option<Values> {
    if let [only] = &left[..]
        && only.is_empty()
    {
        return Some(right.clone());
    }
    let bytes = |values: &Values| values.iter().map(Vec::len).sum::<usize>();
    let total = bytes(&left) * right.len() + bytes(right) * left.len();
    // A single value before or after many does not increase their number beyond that in the text.
    let count = if left.len() == 1 || right.len() == 1 {
        1
    } else {
        left.len() * right.len()
    };
    check_size(count, total)?;
    let pairs = left
        .iter()
        .flat_map(|l| right.iter().map(move |r| [&l[..], &r[..]].concat()));
    Some(pairs.collect())
}

fn check_size(count: usize, bytes: usize) -> Option<()> {
    (count <= PRODUCT_MAX && bytes <= PRODUCT_BYTES_MAX).then_some(())
}
