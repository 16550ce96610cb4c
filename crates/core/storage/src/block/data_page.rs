//! The data pages of a block: columns of consecutive series, about 64 KiB that are read and
//! verified as a whole.
//!
//! ```text
//! page   = columns varint | starts varint | kinds | times | starts of columns
//!        | lengths of stored columns | distances of shared columns | lengths of start columns
//!        | start columns | stored columns
//! kind   = 0 constant | 1 floats | 2 mixed; plus 4 for a column equal to an earlier one
//! ```
//!
//! The lists are integer columns and the columns are those of `docs/format/page.md`, with the whole
//! page as one stripe. The first column belongs to the first series of the page, whose ordinal is
//! in the index. `times` contains numbers of the block's time columns. The distance of a shared
//! column is the number of stored columns to go back, from the next stored column, to reach the
//! column with equal content. `starts of columns` contains one plus the number of the start column,
//! or 0 for none.

use super::cache::BlockUnit;
use super::numbers;
use crate::chunk::SampleColumns;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::push_uvarint;
use crate::page::HistogramFamilyHash;
use crate::page::directory::ColumnKind;
use crate::page::encoder::ColumnEncoder;
use crate::page::planner::IntRunPlanner;
use crate::page::starts::StartColumns;
use crate::page::values::{self, FloatColumnReader, PageStripe};
use crate::page::{ints, mixed};
use std::ops::Range;
use std::sync::Arc;

/// Number of value bytes after which a page ends. The last column may exceed it, so pages are
/// slightly larger.
const PAGE_BYTES: usize = 64 << 10;

/// Maximum number of columns in a page. Constant columns take almost no value bytes, and a reader
/// of a single column decodes the lists of all columns.
const COLUMNS_MAX: usize = 4_096;

/// Added to the kind of a column whose content is stored as part of an earlier column.
const SHARED: u64 = 4;

/// A builder of data pages. Its memory is bounded by one page plus the input of the column before.
#[derive(Debug, Default)]
pub(crate) struct DataPageBuilder {
    values: ColumnEncoder,
    start_columns: StartColumns,
    kinds: Vec<u64>,
    times: Vec<u64>,
    starts: Vec<u64>,
    /// Offset of each stored column in the encoded values.
    stored: Vec<usize>,
    distances: Vec<u64>,
}

impl DataPageBuilder {
    /// Adds the samples of the next series. `times` is the number of its time column in the block.
    pub(crate) fn push(
        &mut self,
        times: u32,
        family: Option<HistogramFamilyHash>,
        columns: &SampleColumns,
    ) {
        let planner = &mut self.values.encoders.ints;
        let starts = self
            .start_columns
            .intern_starts(planner, &columns.start_times);
        let before = self.values.data().len();
        let placed = self.values.push(times as usize, family, columns);
        let mut kind = placed.kind.code();
        if placed.offset == before {
            self.stored.push(before);
        } else {
            kind += SHARED;
            let known = self.stored.partition_point(|at| *at < placed.offset);
            self.distances.push((self.stored.len() - known) as u64);
        }
        self.kinds.push(kind);
        self.times.push(times.into());
        self.starts.push(starts as u64);
    }

    /// Returns the number of columns added so far.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Returns whether the page has reached its limit of bytes or columns.
    pub(crate) fn is_full(&self) -> bool {
        self.values.data().len() >= PAGE_BYTES || self.kinds.len() >= COLUMNS_MAX
    }

    /// Returns the encoded page and resets the builder for the next one.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let data = self.values.data();
        let ends = self.stored.iter().skip(1).copied().chain([data.len()]);
        let lengths: Vec<u64> = self
            .stored
            .iter()
            .zip(ends)
            .map(|(at, end)| (end - at) as u64)
            .collect();
        let start_columns = self.start_columns.columns();
        let start_lengths: Vec<u64> = start_columns.iter().map(|c| c.len() as u64).collect();
        let mut out = Vec::with_capacity(data.len() + 8 * self.kinds.len());
        push_uvarint(&mut out, self.kinds.len() as u64);
        push_uvarint(&mut out, start_columns.len() as u64);
        // A separate planner, because `data` borrows the encoder.
        let mut planner = IntRunPlanner::default();
        for list in [
            &self.kinds,
            &self.times,
            &self.starts,
            &lengths,
            &self.distances,
            &start_lengths,
        ] {
            numbers::push_numbers(&mut out, &mut planner, list.iter().copied());
        }
        start_columns
            .iter()
            .for_each(|column| out.extend_from_slice(column));
        out.extend_from_slice(data);
        self.values.clear();
        self.start_columns.clear();
        for list in [&mut self.kinds, &mut self.times, &mut self.starts] {
            list.clear();
        }
        self.distances.clear();
        self.stored.clear();
        out
    }
}

/// The location and encoding of the column of one series in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageColumn {
    kind: ColumnKind,
    /// Number of its time column in the block.
    pub(crate) times: u32,
    /// One plus the number of its start column, or 0 if it has no start timestamps.
    starts: u32,
    offset: u32,
}

impl PageColumn {
    /// Returns whether all samples are floats without start timestamps.
    pub(crate) fn is_plain(&self) -> bool {
        self.kind != ColumnKind::Mixed && self.starts == 0
    }
}

/// A data page with the decoded directory of its columns; values are decoded on each read.
#[derive(Debug)]
pub(crate) struct DataPage {
    bytes: Arc<[u8]>,
    columns: Vec<PageColumn>,
    /// Offset of each start column.
    starts: Vec<u32>,
}

impl BlockUnit for DataPage {
    fn memory_bytes(&self) -> usize {
        let columns = self.columns.len() * size_of::<PageColumn>();
        size_of::<Self>() + self.bytes.len() + columns + self.starts.len() * 4
    }
}

impl DataPage {
    /// Decodes the directory of a page whose checksum was verified by the caller.
    pub(crate) fn open(bytes: &[u8]) -> Result<Self, DecodeError> {
        let too_many = DecodeError("page with too many columns");
        let mut cursor = DecodeCursor::new(bytes);
        let mut count = || match usize::try_from(cursor.read_uvarint()?) {
            Ok(count @ ..=COLUMNS_MAX) => Ok(count),
            _ => Err(too_many),
        };
        let (count, start_count) = (count()?, count()?);
        let kinds = numbers::read_numbers(&mut cursor, count)?;
        let times = numbers::read_numbers(&mut cursor, count)?;
        let starts = numbers::read_numbers(&mut cursor, count)?;
        let shared = kinds.iter().filter(|kind| **kind >= SHARED).count();
        let lengths = numbers::read_numbers(&mut cursor, count - shared)?;
        let distances = numbers::read_numbers(&mut cursor, shared)?;
        let start_lengths = numbers::read_numbers(&mut cursor, start_count)?;
        let start_offsets = compute_offsets(bytes, &mut cursor, &start_lengths)?;
        let stored = compute_offsets(bytes, &mut cursor, &lengths)?;
        if !cursor.is_empty() {
            return Err(DecodeError("bytes after the last column of a page"));
        }
        let (mut next, mut distances) = (0usize, distances.into_iter());
        let mut columns = Vec::with_capacity(count);
        for i in 0..count {
            let is_shared = kinds[i] >= SHARED;
            let at = if is_shared {
                next.checked_sub(distances.next().unwrap_or(0) as usize)
            } else {
                Some(next)
            };
            next += usize::from(!is_shared);
            let offset = at.and_then(|at| stored.get(at)).copied();
            if starts[i] > start_count as u64 {
                return Err(DecodeError("number of no start column"));
            }
            columns.push(PageColumn {
                kind: ColumnKind::from_code(kinds[i] % SHARED)?,
                times: u32::try_from(times[i]).map_err(|_| DecodeError("number of no times"))?,
                starts: starts[i] as u32,
                offset: offset.ok_or(DecodeError(
                    "column refers to an equal column that does not exist",
                ))?,
            });
        }
        Ok(Self {
            bytes: bytes.into(),
            columns,
            starts: start_offsets,
        })
    }

    /// Returns the number of columns.
    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Returns the column at `index`, or `None` if the page has fewer columns.
    pub(crate) fn column(&self, index: usize) -> Option<PageColumn> {
        self.columns.get(index).copied()
    }

    /// Appends the samples at the indexes `wanted` of a column of `count` samples to the values,
    /// histograms and start timestamps of `into`, but not to its times. On an error, these lists
    /// may differ in length.
    pub(crate) fn read(
        &self,
        column: &PageColumn,
        count: usize,
        wanted: Range<usize>,
        reader: &mut FloatColumnReader,
        into: &mut SampleColumns,
    ) -> Result<(), DecodeError> {
        let base = into.times.len();
        let starts = &mut into.start_times;
        match column.starts.checked_sub(1) {
            Some(number) => {
                starts.resize(base, 0);
                let at = self
                    .starts
                    .get(number as usize)
                    .copied()
                    .unwrap_or(u32::MAX);
                ints::read_column(self.cursor(at)?, count, wanted.clone(), starts)?;
            }
            None if starts.is_empty() => {}
            None => starts.resize(base + wanted.len(), 0),
        }
        match column.kind {
            ColumnKind::Mixed => {
                mixed::read_column(self.cursor(column.offset)?, count, wanted, into)
            }
            _ => self.read_floats(column, count, wanted, reader, &mut into.values),
        }
    }

    /// Appends the values at the indexes `wanted` of a column of `count` floats.
    pub(crate) fn read_floats(
        &self,
        column: &PageColumn,
        count: usize,
        wanted: Range<usize>,
        reader: &mut FloatColumnReader,
        into: &mut Vec<f64>,
    ) -> Result<(), DecodeError> {
        if column.kind == ColumnKind::Constant {
            let value = values::read_constant(self.cursor(column.offset)?)?;
            into.resize(into.len() + wanted.len(), value);
            return Ok(());
        }
        let stripe = PageStripe {
            page: &self.bytes,
            index: 0,
            bytes: &self.bytes,
        };
        reader.read(stripe, column.offset as usize, count, wanted, into)
    }

    fn cursor(&self, at: u32) -> Result<DecodeCursor<'_>, DecodeError> {
        let bytes = self.bytes.get(at as usize..);
        bytes
            .map(DecodeCursor::new)
            .ok_or(DecodeError("column outside of its page"))
    }
}

/// Returns the offsets of consecutive columns of the given lengths, the first of which starts at
/// the cursor.
fn compute_offsets(
    bytes: &[u8],
    cursor: &mut DecodeCursor<'_>,
    lengths: &[u64],
) -> Result<Vec<u32>, DecodeError> {
    let mut offsets = Vec::with_capacity(lengths.len());
    for length in lengths {
        let offset = bytes.len() - cursor.len();
        offsets.push(u32::try_from(offset).map_err(|_| DecodeError("page too long"))?);
        cursor.read_bytes(usize::try_from(*length).unwrap_or(usize::MAX))?;
    }
    Ok(offsets)
}
