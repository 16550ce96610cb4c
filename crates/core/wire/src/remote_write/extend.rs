//! Adds external labels to all series of a version 1.0 request that do not have them, directly in
//! the encoded bytes.
//!
//! ```text
//! series = label label | label label sample    ->    label label new label label sample
//! ```
//!
//! Existing bytes are copied without decoding samples. Invariant: only series in the form that
//! senders produce are changed, with labels sorted, unique, not empty, and before all other fields;
//! for any other series the caller must decode the whole request. For any input, memory is bounded
//! by the message and the labels of its series, and nothing panics.

use super::{field, keys};
use crate::protobuf::{ProtobufCursor, WireType, put_key, put_varint};
use firn_model::labels::LabelsRef;
use std::cmp::Ordering;

/// The labels to add to series, encoded once for all requests. Created from the external labels.
#[derive(Clone, Debug)]
pub struct ExtraLabels {
    /// Labels sorted by name.
    labels: Vec<ExtraLabel>,
}

#[derive(Clone, Debug)]
struct ExtraLabel {
    name: Box<[u8]>,
    /// The encoded label as a field of a series.
    field: Box<[u8]>,
}

impl ExtraLabels {
    /// Encodes `labels` for adding them to series. They are sorted by name already.
    pub fn new(labels: LabelsRef<'_>) -> Self {
        let label = |(name, value): (&str, &[u8])| {
            let mut field = Vec::new();
            keys::push_label(&mut field, name.as_bytes(), value);
            ExtraLabel {
                name: name.as_bytes().into(),
                field: field.into(),
            }
        };
        Self {
            labels: labels.iter().map(label).collect(),
        }
    }

    /// Returns the message with the labels added; `None` if a series is not in the form that
    /// senders produce.
    pub fn extend(&self, message: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(message.len() + message.len() / 4);
        // Offsets in a series, each with the label to insert there.
        let mut places: Vec<(usize, &ExtraLabel)> = Vec::with_capacity(self.labels.len());
        let mut cursor = ProtobufCursor::new(message);
        loop {
            let start = message.len() - cursor.rest().len();
            let Some((number, wire_type)) = cursor.read_field().ok()? else {
                return Some(out);
            };
            if number != field::REQUEST_SERIES || wire_type != WireType::Bytes {
                cursor.skip(wire_type).ok()?;
                let end = message.len() - cursor.rest().len();
                out.extend_from_slice(message.get(start..end)?);
                continue;
            }
            let series = cursor.read_bytes().ok()?;
            places.clear();
            self.find_insert_offsets(series, &mut places)?;
            let more: usize = places.iter().map(|(_, label)| label.field.len()).sum();
            put_key(&mut out, field::REQUEST_SERIES, WireType::Bytes);
            put_varint(&mut out, (series.len() + more) as u64);
            let mut copied = 0;
            for (at, label) in &places {
                out.extend_from_slice(series.get(copied..*at)?);
                out.extend_from_slice(&label.field);
                copied = *at;
            }
            out.extend_from_slice(series.get(copied..)?);
        }
    }

    /// Finds the offsets at which to insert the labels that `series` does not have. Returns `None`
    /// if the series is not in the usual form.
    fn find_insert_offsets<'e>(
        &'e self,
        series: &[u8],
        places: &mut Vec<(usize, &'e ExtraLabel)>,
    ) -> Option<()> {
        let end = keys::labels_end(series);
        let (mut labels, rest) = series.split_at_checked(end)?;
        if labels.is_empty() || has_label(rest)? {
            return None;
        }
        let mut more = self.labels.iter().peekable();
        let mut before: &[u8] = &[];
        while !labels.is_empty() {
            let at = end - labels.len();
            let (name, behind) = parse_plain_label(labels)?;
            if compare_names(before, name) != Ordering::Less {
                return None;
            }
            while let Some(label) = more.next_if(|m| compare_names(&m.name, name) == Ordering::Less)
            {
                places.push((at, label));
            }
            more.next_if(|label| *label.name == *name);
            (before, labels) = (name, behind);
        }
        places.extend(more.map(|label| (end, label)));
        Some(())
    }
}

/// Returns the name of the first label in `labels`, and the bytes after the label; `None` if it is
/// not in the form of keys or has no value.
fn parse_plain_label(labels: &[u8]) -> Option<(&[u8], &[u8])> {
    let (label, behind) = parse_sized_field(labels, keys::LABEL_KEY)?;
    let (name, value) = parse_sized_field(label, keys::NAME_KEY)?;
    let (value, nothing) = parse_sized_field(value, keys::VALUE_KEY)?;
    let is_plain = !name.is_empty() && !value.is_empty() && nothing.is_empty();
    is_plain.then_some((name, behind))
}

/// Returns the content of the first field in `bytes`, if it has this key, and the bytes after
/// the field.
#[inline]
fn parse_sized_field(bytes: &[u8], key: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (length, rest) = match rest {
        [length @ 0..0x80, rest @ ..] => (usize::from(*length), rest),
        [low, high @ 0..0x80, rest @ ..] => {
            (usize::from(*low & 0x7f) | usize::from(*high) << 7, rest)
        }
        _ => return None,
    };
    if *first == key {
        rest.split_at_checked(length)
    } else {
        None
    }
}

/// Returns whether the fields after the labels of a series contain further labels. Returns `None`
/// if they are malformed.
fn has_label(rest: &[u8]) -> Option<bool> {
    let mut cursor = ProtobufCursor::new(rest);
    while let Some((number, wire_type)) = cursor.read_field().ok()? {
        if number == field::SERIES_LABEL {
            return Some(true);
        }
        cursor.skip(wire_type).ok()?;
    }
    Some(false)
}

/// Compares names by bytes; most of them already differ in the first one.
#[inline]
fn compare_names(one: &[u8], other: &[u8]) -> Ordering {
    one.first().cmp(&other.first()).then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests {
    use super::super::{RemoteWriteDecoder, RemoteWriteOptions, encode};
    use super::*;
    use crate::limits::WireLimits;
    use crate::snappy;
    use firn_model::batch::Batch;
    use firn_model::env::sim::SimRng;
    use firn_model::labels::Labels;

    fn message(series: &[Labels]) -> Vec<u8> {
        let mut batch = Batch::default();
        for labels in series {
            batch.push_series(labels.as_ref(), &[(5, 1.5), (6, 2.5)]);
        }
        let mut message = Vec::new();
        snappy::decompress(&encode(&batch), 1 << 20, &mut message).unwrap();
        message
    }

    fn series_of(message: &[u8]) -> Vec<Labels> {
        let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
        let body = snappy::compress(message);
        let decoded = decoder
            .decode(RemoteWriteOptions::default(), &body)
            .unwrap();
        assert!(decoded.batch.iter().all(|series| series.times == [5, 6]));
        decoded
            .batch
            .iter()
            .map(|series| series.labels.to_owned())
            .collect()
    }

    #[test]
    fn extend_of_random_series_adds_the_labels_that_they_have_not() {
        for seed in 1..=500 {
            let random = SimRng::new(seed);
            let names = ["a", "b", "bb", "c", "long_enough", "z"];
            let some = |first: &[&'static str], value: String| {
                let chosen = names.into_iter().filter(|_| random.next_below(2) == 0);
                let chosen: Vec<&str> = first.iter().copied().chain(chosen).collect();
                Labels::from_pairs(chosen.into_iter().map(|name| (name, value.as_str())))
            };
            let extra = some(&[], "x".repeat(random.next_below(200) as usize + 1));
            let own = (0..random.next_below(8))
                .map(|i| some(&["__name__"], "y".repeat(i as usize * 30 + 1)));
            let own: Vec<Labels> = own.collect();
            let extended = ExtraLabels::new(extra.as_ref())
                .extend(&message(&own))
                .unwrap();
            let expected = own.iter().map(|labels| {
                let given = extra.iter().filter(|(name, _)| labels.get(name).is_empty());
                let pairs = labels.iter().chain(given);
                let mut pairs: Vec<(String, String)> = pairs
                    .map(|(n, v)| (n.to_owned(), String::from_utf8_lossy(v).into_owned()))
                    .collect();
                pairs.sort();
                Labels::from_pairs(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())))
            });
            let expected: Vec<Labels> = expected.collect();
            assert_eq!(series_of(&extended), expected, "seed {seed}");
            // Equal to the encoding of the expected series.
            assert_eq!(extended, message(&expected), "seed {seed}");
        }
    }

    #[test]
    fn extend_leaves_series_of_other_forms_to_others_and_copies_what_it_does_not_know() {
        let extra = ExtraLabels::new(Labels::from_pairs([("m", "x")]).as_ref());
        let (a, m, z) = (
            b"\x0a\x06\x0a\x01a\x12\x01v",
            b"\x0a\x06\x0a\x01m\x12\x00v",
            b"\x0a\x06\x0a\x01z\x12\x01v",
        );
        let series = |parts: &[&[u8]]| {
            let series = parts.concat();
            [&[0x0a, series.len() as u8], &series[..]].concat()
        };
        let x = b"\x0a\x06\x0a\x01m\x12\x01x";
        let sample = b"\x12\x02\x10\x05";
        for (parts, expected) in [
            (&[&a[..], z, sample][..], Some(&[&a[..], x, z, sample][..])),
            (&[&z[..], a, sample], None),
            (&[&a[..], a, sample], None),
            (&[&a[..], sample, z], None),
            (&[&a[..], m, sample], None),
            (&[&sample[..]], None),
            (&[&a[..], b"\x12\x09"], None),
            // An unknown field of a later version.
            (&[&a[..], b"\x3a\x01?"], Some(&[&a[..], x, b"\x3a\x01?"])),
        ] {
            let got = extra.extend(&series(parts));
            assert_eq!(got, expected.map(series), "{parts:?}");
        }
        let metadata = b"\x1a\x02\x08\x01";
        assert_eq!(extra.extend(metadata), Some(metadata.to_vec()));
        assert_eq!(extra.extend(b"\x0a\x09"), None);
        for seed in 1..=5_000 {
            let random = SimRng::new(seed);
            let mut bytes = message(&[Labels::from_pairs([("a", "1"), ("z", "2")])]);
            let at = random.next_below(bytes.len() as u64) as usize;
            bytes[at] = random.next_below(256) as u8;
            let grown = extra.extend(&bytes).map_or(0, |extended| extended.len());
            assert!(grown <= bytes.len() + 2 * x.len(), "seed {seed}");
        }
    }
}
