//! The directory: the list of the columns of a page with their offsets, read in its encoded form.
//!
//! ```text
//! directory = columns varint | times varint | starts varint | stripes varint
//!           | slots | kinds | offsets | times of columns | starts of columns
//!           | offsets of times | counts of times | first times | spans of times
//!           | offsets of starts | ends of stripes | crc32c u32 of each stripe
//! ```
//!
//! Each list is packed (see [`super::packed`]). A slot is stored as its difference from the sum of
//! the header's first slot and the index of the column, a first time as its difference from that of
//! the header. Numbers of start columns count from one; zero means none. Offsets count from the
//! first byte of the data.

use super::header::PageHeader;
use super::limits::{COLUMNS_MAX, SAMPLES_MAX};
use super::packed::{self, PackedArray};
use super::times::TimeColumnEntry;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{DecodeError, push_uvarint};
use crate::ids::SeriesSlot;
use firn_model::sample::{TimeRange, TimestampMs};
use std::cmp::Ordering;
use std::ops::Range;

/// Encoding of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// One float, which is the value of all samples.
    Constant,
    /// A column of floats, encoded by runs.
    Floats,
    /// Histograms, with or without floats.
    Mixed,
}

/// The directory entry of the column of one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnEntry {
    pub(super) kind: ColumnKind,
    pub(super) slot: SeriesSlot,
    pub(super) offset: usize,
    pub(super) times: usize,
    /// Number of the start column plus one; zero if there is none.
    pub(super) starts: usize,
    pub(super) count: usize,
    pub(super) range: TimeRange,
}

impl ColumnEntry {
    /// Returns the slot of the series.
    pub fn slot(&self) -> SeriesSlot {
        self.slot
    }

    /// Returns the time range from the first sample to the last one.
    pub fn range(&self) -> TimeRange {
        self.range
    }

    /// Returns the number of samples.
    pub fn sample_count(&self) -> usize {
        self.count
    }

    /// Returns the number of its time column: columns of one page with equal numbers have equal
    /// times.
    pub fn time_column(&self) -> usize {
        self.times
    }

    /// Returns whether all samples are floats without start timestamps.
    pub fn is_plain(&self) -> bool {
        self.kind != ColumnKind::Mixed && self.starts == 0
    }
}

/// A directory under construction, with its lists in order.
#[derive(Debug, Default)]
pub(super) struct ColumnDirectoryDraft {
    pub(super) slots: Vec<SeriesSlot>,
    pub(super) kinds: Vec<ColumnKind>,
    pub(super) offsets: Vec<usize>,
    pub(super) times: Vec<usize>,
    pub(super) starts: Vec<usize>,
    pub(super) time_entries: Vec<(usize, TimeColumnEntry)>,
    pub(super) start_offsets: Vec<usize>,
    /// End offset of each stripe.
    pub(super) stripe_ends: Vec<usize>,
}

impl ColumnDirectoryDraft {
    /// Returns the encoded directory. `data` is the data section.
    pub(super) fn encode(&self, header: &PageHeader, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for count in [
            self.slots.len(),
            self.time_entries.len(),
            self.start_offsets.len(),
            self.stripe_ends.len(),
        ] {
            push_uvarint(&mut out, count as u64);
        }
        let mut list = |numbers: Vec<u64>| packed::push_array(&mut out, &numbers);
        let slots = self.slots.iter().zip(header.slots.start().0..);
        list(slots.map(|(slot, dense)| slot.0 - dense).collect());
        list(self.kinds.iter().map(|k| k.code()).collect());
        for numbers in [&self.offsets, &self.times, &self.starts] {
            list(numbers.iter().map(|n| *n as u64).collect());
        }
        let entries = || self.time_entries.iter();
        list(entries().map(|(offset, _)| *offset as u64).collect());
        list(entries().map(|(_, e)| e.count as u64).collect());
        let since = |from: TimestampMs, to: TimestampMs| to.wrapping_sub(from) as u64;
        list(
            entries()
                .map(|(_, e)| since(header.range.min, e.first))
                .collect(),
        );
        list(entries().map(|(_, e)| since(e.first, e.last)).collect());
        list(self.start_offsets.iter().map(|n| *n as u64).collect());
        list(self.stripe_ends.iter().map(|n| *n as u64).collect());
        let mut start = 0;
        for end in &self.stripe_ends {
            let crc = crc32c::crc32c(&data[start..*end]);
            out.extend_from_slice(&crc.to_le_bytes());
            start = *end;
        }
        out
    }
}

impl ColumnKind {
    /// Returns the code of the kind in a directory.
    pub(crate) fn code(self) -> u64 {
        match self {
            Self::Constant => 0,
            Self::Floats => 1,
            Self::Mixed => 2,
        }
    }

    /// Returns the kind with this code, or an error if there is none.
    pub(crate) fn from_code(code: u64) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::Constant),
            1 => Ok(Self::Floats),
            2 => Ok(Self::Mixed),
            _ => Err(DecodeError("unknown kind of column")),
        }
    }
}

/// Positions of the lists in an encoded directory.
#[derive(Clone, Debug)]
pub(super) struct ColumnDirectory {
    first_slot: u64,
    first_time: TimestampMs,
    slots: PackedArray,
    kinds: PackedArray,
    offsets: PackedArray,
    times: PackedArray,
    starts: PackedArray,
    time_offsets: PackedArray,
    time_counts: PackedArray,
    time_firsts: PackedArray,
    time_spans: PackedArray,
    start_offsets: PackedArray,
    stripe_ends: PackedArray,
    checksums_at: usize,
}

/// The number of the time column of a column, with its entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeColumnRef {
    pub(super) times: usize,
    pub(super) entry: TimeColumnEntry,
}

/// A stripe: its range in the data section, and its checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StripeEntry {
    pub(super) range: Range<usize>,
    pub(super) crc: u32,
}

impl ColumnDirectory {
    /// Locates the lists in an encoded directory and checks their lengths.
    pub(super) fn open(bytes: &[u8], header: &PageHeader) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(bytes);
        let mut count = || {
            let n = usize::try_from(cursor.read_uvarint()?).unwrap_or(usize::MAX);
            match n {
                0..=COLUMNS_MAX => Ok(n),
                _ => Err(DecodeError("page with too many columns")),
            }
        };
        let (columns, times, starts, stripes) = (count()?, count()?, count()?, count()?);
        let mut list = |count| PackedArray::read(bytes, &mut cursor, count);
        let directory = Self {
            first_slot: header.slots.start().0,
            first_time: header.range.min,
            slots: list(columns)?,
            kinds: list(columns)?,
            offsets: list(columns)?,
            times: list(columns)?,
            starts: list(columns)?,
            time_offsets: list(times)?,
            time_counts: list(times)?,
            time_firsts: list(times)?,
            time_spans: list(times)?,
            start_offsets: list(starts)?,
            stripe_ends: list(stripes)?,
            checksums_at: bytes.len() - cursor.len(),
        };
        cursor.read_bytes(stripes * 4)?;
        if !cursor.is_empty() || columns != header.columns as usize {
            return Err(DecodeError(
                "page directory whose length differs from its header",
            ));
        }
        Ok(directory)
    }

    /// Returns the number of columns.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of time columns.
    pub(super) fn time_columns(&self) -> usize {
        self.time_counts.len()
    }

    /// Returns the bytes of all time columns in decoded form.
    pub(super) fn decoded_times_bytes(&self, bytes: &[u8]) -> usize {
        let count = |number| self.time_counts.get(bytes, number).unwrap_or(u64::MAX);
        let counts = (0..self.time_columns()).map(count);
        let all = counts.fold(0, u64::saturating_add);
        let all = usize::try_from(all).unwrap_or(usize::MAX);
        all.saturating_mul(size_of::<TimestampMs>())
    }

    /// Returns the index of the column of `slot`, by bisection.
    pub(super) fn find_column(
        &self,
        bytes: &[u8],
        slot: SeriesSlot,
    ) -> Result<Option<usize>, DecodeError> {
        let Some(distance) = slot.0.checked_sub(self.first_slot) else {
            return Ok(None);
        };
        let slot_at = |index: usize| -> Result<u64, DecodeError> {
            Ok(self.slots.get(bytes, index)?.saturating_add(index as u64))
        };
        let (mut low, mut high) = (0, self.len().min((distance as usize).saturating_add(1)));
        // Usually there are no gaps before a slot, and it is at the last possible position.
        if low < high && slot_at(high - 1)? == distance {
            return Ok(Some(high - 1));
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match slot_at(middle)?.cmp(&distance) {
                Ordering::Equal => return Ok(Some(middle)),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// Returns the slot of the column at this index.
    pub(super) fn slot(&self, bytes: &[u8], index: usize) -> Result<SeriesSlot, DecodeError> {
        let more = self.slots.get(bytes, index)?;
        let slot = self.first_slot.checked_add(more);
        let slot = slot.and_then(|slot| slot.checked_add(index as u64));
        slot.map(SeriesSlot).ok_or(DecodeError("slot out of range"))
    }

    /// Returns the number of the time column of the column at this index.
    #[inline]
    pub(super) fn time_column_number(
        &self,
        bytes: &[u8],
        index: usize,
    ) -> Result<usize, DecodeError> {
        Ok(self.times.get(bytes, index)? as usize)
    }

    /// Returns the column at this index, given its slot and times.
    #[inline]
    pub(super) fn decode_column(
        &self,
        bytes: &[u8],
        index: usize,
        slot: SeriesSlot,
        of_times: TimeColumnRef,
    ) -> Result<ColumnEntry, DecodeError> {
        let TimeColumnRef { times, entry } = of_times;
        Ok(ColumnEntry {
            kind: ColumnKind::from_code(self.kinds.get(bytes, index)?)?,
            slot,
            offset: self.offsets.get(bytes, index)? as usize,
            times,
            starts: self.starts.get(bytes, index)? as usize,
            count: entry.count,
            range: TimeRange::new(entry.first, entry.last),
        })
    }

    /// Returns the entry of the time column with this number.
    pub(super) fn times_entry(
        &self,
        bytes: &[u8],
        number: usize,
    ) -> Result<TimeColumnEntry, DecodeError> {
        let count = self.time_counts.get(bytes, number)? as usize;
        if count == 0 || count > SAMPLES_MAX {
            return Err(DecodeError("column with no samples or too many samples"));
        }
        let first = self.time_firsts.get(bytes, number)? as i64;
        let first = first.wrapping_add(self.first_time);
        let span = self.time_spans.get(bytes, number)? as i64;
        Ok(TimeColumnEntry {
            count,
            first,
            last: first.wrapping_add(span),
        })
    }

    /// Returns the offset of the time column with this number.
    pub(super) fn times_offset(&self, bytes: &[u8], number: usize) -> Result<usize, DecodeError> {
        Ok(self.time_offsets.get(bytes, number)? as usize)
    }

    /// Returns the offset of the start column with this number.
    pub(super) fn starts_offset(&self, bytes: &[u8], number: usize) -> Result<usize, DecodeError> {
        Ok(self.start_offsets.get(bytes, number)? as usize)
    }

    /// Returns the stripes in order.
    pub(super) fn stripes(&self, bytes: &[u8]) -> Result<Vec<StripeEntry>, DecodeError> {
        let mut start = 0;
        let checksums = bytes.get(self.checksums_at..).unwrap_or(&[]);
        let checksums = checksums.as_chunks::<4>().0.iter().enumerate();
        checksums
            .map(|(index, crc)| {
                let end = self.stripe_ends.get(bytes, index)? as usize;
                let range = start..end;
                start = end;
                Ok(StripeEntry {
                    range,
                    crc: u32::from_le_bytes(*crc),
                })
            })
            .collect()
    }
}
