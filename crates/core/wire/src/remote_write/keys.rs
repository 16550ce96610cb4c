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

use super::labels::name_and_value;
use crate::limits::WireLimits;
use crate::protobuf::{ProtobufCursor, put_varint};
use firn_model::labels::METRIC_NAME;
use firn_model::series_key::{KeyFormat, varint_bytes};
use std::ops::Range;

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

    /// Accepts labels in ASCII within the default limits, with a metric name.
    fn is_plain(&self, key: &[u8]) -> bool {
        is_plain_key(key, &WireLimits::default())
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

/// Returns whether a key is canonical (names ascend strictly, no name or value is empty, and each
/// length takes as few bytes as possible) and its labels are valid for certain: in ASCII, within
/// the limits, with a metric name.
fn is_plain_key(key: &[u8], limits: &WireLimits) -> bool {
    // If the whole key is ASCII, each length takes one byte, which is faster to check.
    if key.is_ascii() {
        are_plain_labels(key, limits, take_short_label)
    } else {
        are_plain_labels(key, limits, take_label)
    }
}

/// Returns whether labels, which `take` takes from the start of a key, are those of a plain key.
#[inline]
fn are_plain_labels<'k>(
    key: &'k [u8],
    limits: &WireLimits,
    take: impl Fn(&mut &'k [u8]) -> Option<(&'k [u8], &'k [u8])>,
) -> bool {
    let mut rest = key;
    let mut previous: &[u8] = &[];
    let (mut count, mut has_metric_name) = (0, false);
    while !rest.is_empty() {
        let Some((name, value)) = take(&mut rest) else {
            return false;
        };
        let is_within_limits = name.len() <= limits.label_name_bytes_max
            && value.len() <= limits.label_value_bytes_max;
        // An empty name is not after the previous one.
        if !is_after(name, previous) || value.is_empty() || !is_within_limits {
            return false;
        }
        has_metric_name |= name == METRIC_NAME.as_bytes();
        count += 1;
        previous = name;
    }
    has_metric_name && count <= limits.label_count_max
}

/// Returns whether `name` is after `previous`. Most names differ in the first byte.
#[inline]
fn is_after(name: &[u8], previous: &[u8]) -> bool {
    match (name.first(), previous.first()) {
        (Some(first), Some(before)) if first != before => first > before,
        _ => name > previous,
    }
}

/// Takes name and value of the label at the start of `rest`, which is ASCII. Returns `None` if its
/// encoding differs from that of [`push_label`].
#[inline]
fn take_short_label<'k>(rest: &mut &'k [u8]) -> Option<(&'k [u8], &'k [u8])> {
    let mut label = take_short_field(rest, LABEL_KEY)?;
    let name = take_short_field(&mut label, NAME_KEY)?;
    let value = take_short_field(&mut label, VALUE_KEY)?;
    label.is_empty().then_some((name, value))
}

/// Takes the bytes of the field at the start of `rest`, whose length takes one byte.
#[inline]
fn take_short_field<'k>(rest: &mut &'k [u8], key: u8) -> Option<&'k [u8]> {
    let [found, length, after @ ..] = *rest else {
        return None;
    };
    let (bytes, after) = after.split_at_checked(usize::from(*length))?;
    *rest = after;
    (*found == key).then_some(bytes)
}

/// Takes name and value of the label at the start of `rest`. Returns `None` if its encoding differs
/// from that of [`push_label`], or if they are not in ASCII.
#[inline]
fn take_label<'k>(rest: &mut &'k [u8]) -> Option<(&'k [u8], &'k [u8])> {
    let mut label = take_field(rest, LABEL_KEY)?;
    let name = take_field(&mut label, NAME_KEY)?;
    let value = take_field(&mut label, VALUE_KEY)?;
    (label.is_empty() && name.is_ascii() && value.is_ascii()).then_some((name, value))
}

/// Takes the bytes of the field at the start of `rest`. Returns `None` if it has another key, is
/// cut off, or has a length that could be encoded in fewer bytes.
#[inline]
fn take_field<'k>(rest: &mut &'k [u8], key: u8) -> Option<&'k [u8]> {
    let (found, after_key) = rest.split_first()?;
    let mut cursor = ProtobufCursor::new(after_key);
    let bytes = cursor.read_bytes().ok()?;
    *rest = cursor.rest();
    let length_bytes = after_key.len() - bytes.len() - rest.len();
    (*found == key && length_bytes == varint_bytes(bytes.len())).then_some(bytes)
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

/// Calls `visit` with the position in `key`, the name and the value of each label. Returns `None`
/// if the key contains anything but whole labels.
pub fn visit_labels<'k>(
    key: &'k [u8],
    mut visit: impl FnMut(Range<usize>, &'k [u8], &'k [u8]),
) -> Option<()> {
    let mut rest = key;
    while let Some((field_key, after)) = rest.split_first() {
        let start = key.len() - rest.len();
        let mut cursor = ProtobufCursor::new(after);
        let label = cursor.read_bytes().ok()?;
        rest = cursor.rest();
        if *field_key != LABEL_KEY {
            return None;
        }
        let (name, value) = name_and_value(label).ok()?;
        visit(start..key.len() - rest.len(), name, value);
    }
    Some(())
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

#[cfg(test)]
mod tests {
    use super::super::labels::decode_labels;
    use super::*;
    use crate::limits::WireLimits;
    use firn_model::env::sim::SimRng;
    use firn_model::labels::{Labels, LabelsRef};

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
    fn key_is_plain_if_labels_make_the_same_key() {
        let check = |key: &[u8], expected: bool| {
            assert_eq!(KEY_FORMAT.is_plain(key), expected, "{key:?}");
        };
        for value in ["x".to_owned(), "v".repeat(120), "v".repeat(300)] {
            let labels = Labels::from_pairs([("__name__", "up"), ("a", &value), ("b", &value)]);
            let mut key = Vec::new();
            KEY_FORMAT.push_key(&mut key, labels.as_ref());
            check(&key, true);
            // `__name__="up"` takes 16 bytes, and the other two labels are of equal length.
            let ends_of_labels = [16, 16 + (key.len() - 16) / 2];
            for cut in 1..key.len() {
                check(&key[..cut], ends_of_labels.contains(&cut));
            }
        }
        let name = b"\x0a\x0e\x0a\x08__name__\x12\x02up".as_slice();
        let check_after_name = |labels: &[u8], expected: bool| {
            check(&[name, labels].concat(), expected);
            // The same with a value whose length takes two bytes.
            let mut long = Vec::new();
            push_label(
                &mut long,
                METRIC_NAME.as_bytes(),
                "v".repeat(200).as_bytes(),
            );
            check(&[&long, labels].concat(), expected);
        };
        check_after_name(b"", true);
        check_after_name(b"\x0a\x06\x0a\x01a\x12\x01x", true);
        check_after_name(b"\x0a\x07\x0a\x01a\x12\x02x\x7f", true);
        check_after_name(b"\x0a\x07\x0a\x01a\x12\x02x\x80", false);
        // Not in order, twice, without a name, without a value.
        check_after_name(
            b"\x0a\x06\x0a\x01b\x12\x01x\x0a\x06\x0a\x01a\x12\x01x",
            false,
        );
        check_after_name(
            b"\x0a\x06\x0a\x01a\x12\x01x\x0a\x06\x0a\x01a\x12\x01x",
            false,
        );
        check_after_name(b"\x0a\x05\x0a\x00\x12\x01x", false);
        check_after_name(b"\x0a\x05\x0a\x01a\x12\x00", false);
        check_after_name(b"\x0a\x03\x0a\x01a", false);
        // The value before the name, another field, the value twice.
        check_after_name(b"\x0a\x06\x12\x01x\x0a\x01a", false);
        check_after_name(b"\x0a\x08\x0a\x01a\x12\x01x\x18\x01", false);
        check_after_name(b"\x0a\x09\x0a\x01a\x12\x01y\x12\x01x", false);
        check_after_name(b"\x12\x06\x0a\x01a\x12\x01x", false);
        // Lengths in more bytes than necessary.
        check_after_name(b"\x0a\x86\x00\x0a\x01a\x12\x01x", false);
        check_after_name(b"\x0a\x07\x0a\x81\x00a\x12\x01x", false);
        check_after_name(b"\x0a\x07\x0a\x01a\x12\x81\x00x", false);
    }

    #[test]
    fn plain_keys_are_canonical_and_have_labels_that_are_accepted() {
        let limits = WireLimits {
            label_count_max: 3,
            label_name_bytes_max: 8,
            label_value_bytes_max: 4,
            ..WireLimits::default()
        };
        let check = |pairs: &[(&str, &str)], expected: bool| {
            let mut key = Vec::new();
            for (name, value) in pairs {
                push_label(&mut key, name.as_bytes(), value.as_bytes());
            }
            assert_eq!(is_plain_key(&key, &limits), expected, "{pairs:?}");
            let decoded = decode_labels(&key, &limits, &mut Vec::new()).unwrap();
            assert!(!expected || decoded.is_ok(), "{pairs:?}: {decoded:?}");
            let mut again = Vec::new();
            if expected {
                let labels = Labels::from_pairs(pairs.iter().copied());
                KEY_FORMAT.push_key(&mut again, labels.as_ref());
                assert_eq!(again, key, "{pairs:?}");
            }
        };
        let name = ("__name__", "up");
        check(&[name], true);
        check(&[name, ("a", "1234"), ("b", "2")], true);
        check(&[("A", "1"), name, ("b", "2")], true);
        check(&[], false);
        check(&[("a", "1")], false);
        check(&[name, ("a", "1"), ("b", "2"), ("c", "3")], false);
        check(&[name, ("a", "12345")], false);
        check(&[name, ("a23456789", "1")], false);
        check(&[name, ("a", "\u{e4}")], false);
        check(&[name, ("b", "1"), ("a", "2")], false);
        check(&[name, ("a", "")], false);
        check(&[("__name__", "")], false);
    }

    #[test]
    fn plain_key_is_decoded_to_labels_that_make_the_same_key() {
        let limits = WireLimits::default();
        let rng = SimRng::new(5);
        let mut plain = 0;
        for round in 0..20_000 {
            let value = "v".repeat(rng.next_below(200) as usize);
            let labels = Labels::from_pairs([("__name__", "up"), ("a", &value), ("b", "x")]);
            let mut key = Vec::new();
            KEY_FORMAT.push_key(&mut key, labels.as_ref());
            let at = rng.next_below(key.len() as u64) as usize;
            match rng.next_below(3) {
                0 => key[at] = rng.next_below(256) as u8,
                1 => key.insert(at, rng.next_below(256) as u8),
                _ => drop(key.remove(at)),
            }
            let mut arena = Vec::new();
            let decoded = decode_labels(&key, &limits, &mut arena);
            if KEY_FORMAT.is_plain(&key) {
                plain += 1;
                let accepted = decoded.expect("no malformed bytes");
                accepted.unwrap_or_else(|offence| panic!("round {round}: {}", offence.message));
                let mut again = Vec::new();
                KEY_FORMAT.push_key(&mut again, LabelsRef::from_canonical(&arena));
                assert_eq!(again, key, "round {round}");
            }
        }
        assert!(plain > 1_000, "{plain}");
    }

    #[test]
    fn labels_end_of_a_torn_label_stops_before_it() {
        assert_eq!(labels_end(b"\x0a\x02ab\x0a\x05ab"), 4);
        assert_eq!(labels_end(b"\x0a\xff\xff\xff"), 0);
        assert_eq!(labels_end(b"\x0a\xff"), 0);
        assert_eq!(labels_end(b""), 0);
    }
}
