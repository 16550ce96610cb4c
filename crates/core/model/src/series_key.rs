//! Series keys: bytes by which a store finds a series without decoding its labels.
//!
//! A sender encodes the labels of a series in the same bytes with every sample. A decoder passes
//! these bytes on as the key of the series and does not decode the labels. A [`KeyFormat`] creates
//! the same key from decoded labels (of a scrape or of the log), so that a series has one key
//! regardless of the source of its samples. Only the decoder can interpret a key.
//!
//! Invariant: within one format, equal keys mean equal labels. The reverse does not hold: a sender
//! may encode equal labels differently. A store that does not find a key therefore requests the
//! labels and looks up the key that the format creates from them.

use crate::labels::{LabelsRef, push_prefixed};
use std::fmt::Debug;

/// The encoding of labels in the format of one kind of sender.
pub trait KeyFormat: Debug + Send + Sync {
    /// Returns the name of the format, which is unique.
    fn name(&self) -> &'static str;

    /// Appends the part of a key that encodes one label. It contains the name of the label
    /// literally; returns the number of bytes before the name.
    fn push_label(&self, key: &mut Vec<u8>, name: &[u8], value: &[u8]) -> usize;

    /// Returns the metric name if it is easily found in `key`. A series may have a metric name that
    /// is not found in this way.
    fn metric_name<'k>(&self, _key: &'k [u8]) -> Option<&'k [u8]> {
        None
    }

    /// Appends the key of `labels` by encoding one label after another.
    fn push_key(&self, key: &mut Vec<u8>, labels: LabelsRef<'_>) {
        for (name, value) in labels.pairs() {
            self.push_label(key, name, value);
        }
    }
}

/// The format whose keys are canonical label bytes, for a store that only receives samples with
/// decoded labels.
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
