//! A chunk: consecutive samples of one series in a few bytes each, exact to the bit.
//!
//! A series appends to its [`OpenChunk`] and closes a full one into an immutable [`Chunk`], which
//! readers share. `docs/format/chunk.md` draws the bytes.
//!
//! ```text
//! chunk = samples u16 | last time i64 | body          little endian
//! body  = first time i64 | [packs] | { [start] time value }*
//! start, time, value = codes of `encoding`; time and value only where no run covers them
//! ```
//!
//! Invariant: a `Chunk` decodes to the samples that it counts, with strictly increasing times.

mod columns;
mod decode;
mod known_times;
mod open;
mod pack;
mod tail;
#[cfg(test)]
mod tests;

pub use columns::{Columns, Sample};
pub(crate) use known_times::TimesKnown;
pub(crate) use open::{Newest, OpenChunk};

use crate::encoding::Malformed;
use firn_model::sample::{TimeRange, TimestampMs};
use std::sync::Arc;

/// Samples at which a chunk is closed, before the spread. Sealing takes samples out of the head
/// after half an hour, so a series of a 15 s scrape closes none; the count bounds what a query for
/// minutes decodes of series that are scraped more often, or while sealing is behind.
const SAMPLES: u16 = 480;

/// Chunks close at `SAMPLES` less up to 127 of these samples, by series: at 353 to 480. Series that
/// were created together so do not close their chunks together.
const SAMPLES_SPREAD: u16 = 128;

/// Series that pack together: as many as are sealed together, whose chunks begin together.
const NEIGHBOURS: u32 = 512;

/// Bytes after which a chunk is closed whatever it counts: what a reader copies of an open chunk
/// while it holds the shard, some 30 ns. Beside it the 58 bytes around a closed chunk (pointer,
/// counts, header, allocator) are small. A histogram may overshoot it by its own size.
const BODY_BYTES: usize = 1_024;

/// Operation of a body: the start timestamp changes by a zigzag varint before the sample that
/// follows.
const START: u8 = 0xf8;

/// Operation in the place of a value: the sample is a histogram.
const HISTOGRAM: u8 = 0xf1;

const COUNT_BYTES: usize = 2;

const HEADER_BYTES: usize = COUNT_BYTES + 8;

/// An immutable run of samples. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk(Arc<[u8]>);

impl Chunk {
    /// Samples after which the series with this slot closes a chunk.
    pub(crate) fn samples_max(slot: u32) -> u16 {
        // Fibonacci hashing: neighbouring slots land far apart.
        let spread = slot.wrapping_mul(0x9e37_79b9) >> 16;
        SAMPLES - (spread % u32::from(SAMPLES_SPREAD)) as u16
    }

    /// When the series with this slot packs its samples: together with its neighbours, which are
    /// scraped together, and apart from others.
    #[inline]
    pub(crate) fn phase(slot: u32) -> u32 {
        slot / NEIGHBOURS
    }

    /// The bytes.
    #[cfg(test)]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        // The counts of the `Arc` and the pointer to it.
        self.0.len() + 16 + size_of::<Self>()
    }

    /// A look at it.
    pub(crate) fn view(&self) -> ChunkView<'_> {
        ChunkView(&self.0)
    }

    /// Samples in the chunk.
    pub(crate) fn sample_count(&self) -> usize {
        self.view().sample_count()
    }

    /// From the first sample to the last.
    pub(crate) fn range(&self) -> TimeRange {
        self.view().range()
    }

    /// Appends the first `samples_max` samples to `into`.
    pub(crate) fn decode(&self, samples_max: usize, into: &mut Columns) -> Result<(), Malformed> {
        let known = &mut TimesKnown::default();
        self.view().decode(samples_max, known, into)
    }

    /// A copy without the samples up to `time`; the chunk must have newer ones.
    pub(crate) fn behind(&self, time: TimestampMs) -> Result<Self, Malformed> {
        let mut columns = Columns::default();
        self.decode(usize::MAX, &mut columns)?;
        let mut open = OpenChunk::default();
        for (at, start, value) in columns.samples().filter(|(at, ..)| *at > time) {
            match value {
                Sample::Float(value) => open.push_float(at, start, value),
                Sample::Histogram(histogram) => {
                    open.push_histogram(at, start, &histogram, histogram.reset_hint)
                }
            }
        }
        open.snapshot().ok_or(Malformed("chunk without a sample"))
    }
}

/// The bytes of a chunk, wherever they lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkView<'a>(&'a [u8]);

impl<'a> ChunkView<'a> {
    /// The chunk that [`write`] wrote.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Samples in the chunk.
    pub(crate) fn sample_count(self) -> usize {
        usize::from(u16::from_le_bytes(self.field(0)))
    }

    /// From the first sample to the last.
    pub(crate) fn range(self) -> TimeRange {
        let last = i64::from_le_bytes(self.field(COUNT_BYTES));
        TimeRange::new(first_time(self.body()), last)
    }

    /// Appends the first `samples_max` samples to `into`.
    pub(crate) fn decode(
        self,
        samples_max: usize,
        known: &mut TimesKnown,
        into: &mut Columns,
    ) -> Result<(), Malformed> {
        let samples = samples_max.min(self.sample_count());
        decode::body(self.body(), samples, known, into)
    }

    /// Appends the first `samples_max` values of a chunk of floats without start timestamps; their
    /// times are then `known.newest()`. Returns false, and appends nothing, for other chunks.
    pub(crate) fn decode_plain(
        self,
        samples_max: usize,
        known: &mut TimesKnown,
        values: &mut Vec<f64>,
    ) -> Result<bool, Malformed> {
        let samples = samples_max.min(self.sample_count());
        decode::plain(self.body(), samples, known, values)
    }

    fn body(self) -> &'a [u8] {
        self.0.get(HEADER_BYTES..).unwrap_or(&[])
    }

    fn field<const N: usize>(self, at: usize) -> [u8; N] {
        self.0
            .get(at..at + N)
            .and_then(|b| b.try_into().ok())
            .unwrap_or([0; N])
    }
}

/// Appends a chunk to `out`, whose body lies in two pieces.
fn write(count: u16, last: TimestampMs, (body, tail): (&[u8], &[u8]), out: &mut Vec<u8>) {
    out.reserve(HEADER_BYTES + body.len() + tail.len());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&last.to_le_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(tail);
}

fn first_time(body: &[u8]) -> TimestampMs {
    body.first_chunk().map_or(0, |b| i64::from_le_bytes(*b))
}
