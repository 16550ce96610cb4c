//! Series keys: bytes by which a store finds a series without reading its labels.
//!
//! A sender writes the labels of a series in the same bytes with every sample. A decoder passes
//! these bytes on as the key of the series and leaves the labels unread. A [`KeyFormat`] makes the
//! same key from labels that are at hand (of a scrape, of the log), so that a series has one key
//! whichever way its samples come in. Only the decoder knows what is in a key.
//!
//! Invariant: within one format, equal keys stand for equal labels. The reverse does not hold: a
//! sender may write equal labels in other bytes. A store that does not find a key therefore has the
//! labels read and looks up the key that the format makes of them.

use crate::labels::{LabelsRef, push_prefixed};
use std::fmt::Debug;

/// How one sender format writes the labels of a series.
pub trait KeyFormat: Debug + Send + Sync {
    /// The name of the format; no two formats have the same.
    fn name(&self) -> &'static str;

    /// Appends the part of a key that one label is. The name of the label stands in it as it is;
    /// returns how many bytes stand before the name.
    fn push_label(&self, key: &mut Vec<u8>, name: &[u8], value: &[u8]) -> usize;

    /// The metric's name, if `key` shows it at once; a series may have one that its key does not.
    fn metric_name<'k>(&self, _key: &'k [u8]) -> Option<&'k [u8]> {
        None
    }

    /// Appends the key of `labels`.
    fn push_key(&self, key: &mut Vec<u8>, labels: LabelsRef<'_>) {
        for (name, value) in labels.pairs() {
            self.push_label(key, name, value);
        }
    }
}

/// The format whose keys are canonical label bytes: that of a store whose samples all come with
/// their labels read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanonicalKeys;

impl KeyFormat for CanonicalKeys {
    fn name(&self) -> &'static str {
        "canonical"
    }

    fn push_label(&self, key: &mut Vec<u8>, name: &[u8], value: &[u8]) -> usize {
        let start = key.len();
        push_prefixed(key, name);
        let name_at = key.len() - name.len() - start;
        push_prefixed(key, value);
        name_at
    }

    fn push_key(&self, key: &mut Vec<u8>, labels: LabelsRef<'_>) {
        key.extend_from_slice(labels.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;

    #[test]
    fn canonical_key_of_labels_is_their_bytes_and_holds_each_name() {
        let long = "v".repeat(300);
        let labels = Labels::from_pairs([("__name__", "up"), ("a", &long), ("job", "x")]);
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        CanonicalKeys.push_key(&mut whole, labels.as_ref());
        for (name, value) in labels.iter() {
            let start = parts.len();
            let at = start + CanonicalKeys.push_label(&mut parts, name.as_bytes(), value);
            assert_eq!(&parts[at..at + name.len()], name.as_bytes());
        }
        assert_eq!(whole, labels.as_bytes());
        assert_eq!(parts, whole);
    }
}
