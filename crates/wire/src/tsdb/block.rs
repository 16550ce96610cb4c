//! A block: a folder with the samples of a range of time.
//!
//! ```text
//! let mut block = BlockReader::open(index, segments, Some(tombstones))?;
//! while let Some(mut series) = block.next_series()? {
//!     let labels = series.labels();
//!     while let Some(sample) = series.next_sample()? { .. }
//! }
//! ```
//!
//! Series come in order of their labels, samples in order of time; a block in which they do not is
//! damaged. In memory are the table of symbols, the tombstones and, one at a time, a series' entry
//! of the index and the bytes of a chunk.

use super::chunk::{Encoding, Samples};
use super::error::TsdbError;
use super::index::{ChunkMeta, ChunkRef, IndexReader, IndexSeries, SeriesWalk};
use super::intervals::Intervals;
use super::ranges::Ranges;
use super::sample::{Sample, Value};
use super::segment::{ChunkWalk, Segments};
use super::tombstones::Tombstones;
use firn_model::histogram::ResetHint;
use firn_model::labels::LabelsRef;
use firn_model::sample::TimestampMs;

/// Reads the series of a block.
#[derive(Debug)]
pub struct BlockReader<R> {
    index: IndexReader<R>,
    segments: Segments<R>,
    tombstones: Option<Tombstones>,
    walk: SeriesWalk,
    series: IndexSeries,
    /// The series that was asked for by its number.
    asked: IndexSeries,
    chunks: ChunkWalk,
}

impl<R: Ranges> BlockReader<R> {
    /// A reader in front of the first series. What `tombstones` delete is left out.
    pub fn new(
        index: IndexReader<R>,
        segments: Segments<R>,
        tombstones: Option<Tombstones>,
    ) -> Self {
        Self {
            walk: index.walk(),
            index,
            segments,
            tombstones,
            series: IndexSeries::default(),
            asked: IndexSeries::default(),
            chunks: ChunkWalk::default(),
        }
    }

    /// Goes back to the first series.
    pub fn rewind(&mut self) {
        self.walk = self.index.walk();
        self.series = IndexSeries::default();
    }

    /// The next series; none at the end. A series may have no sample left.
    pub fn next_series(&mut self) -> Result<Option<BlockSeries<'_, R>>, TsdbError> {
        if !self.index.advance(&mut self.walk, &mut self.series)? {
            return Ok(None);
        }
        Ok(Some(BlockSeries::new(
            &self.index,
            &self.segments,
            &self.series,
            self.tombstones.as_ref(),
            &mut self.chunks,
        )))
    }

    /// The series with the number that [`BlockSeries::reference`] gave. The walk over all series
    /// stays where it is.
    pub fn series_at(&mut self, reference: u64) -> Result<BlockSeries<'_, R>, TsdbError> {
        self.index.read_at(reference, &mut self.asked)?;
        Ok(BlockSeries::new(
            &self.index,
            &self.segments,
            &self.asked,
            self.tombstones.as_ref(),
            &mut self.chunks,
        ))
    }
}

/// A series of a block: its labels, and a walk over its samples.
#[derive(Debug)]
pub struct BlockSeries<'b, R> {
    index: &'b str,
    segments: &'b Segments<R>,
    series: &'b IndexSeries,
    deleted: Option<&'b Intervals>,
    chunks: &'b mut ChunkWalk,
    next_chunk: usize,
    /// The chunk under way.
    samples: Option<(ChunkRef, Samples<'static>)>,
    /// Whether all samples of the chunk so far are deleted, and there were some.
    is_cut: bool,
    last_time: Option<TimestampMs>,
}

impl<'b, R: Ranges> BlockSeries<'b, R> {
    fn new(
        index: &'b IndexReader<R>,
        segments: &'b Segments<R>,
        series: &'b IndexSeries,
        tombstones: Option<&'b Tombstones>,
        chunks: &'b mut ChunkWalk,
    ) -> Self {
        Self {
            index: index.name(),
            segments,
            series,
            deleted: tombstones.and_then(|t| t.of(series.reference)),
            chunks,
            next_chunk: 0,
            samples: None,
            is_cut: false,
            last_time: None,
        }
    }

    /// The number that the index knows it by, for [`BlockReader::series_at`].
    pub fn reference(&self) -> u64 {
        self.series.reference
    }

    /// The labels.
    pub fn labels(&self) -> LabelsRef<'_> {
        self.series.labels()
    }

    /// What the index says about the chunks.
    pub fn chunks(&self) -> &[ChunkMeta] {
        &self.series.chunks
    }

    /// The encoding and the bytes of a chunk, for [`Samples`]. Tombstones say nothing here.
    pub fn chunk(&mut self, chunk: ChunkMeta) -> Result<(Encoding, &[u8]), TsdbError> {
        self.segments
            .chunk(self.chunks, chunk.reference, self.index)
    }

    /// The next sample that is not deleted; none at the end. An error if its time does not come
    /// after that of the one before.
    pub fn next_sample(&mut self) -> Result<Option<Sample>, TsdbError> {
        loop {
            if let Some((chunk, samples)) = &mut self.samples {
                let chunk = *chunk;
                let is_first = samples.is_at_start();
                let Some(sample) = samples.next() else {
                    self.samples = None;
                    continue;
                };
                let damaged = |error| self.segments.damaged(chunk, error);
                let mut sample = sample.map_err(damaged)?;
                self.check_time(chunk, sample.time)?;
                if self.deleted.is_some_and(|d| d.contains(sample.time)) {
                    self.is_cut |= is_first;
                    continue;
                }
                if std::mem::take(&mut self.is_cut) {
                    forget_reset(&mut sample);
                }
                return Ok(Some(sample));
            }
            let Some(chunk) = self.series.chunks.get(self.next_chunk).copied() else {
                return Ok(None);
            };
            self.next_chunk += 1;
            if !self.deleted.is_some_and(|d| d.covers(chunk.range)) {
                let chunk = chunk.reference;
                let (encoding, data) = self.segments.chunk(self.chunks, chunk, self.index)?;
                let samples = Samples::new(encoding, data.to_vec());
                let samples = samples.map_err(|error| self.segments.damaged(chunk, error))?;
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
                Err(self.segments.damaged(chunk, what))
            }
            _ => Ok(()),
        }
    }
}

/// A histogram continues the one before it in its chunk. If that is deleted, nothing is known.
fn forget_reset(sample: &mut Sample) {
    if let Value::Histogram(histogram) = &mut sample.value
        && histogram.reset_hint == ResetHint::NotReset
    {
        histogram.reset_hint = ResetHint::Unknown;
    }
}
