//! Encoder of remote write 1.0 bodies.
//!
//! ```text
//! body = snappy( { 0x0a | length | series }* )          prometheus.WriteRequest
//! series = { 0x0a | length | label }* { 0x22 | length | histogram }* { 0x12 | length | sample }*
//!          { 0x1a | length | exemplar }*
//! label = 0x0a | length | name | 0x12 | length | value
//! sample = 0x09 | value as f64 | 0x10 | time as uvarint
//! exemplar = { 0x0a | length | label }* value(2) | time(3)
//! ```
//!
//! The encoder shares no code with Firn's decoder, so that tests check the decoder against the
//! published format and not against itself.

mod histogram;

use crate::protobuf::{push_float, push_number, push_uvarint, uvarint_bytes};
use firn_model::batch::{Batch, SeriesSamples};
use firn_model::exemplar::TimedExemplar;

/// Length in bytes of the fixed part of a sample: two tags and the value.
const SAMPLE_FIXED_BYTES: usize = 10;

/// Encodes `batch` as the snappy-compressed body of a remote-write request, including histograms
/// and exemplars.
pub fn encode(batch: &Batch) -> Vec<u8> {
    let mut message = Vec::with_capacity(batch.series_count() * 320);
    let mut series_bytes = Vec::with_capacity(512);
    for (number, series) in batch.iter().enumerate() {
        series_bytes.clear();
        push_series(&mut series_bytes, series);
        for exemplar in batch.exemplars().iter_series(number as u64) {
            push_exemplar(&mut series_bytes, exemplar);
        }
        push_field(&mut message, 0x0a, &series_bytes);
    }
    compress(&message)
}

/// Compresses `message` in the snappy block format, which remote write requires.
pub fn compress(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new()
        .compress_vec(message)
        .expect("snappy takes any message below 4 GiB")
}

fn push_series(out: &mut Vec<u8>, series: SeriesSamples<'_>) {
    for (name, value) in series.labels.iter() {
        let bytes = 2 + uvarint_bytes(name.len() as u64) + uvarint_bytes(value.len() as u64);
        out.push(0x0a);
        push_uvarint(out, (bytes + name.len() + value.len()) as u64);
        push_field(out, 0x0a, name.as_bytes());
        push_field(out, 0x12, value);
    }
    for sample in series.histograms {
        push_field(out, 0x22, &histogram::encode(sample));
    }
    for (time, value) in series.times.iter().zip(series.values) {
        // Protobuf encodes a negative int64 in ten bytes.
        let time = *time as u64;
        out.push(0x12);
        push_uvarint(out, (SAMPLE_FIXED_BYTES + uvarint_bytes(time)) as u64);
        out.push(0x09);
        out.extend_from_slice(&value.to_le_bytes());
        out.push(0x10);
        push_uvarint(out, time);
    }
}

fn push_exemplar(out: &mut Vec<u8>, exemplar: TimedExemplar<'_>) {
    let mut message = Vec::new();
    for (name, value) in exemplar.labels.pairs() {
        let mut pair = Vec::new();
        push_field(&mut pair, 0x0a, name);
        push_field(&mut pair, 0x12, value);
        push_field(&mut message, 0x0a, &pair);
    }
    push_float(&mut message, 2, exemplar.value);
    push_number(&mut message, 3, exemplar.time as u64);
    push_field(out, 0x1a, &message);
}

fn push_field(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    push_uvarint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::labels::Labels;

    #[test]
    fn body_of_one_sample_has_the_published_bytes() {
        let mut batch = Batch::default();
        let labels = Labels::from_pairs([("__name__", "up"), ("a", "b")]);
        batch.push_series(labels.as_ref(), &[(1, 1.0), (-1, 0.0)]);
        let body = encode(&batch);
        let message = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
        let mut expected = b"\x0a\x3b".to_vec();
        expected.extend(b"\x0a\x0e\x0a\x08__name__\x12\x02up\x0a\x06\x0a\x01a\x12\x01b");
        expected.extend(b"\x12\x0b\x09\0\0\0\0\0\0\xf0\x3f\x10\x01");
        expected
            .extend(b"\x12\x14\x09\0\0\0\0\0\0\0\0\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
        assert_eq!(message, expected);
    }
}
