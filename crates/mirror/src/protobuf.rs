//! Fields of protocol buffers, as far as bodies that are written by hand need them.

use firn_model::histogram::Span;

/// Seven bits a byte, the lowest first.
pub(crate) fn push_uvarint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bytes [`push_uvarint`] takes.
pub(crate) fn uvarint_bytes(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

/// The number of a `sint`.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// A field that is a number.
pub(crate) fn push_number(out: &mut Vec<u8>, field: u64, value: u64) {
    push_uvarint(out, field << 3);
    push_uvarint(out, value);
}

/// A field that is a `double`.
pub(crate) fn push_float(out: &mut Vec<u8>, field: u64, value: f64) {
    push_uvarint(out, field << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A field that is bytes: a text, or a message.
pub(crate) fn push_message(out: &mut Vec<u8>, field: u64, message: &[u8]) {
    // Tags of fields from 16 on take two bytes.
    push_uvarint(out, field << 3 | 2);
    push_uvarint(out, message.len() as u64);
    out.extend_from_slice(message);
}

/// Repeated messages of two numbers: where a span begins behind the one before, and its length.
pub(crate) fn push_spans(out: &mut Vec<u8>, field: u64, spans: &[Span]) {
    for span in spans {
        let mut message = Vec::new();
        push_number(&mut message, 1, zigzag(span.offset.into()));
        push_number(&mut message, 2, span.length.into());
        push_message(out, field, &message);
    }
}

/// Packed `double`s; nothing if there is none.
pub(crate) fn push_floats(out: &mut Vec<u8>, field: u64, values: &[f64]) {
    if !values.is_empty() {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        push_message(out, field, &bytes);
    }
}

/// Packed `sint`s; nothing if there is none.
pub(crate) fn push_deltas(out: &mut Vec<u8>, field: u64, deltas: &[i64]) {
    if !deltas.is_empty() {
        let mut message = Vec::new();
        for delta in deltas {
            push_uvarint(&mut message, zigzag(*delta));
        }
        push_message(out, field, &message);
    }
}
