//! A block's `index`: its series with their labels and chunks, and what finds them
//! (`tsdb/docs/format/index.md` upstream).

mod format;
mod read;
mod symbols;
#[cfg(test)]
mod tests;
mod write;

pub(super) use read::SeriesWalk;
pub use read::{ChunkMeta, ChunkRef, IndexReader, IndexSeries};
pub(super) use write::IndexWriter;
