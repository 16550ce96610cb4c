//! Generations of readers: see [`super::removal`].

/// A stretch of time between two removals.
#[derive(Debug, Default)]
pub(crate) struct Generation;
