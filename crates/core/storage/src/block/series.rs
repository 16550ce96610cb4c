//! The label sets of the series, stored as one column of value numbers per label.
//!
//! ```text
//! unit of series = series varint | labels varint | labels x (label varint | bytes varint)
//!                | labels x column
//! column         = one more than the number of the value of the label, 0 without the label; an
//!                  integer column
//! ```
//!
//! All units except the last contain the same number of series, so the unit of a series follows
//! from its ordinal. Because of the order of a block, most columns of a unit are a constant or a
//! step function.

use super::cache::BlockUnit;
use super::numbers;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::push_uvarint;
use crate::page::packed;
use crate::page::planner::IntRunPlanner;
use std::ops::Range;

/// Number of series in a unit, whose columns take about 40 KB.
pub(crate) const UNIT_SERIES: u32 = 4_096;

/// Number of series whose value numbers are decoded together. A unit consists of several such runs.
pub(crate) const RUN_SERIES: usize = 1_024;

/// A builder of one unit. It takes 16 KB for each label that a series of the unit has.
#[derive(Debug, Default)]
pub(crate) struct SeriesDraft {
    len: usize,
    /// The labels of the unit, each with one number per series up to the last series that has the
    /// label.
    columns: Vec<(u32, Vec<u32>)>,
    /// For each label, one plus the index of its column, or 0 if the unit has no such column.
    places: Vec<u32>,
}

impl SeriesDraft {
    /// Starts the next series; its labels are added with `set_label`.
    pub(crate) fn begin_series(&mut self) {
        self.len += 1;
    }

    /// Sets the value of a label of the current series.
    pub(crate) fn set_label(&mut self, label: u32, value: u32) {
        let at = label as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        if self.places[at] == 0 {
            self.columns.push((label, Vec::new()));
            self.places[at] = self.columns.len() as u32;
        }
        let column = &mut self.columns[self.places[at] as usize - 1].1;
        column.resize(self.len - 1, 0);
        column.push(value + 1);
    }

    /// Returns whether the unit has reached its number of series.
    pub(crate) fn is_full(&self) -> bool {
        self.len >= UNIT_SERIES as usize
    }

    /// Returns the number of series added so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Ends the unit and returns its columns in the temporary form that [`SpilledSeriesUnit`]
    /// reads.
    pub(crate) fn end_unit(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        push_uvarint(&mut out, self.len as u64);
        push_uvarint(&mut out, self.columns.len() as u64);
        for (label, column) in &mut self.columns {
            column.resize(self.len, 0);
            push_uvarint(&mut out, (*label).into());
            let numbers: Vec<u64> = column.iter().map(|n| u64::from(*n)).collect();
            packed::push_array(&mut out, &numbers);
            self.places[*label as usize] = 0;
        }
        self.columns.clear();
        self.len = 0;
        out
    }
}

/// The columns of a unit as the writer spills them to a file, because the final numbers of labels
/// and values are not determined until all series have been pushed.
#[derive(Debug)]
pub(crate) struct SpilledSeriesUnit {
    len: usize,
    columns: Vec<(u32, Vec<u64>)>,
}

impl SpilledSeriesUnit {
    /// Decodes the result of [`SeriesDraft::end_unit`], which the writer reads back from its
    /// temporary file.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(bytes);
        let len = cursor.read_count(0)?.min(UNIT_SERIES as usize);
        let count = cursor.read_count(2)?;
        let mut columns = Vec::with_capacity(count);
        for _ in 0..count {
            let label = cursor.read_uvarint()? as u32;
            let list = packed::PackedArray::read(bytes, &mut cursor, len)?;
            let numbers = (0..len).map(|i| list.get(bytes, i));
            columns.push((label, numbers.collect::<Result<_, _>>()?));
        }
        Ok(Self { len, columns })
    }

    /// Encodes the unit in its final form. `numbers` maps the temporary number of a label to its
    /// final number and to the final numbers of its values.
    pub(crate) fn encode<'a>(
        mut self,
        planner: &mut IntRunPlanner,
        numbers: impl Fn(u32) -> (u32, &'a [u32]),
    ) -> Vec<u8> {
        for (label, column) in &mut self.columns {
            let (own, values) = numbers(*label);
            *label = own;
            for number in column {
                // Zero marks series without the label.
                if let Some(at) = number.checked_sub(1) {
                    *number = u64::from(values[at as usize]) + 1;
                }
            }
        }
        self.columns.sort_unstable_by_key(|(label, _)| *label);
        let mut columns = Vec::new();
        let mut out = Vec::new();
        push_uvarint(&mut out, self.len as u64);
        push_uvarint(&mut out, self.columns.len() as u64);
        for (label, column) in &self.columns {
            let before = columns.len();
            numbers::push_numbers(&mut columns, planner, column.iter().copied());
            push_uvarint(&mut out, (*label).into());
            push_uvarint(&mut out, (columns.len() - before) as u64);
        }
        out.extend_from_slice(&columns);
        out
    }
}

/// A unit of label columns with its decoded directory; columns are decoded on demand.
#[derive(Debug)]
pub(crate) struct SeriesUnit {
    bytes: Vec<u8>,
    len: usize,
    /// The labels in ascending order, each with the byte range of its column.
    columns: Vec<(u32, Range<usize>)>,
}

impl BlockUnit for SeriesUnit {
    fn memory_bytes(&self) -> usize {
        let columns = self.columns.len() * size_of::<(u32, Range<usize>)>();
        size_of::<Self>() + self.bytes.len() + columns
    }
}

impl SeriesUnit {
    /// Decodes the directory of a unit of `len` series. Rejects labels that do not ascend.
    pub(crate) fn open(bytes: Vec<u8>, len: usize) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(&bytes);
        if cursor.read_uvarint()? != len as u64 {
            return Err(DecodeError(
                "unit whose number of series differs from its header",
            ));
        }
        let count = cursor.read_count(2)?;
        let mut columns: Vec<(u32, Range<usize>)> = Vec::with_capacity(count);
        for _ in 0..count {
            let label = u32::try_from(cursor.read_uvarint()?).unwrap_or(u32::MAX);
            if columns.last().is_some_and(|(last, _)| *last >= label) {
                return Err(DecodeError("labels out of order"));
            }
            let length = usize::try_from(cursor.read_uvarint()?).unwrap_or(usize::MAX);
            columns.push((label, 0..length));
        }
        for (_, range) in &mut columns {
            let start = bytes.len() - cursor.len();
            cursor.read_bytes(range.end)?;
            *range = start..bytes.len() - cursor.len();
        }
        if cursor.is_empty() {
            Ok(Self {
                bytes,
                len,
                columns,
            })
        } else {
            Err(DecodeError("bytes after the last column of labels"))
        }
    }

    /// Returns the labels that at least one series of the unit has, in ascending order.
    pub(crate) fn labels(&self) -> impl Iterator<Item = u32> {
        self.columns.iter().map(|(label, _)| *label)
    }

    /// Replaces `into` with one plus the value number of the label for each series of a run, or 0
    /// for series without the label.
    pub(crate) fn read_run(
        &self,
        label: u32,
        run: usize,
        into: &mut Vec<i64>,
    ) -> Result<(), DecodeError> {
        into.clear();
        let wanted = run * RUN_SERIES..self.len.min((run + 1) * RUN_SERIES);
        let Ok(at) = self
            .columns
            .binary_search_by_key(&label, |(label, _)| *label)
        else {
            into.resize(wanted.len(), 0);
            return Ok(());
        };
        let column = DecodeCursor::new(&self.bytes[self.columns[at].1.clone()]);
        crate::page::ints::read_column(column, self.len, wanted, into)
    }
}
