//! Closed chunks, and views of chunks inside a copy of the head.

use super::columns::SampleColumns;
use super::decode;
use super::known_times::DecodedTimesCache;
use super::layout::{COUNT_BYTES, HEADER_BYTES, NEIGHBOURS, SAMPLES, SAMPLES_SPREAD};
use crate::encoding::DecodeError;
use crate::ids::SeriesRef;
use firn_model::sample::{TimeRange, TimestampMs};
use std::sync::Arc;

/// An immutable sequence of samples of one series. Created by [`super::OpenChunk::close`] or a
/// snapshot; cheap to clone, because clones share the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk(pub(super) Arc<[u8]>);

impl Chunk {
    /// Returns the number of samples after which the series with this slot closes a chunk. Varies
    /// by slot, so that series do not close their chunks at the same time.
    pub(crate) fn samples_max(slot: SeriesRef) -> u16 {
        // Fibonacci hashing: neighbouring slots are mapped far apart.
        let spread = slot.0.wrapping_mul(0x9e37_79b9) >> 16;
        SAMPLES - (spread % u32::from(SAMPLES_SPREAD)) as u16
    }

    /// Returns the phase in which the series with this slot packs its samples: the same as that of
    /// its neighbours, which are scraped together, and different from others.
    #[inline]
    pub(crate) fn phase(slot: SeriesRef) -> u32 {
        slot.0 / NEIGHBOURS
    }

    /// Returns the encoded bytes, header included.
    #[cfg(test)]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the memory of the chunk in bytes, the struct included.
    pub(crate) fn memory_bytes(&self) -> usize {
        // The counters of the `Arc` and the pointer to it.
        self.0.len() + 16 + size_of::<Self>()
    }

    /// Returns a view of the chunk for decoding.
    pub(crate) fn view(&self) -> ChunkView<'_> {
        ChunkView(&self.0)
    }

    /// Returns the number of samples.
    pub(crate) fn sample_count(&self) -> usize {
        self.view().sample_count()
    }

    /// Returns the time range from the first sample to the last one.
    pub(crate) fn range(&self) -> TimeRange {
        self.view().range()
    }

    /// Decodes the first `samples_max` samples and appends them to `into`.
    pub(crate) fn decode(
        &self,
        samples_max: usize,
        into: &mut SampleColumns,
    ) -> Result<(), DecodeError> {
        let known = &mut DecodedTimesCache::default();
        self.view().decode(samples_max, known, into)
    }
}

/// The bytes of a chunk, borrowed from a [`Chunk`] or from a copy of the head. Malformed bytes
/// cause errors and never a panic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkView<'a>(&'a [u8]);

impl<'a> ChunkView<'a> {
    /// Returns a view of the bytes that [`write`] wrote.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the number of samples.
    pub(crate) fn sample_count(self) -> usize {
        usize::from(u16::from_le_bytes(self.field(0)))
    }

    /// Returns the time range from the first sample to the last one.
    pub(crate) fn range(self) -> TimeRange {
        let last = i64::from_le_bytes(self.field(COUNT_BYTES));
        TimeRange::new(first_time(self.body()), last)
    }

    /// Decodes the first `samples_max` samples and appends them to `into`. `known` caches the times
    /// of the previous chunk.
    pub(crate) fn decode(
        self,
        samples_max: usize,
        known: &mut DecodedTimesCache,
        into: &mut SampleColumns,
    ) -> Result<(), DecodeError> {
        let samples = samples_max.min(self.sample_count());
        decode::decode_body(self.body(), samples, known, into)
    }

    /// Decodes the first `samples_max` values of a chunk of floats without start timestamps and
    /// appends them to `values`; their times are then `known.newest()`. Returns false and appends
    /// nothing for other chunks.
    pub(crate) fn decode_plain(
        self,
        samples_max: usize,
        known: &mut DecodedTimesCache,
        values: &mut Vec<f64>,
    ) -> Result<bool, DecodeError> {
        let samples = samples_max.min(self.sample_count());
        decode::decode_plain(self.body(), samples, known, values)
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

/// Appends a chunk to `out`. Its body is given in two parts.
pub(super) fn write(count: u16, last: TimestampMs, body: &[u8], tail: &[u8], out: &mut Vec<u8>) {
    out.reserve(HEADER_BYTES + body.len() + tail.len());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&last.to_le_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(tail);
}

pub(super) fn first_time(body: &[u8]) -> TimestampMs {
    body.first_chunk().map_or(0, |b| i64::from_le_bytes(*b))
}
