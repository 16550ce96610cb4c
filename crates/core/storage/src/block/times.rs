//! The time columns of a block. Each distinct column is stored once, and they are numbered in order
//! of first use.
//!
//! ```text
//! unit = columns varint | counts | first times | spans | lengths | columns
//! ```
//!
//! The lists are integer columns and the columns are those of `docs/format/page.md`. The base of a
//! column is always in the same unit, so that each unit can be decoded alone. In block order, each
//! metric lists the targets in the same order. Neighbouring series therefore use neighbouring time
//! columns, and a query reads few units.

use super::cache::BlockUnit;
use super::numbers;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::push_uvarint;
use crate::page::limits::SAMPLES_MAX;
use crate::page::planner::IntRunPlanner;
use crate::page::times::{self, TimeColumnEntry, TimeColumns};
use firn_model::fingerprint::{Fingerprint, HashKeys};
use firn_model::sample::TimestampMs;
use rustc_hash::FxHashMap;
use std::sync::{Arc, OnceLock};

/// Number of timestamps after which a unit ends: half a megabyte when decoded, about 50 KB encoded
/// if the timestamps jitter.
const UNIT_SAMPLES: usize = 1 << 16;

/// Maximum number of timestamps in a unit: the limit plus one column of maximum length.
const UNIT_SAMPLES_MAX: usize = UNIT_SAMPLES + SAMPLES_MAX;

/// A builder of time columns, which numbers and deduplicates them. It holds the decoded columns of
/// one unit, plus 32 bytes for each distinct column of the block.
#[derive(Debug)]
pub(crate) struct TimesWriter {
    keys: HashKeys,
    /// Number of each distinct column. Columns with equal fingerprints are assumed to be equal, as
    /// elsewhere in this crate.
    numbers: FxHashMap<Fingerprint, u32>,
    bytes: Vec<u8>,
    /// The column that was used last, and its number.
    last: (Vec<TimestampMs>, u32),
    /// The columns of the current unit.
    unit: TimeColumns,
    samples: usize,
    first: u32,
}

impl TimesWriter {
    /// Creates a builder without any columns. `keys` keys the fingerprints.
    pub(crate) fn new(keys: HashKeys) -> Self {
        Self {
            keys,
            numbers: FxHashMap::default(),
            bytes: Vec::new(),
            last: Default::default(),
            unit: TimeColumns::default(),
            samples: 0,
            first: 0,
        }
    }

    /// Returns the number of the column with these timestamps, adding it if it is new. `times` must
    /// not be empty.
    pub(crate) fn intern_times(&mut self, times: &[TimestampMs]) -> u32 {
        if self.last.0 == times {
            return self.last.1;
        }
        self.bytes.clear();
        self.bytes
            .extend(times.iter().flat_map(|t| t.to_le_bytes()));
        let next = self.numbers.len() as u32;
        let print = self.keys.fingerprint(&self.bytes);
        let number = *self.numbers.entry(print).or_insert(next);
        if number == next {
            self.unit.intern_times(times);
            self.samples += times.len();
        }
        self.last.0.clear();
        self.last.0.extend_from_slice(times);
        self.last.1 = number;
        number
    }

    /// Returns whether the current unit has reached its number of timestamps.
    pub(crate) fn is_full(&self) -> bool {
        self.samples >= UNIT_SAMPLES
    }

    /// Ends the current unit and returns the number of its first column and its encoding, or `None`
    /// if it is empty.
    pub(crate) fn end_unit(&mut self, planner: &mut IntRunPlanner) -> Option<(u64, Vec<u8>)> {
        let unit = std::mem::take(&mut self.unit);
        let columns = unit.columns();
        if columns.is_empty() {
            return None;
        }
        let first = u64::from(self.first);
        self.first += columns.len() as u32;
        self.samples = 0;
        let encoded = unit.encode(planner);
        let ends = |c: &Vec<TimestampMs>| (c[0], c[c.len() - 1]);
        let mut out = Vec::new();
        push_uvarint(&mut out, columns.len() as u64);
        let mut list = |number: &dyn Fn(usize) -> u64| {
            numbers::push_numbers(&mut out, planner, (0..columns.len()).map(number));
        };
        list(&|i| columns[i].len() as u64);
        list(&|i| ends(&columns[i]).0 as u64);
        list(&|i| {
            let (first, last) = ends(&columns[i]);
            last.wrapping_sub(first) as u64
        });
        list(&|i| encoded[i].len() as u64);
        encoded
            .iter()
            .for_each(|column| out.extend_from_slice(column));
        Some((first, out))
    }
}

/// A unit of time columns; each column is decoded on first use.
#[derive(Debug)]
pub(crate) struct TimesUnit {
    bytes: Vec<u8>,
    columns: Vec<TimesColumn>,
    samples: usize,
}

/// The location of a column, and its timestamps once they are decoded.
#[derive(Debug)]
struct TimesColumn {
    entry: TimeColumnEntry,
    offset: usize,
    times: OnceLock<Arc<[TimestampMs]>>,
}

impl BlockUnit for TimesUnit {
    fn memory_bytes(&self) -> usize {
        let columns = self.columns.len() * (size_of::<TimesColumn>() + 16);
        size_of::<Self>() + self.bytes.len() + columns + self.samples * size_of::<TimestampMs>()
    }
}

impl TimesUnit {
    /// Decodes the directory of a unit and validates the sizes of its columns.
    pub(crate) fn open(bytes: Vec<u8>) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(&bytes);
        let count = cursor.read_count(3)?;
        let counts = numbers::read_numbers(&mut cursor, count)?;
        let firsts = numbers::read_numbers(&mut cursor, count)?;
        let spans = numbers::read_numbers(&mut cursor, count)?;
        let lengths = numbers::read_numbers(&mut cursor, count)?;
        let mut offset = bytes.len() - cursor.len();
        let mut samples = 0;
        let mut columns = Vec::with_capacity(count);
        for i in 0..count {
            let count = usize::try_from(counts[i]).unwrap_or(usize::MAX);
            if count == 0 || count > SAMPLES_MAX || samples + count > UNIT_SAMPLES_MAX {
                return Err(DecodeError("column with no times or too many times"));
            }
            samples += count;
            let first = firsts[i] as TimestampMs;
            columns.push(TimesColumn {
                entry: TimeColumnEntry {
                    count,
                    first,
                    last: first.wrapping_add(spans[i] as i64),
                },
                offset,
                times: OnceLock::new(),
            });
            cursor.read_bytes(usize::try_from(lengths[i]).unwrap_or(usize::MAX))?;
            offset = bytes.len() - cursor.len();
        }
        if !cursor.is_empty() {
            return Err(DecodeError("bytes after the last time column"));
        }
        Ok(Self {
            bytes,
            columns,
            samples,
        })
    }

    /// Returns the number of columns.
    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Returns the number of timestamps in a column with the first and the last of them.
    pub(crate) fn entry(&self, index: usize) -> Result<TimeColumnEntry, DecodeError> {
        self.column(index).map(|column| column.entry)
    }

    /// Returns the timestamps of a column, decoding them on first use.
    pub(crate) fn times(&self, index: usize) -> Result<Arc<[TimestampMs]>, DecodeError> {
        let column = self.column(index)?;
        if let Some(times) = column.times.get() {
            return Ok(times.clone());
        }
        let times = times::read_column(self.cursor(column), column.entry, |base| {
            let base = self.column(base)?;
            times::read_base(self.cursor(base), base.entry)
        })?;
        // Another thread may have decoded them in the meantime; keep a single copy.
        Ok(column.times.get_or_init(|| times.into()).clone())
    }

    fn column(&self, index: usize) -> Result<&TimesColumn, DecodeError> {
        let column = self.columns.get(index);
        column.ok_or(DecodeError("number of no time column"))
    }

    fn cursor(&self, column: &TimesColumn) -> DecodeCursor<'_> {
        DecodeCursor::new(self.bytes.get(column.offset..).unwrap_or(&[]))
    }
}
