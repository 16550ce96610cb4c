//! Room on the stack for recursion over high trees.
//!
//! A chain of ten thousand operators is a tree as high. Whatever walks trees and calls itself does
//! so through [`deeper`]: it measures how much of the stack is left and goes on with a new piece
//! where that is little. So the height of a tree is bounded by the parser and not by a thread's
//! stack.

/// What must be left of the stack: more than anything takes between two calls of [`deeper`], also
/// without optimisation.
const LEFT_BYTES_MIN: usize = 1 << 20;

/// A new piece. Only what is touched of it takes memory.
const PIECE_BYTES: usize = 4 << 20;

/// Calls `f` with room on the stack.
#[inline]
pub fn deeper<T>(f: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(LEFT_BYTES_MIN, PIECE_BYTES, f)
}
