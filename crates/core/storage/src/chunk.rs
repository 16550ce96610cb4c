//! Chunks: consecutive samples of one series in memory, in a few bytes each, exact to the bit.
//!
//! A series appends to its [`OpenChunk`] and closes a full one into an immutable [`Chunk`], which
//! readers share. `docs/format/chunk.md` describes the bytes.
//!
//! ```text
//! chunk = samples u16 | last time i64 | body          little endian
//! body  = first time i64 | [packs] | { [start] time value }*
//! start, time, value = codes of `encoding`; time and value only where no run covers them
//! ```
//!
//! Invariant: a `Chunk` decodes to as many samples as its header contains, with strictly increasing
//! times.

mod closed;
mod columns;
mod decode;
mod duplicates;
mod known_times;
mod layout;
mod open;
mod pack;
mod tail;
#[cfg(test)]
mod tests;

pub(crate) use closed::{Chunk, ChunkView};
pub use columns::{ChunkSample, SampleColumns};
pub use duplicates::DuplicatePolicy;
pub(crate) use known_times::DecodedTimesCache;
pub(crate) use open::{NewestSampleValue, OpenChunk};
