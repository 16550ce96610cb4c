//! The dictionary of the index: label names, terms, and the series that have them.
//!
//! Everything is append-only or swapped by pointer, so readers take no lock. Invariant: the numbers
//! of labels and terms are given once; one that was published stays until no reader can hold it.

use super::dictionary::Dictionary;
use super::id_table::IdTable;
use super::postings::Postings;
use super::radix::Radix;
use super::series_table::{SeriesCursor, SeriesLeaf};
use crate::ids::{LabelId, SeriesRef, TermId};
use crate::sync::atomic::{AtomicU32, Ordering};
use arc_swap::{ArcSwap, ArcSwapOption};
use firn_model::fingerprint::HashKeys;
use firn_model::labels::{Labels, LabelsRef, push_pair};
use std::sync::Arc;

/// Terms of a leaf of the table of terms.
pub(super) const LEAF_TERMS: u32 = 256;

/// Distinct label names that the index takes: each costs some 300 bytes for ever, since names,
/// unlike values, are not removed.
pub(super) const LABELS_MAX: u32 = 1 << 20;

/// The label by which the buckets of a classic histogram differ.
const BUCKET_LABEL: &str = "le";

/// The index takes no more series, label names or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A label name. Names stay when their last series goes.
#[derive(Debug)]
pub(super) struct Label {
    pub(super) id: LabelId,
    pub(super) name: Box<str>,
    pub(super) present: Postings,
    /// Terms by the hash of their value.
    pub(super) values: IdTable,
    pub(super) distinct: AtomicU32,
    pub(super) dictionary: Dictionary,
}

/// A pair of name and value.
#[derive(Debug)]
pub(super) struct Term {
    pub(super) label: LabelId,
    pub(super) value: Box<[u8]>,
    pub(super) postings: Postings,
}

/// 256 terms. The labels stand apart, because finding a label of many series reads nothing else.
#[derive(Debug)]
pub(super) struct TermLeaf {
    pub(super) labels: [AtomicU32; LEAF_TERMS as usize],
    pub(super) terms: [ArcSwapOption<Term>; LEAF_TERMS as usize],
}

impl Default for TermLeaf {
    fn default() -> Self {
        Self {
            labels: [const { AtomicU32::new(0) }; LEAF_TERMS as usize],
            terms: std::array::from_fn(|_| ArcSwapOption::empty()),
        }
    }
}

impl Label {
    /// How many values the label has.
    pub(super) fn values_count(&self) -> usize {
        self.distinct.load(Ordering::Relaxed) as usize
    }

    /// The terms of the label, in no order.
    pub(super) fn terms(&self) -> impl Iterator<Item = TermId> {
        self.values.ids().into_iter().map(TermId)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(super) keys: Arc<HashKeys>,
    pub(super) labels: Radix<Label>,
    names: IdTable,
    label_count: AtomicU32,
    pub(super) terms: Radix<Box<TermLeaf>>,
    pub(super) term_count: AtomicU32,
    pub(super) series: Radix<ArcSwap<SeriesLeaf>>,
}

impl Terms {
    /// No labels.
    pub(super) fn new(keys: Arc<HashKeys>) -> Self {
        Self {
            keys,
            labels: Radix::default(),
            names: IdTable::default(),
            label_count: AtomicU32::new(0),
            terms: Radix::default(),
            term_count: AtomicU32::new(0),
            series: Radix::default(),
        }
    }

    /// The label set of a series; empty if the series is gone.
    pub(crate) fn series_labels(&self, slot: SeriesRef) -> Labels {
        let mut bytes = Vec::with_capacity(256);
        for term in SeriesCursor::new(self).terms(slot) {
            self.push_term(*term, &mut bytes);
        }
        LabelsRef::from_canonical(&bytes).to_owned()
    }

    /// A hash of the labels of a series without `le`, if it has one: buckets of one histogram have
    /// the same.
    pub(crate) fn family(&self, slot: SeriesRef) -> Option<u64> {
        let le = self.label(BUCKET_LABEL)?.id;
        let mut is_bucket = false;
        let mut bytes = Vec::with_capacity(64);
        for term in SeriesCursor::new(self).terms(slot) {
            if self.label_of(*term) == le {
                is_bucket = true;
            } else {
                bytes.extend_from_slice(&term.0.to_le_bytes());
            }
        }
        is_bucket.then(|| self.keys.hash(&bytes))
    }

    /// Appends the name and the value of a term as they stand in a label set.
    pub(crate) fn push_term(&self, TermId(term): TermId, out: &mut Vec<u8>) {
        let (leaf, at) = (term / LEAF_TERMS, (term % LEAF_TERMS) as usize);
        let Some(leaf) = self.terms.get(leaf) else {
            return;
        };
        let term = leaf.terms[at].load();
        if let Some(term) = &*term
            && let Some(label) = self.labels.get(term.label.0)
        {
            push_pair(out, label.name.as_bytes(), &term.value);
        }
    }

    pub(super) fn term(&self, TermId(id): TermId) -> Option<Arc<Term>> {
        self.terms.get(id / LEAF_TERMS)?.terms[(id % LEAF_TERMS) as usize].load_full()
    }

    /// Looks at a term, if it is there: without the count of [`Index::term`].
    #[inline]
    pub(super) fn with_term<T>(
        &self,
        TermId(id): TermId,
        look: impl FnOnce(&Term) -> T,
    ) -> Option<T> {
        let leaf = self.terms.get(id / LEAF_TERMS)?;
        let term = leaf.terms[(id % LEAF_TERMS) as usize].load();
        term.as_deref().map(look)
    }

    /// The label of a term; one load, no count.
    #[inline]
    pub(super) fn label_of(&self, TermId(term): TermId) -> LabelId {
        LabelId(self.terms.get(term / LEAF_TERMS).map_or(u32::MAX, |leaf| {
            leaf.labels[(term % LEAF_TERMS) as usize].load(Ordering::Relaxed)
        }))
    }

    pub(super) fn label(&self, name: &str) -> Option<&Label> {
        let is_it = |id| self.labels.get(id).is_some_and(|l| &*l.name == name);
        let id = self.names.find(self.keys.hash(name.as_bytes()), is_it)?;
        self.labels.get(id)
    }

    pub(super) fn find_term(&self, label: &Label, value: &[u8]) -> Option<TermId> {
        let is_it = |id: u32| {
            let leaf = self.terms.get(id / LEAF_TERMS);
            leaf.is_some_and(|p| {
                let term = p.terms[(id % LEAF_TERMS) as usize].load();
                term.as_ref().is_some_and(|t| *t.value == *value)
            })
        };
        let found = label.values.find(self.keys.hash(value), is_it);
        found.map(TermId)
    }

    /// Labels in order of their ids.
    pub(super) fn all_labels(&self) -> impl Iterator<Item = &Label> {
        let count = self.label_count.load(Ordering::Acquire);
        (0..count).filter_map(|id| self.labels.get(id))
    }

    pub(super) fn add_label(&self, name: &str) -> Result<LabelId, Full> {
        if let Some(label) = self.label(name) {
            return Ok(label.id);
        }
        let id = self.label_count.load(Ordering::Relaxed);
        if id >= LABELS_MAX {
            return Err(Full);
        }
        self.labels.get_or_init(id, || Label {
            id: LabelId(id),
            name: name.into(),
            present: Default::default(),
            values: Default::default(),
            distinct: Default::default(),
            dictionary: Default::default(),
        });
        self.names.insert(self.keys.hash(name.as_bytes()), id);
        self.label_count.store(id + 1, Ordering::Release);
        Ok(LabelId(id))
    }

    pub(super) fn add_term(&self, label_id: LabelId, value: &[u8]) -> Result<TermId, Full> {
        let label = self.labels.get(label_id.0).ok_or(Full)?;
        if let Some(term) = self.find_term(label, value) {
            return Ok(term);
        }
        let id = self.term_count.load(Ordering::Relaxed);
        if id == u32::MAX - 1 {
            return Err(Full);
        }
        let leaf = self
            .terms
            .get_or_init(id / LEAF_TERMS, || Box::new(TermLeaf::default()));
        let at = (id % LEAF_TERMS) as usize;
        leaf.labels[at].store(label_id.0, Ordering::Relaxed);
        leaf.terms[at].store(Some(Arc::new(Term {
            label: label_id,
            value: value.into(),
            postings: Default::default(),
        })));
        label.values.insert(self.keys.hash(value), id);
        label.distinct.fetch_add(1, Ordering::Relaxed);
        self.term_count.store(id + 1, Ordering::Release);
        Ok(TermId(id))
    }

    pub(super) fn publish_leaf(&self, number: u32, leaf: SeriesLeaf) {
        let leaf = Arc::new(leaf);
        let cell = self
            .series
            .get_or_init(number, || ArcSwap::new(leaf.clone()));
        cell.store(leaf);
    }

    /// Whether the name of one label sorts before another's.
    pub(super) fn is_before(&self, a: LabelId, b: LabelId) -> bool {
        let name = |id: LabelId| self.labels.get(id.0).map(|l| &*l.name);
        name(a) < name(b)
    }
}
