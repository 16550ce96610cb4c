//! Deriving label sets from label sets, byte form to byte form, without an object for each label.

use firn_model::labels::{Labels, LabelsRef, METRIC_NAME, push_pair};
use rustc_hash::FxHashMap;

/// Whether a label says what a metric is rather than where it comes from; such labels go when an
/// operation changes what the value means.
pub(crate) fn is_metadata(name: &str) -> bool {
    name == METRIC_NAME || name == "__type__" || name == "__unit__"
}

/// The labels of `labels` that `keep` accepts.
pub(crate) fn retain(labels: LabelsRef<'_>, mut keep: impl FnMut(&str) -> bool) -> Labels {
    let mut out = Vec::with_capacity(labels.as_bytes().len());
    for (name, value) in labels.iter() {
        if keep(name) {
            push_pair(&mut out, name.as_bytes(), value);
        }
    }
    LabelsRef::from_canonical(&out).to_owned()
}

/// `labels` without those that say what the metric is.
pub(crate) fn without_metadata(labels: LabelsRef<'_>) -> Labels {
    if labels.iter().any(|(name, _)| is_metadata(name)) {
        retain(labels, |name| !is_metadata(name))
    } else {
        labels.to_owned()
    }
}

/// Numbers distinct byte strings in the order in which they come.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    ids: FxHashMap<Box<[u8]>, u32>,
}

impl Dictionary {
    /// The number of `bytes`, and whether it is new.
    pub(crate) fn intern(&mut self, bytes: &[u8]) -> (u32, bool) {
        if let Some(&id) = self.ids.get(bytes) {
            return (id, false);
        }
        let id = self.ids.len() as u32;
        self.ids.insert(bytes.into(), id);
        (id, true)
    }

    /// How many distinct strings there are.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
}
