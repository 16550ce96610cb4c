//! Creation: the one place where series enter the index.
//!
//! Series of a batch share most of their labels with the series before them, so interning looks for
//! what is equal to that one first. Postings are told of whole runs of series, and once for all
//! runs of a term in a batch.

use super::core::Index;
use super::series_pages::{PAGE_SLOTS, Place};
use super::terms::Full;
use super::writer::{OpenRun, Writer};
use crate::encoding::labels::steps::Step;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use firn_model::labels::LabelsRef;

/// A batch of births; readers see them all when it is dropped.
pub(crate) struct Births<'a> {
    pub(super) index: &'a Index,
    pub(super) writer: MutexGuard<'a, Writer>,
    born: u32,
}

impl Index {
    /// Begins a batch of births, alone.
    pub(crate) fn births(&self) -> Births<'_> {
        Births {
            index: self,
            writer: lock(&self.writer),
            born: 0,
        }
    }

    /// The slot that the next birth gets.
    pub(crate) fn next_slot(&self) -> u32 {
        let writer = lock(&self.writer);
        writer.next_slot
    }
}

impl Births<'_> {
    /// The slot that the next birth gets.
    pub(crate) fn next_slot(&self) -> u32 {
        self.writer.next_slot
    }

    /// Indexes a series that the head keeps at `place` from here on; returns its slot. One that
    /// retired gets its own again.
    pub(crate) fn add(&mut self, labels: LabelsRef<'_>, place: Place) -> Result<u32, Full> {
        self.intern(labels)?;
        let terms = std::mem::take(&mut self.writer.terms);
        let slot = match self.find_retired(&terms) {
            Some(slot) => {
                self.revive(slot, place);
                slot
            }
            None => {
                let slot = self.writer.next_slot;
                self.place(slot, place, &terms);
                slot
            }
        };
        self.writer.terms = terms;
        Ok(slot)
    }

    /// The terms of `labels`, in their order; valid until the next call.
    pub(crate) fn intern(&mut self, labels: LabelsRef<'_>) -> Result<&[u32], Full> {
        let writer = &mut *self.writer;
        if writer.next_slot == u32::MAX - 1 {
            return Err(Full);
        }
        writer.terms.clear();
        writer
            .interner
            .intern(self.index, labels, &mut writer.terms)?;
        Ok(&writer.terms)
    }

    /// The same for labels that come as the steps from those of the call before.
    pub(crate) fn intern_steps<'l>(
        &mut self,
        steps: impl Iterator<Item = Step<'l>>,
    ) -> Result<&[u32], Full> {
        let writer = &mut *self.writer;
        writer.terms.clear();
        writer
            .interner
            .intern_steps(self.index, steps, &mut writer.terms)?;
        Ok(&writer.terms)
    }

    /// Gives `terms` the series `slot`, which is behind all others.
    pub(crate) fn place(&mut self, slot: u32, place: Place, terms: &[u32]) {
        let index = self.index;
        let writer = &mut *self.writer;
        if slot != writer.next_slot {
            writer.flush(index);
        }
        if slot / PAGE_SLOTS != writer.next_slot / PAGE_SLOTS {
            writer.turn_page(index);
        }
        let mut open = std::mem::take(&mut writer.scratch_open);
        open.clear();
        let mut before = writer.open.iter().peekable();
        for term in terms {
            if let Some(same) = before.next_if(|b| b.term == *term) {
                open.push(*same);
                continue;
            }
            let label = index.label_of(*term);
            while let Some(b) = before.next_if(|b| index.is_before(b.label, label)) {
                b.end_term(&mut writer.pending, slot);
                b.end_label(&mut writer.pending, slot);
            }
            let same_label = before.next_if(|b| b.label == label);
            if let Some(b) = same_label {
                b.end_term(&mut writer.pending, slot);
            }
            open.push(OpenRun {
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
        writer.page.push((slot % PAGE_SLOTS) as usize, place, terms);
        writer.next_slot = slot + 1;
        self.born += 1;
        writer.pending.flush_if_long(index);
        if writer.next_slot.is_multiple_of(PAGE_SLOTS) {
            writer.turn_page_after(index, slot);
        }
    }

    /// Leaves slots below `slot` out for good: they were given before a restart.
    pub(crate) fn skip_to(&mut self, slot: u32) {
        let writer = &mut *self.writer;
        if slot > writer.next_slot {
            writer.flush(self.index);
            if slot / PAGE_SLOTS != writer.next_slot / PAGE_SLOTS {
                writer.turn_page(self.index);
            }
            writer.next_slot = slot;
        }
    }
}

impl Drop for Births<'_> {
    fn drop(&mut self) {
        let writer = &mut *self.writer;
        writer.flush(self.index);
        if !writer.next_slot.is_multiple_of(PAGE_SLOTS) {
            let number = writer.next_slot / PAGE_SLOTS;
            self.index.publish_page(number, writer.page.build());
        }
        self.index.live.fetch_add(self.born, Ordering::Relaxed);
        // Release: whoever sees the slots sees their postings and pages.
        self.index
            .published
            .store(writer.next_slot, Ordering::Release);
    }
}
