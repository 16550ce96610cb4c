//! The dictionary of the index: label names, terms, and the series that have them.
//!
//! All structures are append-only or replaced by a pointer swap, so readers take no lock.
//! Invariant: the numbers of labels and terms are never reused; a published label or term remains
//! until no reader can hold it.

use super::dictionary::LabelValueDictionary;
use super::id_table::IdTable;
use super::postings::Postings;
use super::radix::RadixArray;
use super::series_table::{SeriesCursor, SeriesLeaf};
use crate::ids::{LabelId, SeriesRef, TermId};
use crate::sync::atomic::{AtomicU32, Ordering};
use arc_swap::{ArcSwap, ArcSwapOption};
use firn_model::fingerprint::HashKeys;
use firn_model::labels::{Labels, LabelsRef, push_pair};
use std::sync::Arc;

/// Number of terms of a leaf of the table of terms.
pub(super) const LEAF_TERMS: u32 = 256;

/// Maximum number of distinct label names. Each takes about 300 bytes permanently, because names,
/// unlike values, are never removed.
pub(super) const LABELS_MAX: u32 = 1 << 20;

/// Name of the label that distinguishes the buckets of a classic histogram.
const BUCKET_LABEL: &str = "le";

/// Error of a full index, which accepts no more series, label names or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexFull;

/// A label name with its values. Names remain when their last series is removed.
#[derive(Debug)]
pub(super) struct IndexedLabel {
    pub(super) id: LabelId,
    pub(super) name: Box<str>,
    pub(super) present: Postings,
    /// Terms by the hash of their value.
    pub(super) values: IdTable,
    pub(super) distinct: AtomicU32,
    pub(super) dictionary: LabelValueDictionary,
}

/// A pair of label name and value, with the series that have it.
#[derive(Debug)]
pub(super) struct IndexedTerm {
    pub(super) label: LabelId,
    pub(super) value: Box<[u8]>,
    pub(super) postings: Postings,
}

/// A leaf of 256 terms. Their labels are stored separately, because finding a label of many series
/// reads nothing else.
#[derive(Debug)]
pub(super) struct TermLeaf {
    pub(super) labels: [AtomicU32; LEAF_TERMS as usize],
    pub(super) terms: [ArcSwapOption<IndexedTerm>; LEAF_TERMS as usize],
}

impl Default for TermLeaf {
    fn default() -> Self {
        Self {
            labels: [const { AtomicU32::new(0) }; LEAF_TERMS as usize],
            terms: std::array::from_fn(|_| ArcSwapOption::empty()),
        }
    }
}

impl IndexedLabel {
    /// Returns the number of values of the label.
    pub(super) fn values_count(&self) -> usize {
        self.distinct.load(Ordering::Relaxed) as usize
    }

    /// Returns the terms of the label in an arbitrary order.
    pub(super) fn terms(&self) -> impl Iterator<Item = TermId> {
        self.values.ids().into_iter().map(TermId)
    }
}

/// The label names, terms and series of the index.
#[derive(Debug)]
pub(crate) struct IndexTerms {
    pub(super) keys: Arc<HashKeys>,
    pub(super) labels: RadixArray<IndexedLabel>,
    names: IdTable,
    label_count: AtomicU32,
    pub(super) terms: RadixArray<Box<TermLeaf>>,
    pub(super) term_count: AtomicU32,
    pub(super) series: RadixArray<ArcSwap<SeriesLeaf>>,
}

impl IndexTerms {
    /// Returns an empty dictionary that hashes strings with `keys`.
    pub(super) fn new(keys: Arc<HashKeys>) -> Self {
        Self {
            keys,
            labels: RadixArray::default(),
            names: IdTable::default(),
            label_count: AtomicU32::new(0),
            terms: RadixArray::default(),
            term_count: AtomicU32::new(0),
            series: RadixArray::default(),
        }
    }

    /// Returns the label set of a series; empty if the series is removed.
    pub(crate) fn series_labels(&self, slot: SeriesRef) -> Labels {
        let mut bytes = Vec::with_capacity(256);
        for term in SeriesCursor::new(self).terms(slot) {
            self.push_term(*term, &mut bytes);
        }
        LabelsRef::from_canonical(&bytes).to_owned()
    }

    /// Returns a hash of the labels of a series without `le`, or `None` if it has no `le`. The
    /// buckets of one histogram have the same hash.
    pub(crate) fn hash_family(&self, slot: SeriesRef) -> Option<u64> {
        let le = self.label(BUCKET_LABEL)?.id;
        let mut is_bucket = false;
        let mut bytes = Vec::with_capacity(64);
        for term in SeriesCursor::new(self).terms(slot) {
            if self.label_of_term(*term) == le {
                is_bucket = true;
            } else {
                bytes.extend_from_slice(&term.0.to_le_bytes());
            }
        }
        is_bucket.then(|| self.keys.hash(&bytes))
    }

    /// Appends name and value of a term in the encoding of a label set.
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

    /// Returns a term with a reference count of its own, unless it was freed after a removal.
    pub(super) fn term(&self, TermId(id): TermId) -> Option<Arc<IndexedTerm>> {
        self.terms.get(id / LEAF_TERMS)?.terms[(id % LEAF_TERMS) as usize].load_full()
    }

    /// Calls `look` with a term, if it exists, without the reference count of [`IndexTerms::term`].
    #[inline]
    pub(super) fn with_term<T>(
        &self,
        TermId(id): TermId,
        look: impl FnOnce(&IndexedTerm) -> T,
    ) -> Option<T> {
        let leaf = self.terms.get(id / LEAF_TERMS)?;
        let term = leaf.terms[(id % LEAF_TERMS) as usize].load();
        term.as_deref().map(look)
    }

    /// Returns the label of a term with one load and no reference count.
    #[inline]
    pub(super) fn label_of_term(&self, TermId(term): TermId) -> LabelId {
        LabelId(self.terms.get(term / LEAF_TERMS).map_or(u32::MAX, |leaf| {
            leaf.labels[(term % LEAF_TERMS) as usize].load(Ordering::Relaxed)
        }))
    }

    /// Returns the label with this name, if any series ever had it.
    pub(super) fn label(&self, name: &str) -> Option<&IndexedLabel> {
        let is_it = |id| self.labels.get(id).is_some_and(|l| &*l.name == name);
        let id = self.names.find(self.keys.hash(name.as_bytes()), is_it)?;
        self.labels.get(id)
    }

    /// Returns the term of a label with this value, if it exists.
    pub(super) fn find_term(&self, label: &IndexedLabel, value: &[u8]) -> Option<TermId> {
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

    /// Returns all labels in order of their ids.
    pub(super) fn all_labels(&self) -> impl Iterator<Item = &IndexedLabel> {
        let count = self.label_count.load(Ordering::Acquire);
        (0..count).filter_map(|id| self.labels.get(id))
    }

    /// Returns the label with this name; creates it if necessary. Fails if there are [`LABELS_MAX`]
    /// labels.
    pub(super) fn add_label(&self, name: &str) -> Result<LabelId, IndexFull> {
        if let Some(label) = self.label(name) {
            return Ok(label.id);
        }
        let id = self.label_count.load(Ordering::Relaxed);
        if id >= LABELS_MAX {
            return Err(IndexFull);
        }
        self.labels.get_or_init(id, || IndexedLabel {
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

    /// Returns the term of a label with this value; creates it if necessary. Fails if all term
    /// numbers are used.
    pub(super) fn add_term(&self, label_id: LabelId, value: &[u8]) -> Result<TermId, IndexFull> {
        let label = self.labels.get(label_id.0).ok_or(IndexFull)?;
        if let Some(term) = self.find_term(label, value) {
            return Ok(term);
        }
        let id = self.term_count.load(Ordering::Relaxed);
        if id == u32::MAX - 1 {
            return Err(IndexFull);
        }
        let leaf = self
            .terms
            .get_or_init(id / LEAF_TERMS, || Box::new(TermLeaf::default()));
        let at = (id % LEAF_TERMS) as usize;
        leaf.labels[at].store(label_id.0, Ordering::Relaxed);
        leaf.terms[at].store(Some(Arc::new(IndexedTerm {
            label: label_id,
            value: value.into(),
            postings: Default::default(),
        })));
        label.values.insert(self.keys.hash(value), id);
        label.distinct.fetch_add(1, Ordering::Relaxed);
        self.term_count.store(id + 1, Ordering::Release);
        Ok(TermId(id))
    }

    /// Makes a new version of a leaf of series visible to readers.
    pub(super) fn publish_leaf(&self, number: u32, leaf: SeriesLeaf) {
        let leaf = Arc::new(leaf);
        let cell = self
            .series
            .get_or_init(number, || ArcSwap::new(leaf.clone()));
        cell.store(leaf);
    }

    /// Returns whether the name of label `a` sorts before that of `b`.
    pub(super) fn is_before(&self, a: LabelId, b: LabelId) -> bool {
        let name = |id: LabelId| self.labels.get(id.0).map(|l| &*l.name);
        name(a) < name(b)
    }
}
