//! The terms of the series so far, each with the list of its series.
//!
//! Labels and values have numbers in the order of first use until all are known; then they are put
//! in order. Memory: some 130 bytes a term and its value, and two or three bytes for each run of
//! series of a term. In the order of a block a term of few series has as many runs as metrics, one
//! of many has long ones: some ten bytes a series for a fleet of eleven labels.

use crate::block::postings::PostingsBuilder;
use firn_model::fingerprint::{Fingerprint, HashKeys};
use firn_model::labels::LabelsRef;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub(super) struct Dictionary {
    keys: HashKeys,
    labels: Vec<LabelDraft>,
    by_name: BTreeMap<Box<[u8]>, u32>,
    /// The labels of the series before.
    last: Vec<u32>,
}

/// A label and its values.
#[derive(Debug)]
pub(super) struct LabelDraft {
    pub(super) name: Box<[u8]>,
    /// The series that have it.
    pub(super) present: PostingsBuilder,
    pub(super) terms: Vec<PostingsBuilder>,
    /// Which number values have: as elsewhere, equal fingerprints stand for equal values.
    numbers: FxHashMap<Fingerprint, u32>,
    values: Vec<u8>,
    /// Where each value ends.
    ends: Vec<usize>,
    /// The value of the series before that had the label: mostly the next one's too.
    newest: u32,
}

impl Dictionary {
    /// No terms.
    pub(super) fn new(keys: HashKeys) -> Self {
        Self {
            keys,
            labels: Vec::new(),
            by_name: BTreeMap::new(),
            last: Vec::new(),
        }
    }

    /// Adds a series, and calls `each` with the numbers of its labels and of their values.
    pub(super) fn push(
        &mut self,
        series: u32,
        labels: LabelsRef<'_>,
        mut each: impl FnMut(u32, u32),
    ) {
        for (at, (name, value)) in labels.pairs().enumerate() {
            let label = self.label(at, name);
            let draft = &mut self.labels[label as usize];
            let value = draft.number(&self.keys, value);
            draft.present.push(series);
            draft.terms[value as usize].push(series);
            each(label, value);
        }
    }

    /// Whether a series has this value of a label.
    pub(super) fn has(&self, name: &[u8], value: &[u8]) -> bool {
        let label = self.by_name.get(name);
        let label = label.map(|label| &self.labels[*label as usize]);
        label.is_some_and(|label| label.numbers.contains_key(&self.keys.fingerprint(value)))
    }

    /// All labels by their numbers.
    pub(super) fn labels(&self) -> &[LabelDraft] {
        &self.labels
    }

    /// The numbers of the labels in the order of their names.
    pub(super) fn in_order(&self) -> Vec<u32> {
        self.by_name.values().copied().collect()
    }

    /// The label with this number.
    pub(super) fn label_mut(&mut self, label: u32) -> &mut LabelDraft {
        &mut self.labels[label as usize]
    }

    /// The number of the label with this name, which is the `at`th of its series.
    fn label(&mut self, at: usize, name: &[u8]) -> u32 {
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
        // The labels before were found at their places.
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

    /// The value with this number.
    pub(super) fn value(&self, number: u32) -> &[u8] {
        let at = number as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.values[start..self.ends[at]]
    }

    /// The numbers of the values, in the order of the values.
    pub(super) fn in_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.ends.len() as u32).collect();
        order.sort_unstable_by(|a, b| self.value(*a).cmp(self.value(*b)));
        order
    }

    fn number(&mut self, keys: &HashKeys, value: &[u8]) -> u32 {
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
