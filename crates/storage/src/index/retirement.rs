//! Series that the head does not keep any more, but that have sealed samples.
//!
//! A series that fell silent costs the head its chunk, its fingerprint and its place in a table.
//! Once all of its samples are sealed and a new one could not be as old as they are, it *retires*:
//! it stays in the postings, so that its samples are found, and leaves the head. A series that
//! returns takes its slot back, so that its label set is there once: a birth whose terms are all
//! known looks for a retired series that has just those.

use super::membership::Members;
use super::series_pages::{PAGE_SLOTS, PageBuilder, Place};
use super::{Births, Index, Runs, SeriesCursor, TERM_PAGE};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Index {
    /// Series that retired and were not removed.
    pub(crate) fn retired_count(&self) -> usize {
        self.retired.load(Ordering::Relaxed) as usize
    }

    /// The series with a sample in any epoch that is kept.
    pub(crate) fn members(&self) -> Members {
        self.membership.of_all()
    }

    /// The retired series among slots `first` to before `end` that have no sample in any epoch
    /// that is kept.
    pub(super) fn retired_without_samples(&self, first: u32, end: u32) -> Vec<u32> {
        let mut cursor = SeriesCursor::new(self);
        let is_retired = |slot: &u32| cursor.place(*slot) == Some(Place::RETIRED);
        let retired = (first..end).filter(is_retired);
        let members = self.members();
        retired.filter(|slot| !members.has(*slot)).collect()
    }
}

impl Births<'_> {
    /// Takes series out of the head; their slots ascend. The caller holds the shards that kept
    /// them, or has seen to it that nobody looks.
    pub(crate) fn retire(&mut self, slots: &[u32]) {
        let index = self.index;
        let mut moved = 0;
        for of_page in slots.chunk_by(|a, b| a / PAGE_SLOTS == b / PAGE_SLOTS) {
            moved += self.move_in_page(of_page, Place::RETIRED);
        }
        index.retired.fetch_add(moved, Ordering::Relaxed);
    }

    /// Gives a retired series its place in the head.
    pub(crate) fn revive(&mut self, slot: u32, place: Place) {
        let moved = self.move_in_page(&[slot], place);
        self.index.retired.fetch_sub(moved, Ordering::Relaxed);
    }

    /// Moves slots of one page; returns how many there were.
    fn move_in_page(&mut self, slots: &[u32], place: Place) -> u32 {
        let Some(number) = slots.first().map(|slot| slot / PAGE_SLOTS) else {
            return 0;
        };
        let Some(cell) = self.index.series.get(number) else {
            return 0;
        };
        let mut moved = PageBuilder::from_page(&cell.load(), |_| false);
        let page = self.writer.page_under_way(number).unwrap_or(&mut moved);
        let at = |slot: &&u32| page.move_to((**slot % PAGE_SLOTS) as usize, place);
        let count = slots.iter().filter(at).count();
        cell.store(Arc::new(page.build()));
        count as u32
    }

    /// The retired series with exactly these terms, which are in the order of their labels.
    pub(super) fn find_retired(&self, terms: &[u32]) -> Option<u32> {
        if self.index.retired_count() == 0 {
            return None;
        }
        let mut common: Option<Runs> = None;
        for id in terms {
            let page = self.index.terms.get(id / TERM_PAGE)?;
            let term = page.terms[(id % TERM_PAGE) as usize].load_full()?;
            let slots = term.postings.read(u32::MAX);
            let both = common.map_or_else(|| slots.clone(), |c| c.and(&slots));
            if both.is_empty() {
                return None;
            }
            common = Some(both);
        }
        let mut cursor = SeriesCursor::new(self.index);
        common?.slots().find(|slot| {
            if cursor.place(*slot) != Some(Place::RETIRED) {
                return false;
            }
            let mut wanted = terms.iter();
            let mut is_same = true;
            cursor.terms(*slot, |term| is_same &= wanted.next() == Some(&term));
            is_same && wanted.next().is_none()
        })
    }
}
