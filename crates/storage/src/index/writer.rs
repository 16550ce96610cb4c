//! Births: the one place where series enter the index.
//!
//! Series of a batch share most of their labels with the series before them, so interning looks for
//! what is equal to that one first. Postings are told of whole runs of series, and once for all
//! runs of a term in a batch.

use super::interning::Interner;
use super::pending::Pending;
use super::series_pages::{PAGE_SLOTS, PageBuilder, Place, SeriesPage};
use super::{Index, LABELS_MAX, Label, Run, TERM_PAGE, Term, TermPage};
use crate::encoding::labels::steps::Step;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use arc_swap::ArcSwap;
use firn_model::labels::LabelsRef;
use std::sync::{Arc, PoisonError};

/// The index takes no more series, label names or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A term whose postings have not been told yet of the newest run.
#[derive(Clone, Copy, Debug)]
struct OpenRun {
    term: u32,
    label: u32,
    term_start: u32,
    label_start: u32,
}

/// What births keep between each other.
#[derive(Debug, Default)]
pub(super) struct Writer {
    next_slot: u32,
    page: PageBuilder,
    open: Vec<OpenRun>,
    scratch_open: Vec<OpenRun>,
    /// Runs that postings are not told of yet.
    pending: Pending,
    /// The series interned last.
    interner: Interner,
    terms: Vec<u32>,
}

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
            writer: self.writer.lock().unwrap_or_else(PoisonError::into_inner),
            born: 0,
        }
    }

    /// The slot that the next birth gets.
    pub(crate) fn next_slot(&self) -> u32 {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.next_slot
    }

    pub(super) fn add_label(&self, name: &str) -> Result<u32, Full> {
        if let Some((id, _)) = self.label(name) {
            return Ok(id);
        }
        let id = self.label_count.load(Ordering::Relaxed);
        if id >= LABELS_MAX {
            return Err(Full);
        }
        self.labels.get_or_init(id, || Label {
            name: name.into(),
            present: Default::default(),
            values: Default::default(),
            distinct: Default::default(),
            dictionary: Default::default(),
        });
        self.names.insert(self.keys.hash(name.as_bytes()), id);
        self.label_count.store(id + 1, Ordering::Release);
        Ok(id)
    }

    pub(super) fn add_term(&self, label_id: u32, value: &[u8]) -> Result<u32, Full> {
        let label = self.labels.get(label_id).ok_or(Full)?;
        if let Some(term) = self.find_term(label, value) {
            return Ok(term);
        }
        let id = self.term_count.load(Ordering::Relaxed);
        if id == u32::MAX - 1 {
            return Err(Full);
        }
        let page = self
            .terms
            .get_or_init(id / TERM_PAGE, || Box::new(TermPage::default()));
        let at = (id % TERM_PAGE) as usize;
        page.labels[at].store(label_id, Ordering::Relaxed);
        page.terms[at].store(Some(Arc::new(Term {
            label: label_id,
            value: value.into(),
            postings: Default::default(),
        })));
        label.values.insert(self.keys.hash(value), id);
        label.distinct.fetch_add(1, Ordering::Relaxed);
        self.term_count.store(id + 1, Ordering::Release);
        Ok(id)
    }

    fn publish_page(&self, number: u32, page: SeriesPage) {
        let page = Arc::new(page);
        let cell = self
            .series
            .get_or_init(number, || ArcSwap::new(page.clone()));
        cell.store(page);
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

impl Writer {
    /// Tells every posting list of the runs that are open.
    fn flush(&mut self, index: &Index) {
        let end = self.next_slot;
        for run in self.open.drain(..) {
            run.end_term(&mut self.pending, end);
            run.end_label(&mut self.pending, end);
        }
        self.pending.flush(index);
    }

    /// Publishes the page of the last slot and begins the next one.
    fn turn_page(&mut self, index: &Index) {
        if let Some(last) = self.next_slot.checked_sub(1) {
            self.turn_page_after(index, last);
        }
    }

    fn turn_page_after(&mut self, index: &Index, last: u32) {
        if !self.page.is_vacant() {
            index.publish_page(last / PAGE_SLOTS, self.page.build());
        }
        self.page.clear();
    }

    /// Drops what it remembers of the series before, whose terms may be removed.
    pub(super) fn forget(&mut self) {
        self.interner.forget();
    }

    /// The page under way, if `number` is its number.
    pub(super) fn page_under_way(&mut self, number: u32) -> Option<&mut PageBuilder> {
        let is_it =
            !self.next_slot.is_multiple_of(PAGE_SLOTS) && self.next_slot / PAGE_SLOTS == number;
        is_it.then_some(&mut self.page)
    }
}

impl OpenRun {
    fn end_term(&self, pending: &mut Pending, end: u32) {
        let start = self.term_start;
        pending.of_terms.push(self.term, Run { start, end });
    }

    fn end_label(&self, pending: &mut Pending, end: u32) {
        let start = self.label_start;
        pending.of_labels.push(self.label, Run { start, end });
    }
}

impl Index {
    /// Whether the name of one label sorts before another's.
    fn is_before(&self, a: u32, b: u32) -> bool {
        let name = |id| self.labels.get(id).map(|l| &*l.name);
        name(a) < name(b)
    }
}
