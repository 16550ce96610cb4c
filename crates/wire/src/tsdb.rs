//! Folders of Prometheus's TSDB: reading what Prometheus 3.14 and the versions before it wrote, and
//! writing blocks that Prometheus opens.
//!
//! ```text
//! 01HX...      a block: meta.json, index, chunks/000001.., tombstones  BlockReader, BlockWriter
//! wal          segments 00000000.., and in checkpoint.00000000 others  WalReader
//! wbl          segments of what came out of order                      WalReader
//! chunks_head  complete chunks, 000001..                               HeadChunks
//! the last three together, as a start of Prometheus sees them          HeadReader
//! ```
//!
//! Bytes come in through [`Ranges`], which the caller implements over files, and go out through
//! [`BlockFolder`]. Files have the names that the caller gives them, which errors show with the
//! offset of what is wrong.
//!
//! Invariant: for any bytes, nothing here panics or allocates by a length that the file cannot
//! have. No reader holds more of an index than its symbols. Values are those that were written, bit
//! for bit.
//!
//! Sources: `tsdb/docs/format` of Prometheus and the code beside it.
//! `docs/format/prometheus-folder.md` says what is read and what is written.

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

pub use block::{BlockReader, BlockSeries};
pub use block_writer::{BlockOptions, BlockWriter};
pub use chunk::{BuiltChunk, ChunkBuilder, Encoding, Kind, ResetHeader, Samples, StartTimes};
pub use error::{Malformed, TsdbError};
pub use folder::{BlockFile, BlockFolder};
pub use head::{
    HeadExemplar, HeadFiles, HeadMetadata, HeadOptions, HeadReader, HeadReport, HeadSeries,
};
pub use head_chunks::{HeadChunk, HeadChunkFile, HeadChunks};
pub use index::{ChunkMeta, ChunkRef, IndexReader, IndexSeries};
pub use intervals::Intervals;
pub use meta::{BlockMeta, BlockParent, BlockStats, Compaction, HINT_OUT_OF_ORDER};
pub use ranges::{File, Ranges};
pub use sample::{Sample, Value};
pub use segment::Segments;
pub use tombstones::Tombstones;
pub use ulid::{NoUlid, Ulid};
pub use wal::{Entries, Entry, Tail, WalReader};
