//! The `index` file of a block: its series with labels and chunks, and the postings
//! (`tsdb/docs/format/index.md` in upstream).

mod format;
mod read;
mod symbols;
#[cfg(test)]
mod tests;
mod write;

pub(super) use read::IndexSeriesWalk;
pub use read::{ChunkMeta, ChunkRef, IndexReader, IndexSeries};
pub(super) use write::TsdbIndexWriter;
