//! Removes series from remote-write messages that are forwarded, and counts their contents.
//!
//! ```text
//! message = { series | metadata (1.0) | symbols (2.0) | fields of newer senders }*
//! ```
//!
//! The remaining fields are copied byte for byte, including unknown ones. Invariant: for any input,
//! memory is bounded by the message and the limits below, and nothing panics.

use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};

/// Largest number of symbols of a version 2.0 message, at 16 bytes each. A request of 2,000 series
/// has about 20,000.
const SYMBOLS_MAX: usize = 1 << 20;

/// Largest number of labels of one series; the write pipeline accepts 128.
const LABELS_MAX: usize = 1024;

/// Field numbers of the two messages.
mod field {
    pub const V1_SERIES: u32 = 1;
    pub const V1_METADATA: u32 = 3;
    pub const V2_SYMBOL: u32 = 4;
    pub const V2_SERIES: u32 = 5;
    /// Field of a series: a label in 1.0, references to symbols in 2.0.
    pub const LABELS: u32 = 1;
    pub const LABEL_NAME: u32 = 1;
    pub const LABEL_VALUE: u32 = 2;
    pub const V2_SAMPLE: u32 = 2;
    pub const V2_HISTOGRAM: u32 = 3;
    pub const V2_EXEMPLAR: u32 = 4;
}

/// The message type of a body, known from the content type of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMessageType {
    /// Version 1.0: `prometheus.WriteRequest`.
    V1,
    /// Version 2.0: `io.prometheus.write.v2.Request`.
    V2,
}

/// The result of removing series from a message. An unchanged message is forwarded without a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThinnedMessage {
    /// No series was removed: the original message can be forwarded.
    Whole,
    /// The message without the removed series, not compressed.
    Part(Vec<u8>),
    /// Neither series nor metadata remain, so that nothing needs to be sent.
    Nothing,
}

/// Name and value of a label.
pub type Pair<'m> = (&'m [u8], &'m [u8]);

/// The contents of a version 2.0 message, in the numbers that its receiver must report to the
/// sender. They become the headers of its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteMessageCounts {
    /// Number of float samples, including staleness markers.
    pub samples: u64,
    /// Number of native histograms, with integer or float counts.
    pub histograms: u64,
    /// Number of exemplars, which the receiver may not keep.
    pub exemplars: u64,
}

/// Removes the series for which `keeps` returns false. The callback gets the labels as they are in
/// the message, sorted or not, and may reorder them. Metadata is kept.
pub fn thin<'m>(
    message: &'m [u8],
    kind: WriteMessageType,
    mut keeps: impl FnMut(&mut [Pair<'m>]) -> bool,
) -> Result<ThinnedMessage, WireError> {
    let symbols = match kind {
        WriteMessageType::V1 => Vec::new(),
        WriteMessageType::V2 => read_symbols(message)?,
    };
    let mut part = Vec::new();
    let mut copied = 0;
    let (mut kept, mut has_metadata) = (0u64, false);
    let mut pairs = Vec::new();
    let mut cursor = ProtobufCursor::new(message);
    loop {
        let start = message.len() - cursor.rest().len();
        let Some((number, wire_type)) = cursor.read_field()? else {
            break;
        };
        let is_series = match kind {
            WriteMessageType::V1 => number == field::V1_SERIES,
            WriteMessageType::V2 => number == field::V2_SERIES,
        };
        if !is_series {
            has_metadata |= kind == WriteMessageType::V1 && number == field::V1_METADATA;
            cursor.skip(wire_type)?;
            continue;
        }
        expect_wire_type(wire_type, WireType::Bytes)?;
        let series = cursor.read_bytes()?;
        pairs.clear();
        match kind {
            WriteMessageType::V1 => read_labels(series, &mut pairs)?,
            WriteMessageType::V2 => read_references(series, &symbols, &mut pairs)?,
        }
        if keeps(&mut pairs) {
            kept += 1;
            continue;
        }
        part.extend_from_slice(message.get(copied..start).unwrap_or_default());
        copied = message.len() - cursor.rest().len();
    }
    if copied == 0 {
        return Ok(ThinnedMessage::Whole);
    }
    if kept == 0 && !has_metadata {
        return Ok(ThinnedMessage::Nothing);
    }
    part.extend_from_slice(message.get(copied..).unwrap_or_default());
    Ok(ThinnedMessage::Part(part))
}

/// Counts the contents of a version 2.0 message without decoding its samples; fails if it is
/// malformed.
pub fn count_message(message: &[u8]) -> Result<WriteMessageCounts, WireError> {
    let mut counts = WriteMessageCounts::default();
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        if number != field::V2_SERIES {
            cursor.skip(wire_type)?;
            continue;
        }
        expect_wire_type(wire_type, WireType::Bytes)?;
        let mut series = ProtobufCursor::new(cursor.read_bytes()?);
        while let Some((number, wire_type)) = series.read_field()? {
            match number {
                field::V2_SAMPLE => counts.samples += 1,
                field::V2_HISTOGRAM => counts.histograms += 1,
                field::V2_EXEMPLAR => counts.exemplars += 1,
                _ => {}
            }
            series.skip(wire_type)?;
        }
    }
    Ok(counts)
}

/// Returns the symbols of a version 2.0 message; they may follow the series that refer to them.
/// Fails beyond [`SYMBOLS_MAX`].
fn read_symbols(message: &[u8]) -> Result<Vec<&[u8]>, WireError> {
    let mut symbols = Vec::new();
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        if number != field::V2_SYMBOL {
            cursor.skip(wire_type)?;
            continue;
        }
        expect_wire_type(wire_type, WireType::Bytes)?;
        if symbols.len() == SYMBOLS_MAX {
            return Err(WireError::Protobuf("too many symbols"));
        }
        symbols.push(cursor.read_bytes()?);
    }
    Ok(symbols)
}

fn push<'m>(pairs: &mut Vec<Pair<'m>>, pair: Pair<'m>) -> Result<(), WireError> {
    if pairs.len() == LABELS_MAX {
        return Err(WireError::Protobuf("too many labels"));
    }
    pairs.push(pair);
    Ok(())
}

fn read_labels<'m>(series: &'m [u8], pairs: &mut Vec<Pair<'m>>) -> Result<(), WireError> {
    let mut cursor = ProtobufCursor::new(series);
    while let Some((number, wire_type)) = cursor.read_field()? {
        if number != field::LABELS {
            cursor.skip(wire_type)?;
            continue;
        }
        expect_wire_type(wire_type, WireType::Bytes)?;
        let mut label = ProtobufCursor::new(cursor.read_bytes()?);
        let mut pair: Pair<'m> = (b"", b"");
        while let Some((number, wire_type)) = label.read_field()? {
            match number {
                field::LABEL_NAME | field::LABEL_VALUE => {
                    expect_wire_type(wire_type, WireType::Bytes)?;
                    let text = label.read_bytes()?;
                    match number {
                        field::LABEL_NAME => pair.0 = text,
                        _ => pair.1 = text,
                    }
                }
                _ => label.skip(wire_type)?,
            }
        }
        push(pairs, pair)?;
    }
    Ok(())
}

/// Reads labels as pairs of references, which a sender may pack into one field or write one at a
/// time.
fn read_references<'m>(
    series: &'m [u8],
    symbols: &[&'m [u8]],
    pairs: &mut Vec<Pair<'m>>,
) -> Result<(), WireError> {
    let mut name = None;
    let mut take = |reference: u64| {
        let symbol = usize::try_from(reference)
            .ok()
            .and_then(|at| symbols.get(at));
        let symbol = symbol.ok_or(WireError::Protobuf("label reference beyond the symbols"))?;
        match name.take() {
            None => name = Some(*symbol),
            Some(name) => push(pairs, (name, *symbol))?,
        }
        Ok(())
    };
    let mut cursor = ProtobufCursor::new(series);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match (number, wire_type) {
            (field::LABELS, WireType::Varint) => take(cursor.read_varint()?)?,
            (field::LABELS, WireType::Bytes) => {
                let mut packed = ProtobufCursor::new(cursor.read_bytes()?);
                while !packed.rest().is_empty() {
                    take(packed.read_varint()?)?;
                }
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    match name {
        None => Ok(()),
        Some(_) => Err(WireError::Protobuf("label name without a value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::{put_bytes, put_integer, put_varint};

    /// Returns a version 1.0 series named `name`, with an unknown field.
    fn v1_series(name: &str) -> Vec<u8> {
        let (mut label, mut series) = (Vec::new(), Vec::new());
        put_bytes(&mut label, 1, b"__name__");
        put_bytes(&mut label, 2, name.as_bytes());
        put_bytes(&mut series, 1, &label);
        put_integer(&mut series, 77, 5);
        series
    }

    fn v1(names: &[&str], metadata: bool) -> Vec<u8> {
        let mut message = Vec::new();
        for name in names {
            put_bytes(&mut message, 1, &v1_series(name));
        }
        if metadata {
            put_bytes(&mut message, 3, b"\x08\x01");
        }
        put_integer(&mut message, 99, 1);
        message
    }

    /// Returns a version 2.0 message whose symbols precede or follow its series, with packed or
    /// unpacked references.
    fn v2(names: &[&str], symbols_first: bool, is_packed: bool) -> Vec<u8> {
        let (mut symbols, mut series) = (Vec::new(), Vec::new());
        for text in ["", "__name__"].iter().chain(names) {
            put_bytes(&mut symbols, 4, text.as_bytes());
        }
        for at in 0..names.len() as u64 {
            let (mut one, mut packed) = (Vec::new(), Vec::new());
            for reference in [1, at + 2] {
                if is_packed {
                    put_varint(&mut packed, reference)
                } else {
                    put_integer(&mut one, 1, reference)
                }
            }
            if is_packed {
                put_bytes(&mut one, 1, &packed);
            }
            put_bytes(&mut one, 2, b"\x10\x01");
            put_bytes(&mut one, 2, b"\x10\x02");
            put_bytes(&mut one, 4, b"");
            put_bytes(&mut series, 5, &one);
        }
        if symbols_first {
            [symbols, series].concat()
        } else {
            [series, symbols].concat()
        }
    }

    fn check(message: &[u8], kind: WriteMessageType, wanted: &[&str], expected: ThinnedMessage) {
        let keeps = |pairs: &mut [Pair<'_>]| {
            assert_eq!(pairs.len(), 1);
            assert_eq!(pairs[0].0, b"__name__");
            wanted.iter().any(|name| name.as_bytes() == pairs[0].1)
        };
        assert_eq!(thin(message, kind, keeps), Ok(expected), "{wanted:?}");
    }

    #[test]
    fn thinned_message_keeps_what_is_wanted_byte_for_byte() {
        let all = v1(&["a", "b", "c"], true);
        check(
            &all,
            WriteMessageType::V1,
            &["a", "b", "c"],
            ThinnedMessage::Whole,
        );
        check(
            &all,
            WriteMessageType::V1,
            &["b"],
            ThinnedMessage::Part(v1(&["b"], true)),
        );
        check(
            &all,
            WriteMessageType::V1,
            &["a", "c"],
            ThinnedMessage::Part(v1(&["a", "c"], true)),
        );
        check(
            &all,
            WriteMessageType::V1,
            &[],
            ThinnedMessage::Part(v1(&[], true)),
        );
        check(
            &v1(&["a"], false),
            WriteMessageType::V1,
            &[],
            ThinnedMessage::Nothing,
        );
        check(
            &v1(&[], true),
            WriteMessageType::V1,
            &[],
            ThinnedMessage::Whole,
        );
    }

    #[test]
    fn thinned_message_of_2_0_keeps_its_symbols_wherever_they_stand() {
        for (first, packed) in [(true, true), (true, false), (false, true), (false, false)] {
            let all = v2(&["a", "b"], first, packed);
            check(
                &all,
                WriteMessageType::V2,
                &["a", "b"],
                ThinnedMessage::Whole,
            );
            check(&all, WriteMessageType::V2, &[], ThinnedMessage::Nothing);
            let Ok(ThinnedMessage::Part(part)) = thin(&all, WriteMessageType::V2, |pairs| {
                pairs[0].1 == b"b".as_slice()
            }) else {
                panic!("a part is left of {all:?}");
            };
            check(&part, WriteMessageType::V2, &["b"], ThinnedMessage::Whole);
            let one = WriteMessageCounts {
                samples: 2,
                histograms: 0,
                exemplars: 1,
            };
            assert_eq!(count_message(&part), Ok(one));
        }
    }

    #[test]
    fn message_cut_anywhere_is_an_error_or_whole_and_never_panics() {
        for (kind, message) in [
            (WriteMessageType::V1, v1(&["aa", "bb"], true)),
            (WriteMessageType::V2, v2(&["aa", "bb"], true, true)),
            (WriteMessageType::V2, v2(&["aa", "bb"], false, false)),
        ] {
            for cut in 0..message.len() {
                // Some cuts are between two fields and leave a valid message.
                let _ = thin(&message[..cut], kind, |_| false);
                let _ = count_message(&message[..cut]);
            }
        }
        let mut beyond = Vec::new();
        put_bytes(&mut beyond, 5, b"\x0a\x02\x07\x08");
        assert!(thin(&beyond, WriteMessageType::V2, |_| true).is_err());
    }
}
