//! Pages of a block: the columns of consecutive series, some 64 KiB that are read and checked as
//! one.
//!
//! ```text
//! page   = columns varint | starts varint | kinds | times | starts of columns
//!        | lengths of stored columns | distances of others | lengths of starts
//!        | start columns | stored columns
//! kind   = 0 constant | 1 floats | 2 mixed; 4 more for a column that is equal to one before
//! ```
//!
//! Lists are integer columns, columns those of `docs/format/page.md`, all of a page in one stripe.
//! The first column is that of the page's first series, whose number the index has. Times are
//! numbers of the block's time columns. A column that is equal to one before says how many stored
//! columns before the next one that is; the starts of a column are one more than the number of its
//! start column, 0 for none.

use super::cache::Unit;
use super::numbers;
use crate::chunk::Columns;
use crate::encoding::Malformed;
use crate::encoding::cursor::Cursor;
use crate::encoding::push_uvarint;
use crate::page::Family;
use crate::page::directory::Kind;
use crate::page::encoder::ColumnEncoder;
use crate::page::planner::Planner;
use crate::page::starts::StartColumns;
use crate::page::values::{self, FloatReader, Stripe};
use crate::page::{ints, mixed};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of values after which a page ends.
const PAGE_BYTES: usize = 64 << 10;

/// Columns of a page at most: constants take no bytes, and a reader of one reads the lists of all.
const COLUMNS_MAX: usize = 4_096;

/// What a kind has more for a column that is stored elsewhere.
const SHARED: u64 = 4;

/// A page in the making. Memory: the page, and what the column before was encoded from.
#[derive(Debug, Default)]
pub(crate) struct DataPageBuilder {
    values: ColumnEncoder,
    start_columns: StartColumns,
    kinds: Vec<u64>,
    times: Vec<u64>,
    starts: Vec<u64>,
    /// Where each stored column begins.
    stored: Vec<usize>,
    distances: Vec<u64>,
}

impl DataPageBuilder {
    /// Adds the samples of the next series, whose times have this number.
    pub(crate) fn push(&mut self, times: u32, family: Option<Family>, columns: &Columns) {
        let planner = &mut self.values.encoders.ints;
        let starts = self.start_columns.number(planner, &columns.start_times);
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

    /// Columns so far.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether the page is to end.
    pub(crate) fn is_full(&self) -> bool {
        self.values.data().len() >= PAGE_BYTES || self.kinds.len() >= COLUMNS_MAX
    }

    /// The page; what follows is pushed to the next one.
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
        // Of its own: what encodes columns has their memory.
        let mut planner = Planner::default();
        for list in [
            &self.kinds,
            &self.times,
            &self.starts,
            &lengths,
            &self.distances,
            &start_lengths,
        ] {
            numbers::push(&mut out, &mut planner, list.iter().copied());
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

/// What a page holds of one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageColumn {
    kind: Kind,
    /// The number of its time column.
    pub(crate) times: u32,
    /// One more than the number of its start column.
    starts: u32,
    offset: u32,
}

impl PageColumn {
    /// Whether all samples are floats without start timestamps.
    pub(crate) fn is_plain(&self) -> bool {
        self.kind != Kind::Mixed && self.starts == 0
    }
}

/// A page that was read.
#[derive(Debug)]
pub(crate) struct DataPage {
    bytes: Arc<[u8]>,
    columns: Vec<PageColumn>,
    /// Where each start column begins.
    starts: Vec<u32>,
}

impl Unit for DataPage {
    fn memory_bytes(&self) -> usize {
        let columns = self.columns.len() * size_of::<PageColumn>();
        size_of::<Self>() + self.bytes.len() + columns + self.starts.len() * 4
    }
}

impl DataPage {
    /// Finds the columns of a page, whose checksum holds.
    pub(crate) fn open(bytes: &[u8]) -> Result<Self, Malformed> {
        let too_many = Malformed("page with too many columns");
        let mut cursor = Cursor::new(bytes);
        let mut count = || match usize::try_from(cursor.uvarint()?) {
            Ok(count @ ..=COLUMNS_MAX) => Ok(count),
            _ => Err(too_many),
        };
        let (count, start_count) = (count()?, count()?);
        let kinds = numbers::read(&mut cursor, count)?;
        let times = numbers::read(&mut cursor, count)?;
        let starts = numbers::read(&mut cursor, count)?;
        let shared = kinds.iter().filter(|kind| **kind >= SHARED).count();
        let lengths = numbers::read(&mut cursor, count - shared)?;
        let distances = numbers::read(&mut cursor, shared)?;
        let start_lengths = numbers::read(&mut cursor, start_count)?;
        let start_offsets = offsets(bytes, &mut cursor, &start_lengths)?;
        let stored = offsets(bytes, &mut cursor, &lengths)?;
        if !cursor.is_empty() {
            return Err(Malformed("bytes after the last column of a page"));
        }
        let (mut next, mut distances) = (0usize, distances.into_iter());
        let mut columns = Vec::with_capacity(count);
        for i in 0..count {
            let is_shared = kinds[i] >= SHARED;
            let at = match is_shared {
                true => next.checked_sub(distances.next().unwrap_or(0) as usize),
                false => Some(next),
            };
            next += usize::from(!is_shared);
            let offset = at.and_then(|at| stored.get(at)).copied();
            if starts[i] > start_count as u64 {
                return Err(Malformed("number of no start column"));
            }
            columns.push(PageColumn {
                kind: Kind::from_code(kinds[i] % SHARED)?,
                times: u32::try_from(times[i]).map_err(|_| Malformed("number of no times"))?,
                starts: starts[i] as u32,
                offset: offset.ok_or(Malformed(
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

    /// How many columns.
    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    /// The column with this index.
    pub(crate) fn column(&self, index: usize) -> Option<PageColumn> {
        self.columns.get(index).copied()
    }

    /// Appends the samples `wanted` of a column of `count` to values, histograms and start
    /// timestamps of `into`, not their times. On an error some may be longer than others.
    pub(crate) fn read(
        &self,
        column: &PageColumn,
        count: usize,
        wanted: Range<usize>,
        reader: &mut FloatReader,
        into: &mut Columns,
    ) -> Result<(), Malformed> {
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
            Kind::Mixed => mixed::read(self.cursor(column.offset)?, count, wanted, into),
            _ => self.read_floats(column, count, wanted, reader, &mut into.values),
        }
    }

    /// Appends the values `wanted` of a column of `count` floats.
    pub(crate) fn read_floats(
        &self,
        column: &PageColumn,
        count: usize,
        wanted: Range<usize>,
        reader: &mut FloatReader,
        into: &mut Vec<f64>,
    ) -> Result<(), Malformed> {
        if column.kind == Kind::Constant {
            let value = values::read_constant(self.cursor(column.offset)?)?;
            into.resize(into.len() + wanted.len(), value);
            return Ok(());
        }
        let stripe = Stripe {
            page: &self.bytes,
            index: 0,
            bytes: &self.bytes,
        };
        reader.read(stripe, column.offset as usize, count, wanted, into)
    }

    fn cursor(&self, at: u32) -> Result<Cursor<'_>, Malformed> {
        let bytes = self.bytes.get(at as usize..);
        bytes
            .map(Cursor::new)
            .ok_or(Malformed("column outside of its page"))
    }
}

/// Where columns of these lengths begin, of which the first is at the cursor.
fn offsets(bytes: &[u8], cursor: &mut Cursor<'_>, lengths: &[u64]) -> Result<Vec<u32>, Malformed> {
    let mut offsets = Vec::with_capacity(lengths.len());
    for length in lengths {
        let offset = bytes.len() - cursor.len();
        offsets.push(u32::try_from(offset).map_err(|_| Malformed("page too long"))?);
        cursor.bytes(usize::try_from(*length).unwrap_or(usize::MAX))?;
    }
    Ok(offsets)
}
