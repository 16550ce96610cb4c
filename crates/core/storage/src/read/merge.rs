//! Merges the samples of one series from its sources.
//!
//! ```text
//! pages of the group, in the order in which they were sealed -> the copy of the head
//!   -> the late samples of the head -> columns
//! ```
//!
//! Sources may overlap: samples that were sealed while a selection was created are in a page and in
//! the copy of the head, samples that replay restored from the log may be before or between those
//! in pages, and late samples may be anywhere. Invariants:
//!
//! - **Precedence.** The times of the merged columns strictly increase. Pages and the copy contain
//!   samples that were appended in order: the times of each strictly increase, and two samples at
//!   the same time are equal, because a series accepts one in-order sample per time. Late samples
//!   may repeat the time of any other sample. They come after all in-order samples, in order of
//!   arrival, and [`crate::chunk::DuplicatePolicy`] determines which sample of a time is returned.
//! - **Completeness.** Every visible sample in the selection's range is in at least one source that
//!   the selection holds. The head is copied first and pages are listed after that, so a sample
//!   that leaves the head in between is in a listed page. Nothing is read from a source that the
//!   selection did not hold when it was created.
//! - **Deletion.** Deleted samples are removed from a source before it is merged, so that they do
//!   not take precedence over a sample that was stored later.
//! - **Damage** affects only the damaged part of a source; all other samples are returned.
//!
//! To add another source, append it to the columns in [`HeadSelection::merge_sources`], at its
//! position in the order, and merge it from where it begins. [`super::plain`] must not read a
//! series that has a source other than pages and one chunk, unless the times of the sources cannot
//! overlap.

use super::{HeadSelection, OpenPageGroup, SeriesReadScratch};
use crate::tombstones::hide_deleted;
use firn_model::error::Error;

impl HeadSelection {
    /// Merges the samples of a series into the columns of `memory`. The group of the series must be
    /// open. Damaged samples are left out and reported. A merge costs one comparison for each
    /// source whose samples are newer than the previous ones.
    pub(super) fn merge_sources(
        &self,
        series: usize,
        open: &mut OpenPageGroup<'_>,
        memory: &mut SeriesReadScratch,
    ) -> Result<(), Error> {
        memory.columns.clear();
        self.append_in_order(series, open, memory)?;
        self.merge_late(series, memory);
        if !self.deleted_times(series).is_empty() {
            memory.columns.forget_reset_hints();
        }
        Ok(())
    }

    /// Merges the in-order samples of a series from pages and head into the columns of `memory`,
    /// which may contain samples of sources with precedence.
    pub(super) fn append_in_order(
        &self,
        series: usize,
        open: &mut OpenPageGroup<'_>,
        memory: &mut SeriesReadScratch,
    ) -> Result<(), Error> {
        self.merge_pages(series, open, memory)?;
        self.merge_head(series, memory);
        Ok(())
    }

    /// Merges the samples of a series from the pages of the group.
    fn merge_pages(
        &self,
        series: usize,
        open: &mut OpenPageGroup<'_>,
        memory: &mut SeriesReadScratch,
    ) -> Result<(), Error> {
        let slot = self.numbers.slot(self.slots[series]);
        let deleted = self.deleted_times(series);
        let into = &mut memory.columns;
        for (entry, opened) in open.entries.iter().zip(&mut open.pages) {
            if !entry.has_series(slot) {
                continue;
            }
            let Some(page) = self.open_cached(entry, opened, &mut open.memory)? else {
                continue;
            };
            let before = into.times.len();
            let found = page.find_column(slot);
            let decoded = match &found {
                Ok(Some(column)) => page.decode(column, self.range, &mut memory.page, into),
                Ok(None) => continue,
                Err(e) => Err(*e),
            };
            match decoded {
                Ok(()) => {
                    hide_deleted(into, before, deleted);
                    into.merge_from(before);
                }
                Err(e) => self.report_lost_column(series, entry, page, found.ok().flatten(), e),
            }
            if open.is_last {
                opened.close(&mut open.memory);
            }
        }
        Ok(())
    }

    /// Merges the in-order samples of a series from the head.
    fn merge_head(&self, series: usize, memory: &mut SeriesReadScratch) {
        let Some(copy) = self.head_copy(series) else {
            return;
        };
        let into = &mut memory.columns;
        let before = into.times.len();
        match copy.decode(&mut memory.known, into) {
            Ok(()) => {
                hide_deleted(into, before, self.deleted_times(series));
                into.merge_from(before);
            }
            Err(e) => self.report_lost_chunk(series, copy, e),
        }
    }

    /// Merges the late samples of a series from the head, after all in-order samples.
    pub(super) fn merge_late(&self, series: usize, memory: &mut SeriesReadScratch) {
        let Some(late) = self.late_copy(series) else {
            return;
        };
        let into = &mut memory.columns;
        let before = into.times.len();
        for (row, start) in self.late_rule.rows(late, self.late_range) {
            into.push(row.time, start, &row.value);
        }
        into.merge_late(before, self.late_rule.duplicates);
    }
}
