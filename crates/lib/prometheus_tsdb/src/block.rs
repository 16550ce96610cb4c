//! Reads a block: a folder with the samples of a time range.
//!
//! ```text
//! let mut block = TsdbBlockReader::new(index, segments, Some(tombstones));
//! while let Some(mut series) = block.next_series()? {
//!     let labels = series.labels();
//!     while let Some(sample) = series.next_sample()? { .. }
//! }
//! ```
//!
//! Series are sorted by labels and samples by time; a block with another order is damaged. Memory
//! contains the symbol table, the tombstones, and the index entry of one series with the bytes of
//! one chunk.

use super::chunk::{TsdbChunkEncoding, TsdbChunkSamples};
use super::error::TsdbError;
use super::index::{ChunkMeta, ChunkRef, IndexReader, IndexSeries, IndexSeriesWalk};
use super::intervals::DeletedIntervals;
use super::ranges::ReadRanges;
use super::sample::{TsdbSample, TsdbSampleValue};
use super::segment::{ChunkSegmentBuffer, ChunkSegments};
use super::tombstones::Tombstones;
use firn_model::histogram::ResetHint;
use firn_model::labels::LabelsRef;
use firn_model::sample::TimestampMs;

/// Reads the series of a block in order, or one series by its number. Deleted samples are left out.
/// The caller opens its files and passes them in.
#[derive(Debug)]
pub struct TsdbBlockReader<R> {
    index: IndexReader<R>,
    segments: ChunkSegments<R>,
    tombstones: Option<Tombstones>,
    walk: IndexSeriesWalk,
    series: IndexSeries,
    /// The series of the latest [`Self::series_at`] call.
    asked: IndexSeries,
    chunks: ChunkSegmentBuffer,
}

impl<R: ReadRanges> TsdbBlockReader<R> {
    /// Returns a reader before the first series. Samples that `tombstones` delete are left out.
    pub fn new(
        index: IndexReader<R>,
        segments: ChunkSegments<R>,
        tombstones: Option<Tombstones>,
    ) -> Self {
        Self {
            walk: index.start_walk(),
            index,
            segments,
            tombstones,
            series: IndexSeries::default(),
            asked: IndexSeries::default(),
            chunks: ChunkSegmentBuffer::default(),
        }
    }

    /// Moves back to the first series. All series are returned once more.
    pub fn rewind(&mut self) {
        self.walk = self.index.start_walk();
        self.series = IndexSeries::default();
    }

    /// Returns the next series, or `None` at the end. All samples of a series may be deleted. Fails
    /// if the index is damaged.
    pub fn next_series(&mut self) -> Result<Option<TsdbBlockSeries<'_, R>>, TsdbError> {
        if !self.index.advance(&mut self.walk, &mut self.series)? {
            return Ok(None);
        }
        Ok(Some(TsdbBlockSeries::new(
            &self.index,
            &self.segments,
            &self.series,
            self.tombstones.as_ref(),
            &mut self.chunks,
        )))
    }

    /// Returns the series with this number, which [`TsdbBlockSeries::reference`] returned. The
    /// position of the walk over all series does not change.
    pub fn series_at(&mut self, reference: u64) -> Result<TsdbBlockSeries<'_, R>, TsdbError> {
        self.index.read_at(reference, &mut self.asked)?;
        Ok(TsdbBlockSeries::new(
            &self.index,
            &self.segments,
            &self.asked,
            self.tombstones.as_ref(),
            &mut self.chunks,
        ))
    }
}

/// A series of a block: its labels, and an iteration over its samples. Borrows the reader, so that
/// one series is open at a time.
#[derive(Debug)]
pub struct TsdbBlockSeries<'b, R> {
    index: &'b str,
    segments: &'b ChunkSegments<R>,
    series: &'b IndexSeries,
    deleted: Option<&'b DeletedIntervals>,
    chunks: &'b mut ChunkSegmentBuffer,
    next_chunk: usize,
    /// The current chunk.
    samples: Option<(ChunkRef, TsdbChunkSamples<'static>)>,
    /// True if samples at the start of the current chunk are deleted and none was returned yet.
    is_cut: bool,
    last_time: Option<TimestampMs>,
}

impl<'b, R: ReadRanges> TsdbBlockSeries<'b, R> {
    fn new(
        index: &'b IndexReader<R>,
        segments: &'b ChunkSegments<R>,
        series: &'b IndexSeries,
        tombstones: Option<&'b Tombstones>,
        chunks: &'b mut ChunkSegmentBuffer,
    ) -> Self {
        Self {
            index: index.name(),
            segments,
            series,
            deleted: tombstones.and_then(|t| t.intervals(series.reference)),
            chunks,
            next_chunk: 0,
            samples: None,
            is_cut: false,
            last_time: None,
        }
    }

    /// Returns the number of the series in the index, for [`TsdbBlockReader::series_at`].
    pub fn reference(&self) -> u64 {
        self.series.reference
    }

    /// Returns the labels of the series.
    pub fn labels(&self) -> LabelsRef<'_> {
        self.series.labels()
    }

    /// Returns the index entries of the chunks, including those with deleted samples.
    pub fn chunks(&self) -> &[ChunkMeta] {
        &self.series.chunks
    }

    /// Returns the encoding and the bytes of a chunk, for [`TsdbChunkSamples`]. Tombstones are not
    /// applied. Fails if the chunk is damaged.
    pub fn chunk(&mut self, chunk: ChunkMeta) -> Result<(TsdbChunkEncoding, &[u8]), TsdbError> {
        self.segments
            .read_chunk(self.chunks, chunk.reference, self.index)
    }

    /// Returns the next sample that is not deleted, or `None` at the end. Fails if its timestamp is
    /// not greater than the previous one.
    pub fn next_sample(&mut self) -> Result<Option<TsdbSample>, TsdbError> {
        loop {
            if let Some((chunk, samples)) = &mut self.samples {
                let chunk = *chunk;
                let is_first = samples.is_at_start();
                let Some(sample) = samples.next() else {
                    self.samples = None;
                    continue;
                };
                let damaged = |error| self.segments.damage_error(chunk, error);
                let mut sample = sample.map_err(damaged)?;
                self.check_time(chunk, sample.time)?;
                if self.deleted.is_some_and(|d| d.contains(sample.time)) {
                    self.is_cut |= is_first;
                    continue;
                }
                if std::mem::take(&mut self.is_cut) {
                    clear_reset_hint(&mut sample);
                }
                return Ok(Some(sample));
            }
            let Some(chunk) = self.series.chunks.get(self.next_chunk).copied() else {
                return Ok(None);
            };
            self.next_chunk += 1;
            if !self.deleted.is_some_and(|d| d.contains_range(chunk.range)) {
                let chunk = chunk.reference;
                let (encoding, data) = self.segments.read_chunk(self.chunks, chunk, self.index)?;
                let samples = TsdbChunkSamples::new(encoding, data.to_vec());
                let samples = samples.map_err(|error| self.segments.damage_error(chunk, error))?;
                self.samples = Some((chunk, samples));
                self.is_cut = false;
            }
        }
    }

    fn check_time(&mut self, chunk: ChunkRef, time: TimestampMs) -> Result<(), TsdbError> {
        let last = self.last_time.replace(time);
        match last {
            Some(last) if last >= time => {
                let labels = self.series.labels();
                let what = format!(
                    "sample at {time} of series {labels} is not after the previous one at \
                         {last}"
                );
                Err(self.segments.damage_error(chunk, what))
            }
            _ => Ok(()),
        }
    }
}

/// Clears the reset hint of a histogram, which refers to the previous one in its chunk, because
/// that is deleted.
fn clear_reset_hint(sample: &mut TsdbSample) {
    if let TsdbSampleValue::Histogram(histogram) = &mut sample.value
        && histogram.reset_hint == ResetHint::NotReset
    {
        histogram.reset_hint = ResetHint::Unknown;
    }
}
