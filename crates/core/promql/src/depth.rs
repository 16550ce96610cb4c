//! Stack space for recursion over deep trees.
//!
//! A chain of ten thousand operators is a tree of the same height. Every recursive function over
//! trees therefore recurses through [`ensure_stack`], which checks the remaining stack and
//! continues on a newly allocated stack segment when little is left. The limit on the height of a
//! tree is thus set by the parser, not by the stack size of a thread.

/// Minimum remaining stack in bytes. It exceeds the stack that any function uses between two calls
/// of [`ensure_stack`], also without optimization.
const LEFT_BYTES_MIN: usize = 1 << 20;

/// Size of a new stack segment in bytes. Only the pages that are touched occupy memory.
const PIECE_BYTES: usize = 4 << 20;

/// Calls `f` with at least 1 MiB of stack, on a new stack segment if necessary.
#[inline]
pub fn ensure_stack<T>(f: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(LEFT_BYTES_MIN, PIECE_BYTES, f)
}
