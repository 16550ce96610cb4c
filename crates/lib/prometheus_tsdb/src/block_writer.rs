//! Writes a block from series sorted by labels, each with samples sorted by time.
//!
//! ```text
//! let mut writer = BlockWriter::new(folder, options);
//! for series in .. {
//!     writer.start_series(labels)?;
//!     for sample in .. { writer.push_float(time, start_time, value)?; }
//! }
//! let (folder, meta) = writer.finish()?;
//! ```
//!
//! Full chunks go to a segment file and series to a scratch file; the index is written at the end.
//! Memory contains the data for the index (see [`TsdbBlockOptions::memory_bytes`]), the samples of
//! one chunk, 24 bytes for each chunk of one series, and buffers of 256 KiB.

use super::bytes::{push_checksum, push_uvarint};
use super::chunk::{BuiltChunk, ChunkBuilder, ChunkStartTimes, TsdbSampleKind};
use super::error::TsdbError;
use super::folder::{BlockFile, BlockFileOutput, BlockFolder};
use super::index::{ChunkMeta, ChunkRef, TsdbIndexWriter};
use super::meta::TsdbBlockMeta;
use super::segment;
use super::tombstones::Tombstones;
use super::ulid::Ulid;
use firn_model::histogram::Histogram;
use firn_model::labels::{Labels, LabelsRef};
use firn_model::sample::{TimeRange, TimestampMs};

/// Options for writing a block: its name, its time range, and limits of size and memory. The caller
/// chooses the name and creates the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TsdbBlockOptions {
    /// Name of the block.
    pub ulid: Ulid,
    /// First millisecond of the time range, inclusive.
    pub min_time: TimestampMs,
    /// End of the time range in milliseconds, exclusive: all samples are earlier.
    pub max_time: TimestampMs,
    /// Whether start timestamps are written to the chunks.
    pub start_times: ChunkStartTimes,
    /// Largest size of a chunk segment in bytes, except for a single larger chunk; 512 MiB in
    /// Prometheus.
    pub segment_bytes_max: u64,
    /// Memory in bytes for collecting postings: 8 for each pair of series and label in one pass
    /// over the series. The series of one label are collected even if they need more, 8 bytes each.
    /// In addition, each distinct label name and value is in memory once, and 4 bytes for each
    /// series.
    pub memory_bytes: usize,
}

impl TsdbBlockOptions {
    /// Returns the options of Prometheus 3.14, with 64 MiB for postings: enough for a label of
    /// eight million series in one pass.
    pub fn new(ulid: Ulid, min_time: TimestampMs, max_time: TimestampMs) -> Self {
        Self {
            ulid,
            min_time,
            max_time,
            start_times: ChunkStartTimes::Drop,
            segment_bytes_max: 512 << 20,
            memory_bytes: 64 << 20,
        }
    }
}

/// Writes a block series by series into a [`BlockFolder`]. The block is valid only after
/// [`TsdbBlockWriter::finish`].
#[derive(Debug)]
pub struct TsdbBlockWriter<F> {
    folder: F,
    options: TsdbBlockOptions,
    meta: TsdbBlockMeta,
    index: TsdbIndexWriter,
    chunks: ChunkBuilder,
    /// The current segment with its number; the first is 1.
    segment: Option<(u32, BlockFileOutput)>,
    /// The current series, with the index entries of its chunks.
    series: Option<(Labels, Vec<ChunkMeta>)>,
}

impl<F: BlockFolder> TsdbBlockWriter<F> {
    /// Returns a writer for a block in a folder without files.
    pub fn new(folder: F, options: TsdbBlockOptions) -> Self {
        Self {
            folder,
            options,
            meta: TsdbBlockMeta::new(options.ulid, options.min_time, options.max_time),
            index: TsdbIndexWriter::new(),
            chunks: ChunkBuilder::new(options.start_times),
            segment: None,
            series: None,
        }
    }

    /// Starts a series. Fails if the labels are empty or not greater than those of the previous
    /// series. A series without samples is left out.
    pub fn start_series(&mut self, labels: LabelsRef<'_>) -> Result<(), TsdbError> {
        self.end_series()?;
        let before = self.series.as_ref().map(|(labels, _)| labels.as_ref());
        let comes_after = before.is_none_or(|before| before < labels);
        if labels.is_empty() || !comes_after {
            let before = before.unwrap_or(LabelsRef::from_canonical(&[]));
            let what = format!("series {labels} is not sorted after {before}");
            return Err(TsdbError::Refused(what));
        }
        self.series = Some((labels.to_owned(), Vec::new()));
        Ok(())
    }

    /// Appends a float to the series. Fails if the timestamp is outside of the block's range or not
    /// greater than the previous one.
    pub fn push_float(
        &mut self,
        time: TimestampMs,
        start_time: TimestampMs,
        value: f64,
    ) -> Result<(), TsdbError> {
        self.check(time)?;
        let closed = self.chunks.push_float(time, start_time, value)?;
        closed.map_or(Ok(()), |chunk| self.write_chunk(chunk))
    }

    /// Appends a histogram to the series. Fails for the same timestamps as
    /// [`TsdbBlockWriter::push_float`], and if spans and buckets of the histogram do not match.
    pub fn push_histogram(
        &mut self,
        time: TimestampMs,
        start_time: TimestampMs,
        histogram: &Histogram,
    ) -> Result<(), TsdbError> {
        self.check(time)?;
        let closed = self.chunks.push_histogram(time, start_time, histogram)?;
        closed.map_or(Ok(()), |chunk| self.write_chunk(chunk))
    }

    /// Completes the block and returns the folder with the metadata of the block. Without samples,
    /// only scratch files are written and the metadata is `None`, as upstream creates no block.
    pub fn finish(mut self) -> Result<(F, Option<TsdbBlockMeta>), TsdbError> {
        self.end_series()?;
        if self.meta.stats.num_samples == 0 {
            return Ok((self.folder, None));
        }
        if let Some((_, mut segment)) = self.segment.take() {
            segment.flush(&mut self.folder)?;
        }
        self.meta.stats.num_series = self.index.series_count();
        let (mut folder, meta) = (self.folder, self.meta);
        self.index.finish(&mut folder, self.options.memory_bytes)?;
        let tombstones = Tombstones::write_empty();
        for (file, bytes) in [
            (BlockFile::Tombstones, tombstones),
            (BlockFile::Meta, meta.write()),
        ] {
            let mut output = BlockFileOutput::new(file);
            output.push(&mut folder, &bytes)?;
            output.flush(&mut folder)?;
        }
        Ok((folder, Some(meta)))
    }

    fn check(&self, time: TimestampMs) -> Result<(), TsdbError> {
        if self.series.is_none() {
            return Err(TsdbError::Refused("sample without a series".into()));
        }
        let (min, max) = (self.options.min_time, self.options.max_time);
        if (min..max).contains(&time) {
            Ok(())
        } else {
            Err(TsdbError::Refused(format!(
                "sample at {time} is outside of the block, which begins at {min} and ends before \
             {max}"
            )))
        }
    }

    fn end_series(&mut self) -> Result<(), TsdbError> {
        if let Some(chunk) = self.chunks.finish() {
            self.write_chunk(chunk)?;
        }
        match &mut self.series {
            Some((labels, chunks)) if !chunks.is_empty() => {
                self.index.add(&mut self.folder, labels.as_ref(), chunks)?;
                chunks.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn write_chunk(&mut self, chunk: BuiltChunk) -> Result<(), TsdbError> {
        let mut bytes = Vec::with_capacity(chunk.data.len() + 16);
        push_uvarint(&mut bytes, chunk.data.len() as u64);
        let start = bytes.len();
        bytes.push(chunk.encoding.number());
        bytes.extend_from_slice(&chunk.data);
        push_checksum(&mut bytes, start);
        let (number, output) = self.segment_for(bytes.len() as u64)?;
        let offset = u32::try_from(output.len());
        let offset = offset.map_err(|_| TsdbError::Refused("segment exceeds 4 GiB".into()))?;
        let reference = ChunkRef::new(number - 1, offset);
        if let Some((_, output)) = &mut self.segment {
            output.push(&mut self.folder, &bytes)?;
        }
        if let Some((_, chunks)) = &mut self.series {
            chunks.push(ChunkMeta {
                range: TimeRange::new(chunk.min_time, chunk.max_time),
                reference,
            });
        }
        let (stats, samples) = (&mut self.meta.stats, u64::from(chunk.samples));
        stats.num_chunks += 1;
        stats.num_samples += samples;
        match chunk.encoding.kind() {
            TsdbSampleKind::Float => stats.num_float_samples += samples,
            TsdbSampleKind::Histogram | TsdbSampleKind::FloatHistogram => {
                stats.num_histogram_samples += samples
            }
        }
        Ok(())
    }

    /// Returns the segment that has space for so many more bytes; starts a new one with its header
    /// if necessary.
    fn segment_for(&mut self, bytes: u64) -> Result<(u32, &BlockFileOutput), TsdbError> {
        let number = match &mut self.segment {
            Some((number, output)) => {
                let is_full = output.len() + bytes > self.options.segment_bytes_max;
                if is_full && output.len() > segment::HEADER_BYTES {
                    output.flush(&mut self.folder)?;
                    Some(*number + 1)
                } else {
                    None
                }
            }
            None => Some(1),
        };
        if let Some(number) = number {
            let mut output = BlockFileOutput::new(BlockFile::Chunks(number));
            output.push(&mut self.folder, &segment::MAGIC.to_be_bytes())?;
            output.push(&mut self.folder, &[segment::VERSION, 0, 0, 0])?;
            self.segment = Some((number, output));
        }
        let (number, output) = self.segment.as_ref().expect("one was begun above");
        Ok((*number, output))
    }
}
