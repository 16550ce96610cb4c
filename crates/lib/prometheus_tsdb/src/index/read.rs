//! Reads an index: its series in order of their labels.
//!
//! Postings are skipped, because the series contain the same information.

use super::format::{HEADER_BYTES, IndexTableOfContents, IndexVersion, SERIES_ALIGN};
use super::symbols::IndexSymbols;
use crate::bytes::{CHECKSUM_BYTES, TsdbByteCursor, UVARINT_BYTES_MAX, verify_checksum};
use crate::error::{MalformedTsdbBytes, TsdbError};
use crate::ranges::{FileReadWindow, NamedRangeFile, ReadRanges};
use firn_model::labels::{Labels, LabelsRef, is_canonical, push_pair};
use firn_model::sample::{TimeRange, TimestampMs};

/// The position of a chunk in the segments of a block, as stored in the index. It is opaque to
/// readers of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkRef(pub u64);

impl ChunkRef {
    /// Returns the reference of the chunk at `offset` of the segment with index `segment`.
    pub fn new(segment: u32, offset: u32) -> Self {
        Self(u64::from(segment) << 32 | u64::from(offset))
    }

    /// Returns the index of the segment; the first is 0.
    pub fn segment(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the offset in the segment.
    pub fn offset(self) -> u32 {
        self.0 as u32
    }
}

/// The index entry of a chunk: its time range and its position. The chunk itself is read
/// separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkMeta {
    /// Timestamps of its first and last sample.
    pub range: TimeRange,
    /// Position of the chunk in the segments.
    pub reference: ChunkRef,
}

/// A series entry of an index, reused for all series of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSeries {
    /// Number of the series, which tombstones contain.
    pub reference: u64,
    labels: Vec<u8>,
    /// Chunks sorted by time.
    pub chunks: Vec<ChunkMeta>,
}

impl IndexSeries {
    /// Returns the labels of the series.
    pub fn labels(&self) -> LabelsRef<'_> {
        LabelsRef::from_canonical(&self.labels)
    }
}

/// An open index file, of which only the symbol table is in memory. Series are read on demand.
#[derive(Debug)]
pub struct IndexReader<R> {
    file: NamedRangeFile<R>,
    version: IndexVersion,
    symbols: IndexSymbols,
    series_start: u64,
    series_end: u64,
}

/// The position of a walk over the series of an index, with a buffer of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexSeriesWalk {
    /// Offset of the next series, before its padding.
    offset: u64,
    window: FileReadWindow,
    has_series: bool,
}

impl<R: ReadRanges> IndexReader<R> {
    /// Reads header, table of contents and symbols of a file; fails if they are damaged.
    pub fn open(file: NamedRangeFile<R>) -> Result<Self, TsdbError> {
        let (version, contents) = IndexTableOfContents::read(&file)?;
        let symbols = IndexSymbols::read(&file, version, contents.symbols)?;
        let end = contents.series_end(file.len());
        let start = match contents.series {
            0 => end,
            start if (HEADER_BYTES..=end).contains(&start) => start,
            start => {
                let what = format!("the series begin at byte {start} and end at byte {end}");
                return Err(file.damage_error(end, what));
            }
        };
        Ok(Self {
            file,
            version,
            symbols,
            series_start: start,
            series_end: end,
        })
    }

    /// Returns the memory of the symbol table in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.symbols.memory_bytes()
    }

    /// Returns a walk at the first series. Walks are independent of each other.
    pub(crate) fn start_walk(&self) -> IndexSeriesWalk {
        IndexSeriesWalk {
            offset: self.series_start,
            ..IndexSeriesWalk::default()
        }
    }

    /// Replaces `series`, the previous one, with the next series; returns false at the end. Fails
    /// if its labels are not greater than those of the previous one.
    pub(crate) fn advance(
        &self,
        walk: &mut IndexSeriesWalk,
        series: &mut IndexSeries,
    ) -> Result<bool, TsdbError> {
        let Some(offset) = self.next_offset(walk)? else {
            return Ok(false);
        };
        let head = walk.window.get_up_to(
            &self.file,
            offset,
            (UVARINT_BYTES_MAX as u64).min(self.series_end - offset),
        )?;
        let mut cursor = TsdbByteCursor::new(head);
        let damaged = |error: MalformedTsdbBytes| self.file.damage_error(offset, error);
        let length = cursor.read_uvarint().map_err(damaged)?;
        let start = offset + (head.len() - cursor.rest().len()) as u64;
        let left = self.series_end - start;
        if length > left.saturating_sub(CHECKSUM_BYTES) {
            return Err(damaged(MalformedTsdbBytes::CutShort));
        }
        let entry = walk
            .window
            .get(&self.file, start, length + CHECKSUM_BYTES)?;
        let entry = verify_checksum(entry).map_err(damaged)?;
        let before = std::mem::take(&mut series.labels);
        self.decode(entry, series).map_err(damaged)?;
        series.reference = match self.version {
            IndexVersion::V1 => offset,
            IndexVersion::V2 | IndexVersion::V3 => offset / SERIES_ALIGN,
        };
        let comes_after = series.labels() > LabelsRef::from_canonical(&before);
        if walk.has_series && !comes_after {
            let before = LabelsRef::from_canonical(&before);
            let what = format!(
                "series {} is out of order: it follows {before}",
                series.labels()
            );
            return Err(self.file.damage_error(offset, what));
        }
        walk.has_series = true;
        walk.offset = start + length + CHECKSUM_BYTES;
        Ok(true)
    }

    /// Replaces `series` with the series that has this number; fails if no series begins there.
    pub(crate) fn read_at(
        &self,
        reference: u64,
        series: &mut IndexSeries,
    ) -> Result<(), TsdbError> {
        let offset = match self.version {
            IndexVersion::V1 => reference,
            IndexVersion::V2 | IndexVersion::V3 => reference.saturating_mul(SERIES_ALIGN),
        };
        if !(self.series_start..self.series_end).contains(&offset) {
            let what = format!("series {reference} does not exist");
            return Err(self.file.damage_error(offset, what));
        }
        let mut walk = IndexSeriesWalk {
            offset,
            ..IndexSeriesWalk::default()
        };
        self.advance(&mut walk, series).map(|_| ())
    }

    /// Returns the offset of the next series, after the padding before it. Returns `None` at the
    /// end, and fails if the padding is not zero.
    fn next_offset(&self, walk: &mut IndexSeriesWalk) -> Result<Option<u64>, TsdbError> {
        let aligned = match self.version {
            IndexVersion::V1 => walk.offset,
            IndexVersion::V2 | IndexVersion::V3 => walk.offset.next_multiple_of(SERIES_ALIGN),
        };
        let end = aligned.min(self.series_end);
        let padding = end - walk.offset.min(end);
        let padding = walk.window.get(&self.file, walk.offset, padding)?;
        if padding.iter().any(|byte| *byte != 0) {
            let what = "the padding in front of a series is not zero";
            return Err(self.file.damage_error(walk.offset, what));
        }
        Ok((aligned < self.series_end).then_some(aligned))
    }

    fn decode(&self, entry: &[u8], into: &mut IndexSeries) -> Result<(), MalformedTsdbBytes> {
        into.labels.clear();
        into.chunks.clear();
        let mut cursor = TsdbByteCursor::new(entry);
        // A label takes two references and a chunk three numbers, each at least one byte.
        for _ in 0..cursor.read_count(2)? {
            let name = self.symbols.get(cursor.read_uvarint()?)?;
            let value = self.symbols.get(cursor.read_uvarint()?)?;
            // An empty value means that the label is absent.
            if !value.is_empty() {
                push_pair(&mut into.labels, name, value);
            }
        }
        if !is_canonical(&into.labels) {
            into.labels.clear();
            let what = "a series has labels that are out of order, duplicated, or not UTF-8";
            return Err(MalformedTsdbBytes::Invalid(what));
        }
        let (mut end, mut reference): (TimestampMs, u64) = (0, 0);
        for number in 0..cursor.read_count(3)? {
            let min = match number {
                0 => cursor.read_varint()?,
                _ => later(end, cursor.read_uvarint()?)?,
            };
            let max = later(min, cursor.read_uvarint()?)?;
            reference = match number {
                0 => cursor.read_uvarint()?,
                _ => reference.wrapping_add_signed(cursor.read_varint()?),
            };
            into.chunks.push(ChunkMeta {
                range: TimeRange::new(min, max),
                reference: ChunkRef(reference),
            });
            end = max;
        }
        if cursor.is_empty() {
            Ok(())
        } else {
            Err(MalformedTsdbBytes::Invalid(
                "unexpected bytes after a series",
            ))
        }
    }

    /// Returns the name of the file in errors.
    pub fn name(&self) -> &str {
        self.file.name()
    }
}

fn later(time: TimestampMs, by: u64) -> Result<TimestampMs, MalformedTsdbBytes> {
    let sum = time.checked_add_unsigned(by);
    sum.ok_or(MalformedTsdbBytes::Invalid(
        "a chunk's time is beyond all times",
    ))
}

impl From<&IndexSeries> for Labels {
    fn from(series: &IndexSeries) -> Self {
        series.labels().to_owned()
    }
}
