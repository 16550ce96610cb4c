//! Reads pages, one column at a time.

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

/// Number of pages whose last float column is cached in a [`Scratch`]: enough for the pages that a
/// query reads for each series of a family.
const PAGES_KEPT: usize = 8;

const LACKS_SAMPLES: Malformed =
    Malformed("column does not contain the number of samples that it declares");

/// An opened page. Header and directory are verified; a stripe is verified when it is first read.
#[derive(Debug)]
pub struct Page {
    bytes: Arc<[u8]>,
    header: Header,
    directory_at: Range<usize>,
    data_at: Range<usize>,
    directory: Directory,
    stripes: Box<[CheckedOnce]>,
    /// Time columns by number, cached because the series of a target and repeated queries share
    /// them. Empty if all of them would take more memory than the page.
    times: Box<[TimesPlace]>,
    times_bytes: usize,
}

/// A time column with its directory entry.
#[derive(Debug)]
struct TimesPlace {
    entry: TimesEntry,
    /// Set when the times are first read.
    times: OnceLock<Arc<[TimestampMs]>>,
}

/// Working memory of decoding, with data that neighbouring columns share. Reuse an instance.
#[derive(Debug, Default)]
pub struct Scratch {
    floats: Vec<FloatReader>,
    floats_next: usize,
}

impl Page {
    /// Opens a page, which must be all of `bytes`. Returns an error if the header or the directory
    /// is corrupt.
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

    /// Returns the part of the log that the page covers.
    pub fn meta(&self) -> LogSpan {
        self.header.meta
    }

    /// Returns the time range from the first sample of any column to the last one.
    pub fn range(&self) -> TimeRange {
        self.header.range
    }

    /// Returns the first and the last slot.
    pub fn slots(&self) -> RangeInclusive<Slot> {
        self.header.slots.clone()
    }

    /// Returns the number of series.
    pub fn column_count(&self) -> usize {
        self.directory.len()
    }

    /// Returns the number of samples of all series.
    pub fn sample_count(&self) -> u64 {
        self.header.samples
    }

    /// Returns the memory of the page in bytes when all its times are cached.
    pub fn memory_bytes(&self) -> usize {
        let times = size_of_val(&*self.times) + self.times_bytes;
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.stripes) + times
    }

    /// Returns the column at this index, in the order of slots.
    pub fn column(&self, index: usize) -> Result<Column, Malformed> {
        let slot = self.directory.slot(self.directory_bytes(), index)?;
        self.column_of(index, slot)
    }

    /// Returns the column of the series with this slot, if there is one.
    #[inline]
    pub fn find(&self, slot: Slot) -> Result<Option<Column>, Malformed> {
        let index = self.directory.find(self.directory_bytes(), slot)?;
        index.map(|index| self.column_of(index, slot)).transpose()
    }

    /// Returns the column at an index, with its time entry from the cache if possible.
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

    /// Returns the times of a column, from the cache if possible.
    pub fn times(&self, column: &Column) -> Result<Arc<[TimestampMs]>, Malformed> {
        let known = self.times.get(column.times).map(|place| &place.times);
        if let Some(times) = known.and_then(OnceLock::get) {
            return Ok(times.clone());
        }
        let times: Arc<[TimestampMs]> = self.read_times(column.times)?.into();
        // Another thread may have read them in the meantime; all share one copy.
        Ok(match known {
            Some(place) => place.get_or_init(|| times).clone(),
            None => times,
        })
    }

    /// Decodes the samples of a column in `range` and appends them to `into`. On an error, `into`
    /// is unchanged.
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

    /// Like `decode`, but after an error the columns of `into` may have different lengths.
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

    /// Decodes the values `wanted`, given as indices, of a column with only floats. Returns an
    /// error unless all of them exist.
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

    /// Decodes the samples `wanted`, given as indices, of a column and appends them to the values
    /// and histograms of `into`, without their times.
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

    /// Decodes the values `wanted` of a column with only floats.
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

    /// Verifies every stripe that was not verified yet, at about 10 GB/s.
    pub(crate) fn verify(&self) -> Result<(), Malformed> {
        for stripe in &self.stripes {
            self.stripe(stripe.entry.range.start)?;
        }
        Ok(())
    }

    /// Appends start timestamps to `into`, which has either none or as many as times.
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

    /// Decodes a time column, and its base if it is stored as a part of one.
    fn read_times(&self, number: usize) -> Result<Vec<TimestampMs>, Malformed> {
        let (cursor, entry) = self.times_at(number)?;
        times::read(cursor, entry, |base| {
            let (cursor, entry) = self.times_at(base)?;
            times::read_base(cursor, entry)
        })
    }

    /// Returns a cursor at the start of a time column, with its entry.
    fn times_at(&self, number: usize) -> Result<(Cursor<'_>, TimesEntry), Malformed> {
        let bytes = self.directory_bytes();
        let entry = self.directory.times_entry(bytes, number)?;
        let offset = self.directory.times_offset(bytes, number)?;
        Ok((self.stripe(offset)?.cursor(offset)?, entry))
    }

    fn directory_bytes(&self) -> &[u8] {
        &self.bytes[self.directory_at.clone()]
    }

    /// Returns the stripe that contains the byte at `offset` of the data, after verifying its
    /// checksum.
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
    /// Returns the reader that caches this page, or one to be used for it from now on.
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

/// A stripe, and whether its checksum was verified before.
#[derive(Debug)]
struct CheckedOnce {
    entry: StripeEntry,
    is_checked: AtomicBool,
}

/// A stripe with a valid checksum, whose columns can be decoded.
struct Checked<'a> {
    index: usize,
    start: usize,
    bytes: &'a [u8],
}

impl<'a> Checked<'a> {
    /// Returns a cursor at an offset of the data section.
    fn cursor(&self, offset: usize) -> Result<Cursor<'a>, Malformed> {
        let at = offset.checked_sub(self.start);
        let bytes = at.and_then(|at| self.bytes.get(at..));
        bytes
            .map(Cursor::new)
            .ok_or(Malformed("offset outside of its stripe"))
    }
}
