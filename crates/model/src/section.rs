//! Label sets as remote write sends them, the form in which most of them arrive.
//!
//! ```text
//! section = { 0a | bytes of the label | 0a | bytes of the name | name
//!                                     | 12 | bytes of the value | value }*
//! ```
//!
//! Numbers of bytes are varints. Prometheus and those who speak like it write the labels of a
//! series in exactly this form, sorted, unique and not empty; so a section is as good a key for a
//! label set as its canonical form, and whoever has seen a series' section before need not look
//! into it. Invariant: two label sets have the same section only if they are equal.

use crate::labels::LabelsRef;

/// The key of a label in a series.
pub const LABEL_KEY: u8 = 0x0a;

/// The key of the name in a label.
pub const NAME_KEY: u8 = 0x0a;

/// The key of the value in a label.
pub const VALUE_KEY: u8 = 0x12;

/// Appends the section of `labels` to `out`.
pub fn push_section(out: &mut Vec<u8>, labels: LabelsRef<'_>) {
    for (name, value) in labels.pairs() {
        push_label(out, name, value);
    }
}

/// Appends the part of a section that one label is.
#[inline]
pub fn push_label(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let name_bytes = 1 + varint_bytes(name.len()) + name.len();
    let value_bytes = 1 + varint_bytes(value.len()) + value.len();
    push_field(out, LABEL_KEY, name_bytes + value_bytes);
    push_field(out, NAME_KEY, name.len());
    out.extend_from_slice(name);
    push_field(out, VALUE_KEY, value.len());
    out.extend_from_slice(value);
}

/// Where the labels at the start of `series` end: the first byte that is no key of a label, or the
/// first label that does not fit. What is in the labels is not looked at.
#[inline]
pub fn section_bytes(series: &[u8]) -> usize {
    let mut at = 0;
    while let Some([LABEL_KEY, bytes @ ..]) = series.get(at..) {
        let next = match bytes {
            [short @ 0..0x80, ..] => at + 2 + usize::from(*short),
            [low, high @ 0..0x80, ..] => {
                at + 3 + (usize::from(low & 0x7f) | usize::from(*high) << 7)
            }
            // A label of 16 kB or more is rare: it is left to whoever reads the series in full.
            _ => break,
        };
        if next > series.len() {
            break;
        }
        at = next;
    }
    at
}

fn push_field(out: &mut Vec<u8>, key: u8, mut bytes: usize) {
    out.push(key);
    while bytes >= 0x80 {
        out.push(bytes as u8 | 0x80);
        bytes >>= 7;
    }
    out.push(bytes as u8);
}

fn varint_bytes(number: usize) -> usize {
    match number {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;

    #[test]
    fn section_of_labels_ends_where_the_labels_end() {
        let long = "v".repeat(300);
        let labels = Labels::from_pairs([("__name__", "up"), ("a", &long), ("job", "x")]);
        let mut bytes = Vec::new();
        push_section(&mut bytes, labels.as_ref());
        assert!(
            bytes.starts_with(
                b"\x0a\x0e\x0a\x08__name__\x12\x02up\x0a\xb2\x02\x0a\x01a\x12\xac\x02v"
            )
        );
        let whole = bytes.len();
        assert_eq!(section_bytes(&bytes), whole);
        bytes.extend_from_slice(b"\x12\x02\x10\x05");
        assert_eq!(section_bytes(&bytes), whole);
    }

    #[test]
    fn section_bytes_of_a_torn_label_stops_before_it() {
        assert_eq!(section_bytes(b"\x0a\x02ab\x0a\x05ab"), 4);
        assert_eq!(section_bytes(b"\x0a\xff\xff\xff"), 0);
        assert_eq!(section_bytes(b"\x0a\xff"), 0);
        assert_eq!(section_bytes(b""), 0);
    }
}
