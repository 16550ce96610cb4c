//! The active index: from matchers to series. One for the store, permanent, never rotated.
//!
//! A series is a *slot*, a number in order of birth that is never given twice. A pair of label name
//! and value is a *term*; a series is a list of terms. Per label the index knows its terms and the
//! series that have it at all; per term the series that have it; per two hours of data time the
//! series with a sample.
//!
//! ```text
//! labels: name -> { present: postings, values: value -> term }      term -> { value, postings }
//! series: slot -> { place in the head, terms }                      membership: epoch -> bits
//! ```
//!
//! Births and removals take a mutex, one batch at a time. Readers take no lock and never wait:
//! everything is append-only or swapped by pointer, and slots at or above `published` do not exist
//! for them. Invariant: a slot below `published` is in all of its postings. What it leaves to
//! others: samples, durability.

mod answers;
mod dictionary;
mod id_table;
mod interning;
mod known_terms;
mod label_values;
mod lookup;
mod membership;
mod packed_terms;
mod pending;
mod planner;
mod postings;
mod radix;
mod removal;
mod retirement;
mod runs;
mod series_pages;
mod sorted_values;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use lookup::LookupWork;
pub(crate) use membership::{EPOCH_MS, Marker, epoch_of};
pub(crate) use removal::{Garbage, Generation};
pub(crate) use runs::{Run, Runs};
pub(crate) use series_pages::{Place, SeriesCursor};
pub(crate) use writer::Births;

use crate::fingerprint::HashKeys;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};
use answers::Answers;
use arc_swap::{ArcSwap, ArcSwapOption};
use dictionary::Dictionary;
use firn_model::labels::{Labels, LabelsRef, push_pair};
use id_table::IdTable;
use known_terms::KnownTerms;
use membership::Membership;
use planner::Costs;
use postings::Postings;
use radix::Radix;
use series_pages::SeriesPage;
use std::sync::Arc;
use writer::Writer;

const TERM_PAGE: u32 = 256;

/// The label by which the buckets of a classic histogram differ.
const BUCKET_LABEL: &str = "le";

/// Distinct label names that the index takes: each costs some 300 bytes for ever, since names,
/// unlike values, are not removed.
const LABELS_MAX: u32 = 1 << 20;

/// A label name. Names stay when their last series goes.
#[derive(Debug)]
struct Label {
    name: Box<str>,
    present: Postings,
    /// Terms by the hash of their value.
    values: IdTable,
    distinct: AtomicU32,
    dictionary: Dictionary,
}

/// A pair of name and value.
#[derive(Debug)]
struct Term {
    label: u32,
    value: Box<[u8]>,
    postings: Postings,
}

/// 256 terms. The labels stand apart, because finding a label of many series reads nothing else.
#[derive(Debug)]
struct TermPage {
    labels: [AtomicU32; TERM_PAGE as usize],
    terms: [ArcSwapOption<Term>; TERM_PAGE as usize],
}

impl Default for TermPage {
    fn default() -> Self {
        Self {
            labels: [const { AtomicU32::new(0) }; TERM_PAGE as usize],
            terms: std::array::from_fn(|_| ArcSwapOption::empty()),
        }
    }
}

/// The index.
#[derive(Debug)]
pub(crate) struct Index {
    keys: Arc<HashKeys>,
    labels: Radix<Label>,
    names: IdTable,
    label_count: AtomicU32,
    terms: Radix<Box<TermPage>>,
    term_count: AtomicU32,
    series: Radix<ArcSwap<SeriesPage>>,
    /// Slots below are fully indexed.
    published: AtomicU32,
    /// Series that were not removed.
    live: AtomicU32,
    /// Of those, series that the head does not keep, by the hash of their terms.
    retired: IdTable,
    membership: Membership,
    generation: ArcSwap<Generation>,
    writer: Mutex<Writer>,
    costs: Costs,
    answers: Answers,
    known_terms: KnownTerms,
    work: LookupWork,
}

impl Index {
    /// An empty index.
    pub(crate) fn new(keys: Arc<HashKeys>) -> Self {
        Self {
            keys,
            labels: Radix::default(),
            names: IdTable::default(),
            label_count: AtomicU32::new(0),
            terms: Radix::default(),
            term_count: AtomicU32::new(0),
            series: Radix::default(),
            published: AtomicU32::new(0),
            live: AtomicU32::new(0),
            retired: IdTable::default(),
            membership: Membership::default(),
            generation: ArcSwap::default(),
            writer: Mutex::default(),
            costs: Costs::MEASURED,
            answers: Answers::default(),
            known_terms: KnownTerms::default(),
            work: LookupWork::default(),
        }
    }

    /// Series in the index.
    pub(crate) fn series_count(&self) -> usize {
        self.live.load(Ordering::Relaxed) as usize
    }

    /// What look-ups went through so far.
    pub(crate) fn work(&self) -> &LookupWork {
        &self.work
    }

    /// Slots below this are indexed; the next slot that will be given is at least this.
    pub(crate) fn published(&self) -> u32 {
        self.published.load(Ordering::Acquire)
    }

    /// Says that the series with `slot` has a sample in `epoch`.
    pub(crate) fn mark(&self, slot: u32, epoch: i64) {
        self.membership.set(slot, epoch);
    }

    /// The same for one of several series of a batch.
    #[inline]
    pub(crate) fn mark_with(&self, marker: &mut Marker, slot: u32, epoch: i64) {
        self.membership.set_with(marker, slot, epoch);
    }

    /// Takes back what was said of a series that is gone before it was indexed.
    pub(crate) fn unmark(&self, slot: u32) {
        self.membership.clear(slot);
    }

    /// What readers hold so that nothing they look at is forgotten.
    pub(crate) fn generation(&self) -> Arc<Generation> {
        self.generation.load_full()
    }

    /// The label set of a series; empty if the series is gone.
    pub(crate) fn series_labels(&self, slot: u32) -> Labels {
        let mut bytes = Vec::with_capacity(256);
        for term in SeriesCursor::new(self).terms(slot) {
            self.push_term(*term, &mut bytes);
        }
        LabelsRef::from_canonical(&bytes).to_owned()
    }

    /// A hash of the labels of a series without `le`, if it has one: buckets of one histogram have
    /// the same.
    pub(crate) fn family(&self, slot: u32) -> Option<u64> {
        let (le, _) = self.label(BUCKET_LABEL)?;
        let mut is_bucket = false;
        let mut bytes = Vec::with_capacity(64);
        for term in SeriesCursor::new(self).terms(slot) {
            if self.label_of(*term) == le {
                is_bucket = true;
            } else {
                bytes.extend_from_slice(&term.to_le_bytes());
            }
        }
        is_bucket.then(|| self.keys.hash(&bytes))
    }

    fn push_term(&self, term: u32, out: &mut Vec<u8>) {
        let (page, at) = (term / TERM_PAGE, (term % TERM_PAGE) as usize);
        let Some(page) = self.terms.get(page) else {
            return;
        };
        let term = page.terms[at].load();
        if let Some(term) = &*term
            && let Some(label) = self.labels.get(term.label)
        {
            push_pair(out, label.name.as_bytes(), &term.value);
        }
    }

    fn term(&self, id: u32) -> Option<Arc<Term>> {
        self.terms.get(id / TERM_PAGE)?.terms[(id % TERM_PAGE) as usize].load_full()
    }

    /// Looks at a term, if it is there: without the count of [`Index::term`].
    #[inline]
    fn with_term<T>(&self, id: u32, look: impl FnOnce(&Term) -> T) -> Option<T> {
        let page = self.terms.get(id / TERM_PAGE)?;
        let term = page.terms[(id % TERM_PAGE) as usize].load();
        term.as_deref().map(look)
    }

    /// The label of a term; one load, no count.
    #[inline]
    fn label_of(&self, term: u32) -> u32 {
        self.terms.get(term / TERM_PAGE).map_or(u32::MAX, |page| {
            page.labels[(term % TERM_PAGE) as usize].load(Ordering::Relaxed)
        })
    }

    fn label(&self, name: &str) -> Option<(u32, &Label)> {
        let is_it = |id| self.labels.get(id).is_some_and(|l| &*l.name == name);
        let id = self.names.find(self.keys.hash(name.as_bytes()), is_it)?;
        Some((id, self.labels.get(id)?))
    }

    fn find_term(&self, label: &Label, value: &[u8]) -> Option<u32> {
        let is_it = |id: u32| {
            let page = self.terms.get(id / TERM_PAGE);
            page.is_some_and(|p| {
                let term = p.terms[(id % TERM_PAGE) as usize].load();
                term.as_ref().is_some_and(|t| *t.value == *value)
            })
        };
        label.values.find(self.keys.hash(value), is_it)
    }

    /// Labels in order of their ids.
    fn all_labels(&self) -> impl Iterator<Item = (u32, &Label)> {
        let count = self.label_count.load(Ordering::Acquire);
        (0..count).filter_map(|id| Some((id, self.labels.get(id)?)))
    }
}
