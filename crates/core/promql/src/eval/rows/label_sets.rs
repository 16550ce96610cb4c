//! Derives label sets from label sets in their encoded form, without an object per label.

use firn_model::labels::{Labels, LabelsRef, METRIC_NAME, push_pair};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;

/// The metadata label that is last in the order of names.
const LAST_METADATA: &str = "__unit__";

/// Returns whether a label describes the metric rather than its source. Such labels are removed
/// when an operation changes the meaning of the value.
pub(crate) fn is_metadata(name: &str) -> bool {
    name == METRIC_NAME || name == "__type__" || name == LAST_METADATA
}

/// Replaces the contents of `out` by the labels that `keep` accepts.
pub(crate) fn retain_labels_into(
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

/// Returns the labels whose names `keep` accepts. Allocates.
pub(crate) fn retain_labels(labels: LabelsRef<'_>, keep: impl FnMut(&str) -> bool) -> Labels {
    let mut out = Vec::with_capacity(labels.as_bytes().len());
    retain_labels_into(labels, keep, &mut out);
    LabelsRef::from_canonical(&out).to_owned()
}

/// Returns `labels` without metadata labels, such as the metric name; see [`is_metadata`].
pub(crate) fn without_metadata(labels: LabelsRef<'_>) -> Labels {
    // Names are sorted, so all labels after the last metadata label are copied at once.
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

/// Assigns numbers to distinct byte strings in order of their first occurrence. All strings are in
/// one buffer and are found by their hashes.
#[derive(Debug, Default)]
pub(crate) struct ByteStringNumbers {
    /// The number of the string with a given hash. If another string has the same hash, the next
    /// hash is used.
    ids: FxHashMap<u64, u32>,
    strings: ByteStrings,
}

/// A list of byte strings in one buffer, without an allocation per string.
#[derive(Debug, Default)]
pub(crate) struct ByteStrings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl ByteStrings {
    /// Appends a string to the list.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }

    /// Returns all strings in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|at| self.get(at))
    }

    fn get(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }
}

impl ByteStringNumbers {
    /// Returns the number of `bytes`, and whether the string is new.
    pub(crate) fn intern(&mut self, bytes: &[u8]) -> (u32, bool) {
        let mut hasher = FxHasher::default();
        hasher.write(bytes);
        let mut hash = hasher.finish();
        let next = self.ids.len() as u32;
        loop {
            let id = *self.ids.entry(hash).or_insert(next);
            if id == next {
                self.strings.push(bytes);
                return (id, true);
            }
            if self.strings.get(id as usize) == bytes {
                return (id, false);
            }
            hash = hash.wrapping_add(1);
        }
    }

    /// Returns the memory of a string in a dictionary in bytes. It accounts for capacity of up to
    /// twice the length.
    pub(crate) fn entry_bytes(bytes: &[u8]) -> usize {
        const PLACE_BYTES: usize = 2 * size_of::<(u64, u32, usize)>();
        PLACE_BYTES + 2 * bytes.len()
    }

    /// Returns the number of distinct strings, which is also the next number.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionary_numbers_strings_in_order() {
        let mut known = ByteStringNumbers::default();
        let strings: Vec<Vec<u8>> = (0..2000u32)
            .map(|i| vec![b'x'; i as usize % 1000])
            .collect();
        for (at, string) in strings.iter().enumerate() {
            let want = ((at % 1000) as u32, at < 1000);
            assert_eq!(known.intern(string), want, "{at}");
        }
        // Simulates a string whose hash equals that of another.
        let mut hasher = FxHasher::default();
        hasher.write(b"y");
        known.ids.insert(hasher.finish(), 7);
        known
            .strings
            .push(b"takes the number of the hash that was put in");
        assert_eq!(known.intern(b"y"), (1001, true));
        assert_eq!(known.intern(b"y"), (1001, false));
        assert_eq!(known.len(), 1002);
    }

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
