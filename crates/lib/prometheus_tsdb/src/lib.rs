//! Data folders of Prometheus: reads those of Prometheus 3.14 and earlier versions, and writes
//! blocks that Prometheus opens.
//!
//! ```text
//! 01HX...      a block: meta.json, index, chunks/000001.., tombstones  TsdbBlockReader, -Writer
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
//! ```
//! use firn_prometheus_tsdb::{ChunkBuilder, ChunkStartTimes, TsdbChunkSamples, TsdbSampleValue};
//!
//! let mut builder = ChunkBuilder::new(ChunkStartTimes::Drop);
//! for (time, value) in [(1_000, 1.0), (16_000, 2.0)] {
//!     builder.push_float(time, 0, value)?;
//! }
//! let chunk = builder.finish().expect("a chunk of two samples");
//! let samples = TsdbChunkSamples::new(chunk.encoding, &chunk.data)?;
//! let values: Vec<_> = samples.map(|sample| sample.map(|s| (s.time, s.value))).collect();
//! assert_eq!(values[1], Ok((16_000, TsdbSampleValue::Float(2.0))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariant: no input makes this crate panic or allocate more than the size of the file
//! justifies. Readers keep only the symbols of an index in memory. Values are preserved bit for
//! bit.
//!
//! The crate is not a database: it does not open files, evaluates no matchers, and does not
//! compact, lock or repair a folder. Its series have the labels, samples and histograms of
//! [`firn_model`].
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
