//! Nodes during parsing, with the values that Go's limits apply to.

use crate::tree::{RegexNode, RegexRepeat};

/// A node with the values that limits apply to.
#[derive(Debug)]
pub(super) struct RegexItem {
    pub node: RegexNode,
    /// The height of the node's tree, limited by `HEIGHT_MAX`.
    pub height: usize,
    /// Number of instructions in Go's program for the node.
    pub size: u64,
}

/// Returns the number of instructions of a repeated part that has `size` instructions.
pub(super) fn repeated_size(size: u64, repeat: RegexRepeat) -> u64 {
    let RegexRepeat { min, max, .. } = repeat;
    let size = match max {
        None if min == 0 => size + 2,
        None => size * u64::from(min) + 1,
        Some(max) => size * u64::from(max) + u64::from(max - min),
    };
    size.max(1)
}

/// Merges neighbouring texts in `items`, which groups may have separated.
pub(super) fn join_texts(items: Vec<RegexItem>) -> Vec<RegexItem> {
    let mut joined: Vec<RegexItem> = Vec::with_capacity(items.len());
    for item in items {
        let last = joined.last_mut();
        match (last.map(|last| (&mut last.node, &mut last.size)), item.node) {
            (Some((RegexNode::Literal(text), size)), RegexNode::Literal(more)) => {
                text.push_str(&more);
                *size += item.size;
            }
            (_, node) => joined.push(RegexItem { node, ..item }),
        }
    }
    joined
}

/// Maximum number of parts that are moved out of a nested node of the same kind: so few that a
/// level costs little, regardless of the number of levels.
pub(super) const MOVED_MAX: usize = 64;

/// Combines `items` to a list of nodes, with the values that limits apply to. A nested node of the
/// kind that is being built is replaced by its parts, which `parts_of` returns, unless they are too
/// many.
pub(super) fn join_items(
    mut items: Vec<RegexItem>,
    parts_of: fn(RegexNode) -> Result<Vec<RegexNode>, RegexNode>,
) -> (RegexItem, Vec<RegexNode>) {
    let mut whole = RegexItem {
        node: RegexNode::Empty,
        height: 1,
        size: 0,
    };
    if items.len() == 1
        && let Some(RegexItem { node, height, size }) = items.pop()
    {
        let node_is_one = RegexItem {
            node: RegexNode::Empty,
            height,
            size,
        };
        return (node_is_one, vec![node]);
    }
    let mut nodes = Vec::with_capacity(items.len());
    for item in items {
        whole.size += item.size;
        let height = match parts_of(item.node) {
            Ok(mut parts) => {
                nodes.append(&mut parts);
                item.height
            }
            Err(node) => {
                nodes.push(node);
                item.height + 1
            }
        };
        whole.height = whole.height.max(height);
    }
    whole.size = whole.size.max(1);
    (whole, nodes)
}
