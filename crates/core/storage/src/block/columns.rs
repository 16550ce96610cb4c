//! The reader of the samples of a block, one column at a time.

use super::data_page::{DataPage, PageColumn};
use super::pages::{self, BlockPageEntry, PagesUnit};
use super::reader::Block;
use super::sections::PageEntryPosition;
use super::times::TimesUnit;
use crate::chunk::SampleColumns;
use crate::encoding::DecodeError;
use crate::error::StorageError;
use crate::page::times::TimeColumnEntry;
use crate::page::values::FloatColumnReader;
use firn_model::sample::{TimeRange, TimestampMs};
use std::ops::Range;
use std::sync::Arc;

/// The location of the samples of one series in a page. A long series has several such parts, in
/// consecutive pages.
#[derive(Clone, Copy, Debug)]
pub struct BlockColumn {
    ordinal: u32,
    part: u32,
    column: PageColumn,
    entry: TimeColumnEntry,
    /// True if the column is the last one of its page, so that another part of the series may
    /// follow.
    is_last: bool,
}

impl BlockColumn {
    /// Returns the time range from the first to the last sample, both inclusive.
    pub fn range(&self) -> TimeRange {
        TimeRange::new(self.entry.first, self.entry.last)
    }

    /// Returns the number of samples in the column.
    pub fn sample_count(&self) -> usize {
        self.entry.count
    }

    /// Returns the number of the time column. Two columns of one block with the same number have
    /// identical timestamps.
    pub fn time_column(&self) -> u32 {
        self.column.times
    }

    /// Returns whether all samples are floats without start timestamps.
    pub fn is_plain(&self) -> bool {
        self.column.is_plain()
    }
}

/// Reads columns of a block. It keeps the page that it read last together with the decoded times
/// and values, so each thread should have its own reader and read series in block order.
#[derive(Debug)]
pub struct BlockColumnReader<'a> {
    block: &'a Block,
    page: Option<OpenPage>,
    times: Option<(u32, Arc<TimesUnit>)>,
    newest: Option<(u32, Arc<[TimestampMs]>)>,
    floats: FloatColumnReader,
    /// Number of units that the reader has opened, and their total size in bytes.
    opened: (u64, u64),
}

/// The location and the index entry of a page that has not been read yet.
type Located = (PageEntryPosition, Arc<PagesUnit>, BlockPageEntry);

/// The page that the reader has open, with its index entry and the index unit that lists its
/// neighbours.
#[derive(Debug)]
struct OpenPage {
    at: PageEntryPosition,
    pages: Arc<PagesUnit>,
    entry: BlockPageEntry,
    page: Arc<DataPage>,
}

impl OpenPage {
    /// Returns the index of the column of a part of a series, or `None` if the page does not
    /// contain it.
    fn find_column(&self, ordinal: u32, part: u32) -> Option<usize> {
        let at = ordinal.checked_sub(self.entry.first)? as usize;
        let of_first = if at == 0 { self.entry.part } else { 0 };
        (part == of_first && at < self.page.len()).then_some(at)
    }
}

impl<'a> BlockColumnReader<'a> {
    /// Creates a reader. It reads nothing until its first call.
    pub(super) fn new(block: &'a Block) -> Self {
        Self {
            block,
            page: None,
            times: None,
            newest: None,
            floats: FloatColumnReader::default(),
            opened: (0, 0),
        }
    }

    /// Returns the number of units that the reader has opened so far, and their total size in
    /// bytes.
    pub fn opened_units(&self) -> (u64, u64) {
        self.opened
    }

    /// Appends the samples of a series within `range` to `into`. On an error nothing is appended.
    pub fn read(
        &mut self,
        ordinal: u32,
        range: TimeRange,
        into: &mut SampleColumns,
    ) -> Result<(), StorageError> {
        let (before, had_starts) = (into.times.len(), !into.start_times.is_empty());
        let read = self.read_parts(ordinal, range, into);
        debug_assert!(read.is_err() || into.times[before..].is_sorted_by(|a, b| a < b));
        if read.is_err() {
            into.truncate(before);
            if !had_starts {
                into.start_times.clear();
            }
        }
        read
    }

    /// Returns whether a series has a sample in `range`. Pages that do not overlap it are not read.
    pub fn has_sample_in(&mut self, ordinal: u32, range: TimeRange) -> Result<bool, StorageError> {
        let mut next = self.find_first_part(ordinal, range)?;
        while let Some(column) = next {
            let is_near = column.range().overlaps(&range);
            if is_near && !range.indexes(&self.times(&column)?).is_empty() {
                return Ok(true);
            }
            next = self.find_next_part(&column, range)?;
        }
        Ok(false)
    }

    /// Returns the first part of a series that may contain samples in `range`, or `None`.
    pub fn find_first_part(
        &mut self,
        ordinal: u32,
        range: TimeRange,
    ) -> Result<Option<BlockColumn>, StorageError> {
        if ordinal < self.block.series_count() {
            self.find_part_from(ordinal, 0, range)
        } else {
            Ok(None)
        }
    }

    /// Returns the next part of the series after `column` that may contain samples in `range`, or
    /// `None`.
    pub fn find_next_part(
        &mut self,
        column: &BlockColumn,
        range: TimeRange,
    ) -> Result<Option<BlockColumn>, StorageError> {
        if column.is_last && column.entry.last < range.max {
            self.find_part_from(column.ordinal, column.part + 1, range)
        } else {
            Ok(None)
        }
    }

    /// Returns the first part, starting with `part`, whose page overlaps `range`. Pages outside the
    /// range are not read.
    fn find_part_from(
        &mut self,
        ordinal: u32,
        mut part: u32,
        range: TimeRange,
    ) -> Result<Option<BlockColumn>, StorageError> {
        while !self.has_part_open(ordinal, part, range) {
            let Some((at, pages, entry)) = self.locate_part(ordinal, part)? else {
                return Ok(None);
            };
            if entry.range.overlaps(&range) {
                break;
            }
            let next = self.block.pages.next_page(&self.block.files, at, &pages)?;
            let is_part = |next: &BlockPageEntry| next.key() == pages::page_key(ordinal, part + 1);
            if !next.is_some_and(|(_, _, next)| is_part(&next)) {
                return Ok(None);
            }
            part += 1;
        }
        let Some(at) = self.open_part_page(ordinal, part)? else {
            return Ok(None);
        };
        let Some(OpenPage { page, .. }) = &self.page else {
            return Ok(None);
        };
        let (column, is_last) = (page.column(at), at + 1 == page.len());
        let Some(column) = column else {
            return Ok(None);
        };
        Ok(Some(BlockColumn {
            ordinal,
            part,
            column,
            entry: self.times_entry(column.times)?,
            is_last,
        }))
    }

    /// Returns whether the open page contains the part of the series and overlaps `range`.
    fn has_part_open(&self, ordinal: u32, part: u32, range: TimeRange) -> bool {
        let open = self.page.as_ref();
        let open = open.filter(|open| open.find_column(ordinal, part).is_some());
        open.is_some_and(|open| open.entry.range.overlaps(&range))
    }

    /// Returns the timestamps of a column in milliseconds, in ascending order. Columns with the
    /// same time column share the returned allocation while the cache holds it.
    pub fn times(&mut self, column: &BlockColumn) -> Result<Arc<[TimestampMs]>, StorageError> {
        let number = column.column.times;
        if let Some((known, times)) = &self.newest
            && *known == number
        {
            return Ok(times.clone());
        }
        let index = self.open_times_unit(number)?;
        let Some((_, unit)) = &self.times else {
            return Err(self.malformed_times(number, DecodeError("number of no time column")));
        };
        let times = unit
            .times(index)
            .map_err(|e| self.malformed_times(number, e))?;
        self.newest = Some((number, times.clone()));
        Ok(times)
    }

    /// Appends the values at the indexes `wanted` of a column that contains only floats. Returns an
    /// error if the column has fewer values than that.
    pub fn read_plain(
        &mut self,
        column: &BlockColumn,
        wanted: Range<usize>,
        into: &mut Vec<f64>,
    ) -> Result<(), StorageError> {
        let end = into.len() + wanted.len();
        let block = self.block;
        if self.open_part_page(column.ordinal, column.part)?.is_none() {
            return Ok(());
        }
        let Some(OpenPage { page, entry, .. }) = &self.page else {
            return Ok(());
        };
        let (count, column) = (column.entry.count, &column.column);
        let read = page.read_floats(column, count, wanted, &mut self.floats, into);
        let lacks = DecodeError("column does not contain the number of samples that it declares");
        let whole = read.and_then(|()| (into.len() == end).then_some(()).ok_or(lacks));
        whole.map_err(|e| malformed_page(block, entry, e))
    }

    fn read_parts(
        &mut self,
        ordinal: u32,
        range: TimeRange,
        into: &mut SampleColumns,
    ) -> Result<(), StorageError> {
        let base = into.times.len();
        let mut next = self.find_first_part(ordinal, range)?;
        while let Some(column) = next {
            if column.range().overlaps(&range) {
                self.read_part(&column, range, base, into)?;
            }
            next = self.find_next_part(&column, range)?;
        }
        Ok(())
    }

    fn read_part(
        &mut self,
        column: &BlockColumn,
        range: TimeRange,
        base: usize,
        into: &mut SampleColumns,
    ) -> Result<(), StorageError> {
        let times = self.times(column)?;
        let wanted = range.indexes(&times);
        let block = self.block;
        self.open_part_page(column.ordinal, column.part)?;
        let Some(OpenPage { page, entry, .. }) = &self.page else {
            return Ok(());
        };
        let follows = into.times[base..].last() < times.get(wanted.start);
        if !wanted.is_empty() && !follows {
            let e = DecodeError("parts of a series out of order");
            return Err(malformed_page(block, entry, e));
        }
        let count = column.entry.count;
        let column = &column.column;
        page.read(column, count, wanted.clone(), &mut self.floats, into)
            .map_err(|e| malformed_page(block, entry, e))?;
        into.times.extend_from_slice(&times[wanted]);
        if into.values.len() == into.times.len() {
            Ok(())
        } else {
            let e = DecodeError("column does not contain the number of samples that it declares");
            Err(malformed_page(block, entry, e))
        }
    }

    /// Opens the page that contains the part of a series and returns the index of its column.
    /// Returns `None` if the series has no such part.
    fn open_part_page(&mut self, ordinal: u32, part: u32) -> Result<Option<usize>, StorageError> {
        let known = self.page.as_ref();
        if let Some(at) = known.and_then(|page| page.find_column(ordinal, part)) {
            return Ok(Some(at));
        }
        let Some((at, pages, entry)) = self.locate_part(ordinal, part)? else {
            return Ok(None);
        };
        let page = self.block.files.load_page(&entry)?;
        self.opened.0 += 1;
        self.opened.1 += u64::from(entry.bytes);
        let open = OpenPage {
            at,
            pages,
            entry,
            page,
        };
        let column = open.find_column(ordinal, part);
        if column.is_none() {
            let e = DecodeError("page without a series that it should have");
            return Err(malformed_page(self.block, &open.entry, e));
        }
        self.page = Some(open);
        Ok(column)
    }

    /// Finds the page of a part of a series. It tries the open page and its successor before it
    /// searches the index.
    fn locate_part(&self, ordinal: u32, part: u32) -> Result<Option<Located>, StorageError> {
        let key = pages::page_key(ordinal, part);
        if let Some(open) = &self.page {
            if open.find_column(ordinal, part).is_some() {
                return Ok(Some((open.at, open.pages.clone(), open.entry)));
            }
            let entries = open.pages.entries();
            let (unit, index) = (open.at.unit, open.at.index + 1);
            let is_over = |over: &BlockPageEntry| key < over.key();
            if let Some(next) = entries.get(index).filter(|next| next.key() <= key)
                && entries.get(index + 1).is_some_and(is_over)
                && (part == 0 || next.key() == key)
            {
                return Ok(Some((
                    PageEntryPosition { unit, index },
                    open.pages.clone(),
                    *next,
                )));
            }
        }
        let (at, pages) = self.block.pages.find_page(&self.block.files, key)?;
        let entry = pages.entries().get(at.index).copied();
        // A part after the first is always the first column of its page. If the page that was found
        // begins with another key, the part does not exist.
        let entry = entry.filter(|entry| part == 0 || entry.key() == key);
        Ok(entry.map(|entry| (at, pages, entry)))
    }

    fn times_entry(&mut self, number: u32) -> Result<TimeColumnEntry, StorageError> {
        let index = self.open_times_unit(number)?;
        let entry = match &self.times {
            Some((_, unit)) => unit.entry(index),
            None => Err(DecodeError("number of no time column")),
        };
        entry.map_err(|e| self.malformed_times(number, e))
    }

    /// Opens the unit that contains a time column and returns the index of the column in it.
    fn open_times_unit(&mut self, number: u32) -> Result<usize, StorageError> {
        let index = |(first, unit): &(u32, Arc<TimesUnit>)| {
            let at = number.checked_sub(*first)? as usize;
            (at < unit.len()).then_some(at)
        };
        if let Some(at) = self.times.as_ref().and_then(index) {
            return Ok(at);
        }
        let (first, unit, bytes) = self.block.times.find_unit(&self.block.files, number)?;
        self.opened.0 += 1;
        self.opened.1 += bytes;
        let opened = (first, unit);
        let at = index(&opened);
        self.times = Some(opened);
        at.ok_or_else(|| self.malformed_times(number, DecodeError("number of no time column")))
    }

    fn malformed_times(&self, number: u32, e: DecodeError) -> StorageError {
        let times = &self.block.times;
        times.malformed_error(&self.block.files, number, e)
    }
}

/// Returns the error for a malformed page, with its file and offset.
fn malformed_page(block: &Block, entry: &BlockPageEntry, e: DecodeError) -> StorageError {
    match block.files.data_file(entry) {
        Ok(file) => file.malformed_error(entry.offset)(e),
        Err(error) => error,
    }
}
