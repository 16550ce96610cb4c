//! Generations of readers, which delay the freeing of removed series: see [`super::removal`].

/// The time between two removals. Readers hold the generation in which they began.
#[derive(Debug, Default)]
pub(crate) struct ReaderGeneration;
