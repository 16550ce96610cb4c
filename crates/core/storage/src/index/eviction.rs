//! Eviction: removes series from the head that have only sealed samples, and restores them.
//!
//! A silent series costs the head its chunk, its fingerprint and its place in a table. Once all of
//! its samples are sealed and no new sample could be as old as they are, it is *evicted*: it leaves
//! the head and remains in the postings, so that queries find its samples. A series that gets
//! samples again keeps its slot, so that each label set exists once: creation searches a table of
//! evicted series by the hash of their terms.

use super::core::Index;
use super::creation::SeriesCreation;
use super::membership::EpochMembers;
use super::series_table::{HeadSeriesPlace, LEAF_SLOTS, SeriesCursor};
use crate::failpoints::{self, StoreFlaw};
use crate::ids::{SeriesRef, TermId};
use std::sync::Arc;

/// Maximum number of terms in the hash; further terms are only compared.
const TERMS_HASHED: usize = 64;

impl Index {
    /// Returns the number of evicted series that are not removed.
    pub(crate) fn evicted_count(&self) -> usize {
        self.evicted.count()
    }

    /// Returns the evicted series with exactly these terms, which must be in the order of their
    /// labels.
    pub(super) fn find_evicted(&self, terms: &[TermId]) -> Option<SeriesRef> {
        if self.evicted_count() == 0 || failpoints::has(StoreFlaw::LosesEvicted) {
            return None;
        }
        let hash = self.hash_terms(terms.iter().copied());
        let found = self.evicted.find(hash, |slot| {
            SeriesCursor::new(&self.dictionary).terms(SeriesRef(slot)) == terms
        });
        found.map(SeriesRef)
    }

    /// Returns the series with a sample in any epoch that is kept.
    pub(crate) fn members(&self) -> EpochMembers {
        self.membership.snapshot_all()
    }

    /// Returns the evicted series in slots `first..end` that have no sample in any remaining epoch.
    pub(super) fn find_evicted_without_samples(&self, first: u32, end: u32) -> Vec<SeriesRef> {
        let mut cursor = SeriesCursor::new(&self.dictionary);
        let is_evicted = |slot: &SeriesRef| cursor.place(*slot) == Some(HeadSeriesPlace::EVICTED);
        let evicted = (first..end).map(SeriesRef).filter(is_evicted);
        let members = self.members();
        evicted.filter(|slot| !members.contains(*slot)).collect()
    }
}

impl Index {
    /// Returns the hash of a series with these terms, which must be in the order of their labels.
    fn hash_terms(&self, terms: impl IntoIterator<Item = TermId>) -> u64 {
        let mut bytes = [0; 4 * TERMS_HASHED];
        let mut end = 0;
        for (cell, term) in bytes.chunks_exact_mut(4).zip(terms) {
            cell.copy_from_slice(&term.0.to_le_bytes());
            end += 4;
        }
        self.dictionary.keys.hash(&bytes[..end])
    }

    fn hash_series(&self, cursor: &mut SeriesCursor<'_>, slot: SeriesRef) -> u64 {
        self.hash_terms(cursor.terms(slot).iter().copied())
    }

    /// Removes a series from the table of evicted ones, if it is in it. The terms of the series
    /// must still exist.
    pub(super) fn unlist_evicted(&self, slot: SeriesRef) {
        let mut cursor = SeriesCursor::new(&self.dictionary);
        if cursor.place(slot) == Some(HeadSeriesPlace::EVICTED) {
            let hash = self.hash_series(&mut cursor, slot);
            self.evicted.remove(hash, slot.0);
        }
    }
}

impl SeriesCreation<'_> {
    /// Marks series as evicted; `slots` must be in ascending order. The caller holds the locks of
    /// their shards, or runs before all readers and writers.
    pub(crate) fn evict_series(&mut self, slots: &[SeriesRef]) {
        assert!(slots.is_sorted(), "leaves are written once");
        for of_leaf in slots.chunk_by(|a, b| a.0 / LEAF_SLOTS == b.0 / LEAF_SLOTS) {
            self.move_in_leaf(of_leaf, HeadSeriesPlace::EVICTED);
        }
        let index = self.index;
        let mut cursor = SeriesCursor::new(&index.dictionary);
        for slot in slots {
            let hash = index.hash_series(&mut cursor, *slot);
            index.evicted.insert(hash, slot.0);
        }
    }

    /// Restores an evicted series at its new place in the head.
    pub(crate) fn restore_series(&mut self, slot: SeriesRef, place: HeadSeriesPlace) {
        self.index.unlist_evicted(slot);
        self.move_in_leaf(&[slot], place);
    }

    /// Changes the places of slots of one leaf.
    fn move_in_leaf(&mut self, slots: &[SeriesRef], place: HeadSeriesPlace) {
        let Some(number) = slots.first().map(|slot| slot.0 / LEAF_SLOTS) else {
            return;
        };
        let Some(cell) = self.index.dictionary.series.get(number) else {
            return;
        };
        let at = |slot: &SeriesRef| (slot.0 % LEAF_SLOTS) as usize;
        let leaf = match self.writer.current_leaf(number) {
            Some(leaf) => {
                slots.iter().for_each(|slot| leaf.move_to(at(slot), place));
                leaf.build()
            }
            None => cell.load().with_moved(slots.iter().map(at), place),
        };
        cell.store(Arc::new(leaf));
    }
}
