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

use crate::labels::{LabelsRef, push_prefixed, take_prefixed};
use std::fmt::Debug;

/// The encoding of labels in the format of one kind of sender.
pub trait KeyFormat: Debug + Send + Sync {
    /// Returns the name of the format, which is unique.
    fn name(&self) -> &'static str;

    /// Appends the part of a key that encodes one label. It contains the name of the label
    /// literally; returns the number of bytes before the name.
    fn push_label(&self, key: &mut Vec<u8>, name: &[u8], value: &[u8]) -> usize;

    /// Returns whether `key` equals the key that [`KeyFormat::push_key`] creates from its labels,
    /// and the decoder of the format accepts these labels for certain. All keys that encode the
    /// same labels and pass this check are equal. One pass.
    ///
    /// False by default, and possibly for a key that has both properties: the labels of such a key
    /// must be decoded to compare it.
    fn is_plain(&self, _key: &[u8]) -> bool {
        false
    }

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

    fn is_plain(&self, key: &[u8]) -> bool {
        let mut rest = key;
        let mut previous: &[u8] = &[];
        while !rest.is_empty() {
            let name = take_shortest(&mut rest).unwrap_or_default();
            let value = take_shortest(&mut rest).unwrap_or_default();
            // An empty name is not after the previous one.
            if name <= previous || value.is_empty() {
                return false;
            }
            previous = name;
        }
        true
    }

    fn push_key(&self, key: &mut Vec<u8>, labels: LabelsRef<'_>) {
        key.extend_from_slice(labels.as_bytes());
    }
}

/// Takes a byte string from the start of `rest`. Returns `None` if it is cut off, or if its length
/// could be encoded in fewer bytes.
fn take_shortest<'k>(rest: &mut &'k [u8]) -> Option<&'k [u8]> {
    let before = rest.len();
    let taken = take_prefixed(rest)?;
    let length_bytes = before - rest.len() - taken.len();
    (length_bytes == varint_bytes(taken.len())).then_some(taken)
}

/// Returns the number of bytes of `number` as a varint in its shortest form.
pub fn varint_bytes(number: usize) -> usize {
    (usize::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
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

    #[test]
    fn key_is_plain_if_labels_make_the_same_key() {
        let check = |key: &[u8], expected: bool| {
            assert_eq!(CanonicalKeys.is_plain(key), expected, "{key:?}");
        };
        let long = "v".repeat(300);
        let labels = Labels::from_pairs([("__name__", "up"), ("a", &long), ("job", "x")]);
        check(labels.as_bytes(), true);
        check(b"", true);
        check(b"\x01a\x01x\x01b\x01y", true);
        check(b"\x01b\x01y\x01a\x01x", false);
        check(b"\x01a\x01x\x01a\x01x", false);
        check(b"\x01a\x00", false);
        check(b"\x00\x01x", false);
        check(b"\x81\x00a\x01x", false);
        check(b"\x01a\x81\x00x", false);
        // A varint of more than 64 bits, whose low bits are those of a short one.
        check(b"\x81\x80\x80\x80\x80\x80\x80\x80\x80\x02a\x01x", false);
        for cut in [b"\x01".as_slice(), b"\x01a", b"\x01a\x02x", b"\x80"] {
            check(cut, false);
        }
    }
}
