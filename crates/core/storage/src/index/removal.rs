//! Removal of series: first from the postings, later from memory.
//!
//! A reader that found a slot may read its labels at any later time, so removed series and terms
//! remain in memory until every reader that began before the removal is done. Readers hold the
//! [`ReaderGeneration`] in which they began. A removal starts a new generation, and its
//! [`IndexGarbage`] is swept when no reader holds the old one.

use super::core::Index;
use super::generation::ReaderGeneration;
use super::runs::{SlotRun, SlotRunSet};
use super::series_table::{LEAF_SLOTS, LeafBuilder, SeriesCursor};
use super::terms::LEAF_TERMS;
use super::writer::IndexWriterState;
use crate::failpoints::{self, StoreFlaw};
use crate::ids::{LabelId, SeriesRef, TermId};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Removed series and terms that earlier readers may still access.
#[derive(Debug)]
pub(crate) struct IndexGarbage {
    generation: Arc<ReaderGeneration>,
    slots: Vec<SeriesRef>,
    terms: Vec<TermId>,
}

impl Index {
    /// Drops the membership of epochs before `epoch`. Returns whether there was any.
    pub(crate) fn drop_epochs_before(&self, epoch: i64) -> bool {
        self.membership.drop_before(epoch)
    }

    /// Removes the series of `gone`, which must be in ascending order, from all postings and
    /// epochs. New lookups do not find them any more.
    pub(crate) fn remove_series(&self, gone: &[SeriesRef]) -> IndexGarbage {
        let mut writer = lock(&self.writer);
        self.remove_locked(&mut writer, gone)
    }

    /// Removes from all postings the evicted series in slots `first..end` that have no sample in
    /// any remaining epoch. Returns their number with the garbage, or `None` if there are none.
    pub(crate) fn remove_evicted(&self, first: u32, end: u32) -> Option<(usize, IndexGarbage)> {
        let gone = || self.find_evicted_without_samples(first, end);
        let too_early = failpoints::has(StoreFlaw::RemovesUnlocked).then(gone);
        failpoints::turn();
        // Held throughout, so that none of them is restored in the meantime.
        let mut writer = lock(&self.writer);
        let gone = too_early.unwrap_or_else(gone);
        (!gone.is_empty()).then(|| (gone.len(), self.remove_locked(&mut writer, &gone)))
    }

    /// Removes series under the lock of the writer, and starts a new generation of readers.
    fn remove_locked(&self, writer: &mut IndexWriterState, gone: &[SeriesRef]) -> IndexGarbage {
        assert!(gone.is_sorted(), "sets of slots are built in order");
        // The interner caches terms that may be removed.
        writer.reset_interner();
        let mut by_term: BTreeMap<TermId, SlotRunSet> = BTreeMap::new();
        let mut by_label: BTreeMap<LabelId, SlotRunSet> = BTreeMap::new();
        let mut cursor = SeriesCursor::new(&self.dictionary);
        for slot in gone {
            self.membership.clear(*slot);
            self.unlist_evicted(*slot);
            let run = SlotRun::from_slot(*slot);
            for term in cursor.terms(*slot) {
                by_term.entry(*term).or_default().push(run);
                let label = self.dictionary.label_of_term(*term);
                by_label.entry(label).or_default().push(run);
            }
        }
        for (label, slots) in by_label {
            if let Some(label) = self.dictionary.labels.get(label.0) {
                label.present.remove(&slots);
            }
        }
        let mut terms = Vec::new();
        for (id, slots) in by_term {
            if self.remove_from_term(id, &slots) {
                terms.push(id);
            }
        }
        self.live.fetch_sub(gone.len() as u32, Ordering::Relaxed);
        IndexGarbage {
            generation: self.generation.swap(Arc::default()),
            slots: gone.to_vec(),
            terms,
        }
    }

    /// Removes slots from the postings of a term. Returns whether no series has the term any more.
    fn remove_from_term(&self, id: TermId, slots: &SlotRunSet) -> bool {
        let Some(term) = self.dictionary.term(id) else {
            return false;
        };
        term.postings.remove(slots);
        let is_unused = term.postings.count() == 0;
        if is_unused && let Some(label) = self.dictionary.labels.get(term.label.0) {
            label
                .values
                .remove(self.dictionary.keys.hash(&term.value), id.0);
            label.distinct.fetch_sub(1, Ordering::Relaxed);
            label.dictionary.drop_if_outdated(label.values_count());
        }
        is_unused
    }

    /// Frees the memory of a removal, or returns `garbage` unchanged if a reader may still access
    /// it.
    pub(crate) fn free_garbage(&self, garbage: IndexGarbage) -> Option<IndexGarbage> {
        let is_held = Arc::strong_count(&garbage.generation) > 1;
        if is_held && !failpoints::has(StoreFlaw::SweepsUnderReaders) {
            return Some(garbage);
        }
        for id in garbage.terms {
            if let Some(leaf) = self.dictionary.terms.get(id.0 / LEAF_TERMS) {
                leaf.terms[(id.0 % LEAF_TERMS) as usize].store(None);
            }
        }
        let mut writer = lock(&self.writer);
        let leaves: BTreeSet<u32> = garbage.slots.iter().map(|s| s.0 / LEAF_SLOTS).collect();
        for number in leaves {
            let Some(cell) = self.dictionary.series.get(number) else {
                continue;
            };
            let is_gone = |at: usize| {
                let slot = SeriesRef(number * LEAF_SLOTS + at as u32);
                garbage.slots.binary_search(&slot).is_ok()
            };
            let mut left = LeafBuilder::from_leaf(&cell.load(), is_gone);
            if let Some(under_way) = writer.current_leaf(number) {
                std::mem::swap(under_way, &mut left);
                cell.store(Arc::new(under_way.build()));
            } else if left.is_vacant() {
                cell.store(Arc::default());
            } else {
                cell.store(Arc::new(left.build()));
            }
        }
        None
    }
}
