//! Reads pages, a column at a time.

use super::directory::{Column, Directory, Kind, StripeEntry, TimesOfColumn};
use super::header::{self, Header, LogSpan};
use super::times::{self, TimesEntry};
use super::values::{self, FloatReader, Stripe};
use super::{ints, mixed};
use crate::chunk::Columns;
use crate::encoding::Malformed;
use crate::encoding::cursor::Cursor;
use crate::ids::Slot;
use firn_model::sample::{TimeRange, TimestampMs};
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Pages of which a [`Scratch`] remembers the float column read last: those that a query goes
/// through for each series of a family.
const PAGES_KEPT: usize = 8;

const LACKS_SAMPLES: Malformed =
    Malformed("column does not contain the number of samples that it declares");

/// An opened page. Header and directory are checked; a stripe is when it is first read.
#[derive(Debug)]
pub struct Page {
    bytes: Arc<[u8]>,
    header: Header,
    directory_at: Range<usize>,
    data_at: Range<usize>,
    directory: Directory,
    stripes: Box<[CheckedOnce]>,
    /// By number: series of a target share theirs, and so do queries. None has a place where all of
    /// them would take more memory than the page.
    times: Box<[TimesPlace]>,
    times_bytes: usize,
}

/// A time column, and what the directory says of it.
#[derive(Debug)]
struct TimesPlace {
    entry: TimesEntry,
    /// Once they were read.
    times: OnceLock<Arc<[TimestampMs]>>,
}

/// Memory that decoding works in, and what neighbouring columns share. Reuse one.
#[derive(Debug, Default)]
pub struct Scratch {
    floats: Vec<FloatReader>,
    floats_next: usize,
}

impl Page {
    /// Opens a page, which must be all of `bytes`.
    pub fn open(bytes: Arc<[u8]>) -> Result<Self, Malformed> {
        let opened = header::open(&bytes)?;
        let directory = Directory::open(&bytes[opened.directory.clone()], &opened.header)?;
        let stripes = directory.stripes(&bytes[opened.directory.clone()])?;
        let unchecked = |entry| CheckedOnce {
            entry,
            is_checked: AtomicBool::new(false),
        };
        let columns = directory.time_columns();
        let times_bytes = directory.times_bytes(&bytes[opened.directory.clone()]);
        let (columns, times_bytes) = match times_bytes <= bytes.len() {
            true => (columns, times_bytes),
            false => (0, 0),
        };
        let place = |number| {
            let entry = directory.times_entry(&bytes[opened.directory.clone()], number)?;
            let times = OnceLock::new();
            Ok(TimesPlace { entry, times })
        };
        Ok(Self {
            times: (0..columns).map(place).collect::<Result<_, _>>()?,
            times_bytes,
            stripes: stripes.into_iter().map(unchecked).collect(),
            header: opened.header,
            directory_at: opened.directory,
            data_at: opened.data,
            directory,
            bytes,
        })
    }

    /// What the page covers of its store.
    pub fn meta(&self) -> LogSpan {
        self.header.meta
    }

    /// From the first sample of any column to the last.
    pub fn range(&self) -> TimeRange {
        self.header.range
    }

    /// The first slot and the last.
    pub fn slots(&self) -> RangeInclusive<Slot> {
        self.header.slots.clone()
    }

    /// How many series.
    pub fn column_count(&self) -> usize {
        self.directory.len()
    }

    /// Samples of all series.
    pub fn sample_count(&self) -> u64 {
        self.header.samples
    }

    /// Bytes of memory, once all times were asked for.
    pub fn memory_bytes(&self) -> usize {
        let times = size_of_val(&*self.times) + self.times_bytes;
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.stripes) + times
    }

    /// The column with this index, in the order of slots.
    pub fn column(&self, index: usize) -> Result<Column, Malformed> {
        let slot = self.directory.slot(self.directory_bytes(), index)?;
        self.column_of(index, slot)
    }

    /// What the page holds of the series with this slot.
    #[inline]
    pub fn find(&self, slot: Slot) -> Result<Option<Column>, Malformed> {
        let index = self.directory.find(self.directory_bytes(), slot)?;
        index.map(|index| self.column_of(index, slot)).transpose()
    }

    #[inline]
    fn column_of(&self, index: usize, slot: Slot) -> Result<Column, Malformed> {
        let bytes = self.directory_bytes();
        let times = self.directory.times_of(bytes, index)?;
        let entry = match self.times.get(times) {
            Some(known) => known.entry,
            None => self.directory.times_entry(bytes, times)?,
        };
        let of_times = TimesOfColumn { times, entry };
        self.directory.column(bytes, index, slot, of_times)
    }

    /// The times of a column.
    pub fn times(&self, column: &Column) -> Result<Arc<[TimestampMs]>, Malformed> {
        let known = self.times.get(column.times).map(|place| &place.times);
        if let Some(times) = known.and_then(OnceLock::get) {
            return Ok(times.clone());
        }
        let times: Arc<[TimestampMs]> = self.read_times(column.times)?.into();
        // Another thread may have read them meanwhile; all share one copy.
        Ok(match known {
            Some(place) => place.get_or_init(|| times).clone(),
            None => times,
        })
    }

    /// Appends the samples of a column that lie in `range` to `into`; all of them or none.
    pub fn decode(
        &self,
        column: &Column,
        range: TimeRange,
        scratch: &mut Scratch,
        into: &mut Columns,
    ) -> Result<(), Malformed> {
        let (before, had_starts) = (into.times.len(), !into.start_times.is_empty());
        let decoded = self.decode_in(column, range, scratch, into);
        if decoded.is_err() {
            into.truncate(before);
            if !had_starts {
                into.start_times.clear();
            }
        }
        decoded
    }

    /// Like `decode`, but on an error some of the columns may be longer than others.
    fn decode_in(
        &self,
        column: &Column,
        range: TimeRange,
        scratch: &mut Scratch,
        into: &mut Columns,
    ) -> Result<(), Malformed> {
        let times = self.times(column)?;
        let Range { start, end } = range.indexes(&times);
        let base = into.times.len();
        self.decode_starts(column, start..end, base, into)?;
        self.decode_values(column, start..end, scratch, into)?;
        into.times.extend_from_slice(&times[start..end]);
        if into.values.len() != into.times.len() {
            return Err(LACKS_SAMPLES);
        }
        let starts = into.start_times.len();
        assert!(
            starts == 0 || starts == into.times.len(),
            "a start for each sample"
        );
        debug_assert!(into.times[base..].iter().all(|time| range.contains(*time)));
        debug_assert!(into.times[base..].is_sorted_by(|a, b| a < b));
        Ok(())
    }

    /// Appends the values `wanted`, counted from the first, of a column that holds nothing but
    /// floats. All of them must be there.
    pub(crate) fn decode_plain(
        &self,
        column: &Column,
        wanted: Range<usize>,
        scratch: &mut Scratch,
        into: &mut Vec<f64>,
    ) -> Result<(), Malformed> {
        let end = into.len() + wanted.len();
        self.decode_floats(column, wanted, scratch, into)?;
        match into.len() == end {
            true => Ok(()),
            false => Err(LACKS_SAMPLES),
        }
    }

    /// Appends the samples `wanted` of a column, counted from its first, to the values and
    /// histograms of `into`, not their times.
    pub fn decode_values(
        &self,
        column: &Column,
        wanted: Range<usize>,
        scratch: &mut Scratch,
        into: &mut Columns,
    ) -> Result<(), Malformed> {
        if column.kind != Kind::Mixed {
            return self.decode_floats(column, wanted, scratch, &mut into.values);
        }
        let wanted = wanted.start.min(column.count)..wanted.end.min(column.count);
        let cursor = self.stripe(column.offset)?.cursor(column.offset)?;
        mixed::read(cursor, column.count, wanted, into)
    }

    /// Appends the values `wanted` of a column that holds floats alone.
    fn decode_floats(
        &self,
        column: &Column,
        wanted: Range<usize>,
        scratch: &mut Scratch,
        into: &mut Vec<f64>,
    ) -> Result<(), Malformed> {
        let wanted = wanted.start.min(column.count)..wanted.end.min(column.count);
        let stripe = self.stripe(column.offset)?;
        if column.kind == Kind::Constant {
            let value = values::read_constant(stripe.cursor(column.offset)?)?;
            into.resize(into.len() + wanted.len(), value);
            return Ok(());
        }
        let at = column.offset.wrapping_sub(stripe.start);
        let stripe = Stripe {
            page: &self.bytes,
            index: stripe.index,
            bytes: stripe.bytes,
        };
        let reader = scratch.reader_of(&self.bytes);
        reader.read(stripe, at, column.count, wanted, into)
    }

    /// Checks every stripe that was not checked yet; some 10 GB/s.
    pub(crate) fn verify(&self) -> Result<(), Malformed> {
        for stripe in &self.stripes {
            self.stripe(stripe.entry.range.start)?;
        }
        Ok(())
    }

    /// Appends start timestamps, of which `into` has none or as many as times.
    fn decode_starts(
        &self,
        column: &Column,
        wanted: Range<usize>,
        base: usize,
        into: &mut Columns,
    ) -> Result<(), Malformed> {
        let Some(number) = column.starts.checked_sub(1) else {
            if !into.start_times.is_empty() {
                into.start_times.resize(base + wanted.len(), 0);
            }
            return Ok(());
        };
        into.start_times.resize(base, 0);
        let offset = self
            .directory
            .starts_offset(self.directory_bytes(), number)?;
        let cursor = self.stripe(offset)?.cursor(offset)?;
        ints::read_column(cursor, column.count, wanted, &mut into.start_times)
    }

    fn read_times(&self, number: usize) -> Result<Vec<TimestampMs>, Malformed> {
        let (cursor, entry) = self.times_at(number)?;
        times::read(cursor, entry, |base| {
            let (cursor, entry) = self.times_at(base)?;
            times::read_base(cursor, entry)
        })
    }

    fn times_at(&self, number: usize) -> Result<(Cursor<'_>, TimesEntry), Malformed> {
        let bytes = self.directory_bytes();
        let entry = self.directory.times_entry(bytes, number)?;
        let offset = self.directory.times_offset(bytes, number)?;
        Ok((self.stripe(offset)?.cursor(offset)?, entry))
    }

    fn directory_bytes(&self) -> &[u8] {
        &self.bytes[self.directory_at.clone()]
    }

    /// The stripe that holds the byte at `offset` of the data, its checksum checked.
    #[inline]
    fn stripe(&self, offset: usize) -> Result<Checked<'_>, Malformed> {
        let outside = Malformed("page stripe outside of the data");
        let index = self
            .stripes
            .partition_point(|s| s.entry.range.end <= offset);
        let stripe = self.stripes.get(index).ok_or(outside)?;
        let data = &self.bytes[self.data_at.clone()];
        let bytes = data.get(stripe.entry.range.clone()).ok_or(outside)?;
        if !stripe.is_checked.load(Ordering::Relaxed) {
            if crc32c::crc32c(bytes) != stripe.entry.crc {
                return Err(Malformed("page stripe fails its checksum"));
            }
            stripe.is_checked.store(true, Ordering::Relaxed);
        }
        Ok(Checked {
            index,
            start: stripe.entry.range.start,
            bytes,
        })
    }
}

impl Scratch {
    /// The reader that remembers this page, or the one that is to from now on.
    fn reader_of(&mut self, page: &Arc<[u8]>) -> &mut FloatReader {
        let known = self.floats.iter().position(|r| r.remembers(page));
        let index = known.unwrap_or_else(|| {
            if self.floats.len() < PAGES_KEPT {
                self.floats.push(FloatReader::default());
                return self.floats.len() - 1;
            }
            self.floats_next = (self.floats_next + 1) % PAGES_KEPT;
            self.floats_next
        });
        &mut self.floats[index]
    }
}

/// A stripe, and whether it was read before.
#[derive(Debug)]
struct CheckedOnce {
    entry: StripeEntry,
    is_checked: AtomicBool,
}

/// A stripe whose checksum was right.
struct Checked<'a> {
    index: usize,
    start: usize,
    bytes: &'a [u8],
}

impl<'a> Checked<'a> {
    /// A cursor at an offset of the data section.
    fn cursor(&self, offset: usize) -> Result<Cursor<'a>, Malformed> {
        let at = offset.checked_sub(self.start);
        let bytes = at.and_then(|at| self.bytes.get(at..));
        bytes
            .map(Cursor::new)
            .ok_or(Malformed("offset outside of its stripe"))
    }
}
