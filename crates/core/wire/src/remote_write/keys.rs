//! The keys of series: their labels in the encoding of Prometheus and compatible senders.
//!
//! ```text
//! key = { 0a | bytes of the label | 0a | bytes of the name | name
//!                                 | 12 | bytes of the value | value }*
//! ```
//!
//! Numbers of bytes are varints. Senders write the labels of a series sorted, unique, not empty and
//! at the start of the series: these bytes are its key. Decoding is deterministic, so that equal
//! keys imply equal labels.

use crate::protobuf::put_varint;
use firn_model::series_key::KeyFormat;

/// Field key of a label in a series.
pub(super) const LABEL_KEY: u8 = 0x0a;

/// Field key of the name in a label.
pub(super) const NAME_KEY: u8 = 0x0a;

/// Field key of the value in a label.
pub(super) const VALUE_KEY: u8 = 0x12;

/// The bytes of a label that precede the metric name.
const NAME_BEGINS: &[u8] = b"\x0a\x08__name__\x12";

/// The format of the keys in the batches of [`super::Decoder`].
pub const KEY_FORMAT: &dyn KeyFormat = &RemoteWriteKeys;

#[derive(Debug)]
struct RemoteWriteKeys;

impl KeyFormat for RemoteWriteKeys {
    fn name(&self) -> &'static str {
        "remote write 1.0"
    }

    #[inline]
    fn push_label(&self, key: &mut Vec<u8>, name: &[u8], value: &[u8]) -> usize {
        push_label(key, name, value)
    }

    /// Finds the name only at the start of the key, where sorted labels nearly always have it.
    #[inline]
    fn metric_name<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let label = match key {
            [LABEL_KEY, 0..0x80, label @ ..] | [LABEL_KEY, _, 0..0x80, label @ ..] => label,
            _ => return None,
        };
        match label.strip_prefix(NAME_BEGINS)? {
            [bytes @ 0..0x80, name @ ..] => name.get(..usize::from(*bytes)),
            [low, high @ 0..0x80, name @ ..] => {
                name.get(..usize::from(low & 0x7f) | usize::from(*high) << 7)
            }
            _ => None,
        }
    }
}

/// Appends the encoding of one label to a key; returns the offset of the name within it.
#[inline]
pub(crate) fn push_label(key: &mut Vec<u8>, name: &[u8], value: &[u8]) -> usize {
    let start = key.len();
    let name_bytes = 1 + varint_bytes(name.len()) + name.len();
    let value_bytes = 1 + varint_bytes(value.len()) + value.len();
    push_length(key, LABEL_KEY, name_bytes + value_bytes);
    push_length(key, NAME_KEY, name.len());
    let name_at = key.len() - start;
    key.extend_from_slice(name);
    push_length(key, VALUE_KEY, value.len());
    key.extend_from_slice(value);
    name_at
}

/// Appends the encoding of a label up to its value, without the length of the label.
pub(crate) fn begin_label(key: &mut Vec<u8>, name: &[u8]) {
    push_length(key, NAME_KEY, name.len());
    key.extend_from_slice(name);
    key.push(VALUE_KEY);
}

/// Appends a label like [`push_label`], given the beginning that [`begin_label`] has encoded.
#[inline]
pub(crate) fn push_begun_label(key: &mut Vec<u8>, begun: &[u8], value: &[u8]) {
    let value_bytes = varint_bytes(value.len()) + value.len();
    push_length(key, LABEL_KEY, begun.len() + value_bytes);
    key.extend_from_slice(begun);
    put_varint(key, value.len() as u64);
    key.extend_from_slice(value);
}

/// Returns the end of the labels at the start of `series`: the first byte that is not the key of a
/// label, or the first label that is cut off. The content of the labels is not validated.
#[inline]
pub(super) fn labels_end(series: &[u8]) -> usize {
    let mut at = 0;
    while let Some([LABEL_KEY, bytes @ ..]) = series.get(at..) {
        let next = match bytes {
            [short @ 0..0x80, ..] => at + 2 + usize::from(*short),
            [low, high @ 0..0x80, ..] => {
                at + 3 + (usize::from(low & 0x7f) | usize::from(*high) << 7)
            }
            // Labels of 16 kB or more are rare: the caller decodes such a series completely.
            _ => break,
        };
        if next > series.len() {
            break;
        }
        at = next;
    }
    at
}

fn push_length(out: &mut Vec<u8>, key: u8, bytes: usize) {
    out.push(key);
    put_varint(out, bytes as u64);
}

fn varint_bytes(number: usize) -> usize {
    (usize::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::labels::Labels;

    #[test]
    fn key_of_labels_ends_where_the_labels_end() {
        let long = "v".repeat(300);
        let labels = Labels::from_pairs([("__name__", "up"), ("a", &long), ("job", "x")]);
        let mut bytes = Vec::new();
        KEY_FORMAT.push_key(&mut bytes, labels.as_ref());
        assert!(
            bytes.starts_with(
                b"\x0a\x0e\x0a\x08__name__\x12\x02up\x0a\xb2\x02\x0a\x01a\x12\xac\x02v"
            )
        );
        let whole = bytes.len();
        assert_eq!(labels_end(&bytes), whole);
        bytes.extend_from_slice(b"\x12\x02\x10\x05");
        assert_eq!(labels_end(&bytes), whole);
    }

    #[test]
    fn metric_name_is_read_where_the_key_begins_with_it() {
        for name in [
            "up".to_owned(),
            "n".repeat(127),
            "n".repeat(128),
            "n".repeat(300),
        ] {
            let labels = Labels::from_pairs([("__name__", name.as_str()), ("a", "b")]);
            let mut key = Vec::new();
            KEY_FORMAT.push_key(&mut key, labels.as_ref());
            assert_eq!(KEY_FORMAT.metric_name(&key), Some(name.as_bytes()));
            for end in 0..key.len() {
                let cut = KEY_FORMAT.metric_name(&key[..end]);
                assert!(cut.is_none_or(|cut| cut == name.as_bytes()));
            }
        }
        let mut key = Vec::new();
        KEY_FORMAT.push_key(&mut key, Labels::from_pairs([("A", "b")]).as_ref());
        assert_eq!(KEY_FORMAT.metric_name(&key), None);
    }

    #[test]
    fn key_holds_the_name_of_a_label_where_push_label_says() {
        let mut key = Vec::new();
        for (name, value) in [("__name__", "up".to_owned()), ("a", "v".repeat(300))] {
            let start = key.len();
            let at = start + KEY_FORMAT.push_label(&mut key, name.as_bytes(), value.as_bytes());
            assert_eq!(&key[at..at + name.len()], name.as_bytes());
        }
    }

    #[test]
    fn labels_end_of_a_torn_label_stops_before_it() {
        assert_eq!(labels_end(b"\x0a\x02ab\x0a\x05ab"), 4);
        assert_eq!(labels_end(b"\x0a\xff\xff\xff"), 0);
        assert_eq!(labels_end(b"\x0a\xff"), 0);
        assert_eq!(labels_end(b""), 0);
    }
}
