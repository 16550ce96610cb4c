//! The sections of a block that locate series, postings, times and pages: each holds the table of
//! its units, and reads the unit that contains an item.
//!
//! [`super::terms_section`] contains the section of labels and terms. Exemplars and metadata, which
//! a block may lack, read their units themselves.

use super::files::BlockFiles;
use super::pages::{BlockPageEntry, PagesUnit};
use super::postings::{self, PostingsUnit};
use super::series::{RUN_SERIES, SeriesUnit, UNIT_SERIES};
use super::terms::TermPostings;
use super::times::TimesUnit;
use super::unit::UnitTable;
use crate::encoding::DecodeError;
use crate::error::StorageError;
use std::sync::Arc;

/// The section of series: the value numbers of each label.
#[derive(Debug)]
pub(super) struct SeriesSection {
    pub(super) units: UnitTable,
    /// Number of series in the block.
    pub(super) count: u32,
}

impl SeriesSection {
    /// Returns whether the units cover all series of the block.
    pub(super) fn is_complete(&self) -> bool {
        let each = u64::from(UNIT_SERIES);
        let firsts = self.units.iter().map(|unit| unit.first);
        let wanted = (0..u64::from(self.count).div_ceil(each)).map(|unit| unit * each);
        firsts.eq(wanted)
    }

    /// Returns the unit with this index.
    pub(super) fn unit(
        &self,
        files: &BlockFiles,
        index: usize,
    ) -> Result<Arc<SeriesUnit>, StorageError> {
        let len = self.unit_series_count(index);
        files.load_unit(self.units.get(index), |bytes| SeriesUnit::open(bytes, len))
    }

    /// Returns, for each series of a run, one plus the number of its value of the label, or 0 if it
    /// lacks the label.
    pub(super) fn read_value_numbers(
        &self,
        files: &BlockFiles,
        label: u32,
        run: usize,
    ) -> Result<Vec<i64>, StorageError> {
        let each = UNIT_SERIES as usize / RUN_SERIES;
        let unit = self.unit(files, run / each)?;
        let mut numbers = Vec::new();
        let read = unit.read_run(label, run % each, &mut numbers);
        read.map_err(|e| files.malformed_unit(self.units.get(run / each), e))?;
        Ok(numbers)
    }

    /// Returns the number of series in the unit with this index.
    pub(super) fn unit_series_count(&self, index: usize) -> usize {
        let before = index as u64 * u64::from(UNIT_SERIES);
        let rest = u64::from(self.count).saturating_sub(before);
        rest.min(UNIT_SERIES.into()) as usize
    }
}

/// The section of postings: the series of each term and of each label.
#[derive(Debug)]
pub(super) struct PostingsSection {
    pub(super) units: UnitTable,
    /// Number of series in the block.
    pub(super) series: u32,
}

impl PostingsSection {
    /// Appends the series of one posting list to `into`, reading its unit through the cache.
    pub(super) fn read_list(
        &self,
        files: &BlockFiles,
        list: &TermPostings,
        into: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        if list.bytes == 0 {
            return postings::read_postings(&[], list.series, self.series, into)
                .map_err(|e| files.malformed_unit(None, e));
        }
        let index = self.units.find(list.offset).unwrap_or(0);
        let entry = self.units.get(index);
        let unit = files.load_unit(entry, |bytes| Ok(PostingsUnit(bytes)))?;
        let at = list
            .offset
            .checked_sub(entry.map_or(0, |entry| entry.first));
        let at = at.and_then(|at| usize::try_from(at).ok());
        let bytes = at.and_then(|at| unit.0.get(at..));
        let bytes = bytes.and_then(|rest| rest.get(..list.bytes as usize));
        let read = match bytes {
            Some(bytes) => postings::read_postings(bytes, list.series, self.series, into),
            None => Err(DecodeError("list of series outside of its unit")),
        };
        read.map_err(|e| files.malformed_unit(entry, e))
    }
}

/// The section of time columns, which the columns of pages refer to by number.
#[derive(Debug)]
pub(super) struct TimesSection {
    pub(super) units: UnitTable,
}

impl TimesSection {
    /// Returns the unit that contains a time column, with the number of its first column and its
    /// size in bytes.
    pub(super) fn find_unit(
        &self,
        files: &BlockFiles,
        number: u32,
    ) -> Result<(u32, Arc<TimesUnit>, u64), StorageError> {
        let index = self.units.find(number.into()).unwrap_or(0);
        let entry = self.units.get(index);
        let (first, bytes) = entry.map_or((0, 0), |entry| (entry.first, u64::from(entry.bytes)));
        let unit = files.load_unit(entry, TimesUnit::open)?;
        Ok((first as u32, unit, bytes))
    }

    /// Returns the error for a malformed time column.
    pub(super) fn malformed_error(
        &self,
        files: &BlockFiles,
        number: u32,
        e: DecodeError,
    ) -> StorageError {
        let index = self.units.find(number.into());
        files.malformed_unit(index.and_then(|index| self.units.get(index)), e)
    }
}

/// The position of a page entry: the index of its unit and its index in that unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageEntryPosition {
    pub(super) unit: usize,
    pub(super) index: usize,
}

/// The section of page entries, which locate the data pages.
#[derive(Debug)]
pub(super) struct PagesSection {
    pub(super) units: UnitTable,
}

impl PagesSection {
    /// Returns the unit with this index.
    fn unit(&self, files: &BlockFiles, index: usize) -> Result<Arc<PagesUnit>, StorageError> {
        files.load_unit(self.units.get(index), |bytes| PagesUnit::open(&bytes))
    }

    /// Returns the position of the last page whose key is not greater than `key`: the only page
    /// that can contain this part of the series.
    pub(super) fn find_page(
        &self,
        files: &BlockFiles,
        key: u64,
    ) -> Result<(PageEntryPosition, Arc<PagesUnit>), StorageError> {
        let unit = self.units.find(key).unwrap_or(0);
        let pages = self.unit(files, unit)?;
        let behind = pages.entries().partition_point(|page| page.key() <= key);
        let index = behind.saturating_sub(1);
        Ok((PageEntryPosition { unit, index }, pages))
    }

    /// Returns the position and entry of the page after `at`, or `None` at the end of the block.
    pub(super) fn next_page(
        &self,
        files: &BlockFiles,
        at: PageEntryPosition,
        pages: &Arc<PagesUnit>,
    ) -> Result<Option<(PageEntryPosition, Arc<PagesUnit>, BlockPageEntry)>, StorageError> {
        let (unit, index) = (at.unit, at.index + 1);
        if let Some(entry) = pages.entries().get(index) {
            return Ok(Some((
                PageEntryPosition { unit, index },
                pages.clone(),
                *entry,
            )));
        }
        if unit + 1 >= self.units.len() {
            return Ok(None);
        }
        let pages = self.unit(files, unit + 1)?;
        let first = pages.entries().first().copied();
        let at = PageEntryPosition {
            unit: unit + 1,
            index: 0,
        };
        Ok(first.map(|entry| (at, pages, entry)))
    }
}
