//! Series creation: adds new series to the index.
//!
//! Consecutive series of a batch share most of their labels, so interning compares a series with
//! the previous one first. Postings receive whole runs of series, and all runs of a term in a batch
//! at once.

use super::core::Index;
use super::series_table::{HeadSeriesPlace, LEAF_SLOTS};
use super::terms::IndexFull;
use super::writer::{IndexWriterState, OpenTermRun};
use crate::failpoints;
use crate::ids::{SeriesRef, TermId};
use crate::sync::atomic::Ordering;
use crate::sync::{MutexGuard, lock};
use firn_model::label_code::steps::LabelStep;
use firn_model::labels::LabelsRef;

/// The creation of series of one batch. Holds the lock of the index; readers see the series when it
/// is dropped.
pub(crate) struct SeriesCreation<'a> {
    pub(super) index: &'a Index,
    pub(super) writer: MutexGuard<'a, IndexWriterState>,
    created: u32,
}

impl Index {
    /// Starts to create series. Other creations and removals wait until the result is dropped.
    pub(crate) fn create_series(&self) -> SeriesCreation<'_> {
        SeriesCreation {
            index: self,
            writer: lock(&self.writer),
            created: 0,
        }
    }

    /// Returns the slot that the next new series gets; all lower slots are taken.
    pub(crate) fn next_slot(&self) -> u32 {
        let writer = lock(&self.writer);
        writer.next_slot
    }

    /// Returns the number of new series for which slots remain.
    pub(crate) fn remaining_slots(&self) -> u32 {
        let writer = lock(&self.writer);
        writer.end_slot.saturating_sub(writer.next_slot)
    }
}

impl SeriesCreation<'_> {
    /// Returns the slot that the next new series gets.
    pub(crate) fn next_slot(&self) -> SeriesRef {
        SeriesRef(self.writer.next_slot)
    }

    /// Indexes a series at `place` of the head and returns its slot. An evicted series gets
    /// its old slot. Fails if the index is full.
    pub(crate) fn add_series(
        &mut self,
        labels: LabelsRef<'_>,
        place: HeadSeriesPlace,
    ) -> Result<SeriesRef, IndexFull> {
        self.intern(labels)?;
        let terms = std::mem::take(&mut self.writer.terms);
        let slot = match self.index.find_evicted(&terms) {
            Some(slot) => {
                self.restore_series(slot, place);
                slot
            }
            None => {
                let slot = SeriesRef(self.writer.next_slot);
                self.insert_series(slot, place, &terms);
                slot
            }
        };
        self.writer.terms = terms;
        Ok(slot)
    }

    /// Returns the terms of `labels` in their order, valid until the next call. Creates missing
    /// labels and terms.
    pub(crate) fn intern(&mut self, labels: LabelsRef<'_>) -> Result<&[TermId], IndexFull> {
        let writer = &mut *self.writer;
        if writer.next_slot >= writer.end_slot {
            return Err(IndexFull);
        }
        writer.terms.clear();
        writer
            .interner
            .intern(&self.index.dictionary, labels, &mut writer.terms)?;
        Ok(&writer.terms)
    }

    /// Like [`SeriesCreation::intern`], for labels given as differences from those of the previous
    /// call.
    pub(crate) fn intern_steps<'l>(
        &mut self,
        steps: impl Iterator<Item = LabelStep<'l>>,
    ) -> Result<&[TermId], IndexFull> {
        let writer = &mut *self.writer;
        writer.terms.clear();
        writer
            .interner
            .intern_steps(&self.index.dictionary, steps, &mut writer.terms)?;
        Ok(&writer.terms)
    }

    /// Adds the series `slot` with these terms. The slot must be higher than all others.
    pub(crate) fn insert_series(
        &mut self,
        SeriesRef(slot): SeriesRef,
        place: HeadSeriesPlace,
        terms: &[TermId],
    ) {
        let index = self.index;
        let writer = &mut *self.writer;
        assert!(slot >= writer.next_slot, "slots are given in order");
        if slot != writer.next_slot {
            writer.flush(&index.dictionary);
        }
        if slot / LEAF_SLOTS != writer.next_slot / LEAF_SLOTS {
            writer.begin_next_leaf(&index.dictionary);
        }
        let mut open = std::mem::take(&mut writer.scratch_open);
        open.clear();
        let mut before = writer.open.iter().peekable();
        for term in terms {
            if let Some(same) = before.next_if(|b| b.term == *term) {
                open.push(*same);
                continue;
            }
            let label = index.dictionary.label_of_term(*term);
            while let Some(b) = before.next_if(|b| index.dictionary.is_before(b.label, label)) {
                b.end_term(&mut writer.pending, slot);
                b.end_label(&mut writer.pending, slot);
            }
            let same_label = before.next_if(|b| b.label == label);
            if let Some(b) = same_label {
                b.end_term(&mut writer.pending, slot);
            }
            open.push(OpenTermRun {
                term: *term,
                label,
                term_start: slot,
                label_start: same_label.map_or(slot, |b| b.label_start),
            });
        }
        for b in before {
            b.end_term(&mut writer.pending, slot);
            b.end_label(&mut writer.pending, slot);
        }
        writer.scratch_open = std::mem::replace(&mut writer.open, open);
        writer.leaf.push((slot % LEAF_SLOTS) as usize, place, terms);
        writer.next_slot = slot + 1;
        self.created += 1;
        writer.pending.flush_if_long(&index.dictionary);
        if writer.next_slot.is_multiple_of(LEAF_SLOTS) {
            writer.publish_leaf_at(&index.dictionary, slot);
        }
    }

    /// Reserves all slots below `end` for series that replay has found. New series get higher ones.
    pub(crate) fn reserve_slots_below(&mut self, end: u32) {
        let writer = &mut *self.writer;
        if end > writer.next_slot {
            writer.flush(&self.index.dictionary);
            if end / LEAF_SLOTS != writer.next_slot / LEAF_SLOTS {
                writer.begin_next_leaf(&self.index.dictionary);
            }
            writer.next_slot = end;
        }
    }
}

impl SeriesCreation<'_> {
    /// Ends replay: the slots of new series start at `first`. Tests can limit the number of new
    /// series.
    pub(crate) fn begin_new_series(&mut self, first: SeriesRef) {
        self.reserve_slots_below(first.0);
        if let Some(max) = failpoints::faults().new_series_max {
            self.writer.end_slot = first.0 + max;
        }
    }
}

impl Drop for SeriesCreation<'_> {
    fn drop(&mut self) {
        let writer = &mut *self.writer;
        writer.flush(&self.index.dictionary);
        if !writer.next_slot.is_multiple_of(LEAF_SLOTS) {
            let number = writer.next_slot / LEAF_SLOTS;
            self.index
                .dictionary
                .publish_leaf(number, writer.leaf.build());
        }
        self.index.live.fetch_add(self.created, Ordering::Relaxed);
        // Release: a reader that sees the slots sees their postings and leaves.
        self.index
            .published
            .store(writer.next_slot, Ordering::Release);
    }
}
