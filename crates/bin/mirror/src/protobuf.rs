//! Encoding of the protobuf field types that this crate's encoders need.

use firn_model::histogram::BucketSpan;

/// Appends a varint: seven bits per byte, least significant group first.
pub(crate) fn push_uvarint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the number of bytes that [`push_uvarint`] appends for `value`.
pub(crate) fn uvarint_bytes(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

/// Maps a signed integer to the unsigned one that represents a `sint` in ZigZag encoding.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Appends a varint field: its tag and the value.
pub(crate) fn push_number(out: &mut Vec<u8>, field: u64, value: u64) {
    push_uvarint(out, field << 3);
    push_uvarint(out, value);
}

/// Appends a `double` field: its tag and eight bytes in little-endian order.
pub(crate) fn push_float(out: &mut Vec<u8>, field: u64, value: f64) {
    push_uvarint(out, field << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a length-delimited field: a string, bytes or a message.
pub(crate) fn push_message(out: &mut Vec<u8>, field: u64, message: &[u8]) {
    // The tags of field numbers from 16 on take two bytes.
    push_uvarint(out, field << 3 | 2);
    push_uvarint(out, message.len() as u64);
    out.extend_from_slice(message);
}

/// Appends the spans of a histogram as repeated messages of two fields: the offset from the
/// previous span, and the length.
pub(crate) fn push_spans(out: &mut Vec<u8>, field: u64, spans: &[BucketSpan]) {
    for span in spans {
        let mut message = Vec::new();
        push_number(&mut message, 1, zigzag(span.offset.into()));
        push_number(&mut message, 2, span.length.into());
        push_message(out, field, &message);
    }
}

/// Appends packed `double` values as one field; nothing if `values` is empty.
pub(crate) fn push_floats(out: &mut Vec<u8>, field: u64, values: &[f64]) {
    if !values.is_empty() {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        push_message(out, field, &bytes);
    }
}

/// Appends packed `sint` values as one field; nothing if `deltas` is empty.
pub(crate) fn push_deltas(out: &mut Vec<u8>, field: u64, deltas: &[i64]) {
    if !deltas.is_empty() {
        let mut message = Vec::new();
        for delta in deltas {
            push_uvarint(&mut message, zigzag(*delta));
        }
        push_message(out, field, &message);
    }
}
