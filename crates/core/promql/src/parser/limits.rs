//! The limits of the tree that is being built: nesting, depth, height, and memory.

use super::stop::{ParseStop, Parsed, fail};
use crate::ast::PositionRange;
use firn_model::budget::Reservation;

/// Maximum height of a tree. A chain of operators (`a or b or c`) is as high as it is long, and
/// generated queries contain chains of thousands. The limit allows ten thousand operators in
/// addition to the nesting of [`NESTING_MAX`]; traversing such a tree uses some megabytes of stack.
pub const HEIGHT_MAX: u32 = 10_000 + NESTING_MAX;

/// Maximum number of nested parentheses, calls and signs. It is low because evaluation has large
/// stack frames.
pub const NESTING_MAX: u32 = 1000;

/// Memory of a node in bytes: in the tree, in the plan, and while common parts of the plan are
/// searched.
pub(super) const NODE_BYTES: usize = 768;

/// Stack in bytes that an operator, a call or parentheses use during the traversal of a tree.
const WALK_BYTES: usize = 256;

/// The size of the tree so far, which the parser checks before the tree grows.
pub(super) struct TreeLimits<'a> {
    /// The reservation for the memory of the tree, owned by the caller.
    memory: &'a mut Reservation,
    /// Number of open parentheses, calls and signs, limited by [`NESTING_MAX`].
    pub(super) nesting: u32,
    /// Number of nested calls of recursive rules, limited by [`HEIGHT_MAX`].
    pub(super) depth: u32,
    /// Height of the tree that was built last. Rules combine it with the height of other operands.
    pub(super) height: u32,
}

impl<'a> TreeLimits<'a> {
    /// Returns the limits of an empty tree, whose memory is added to `memory`.
    pub(super) fn new(memory: &'a mut Reservation) -> Self {
        Self {
            memory,
            nesting: 0,
            depth: 0,
            height: 0,
        }
    }

    /// Reserves memory for something that is about to be allocated.
    pub(super) fn reserve(&mut self, bytes: usize) -> Parsed<()> {
        let room = self.memory.grow(bytes);
        room.map_err(|e| ParseStop::Limited(e.message))
    }

    /// Updates the height after a node was built on subtrees with a maximum height of `height`, and
    /// reserves memory for the node.
    pub(super) fn update_height(&mut self, height: u32, span: PositionRange) -> Parsed<()> {
        self.height = height + 1;
        if self.height > HEIGHT_MAX {
            return self.too_high(span.start as usize);
        }
        self.reserve(NODE_BYTES + WALK_BYTES)
    }

    pub(super) fn too_high<T>(&self, at: usize) -> Parsed<T> {
        fail(
            at,
            format!(
                "expression has too many operators in a row: {} or more, limit {HEIGHT_MAX}",
                HEIGHT_MAX + 1
            ),
        )
    }
}
