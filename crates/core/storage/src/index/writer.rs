//! The state of series creation that is kept between batches: the current leaf, open runs, and the
//! last interned series.

use super::interning::SeriesInterner;
use super::pending::PendingRuns;
use super::runs::SlotRun;
use super::series_table::{LEAF_SLOTS, LeafBuilder};
use super::terms::IndexTerms;
use crate::ids::{LabelId, SeriesRef, TermId};

/// A term whose newest run is not in its postings yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenTermRun {
    pub(super) term: TermId,
    pub(super) label: LabelId,
    pub(super) term_start: u32,
    pub(super) label_start: u32,
}

/// The state that is kept between batches of new series, behind the lock of the index.
#[derive(Debug)]
pub(super) struct IndexWriterState {
    pub(super) next_slot: u32,
    /// New series get slots below this one only.
    pub(super) end_slot: u32,
    pub(super) leaf: LeafBuilder,
    pub(super) open: Vec<OpenTermRun>,
    pub(super) scratch_open: Vec<OpenTermRun>,
    /// Runs that are not in the postings yet.
    pub(super) pending: PendingRuns,
    /// Interner with the last series.
    pub(super) interner: SeriesInterner,
    pub(super) terms: Vec<TermId>,
}

impl Default for IndexWriterState {
    fn default() -> Self {
        Self {
            next_slot: 0,
            end_slot: SeriesRef::END,
            leaf: LeafBuilder::default(),
            open: Vec::new(),
            scratch_open: Vec::new(),
            pending: PendingRuns::default(),
            interner: SeriesInterner::default(),
            terms: Vec::new(),
        }
    }
}

impl IndexWriterState {
    /// Ends all open runs at the next slot, and appends them to the postings.
    pub(super) fn flush(&mut self, index: &IndexTerms) {
        let end = self.next_slot;
        for run in self.open.drain(..) {
            run.end_term(&mut self.pending, end);
            run.end_label(&mut self.pending, end);
        }
        self.pending.flush(index);
    }

    /// Publishes the leaf of the last slot and starts the next one.
    pub(super) fn begin_next_leaf(&mut self, index: &IndexTerms) {
        if let Some(last) = self.next_slot.checked_sub(1) {
            self.publish_leaf_at(index, last);
        }
    }

    /// Publishes the leaf that contains the slot `last`, and clears the builder for the next leaf.
    pub(super) fn publish_leaf_at(&mut self, index: &IndexTerms, last: u32) {
        if !self.leaf.is_vacant() {
            index.publish_leaf(last / LEAF_SLOTS, self.leaf.build());
        }
        self.leaf.clear();
    }

    /// Drops the last interned series, whose terms may be removed.
    pub(super) fn reset_interner(&mut self) {
        self.interner.reset();
    }

    /// Returns the current leaf if it has this number.
    pub(super) fn current_leaf(&mut self, number: u32) -> Option<&mut LeafBuilder> {
        let is_it =
            !self.next_slot.is_multiple_of(LEAF_SLOTS) && self.next_slot / LEAF_SLOTS == number;
        is_it.then_some(&mut self.leaf)
    }
}

impl OpenTermRun {
    /// Ends the run of the term before slot `end`, and adds it to the pending ones.
    pub(super) fn end_term(&self, pending: &mut PendingRuns, end: u32) {
        let start = self.term_start;
        pending.of_terms.push(self.term.0, SlotRun { start, end });
    }

    /// Ends the run of the label before slot `end`, and adds it to the pending ones.
    pub(super) fn end_label(&self, pending: &mut PendingRuns, end: u32) {
        let start = self.label_start;
        pending.of_labels.push(self.label.0, SlotRun { start, end });
    }
}
