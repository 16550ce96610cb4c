//! Reads pages, one column at a time.

use super::directory::{ColumnDirectory, ColumnEntry, ColumnKind, StripeEntry, TimeColumnRef};
use super::header::{self, LogSpan, PageHeader};
use super::times::{self, TimeColumnEntry};
use super::values::{self, FloatColumnReader, PageStripe};
use super::{ints, mixed};
use crate::chunk::SampleColumns;
use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::ids::SeriesSlot;
use firn_model::sample::{TimeRange, TimestampMs};
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Number of pages whose last float column is cached in a [`PageDecodeScratch`]: enough for the
/// pages that a query reads for each series of a family.
const PAGES_KEPT: usize = 8;

const LACKS_SAMPLES: DecodeError =
    DecodeError("column does not contain the number of samples that it declares");

/// An opened page. Header and directory are verified; a stripe is verified when it is first read.
#[derive(Debug)]
pub struct PageReader {
    bytes: Arc<[u8]>,
    header: PageHeader,
    directory_at: Range<usize>,
    data_at: Range<usize>,
    directory: ColumnDirectory,
    stripes: Box<[StripeVerification]>,
    /// Time columns by number, cached because the series of a target and repeated queries share
    /// them. Empty if all of them would take more memory than the page.
    times: Box<[CachedTimeColumn]>,
    times_bytes: usize,
}

/// A time column with its directory entry.
#[derive(Debug)]
struct CachedTimeColumn {
    entry: TimeColumnEntry,
    /// Set when the times are first read.
    times: OnceLock<Arc<[TimestampMs]>>,
}

/// Working memory of decoding, with data that neighbouring columns share. Reuse an instance.
#[derive(Debug, Default)]
pub struct PageDecodeScratch {
    floats: Vec<FloatColumnReader>,
    floats_next: usize,
}

impl PageReader {
    /// Opens a page, which must be all of `bytes`. Returns an error if the header or the directory
    /// is corrupt.
    pub fn open(bytes: Arc<[u8]>) -> Result<Self, DecodeError> {
        let opened = header::open_header(&bytes)?;
        let directory = ColumnDirectory::open(&bytes[opened.directory.clone()], &opened.header)?;
        let stripes = directory.stripes(&bytes[opened.directory.clone()])?;
        let unchecked = |entry| StripeVerification {
            entry,
            is_checked: AtomicBool::new(false),
        };
        let columns = directory.time_columns();
        let times_bytes = directory.decoded_times_bytes(&bytes[opened.directory.clone()]);
        let (columns, times_bytes) = if times_bytes <= bytes.len() {
            (columns, times_bytes)
        } else {
            (0, 0)
        };
        let place = |number| {
            let entry = directory.times_entry(&bytes[opened.directory.clone()], number)?;
            let times = OnceLock::new();
            Ok(CachedTimeColumn { entry, times })
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
    pub fn slots(&self) -> RangeInclusive<SeriesSlot> {
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
    pub fn column(&self, index: usize) -> Result<ColumnEntry, DecodeError> {
        let slot = self.directory.slot(self.directory_bytes(), index)?;
        self.read_column(index, slot)
    }

    /// Returns the column of the series with this slot, if there is one.
    #[inline]
    pub fn find_column(&self, slot: SeriesSlot) -> Result<Option<ColumnEntry>, DecodeError> {
        let index = self.directory.find_column(self.directory_bytes(), slot)?;
        index.map(|index| self.read_column(index, slot)).transpose()
    }

    /// Returns the column at an index, with its time entry from the cache if possible.
    #[inline]
    fn read_column(&self, index: usize, slot: SeriesSlot) -> Result<ColumnEntry, DecodeError> {
        let bytes = self.directory_bytes();
        let times = self.directory.time_column_number(bytes, index)?;
        let entry = match self.times.get(times) {
            Some(known) => known.entry,
            None => self.directory.times_entry(bytes, times)?,
        };
        let of_times = TimeColumnRef { times, entry };
        self.directory.decode_column(bytes, index, slot, of_times)
    }

    /// Returns the times of a column, from the cache if possible.
    pub fn times(&self, column: &ColumnEntry) -> Result<Arc<[TimestampMs]>, DecodeError> {
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
        column: &ColumnEntry,
        range: TimeRange,
        scratch: &mut PageDecodeScratch,
        into: &mut SampleColumns,
    ) -> Result<(), DecodeError> {
        let (before, had_starts) = (into.times.len(), !into.start_times.is_empty());
        let decoded = self.decode_partially(column, range, scratch, into);
        if decoded.is_err() {
            into.truncate(before);
            if !had_starts {
                into.start_times.clear();
            }
        }
        decoded
    }

    /// Like `decode`, but after an error the columns of `into` may have different lengths.
    fn decode_partially(
        &self,
        column: &ColumnEntry,
        range: TimeRange,
        scratch: &mut PageDecodeScratch,
        into: &mut SampleColumns,
    ) -> Result<(), DecodeError> {
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
        column: &ColumnEntry,
        wanted: Range<usize>,
        scratch: &mut PageDecodeScratch,
        into: &mut Vec<f64>,
    ) -> Result<(), DecodeError> {
        let end = into.len() + wanted.len();
        self.decode_floats(column, wanted, scratch, into)?;
        if into.len() == end {
            Ok(())
        } else {
            Err(LACKS_SAMPLES)
        }
    }

    /// Decodes the samples `wanted`, given as indices, of a column and appends them to the values
    /// and histograms of `into`, without their times.
    pub fn decode_values(
        &self,
        column: &ColumnEntry,
        wanted: Range<usize>,
        scratch: &mut PageDecodeScratch,
        into: &mut SampleColumns,
    ) -> Result<(), DecodeError> {
        if column.kind != ColumnKind::Mixed {
            return self.decode_floats(column, wanted, scratch, &mut into.values);
        }
        let wanted = wanted.start.min(column.count)..wanted.end.min(column.count);
        let cursor = self.verify_stripe(column.offset)?.cursor(column.offset)?;
        mixed::read_column(cursor, column.count, wanted, into)
    }

    /// Decodes the values `wanted` of a column with only floats.
    fn decode_floats(
        &self,
        column: &ColumnEntry,
        wanted: Range<usize>,
        scratch: &mut PageDecodeScratch,
        into: &mut Vec<f64>,
    ) -> Result<(), DecodeError> {
        let wanted = wanted.start.min(column.count)..wanted.end.min(column.count);
        let stripe = self.verify_stripe(column.offset)?;
        if column.kind == ColumnKind::Constant {
            let value = values::read_constant(stripe.cursor(column.offset)?)?;
            into.resize(into.len() + wanted.len(), value);
            return Ok(());
        }
        let at = column.offset.wrapping_sub(stripe.start);
        let stripe = PageStripe {
            page: &self.bytes,
            index: stripe.index,
            bytes: stripe.bytes,
        };
        let reader = scratch.reader_for_page(&self.bytes);
        reader.read(stripe, at, column.count, wanted, into)
    }

    /// Verifies every stripe that was not verified yet, at about 10 GB/s.
    pub(crate) fn verify(&self) -> Result<(), DecodeError> {
        for stripe in &self.stripes {
            self.verify_stripe(stripe.entry.range.start)?;
        }
        Ok(())
    }

    /// Appends start timestamps to `into`, which has either none or as many as times.
    fn decode_starts(
        &self,
        column: &ColumnEntry,
        wanted: Range<usize>,
        base: usize,
        into: &mut SampleColumns,
    ) -> Result<(), DecodeError> {
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
        let cursor = self.verify_stripe(offset)?.cursor(offset)?;
        ints::read_column(cursor, column.count, wanted, &mut into.start_times)
    }

    /// Decodes a time column, and its base if it is stored as a part of one.
    fn read_times(&self, number: usize) -> Result<Vec<TimestampMs>, DecodeError> {
        let (cursor, entry) = self.open_time_column(number)?;
        times::read_column(cursor, entry, |base| {
            let (cursor, entry) = self.open_time_column(base)?;
            times::read_base(cursor, entry)
        })
    }

    /// Returns a cursor at the start of a time column, with its entry.
    fn open_time_column(
        &self,
        number: usize,
    ) -> Result<(DecodeCursor<'_>, TimeColumnEntry), DecodeError> {
        let bytes = self.directory_bytes();
        let entry = self.directory.times_entry(bytes, number)?;
        let offset = self.directory.times_offset(bytes, number)?;
        Ok((self.verify_stripe(offset)?.cursor(offset)?, entry))
    }

    fn directory_bytes(&self) -> &[u8] {
        &self.bytes[self.directory_at.clone()]
    }

    /// Returns the stripe that contains the byte at `offset` of the data, after verifying its
    /// checksum.
    #[inline]
    fn verify_stripe(&self, offset: usize) -> Result<VerifiedStripe<'_>, DecodeError> {
        let outside = DecodeError("page stripe outside of the data");
        let index = self
            .stripes
            .partition_point(|s| s.entry.range.end <= offset);
        let stripe = self.stripes.get(index).ok_or(outside)?;
        let data = &self.bytes[self.data_at.clone()];
        let bytes = data.get(stripe.entry.range.clone()).ok_or(outside)?;
        if !stripe.is_checked.load(Ordering::Relaxed) {
            if crc32c::crc32c(bytes) != stripe.entry.crc {
                return Err(DecodeError("page stripe fails its checksum"));
            }
            stripe.is_checked.store(true, Ordering::Relaxed);
        }
        Ok(VerifiedStripe {
            index,
            start: stripe.entry.range.start,
            bytes,
        })
    }
}

impl PageDecodeScratch {
    /// Returns the reader that caches this page, or one to be used for it from now on.
    fn reader_for_page(&mut self, page: &Arc<[u8]>) -> &mut FloatColumnReader {
        let known = self.floats.iter().position(|r| r.is_reading_page(page));
        let index = known.unwrap_or_else(|| {
            if self.floats.len() < PAGES_KEPT {
                self.floats.push(FloatColumnReader::default());
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
struct StripeVerification {
    entry: StripeEntry,
    is_checked: AtomicBool,
}

/// A stripe with a valid checksum, whose columns can be decoded.
struct VerifiedStripe<'a> {
    index: usize,
    start: usize,
    bytes: &'a [u8],
}

impl<'a> VerifiedStripe<'a> {
    /// Returns a cursor at an offset of the data section.
    fn cursor(&self, offset: usize) -> Result<DecodeCursor<'a>, DecodeError> {
        let at = offset.checked_sub(self.start);
        let bytes = at.and_then(|at| self.bytes.get(at..));
        bytes
            .map(DecodeCursor::new)
            .ok_or(DecodeError("offset outside of its stripe"))
    }
}
