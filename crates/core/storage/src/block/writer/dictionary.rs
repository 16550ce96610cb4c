//! The dictionary of a block that is being written: the terms so far, each with its posting list.
//!
//! Labels and values are numbered in order of first use and are sorted when all series have been
//! pushed. Memory: about 130 bytes for each term and its value, plus two or three bytes for each
//! run of series in its posting list. In block order, a term with few series has one run per
//! metric, and a term with many series has long runs; a fleet with eleven labels needs about ten
//! bytes per series.

use crate::block::postings::PostingsBuilder;
use firn_model::fingerprint::{Fingerprint, HashKeys};
use firn_model::labels::LabelsRef;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// All labels of the series so far, with their values and posting lists.
#[derive(Debug)]
pub(super) struct BlockLabelDictionary {
    keys: HashKeys,
    labels: Vec<LabelDraft>,
    by_name: BTreeMap<Box<[u8]>, u32>,
    /// Labels of the previous series, which usually has the same label names as the next one.
    last: Vec<u32>,
}

/// A label with its values and posting lists, all in order of first use.
#[derive(Debug)]
pub(super) struct LabelDraft {
    pub(super) name: Box<[u8]>,
    /// Series that have the label with any value.
    pub(super) present: PostingsBuilder,
    pub(super) terms: Vec<PostingsBuilder>,
    /// Number of each distinct value. Values with equal fingerprints are assumed to be equal, as
    /// elsewhere in this crate.
    numbers: FxHashMap<Fingerprint, u32>,
    values: Vec<u8>,
    /// End offset of each value in `values`.
    ends: Vec<usize>,
    /// Number of the value that was used last; the next series often has the same value.
    newest: u32,
}

impl BlockLabelDictionary {
    /// Creates an empty dictionary. `keys` keys the fingerprints.
    pub(super) fn new(keys: HashKeys) -> Self {
        Self {
            keys,
            labels: Vec::new(),
            by_name: BTreeMap::new(),
            last: Vec::new(),
        }
    }

    /// Adds the labels of a series and calls `each` with the numbers of each label and its value.
    pub(super) fn push_labels(
        &mut self,
        series: u32,
        labels: LabelsRef<'_>,
        mut each: impl FnMut(u32, u32),
    ) {
        for (at, (name, value)) in labels.pairs().enumerate() {
            let label = self.intern_label(at, name);
            let draft = &mut self.labels[label as usize];
            let value = draft.intern_value(&self.keys, value);
            draft.present.push(series);
            draft.terms[value as usize].push(series);
            each(label, value);
        }
    }

    /// Returns whether a series with this label value was pushed.
    pub(super) fn has_label_value(&self, name: &[u8], value: &[u8]) -> bool {
        let label = self.by_name.get(name);
        let label = label.map(|label| &self.labels[*label as usize]);
        label.is_some_and(|label| label.numbers.contains_key(&self.keys.fingerprint(value)))
    }

    /// Returns all labels, indexed by number.
    pub(super) fn labels(&self) -> &[LabelDraft] {
        &self.labels
    }

    /// Returns the numbers of all labels, sorted by label name.
    pub(super) fn sort_labels(&self) -> Vec<u32> {
        self.by_name.values().copied().collect()
    }

    /// Returns the label with this number.
    pub(super) fn label_mut(&mut self, label: u32) -> &mut LabelDraft {
        &mut self.labels[label as usize]
    }

    /// Returns the number of the label `name`, which is at position `at` in its label set.
    fn intern_label(&mut self, at: usize, name: &[u8]) -> u32 {
        let known = self.last.get(at).copied();
        let is_it = |label: &u32| *self.labels[*label as usize].name == *name;
        if let Some(label) = known.filter(is_it) {
            return label;
        }
        let label = match self.by_name.get(name) {
            Some(label) => *label,
            None => {
                let label = self.labels.len() as u32;
                self.by_name.insert(name.into(), label);
                self.labels.push(LabelDraft::new(name));
                label
            }
        };
        self.last.truncate(at);
        // The labels before `at` matched those of the previous series.
        self.last.push(label);
        label
    }
}

impl LabelDraft {
    fn new(name: &[u8]) -> Self {
        Self {
            name: name.into(),
            present: PostingsBuilder::default(),
            terms: Vec::new(),
            numbers: FxHashMap::default(),
            values: Vec::new(),
            ends: Vec::new(),
            newest: 0,
        }
    }

    /// Returns the value with this number.
    pub(super) fn value(&self, number: u32) -> &[u8] {
        let at = number as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.values[start..self.ends[at]]
    }

    /// Returns the numbers of all values, sorted by value.
    pub(super) fn sort_values(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.ends.len() as u32).collect();
        order.sort_unstable_by(|a, b| self.value(*a).cmp(self.value(*b)));
        order
    }

    fn intern_value(&mut self, keys: &HashKeys, value: &[u8]) -> u32 {
        if !self.ends.is_empty() && self.value(self.newest) == value {
            return self.newest;
        }
        let next = self.ends.len() as u32;
        let number = *self.numbers.entry(keys.fingerprint(value)).or_insert(next);
        if number == next {
            self.values.extend_from_slice(value);
            self.ends.push(self.values.len());
            self.terms.push(PostingsBuilder::default());
        }
        self.newest = number;
        number
    }
}
