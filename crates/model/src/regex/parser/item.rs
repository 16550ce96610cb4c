//! Nodes under way, with what Go counts its limits on.

use crate::regex::tree::{Node, Repeat};

/// A node with what limits are counted on.
#[derive(Debug)]
pub(super) struct Item {
    pub node: Node,
    /// Of its tree.
    pub height: usize,
    /// Instructions of Go's program.
    pub size: u64,
}

/// Instructions of what has `size` of them, repeated.
pub(super) fn repeated_size(size: u64, repeat: Repeat) -> u64 {
    let Repeat { min, max, .. } = repeat;
    let size = match max {
        None if min == 0 => size + 2,
        None => size * u64::from(min) + 1,
        Some(max) => size * u64::from(max) + u64::from(max - min),
    };
    size.max(1)
}

/// `items` with neighbouring texts joined: groups may have come between them.
pub(super) fn with_joined_texts(items: Vec<Item>) -> Vec<Item> {
    let mut joined: Vec<Item> = Vec::with_capacity(items.len());
    for item in items {
        let last = joined.last_mut();
        match (last.map(|last| (&mut last.node, &mut last.size)), item.node) {
            (Some((Node::Literal(text), size)), Node::Literal(more)) => {
                text.push_str(&more);
                *size += item.size;
            }
            (_, node) => joined.push(Item { node, ..item }),
        }
    }
    joined
}

/// Parts of a group that are moved out of it: so many that a level costs little, however many
/// levels there are.
pub(super) const MOVED_MAX: usize = 64;

/// The nodes of `items` and what limits are counted on; a node of the kind that is being built is
/// replaced by its parts, which `parts_of` has, if they are not too many.
pub(super) fn joined(
    mut items: Vec<Item>,
    parts_of: fn(Node) -> Result<Vec<Node>, Node>,
) -> (Item, Vec<Node>) {
    let mut whole = Item {
        node: Node::Empty,
        height: 1,
        size: 0,
    };
    if items.len() == 1
        && let Some(Item { node, height, size }) = items.pop()
    {
        let node_is_one = Item {
            node: Node::Empty,
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
