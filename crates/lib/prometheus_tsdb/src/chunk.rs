//! Chunks: consecutive samples of one series and one kind, in six encodings.
//!
//! [`TsdbChunkSamples`] reads all encodings, and [`ChunkBuilder`] writes chunks with the same
//! boundaries as Prometheus. Segments of blocks and `chunks_head` contain the same bytes.
//!
//! Invariant: a reader allocates memory for one sample at a time, and for no more buckets than the
//! chunk has bits.

mod bits;
mod build;
mod counts;
mod encoding;
mod floats;
mod histograms;
mod layout;
mod read;
mod start;
#[cfg(test)]
mod tests;
mod union;
mod xor;

pub use build::{BuiltChunk, ChunkBuilder, ChunkStartTimes};
pub use encoding::{ResetHeader, TsdbChunkEncoding, TsdbSampleKind};
pub(super) use layout::{bucket_count, is_known_schema, reduce_resolution};
pub use read::TsdbChunkSamples;
