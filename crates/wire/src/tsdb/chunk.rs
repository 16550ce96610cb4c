//! Chunks: consecutive samples of one series and one kind, in six encodings.
//!
//! [`Samples`] reads any of them, [`ChunkBuilder`] writes them as Prometheus cuts them. The same
//! bytes lie in the segments of blocks and in `chunks_head`.
//!
//! Invariant: a reader allocates for one sample at a time, and no more buckets than the chunk has
//! bits.

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

pub use build::{BuiltChunk, ChunkBuilder, StartTimes};
pub use encoding::{Encoding, Kind, ResetHeader};
pub(super) use layout::{bucket_count, is_known_schema, reduce};
pub use read::Samples;
