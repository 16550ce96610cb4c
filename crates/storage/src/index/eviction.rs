//! Series that the head does not keep any more, but that have sealed samples.
//!
//! A series that fell silent costs the head its chunk, its fingerprint and its place in a table.
//! Once all of its samples are sealed and a new one could not be as old as they are, it is
//! *evicted*: it stays in the postings, so that its samples are found, and leaves the head. A
//! series that returns takes its slot back, so that its label set is there once: creation looks
//! into a table of the evicted series by the hash of their terms.

use super::core::Index;
use super::creation::Births;
use super::membership::Members;
use super::series_pages::{PAGE_SLOTS, Place, SeriesCursor};
use crate::failpoints::{self, Flaw};
use std::sync::Arc;

/// Terms that are hashed: those behind it are compared alone.
const TERMS_HASHED: usize = 64;

impl Index {
    /// Series that retired and were not removed.
    pub(crate) fn retired_count(&self) -> usize {
        self.retired.count()
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

impl Index {
    /// The hash by which a series with these terms, in the order of their labels, is found again.
    fn hash_of_terms(&self, terms: impl IntoIterator<Item = u32>) -> u64 {
        let mut bytes = [0; 4 * TERMS_HASHED];
        let mut end = 0;
        for (cell, term) in bytes.chunks_exact_mut(4).zip(terms) {
            cell.copy_from_slice(&term.to_le_bytes());
            end += 4;
        }
        self.keys.hash(&bytes[..end])
    }

    fn hash_of_slot(&self, cursor: &mut SeriesCursor<'_>, slot: u32) -> u64 {
        self.hash_of_terms(cursor.terms(slot).iter().copied())
    }

    /// Forgets that a series retired, if it did; its terms are still there.
    pub(super) fn forget_retired(&self, slot: u32) {
        let mut cursor = SeriesCursor::new(self);
        if cursor.place(slot) == Some(Place::RETIRED) {
            let hash = self.hash_of_slot(&mut cursor, slot);
            self.retired.remove(hash, slot);
        }
    }
}

impl Births<'_> {
    /// Takes series out of the head; their slots ascend. The caller holds the shards that kept
    /// them, or has seen to it that nobody looks.
    pub(crate) fn retire(&mut self, slots: &[u32]) {
        for of_page in slots.chunk_by(|a, b| a / PAGE_SLOTS == b / PAGE_SLOTS) {
            self.move_in_page(of_page, Place::RETIRED);
        }
        let index = self.index;
        let mut cursor = SeriesCursor::new(index);
        for slot in slots {
            let hash = index.hash_of_slot(&mut cursor, *slot);
            index.retired.insert(hash, *slot);
        }
    }

    /// Gives a retired series its place in the head.
    pub(crate) fn revive(&mut self, slot: u32, place: Place) {
        self.index.forget_retired(slot);
        self.move_in_page(&[slot], place);
    }

    /// Moves slots of one page.
    fn move_in_page(&mut self, slots: &[u32], place: Place) {
        let Some(number) = slots.first().map(|slot| slot / PAGE_SLOTS) else {
            return;
        };
        let Some(cell) = self.index.series.get(number) else {
            return;
        };
        let at = |slot: &u32| (slot % PAGE_SLOTS) as usize;
        let page = match self.writer.page_under_way(number) {
            Some(page) => {
                slots.iter().for_each(|slot| page.move_to(at(slot), place));
                page.build()
            }
            None => cell.load().moved(slots.iter().map(at), place),
        };
        cell.store(Arc::new(page));
    }

    /// The retired series with exactly these terms, which are in the order of their labels.
    pub(super) fn find_retired(&self, terms: &[u32]) -> Option<u32> {
        if self.index.retired_count() == 0 || failpoints::has(Flaw::LosesEvicted) {
            return None;
        }
        let hash = self.index.hash_of_terms(terms.iter().copied());
        let retired = &self.index.retired;
        retired.find(hash, |slot| {
            SeriesCursor::new(self.index).terms(slot) == terms
        })
    }
}
