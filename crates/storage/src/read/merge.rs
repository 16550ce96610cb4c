//! The samples of one series, merged from its sources.
//!
//! ```text
//! pages of the group, in the order in which they were sealed -> the copy of the head
//!   -> the late samples of the head -> columns
//! ```
//!
//! Sources may overlap: what was sealed while a selection was made is in a page and in the copy of
//! the head, what a start took in again from the log may lie before or between what pages hold, and
//! late samples lie anywhere.
//! Invariants:
//!
//! - **Which sample stays.** The merged columns ascend and have each time once. Pages and copy have
//!   what was taken in order: each ascends and has a time once, and where two of them have the same
//!   time both samples are equal, because a series takes one sample for a time in order. Late
//!   samples may repeat the time of any other. They stand behind all that was taken in order, by
//!   arrival, and [`crate::chunk::Duplicates`] says which of those at one time stays.
//! - **Exactly covered.** Every visible sample in the selection's range is in at least one source
//!   that the selection holds. The head was copied first and pages were listed after it, so a
//!   sample that left the head meanwhile is in a listed page. Nothing is read of a source that the
//!   selection did not hold when it was made.
//! - **Damage** costs the part of a source that is damaged; the other sources are given.
//!
//! A further source is added in [`HeadSelection::merge_sources`], at its place in the order:
//! appended to the columns and merged from where it begins. [`super::plain`] must not see a series
//! that has a source beside pages and one chunk, unless it can show that its times lie apart.

use super::{HeadSelection, Memory, OpenGroup};
use firn_model::error::Error;

impl HeadSelection {
    /// Merges the samples of a series, whose group is open, into the columns of `memory`. What is
    /// damaged is left out and reported. A merge costs one comparison for each source whose samples
    /// are newer than those before it.
    pub(super) fn merge_sources(
        &self,
        series: usize,
        open: &mut OpenGroup<'_>,
        memory: &mut Memory,
    ) -> Result<(), Error> {
        memory.columns.clear();
        self.append_in_order(series, open, memory)?;
        self.merge_late(series, memory);
        Ok(())
    }

    /// Merges what pages and head took in order of a series into what the columns of `memory` have
    /// from sources that win over them.
    pub(super) fn append_in_order(
        &self,
        series: usize,
        open: &mut OpenGroup<'_>,
        memory: &mut Memory,
    ) -> Result<(), Error> {
        self.merge_pages(series, open, memory)?;
        self.merge_head(series, memory);
        Ok(())
    }

    /// Merges what the pages of the group hold of a series.
    fn merge_pages(
        &self,
        series: usize,
        open: &mut OpenGroup<'_>,
        memory: &mut Memory,
    ) -> Result<(), Error> {
        let slot = self.numbers.slot(self.slots[series]);
        let into = &mut memory.columns;
        for (entry, opened) in open.entries.iter().zip(&mut open.pages) {
            if !entry.has(slot) {
                continue;
            }
            let Some(page) = self.opened(entry, opened, &mut open.memory)? else {
                continue;
            };
            let before = into.times.len();
            let found = page.find(slot);
            let decoded = match &found {
                Ok(Some(column)) => page.decode(column, self.range, &mut memory.page, into),
                Ok(None) => continue,
                Err(e) => Err(*e),
            };
            match decoded {
                Ok(()) => into.merge_from(before),
                Err(e) => self.lose_column(series, entry, page, (found.ok().flatten(), e)),
            }
            if open.is_last {
                opened.close(&mut open.memory);
            }
        }
        Ok(())
    }

    /// Merges what the head held of a series.
    fn merge_head(&self, series: usize, memory: &mut Memory) {
        let Some(copy) = self.copy(series) else {
            return;
        };
        let into = &mut memory.columns;
        let before = into.times.len();
        match copy.decode(&mut memory.known, into) {
            Ok(()) => into.merge_from(before),
            Err(e) => self.lose_chunk(series, copy, e),
        }
    }

    /// Merges the late samples that the head held of a series, behind all that was taken in order.
    pub(super) fn merge_late(&self, series: usize, memory: &mut Memory) {
        let Some(late) = self.late(series) else {
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
