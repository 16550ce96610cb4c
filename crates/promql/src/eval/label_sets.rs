//! Deriving label sets from label sets, byte form to byte form, without an object for each label.

use firn_model::labels::{Labels, LabelsRef, METRIC_NAME, push_pair};
use rustc_hash::FxHashMap;

/// The metadata label that comes last in the order of names.
const LAST_METADATA: &str = "__unit__";

/// Whether a label says what a metric is rather than where it comes from; such labels go when an
/// operation changes what the value means.
pub(crate) fn is_metadata(name: &str) -> bool {
    name == METRIC_NAME || name == "__type__" || name == LAST_METADATA
}

/// Writes the pairs of `labels` that `keep` accepts over what is in `out`.
pub(crate) fn retain_into(
    labels: LabelsRef<'_>,
    mut keep: impl FnMut(&str) -> bool,
    out: &mut Vec<u8>,
) {
    out.clear();
    for (name, value) in labels.iter() {
        if keep(name) {
            push_pair(out, name.as_bytes(), value);
        }
    }
}

/// The labels of `labels` that `keep` accepts.
pub(crate) fn retain(labels: LabelsRef<'_>, keep: impl FnMut(&str) -> bool) -> Labels {
    let mut out = Vec::with_capacity(labels.as_bytes().len());
    retain_into(labels, keep, &mut out);
    LabelsRef::from_canonical(&out).to_owned()
}

/// `labels` without those that say what the metric is.
pub(crate) fn without_metadata(labels: LabelsRef<'_>) -> Labels {
    // Names are sorted, so the rest can be taken whole once they are past the last such label.
    let mut kept = Vec::new();
    let mut pairs = labels.iter();
    let mut rest = pairs.rest();
    while let Some((name, value)) = pairs.next() {
        if name > LAST_METADATA {
            break;
        }
        if !is_metadata(name) {
            push_pair(&mut kept, name.as_bytes(), value);
        }
        rest = pairs.rest();
    }
    if kept.is_empty() {
        return LabelsRef::from_canonical(rest).to_owned();
    }
    kept.extend_from_slice(rest);
    LabelsRef::from_canonical(&kept).to_owned()
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

    /// What a string takes in a dictionary, which may have room for twice as many.
    pub(crate) fn entry_bytes(bytes: &[u8]) -> usize {
        const PLACE_BYTES: usize = 2 * size_of::<(Box<[u8]>, u32)>() + 16;
        PLACE_BYTES + bytes.len()
    }

    /// How many distinct strings there are.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[&str], want: &[&str]) {
        let labels = |names: &[&str]| Labels::from_pairs(names.iter().map(|name| (*name, "v")));
        assert_eq!(without_metadata(labels(pairs).as_ref()), labels(want));
    }

    #[test]
    fn without_metadata_keeps_all_other_labels() {
        check(&["__name__", "a", "b"], &["a", "b"]);
        check(
            &["A", "__name__", "__other__", "__unit__", "b"],
            &["A", "__other__", "b"],
        );
        check(&["__type__", "__unit__"], &[]);
        check(&["a"], &["a"]);
        check(&[], &[]);
    }
}
