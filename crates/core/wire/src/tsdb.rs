//! Data folders of Prometheus: reads those of Prometheus 3.14 and earlier versions, and writes
//! blocks that Prometheus opens.
//!
//! ```text
//! 01HX...      a block: meta.json, index, chunks/000001.., tombstones  TsdbBlockReader, TsdbBlockWriter
//! wal          segments 00000000.., and a folder checkpoint.00000000   WalReader
//! wbl          segments of out-of-order samples                        WalReader
//! chunks_head  complete chunks, 000001..                               HeadChunks
//! the last three together, as Prometheus replays them at its start     HeadReader
//! ```
//!
//! Input is read through [`ReadRanges`], which the caller implements for files, and output goes to
//! a [`BlockFolder`]. Files have names that the caller chooses; errors contain them with the offset
//! of the damage.
//!
//! Invariant: no input makes this module panic or allocate more than the size of the file
//! justifies. Readers keep only the symbols of an index in memory. Values are preserved bit for
//! bit.
//!
//! Sources: `tsdb/docs/format` of Prometheus and the code beside it.
//! `docs/format/prometheus-folder.md` describes the supported parts.

mod block;
mod block_writer;
mod bytes;
mod chunk;
mod error;
mod folder;
mod head;
mod head_chunks;
mod index;
mod intervals;
mod meta;
mod ranges;
mod sample;
mod segment;
#[cfg(test)]
mod tests;
mod tombstones;
mod ulid;
mod wal;

pub use block::{TsdbBlockReader, TsdbBlockSeries};
pub use block_writer::{TsdbBlockOptions, TsdbBlockWriter};
pub use chunk::{
    BuiltChunk, ChunkBuilder, ChunkStartTimes, ResetHeader, TsdbChunkEncoding, TsdbChunkSamples,
    TsdbSampleKind,
};
pub use error::{MalformedTsdbBytes, TsdbError};
pub use folder::{BlockFile, BlockFolder};
pub use head::{
    HeadExemplar, HeadFiles, HeadMetadata, HeadOptions, HeadReader, HeadReport, HeadSeries,
};
pub use head_chunks::{HeadChunk, HeadChunkFile, HeadChunks};
pub use index::{ChunkMeta, ChunkRef, IndexReader, IndexSeries};
pub use intervals::DeletedIntervals;
pub use meta::{
    BlockParent, HINT_OUT_OF_ORDER, TsdbBlockCompaction, TsdbBlockMeta, TsdbBlockStats,
};
pub use ranges::{NamedRangeFile, ReadRanges};
pub use sample::{TsdbSample, TsdbSampleValue};
pub use segment::ChunkSegments;
pub use tombstones::Tombstones;
pub use ulid::{InvalidUlid, Ulid};
pub use wal::{WalEntries, WalEntry, WalReader, WalTailPolicy};
