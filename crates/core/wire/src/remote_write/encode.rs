//! Encodes batches as remote-write 1.0 requests, for senders.
//!
//! Fields are written in the order of their numbers and omitted if they have the default value,
//! like in Go's encoder; only minus zero is written, so that values are preserved bit for bit.
//! Start timestamps do not exist in version 1.0 and are left out.

use super::field;
use super::histogram::field as histogram_field;
use super::metadata::metric_type_number;
use crate::protobuf::{
    WireType, put_bytes, put_double, put_integer, put_key, put_varint, to_zigzag,
};
use crate::snappy;
use firn_model::batch::{Batch, SeriesSamples};
use firn_model::exemplar::TimedExemplar;
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use firn_model::labels::LabelsRef;
use firn_model::metadata::MetricMetadata;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use std::ops::Range;

/// Encodes the compressed body of a request with the series of `batch`.
pub fn encode(batch: &Batch) -> Vec<u8> {
    snappy::compress(&encode_message(batch))
}

/// Encodes the compressed body of a request with the series of `batch` that have these numbers and
/// are not rejected. Panics if a number is out of range.
pub fn encode_range(batch: &Batch, numbers: Range<usize>) -> Vec<u8> {
    snappy::compress(&encode_message_of(batch, numbers))
}

/// Encodes the compressed body of a request with the metadata `entries` and without samples.
pub fn encode_metadata<'m>(entries: impl Iterator<Item = MetricMetadata<'m>>) -> Vec<u8> {
    let (mut message, mut part) = (Vec::new(), Vec::new());
    for metadata in entries {
        part.clear();
        let texts = [
            (field::METADATA_NAME, metadata.name),
            (field::METADATA_HELP, metadata.help),
            (field::METADATA_UNIT, metadata.unit),
        ];
        let kind = metric_type_number(metadata.kind);
        put_integer(&mut part, field::METADATA_TYPE, kind);
        for (number, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
            put_bytes(&mut part, *number, text.as_bytes());
        }
        put_bytes(&mut message, field::REQUEST_METADATA, &part);
    }
    snappy::compress(&message)
}

/// Encodes the request without compressing it.
pub(super) fn encode_message(batch: &Batch) -> Vec<u8> {
    encode_message_of(batch, 0..batch.series_count())
}

fn encode_message_of(batch: &Batch, numbers: Range<usize>) -> Vec<u8> {
    let mut message = Vec::new();
    let mut series_message = Vec::new();
    let mut part = Vec::new();
    for number in numbers.filter(|number| !batch.is_refused(*number)) {
        series_message.clear();
        put_series(&mut series_message, &mut part, batch.series(number));
        for exemplar in batch.exemplars().iter_series(number as u64) {
            put_exemplar(&mut series_message, exemplar);
        }
        put_bytes(&mut message, field::REQUEST_SERIES, &series_message);
    }
    message
}

fn put_labels(out: &mut Vec<u8>, part: &mut Vec<u8>, number: u32, labels: LabelsRef<'_>) {
    for (name, value) in labels.iter() {
        part.clear();
        put_bytes(part, field::LABEL_NAME, name.as_bytes());
        put_bytes(part, field::LABEL_VALUE, value);
        put_bytes(out, number, part);
    }
}

fn put_exemplar(out: &mut Vec<u8>, exemplar: TimedExemplar<'_>) {
    let (mut message, mut part) = (Vec::new(), Vec::new());
    put_labels(
        &mut message,
        &mut part,
        field::EXEMPLAR_LABEL,
        exemplar.labels,
    );
    put_double(&mut message, field::EXEMPLAR_VALUE, exemplar.value);
    put_integer(&mut message, field::EXEMPLAR_TIME, exemplar.time as u64);
    put_bytes(out, field::SERIES_EXEMPLAR, &message);
}

fn put_series(out: &mut Vec<u8>, part: &mut Vec<u8>, series: SeriesSamples<'_>) {
    put_labels(out, part, field::SERIES_LABEL, series.labels);
    for (time, value) in series.times.iter().zip(series.values) {
        part.clear();
        put_double(part, field::SAMPLE_VALUE, *value);
        put_integer(part, field::SAMPLE_TIME, *time as u64);
        put_bytes(out, field::SERIES_SAMPLE, part);
    }
    for sample in series.histograms {
        part.clear();
        encode_histogram(part, sample.time, &sample.histogram);
        put_bytes(out, field::SERIES_HISTOGRAM, part);
    }
}

/// Appends the message of a histogram with the timestamp `time`, bit for bit.
pub fn encode_histogram(out: &mut Vec<u8>, time: TimestampMs, h: &Histogram) {
    put_histogram(out, time, START_UNKNOWN, h);
}

/// Appends a histogram with its timestamp and its start timestamp, which version 1.0 does not have.
pub(super) fn put_histogram(
    out: &mut Vec<u8>,
    time: TimestampMs,
    start_time: TimestampMs,
    h: &Histogram,
) {
    use histogram_field as f;
    match &h.counts {
        HistogramCounts::Integer { count, .. } => {
            put_key(out, f::COUNT_INTEGER, WireType::Varint);
            put_varint(out, *count);
        }
        HistogramCounts::Float { count, .. } => {
            put_key(out, f::COUNT_FLOAT, WireType::Fixed64);
            out.extend_from_slice(&count.to_le_bytes());
        }
    }
    put_double(out, f::SUM, h.sum);
    put_integer(out, f::SCHEMA, to_zigzag(h.schema.into()));
    put_double(out, f::ZERO_THRESHOLD, h.zero_threshold);
    put_buckets(out, h);
    let hint = match h.reset_hint {
        ResetHint::Unknown => 0,
        ResetHint::Reset => 1,
        ResetHint::NotReset => 2,
        ResetHint::Gauge => 3,
    };
    put_integer(out, f::RESET_HINT, hint);
    put_integer(out, f::TIME, time as u64);
    put_doubles(out, f::CUSTOM_VALUES, &h.custom_values);
    put_integer(out, f::START_TIME, start_time as u64);
}

fn put_buckets(out: &mut Vec<u8>, h: &Histogram) {
    use histogram_field as f;
    match &h.counts {
        HistogramCounts::Integer {
            zero_count,
            positive,
            negative,
            ..
        } => {
            put_integer(out, f::ZERO_COUNT_INTEGER, *zero_count);
            put_spans(out, f::NEGATIVE_SPANS, &h.negative_spans);
            put_deltas(out, f::NEGATIVE_DELTAS, negative);
            put_spans(out, f::POSITIVE_SPANS, &h.positive_spans);
            put_deltas(out, f::POSITIVE_DELTAS, positive);
        }
        HistogramCounts::Float {
            zero_count,
            positive,
            negative,
            ..
        } => {
            put_double(out, f::ZERO_COUNT_FLOAT, *zero_count);
            put_spans(out, f::NEGATIVE_SPANS, &h.negative_spans);
            put_doubles(out, f::NEGATIVE_COUNTS, negative);
            put_spans(out, f::POSITIVE_SPANS, &h.positive_spans);
            put_doubles(out, f::POSITIVE_COUNTS, positive);
        }
    }
}

fn put_spans(out: &mut Vec<u8>, number: u32, spans: &[BucketSpan]) {
    for span in spans {
        let mut part = Vec::new();
        put_integer(
            &mut part,
            histogram_field::SPAN_OFFSET,
            to_zigzag(span.offset.into()),
        );
        put_integer(&mut part, histogram_field::SPAN_LENGTH, span.length.into());
        put_bytes(out, number, &part);
    }
}

fn put_deltas(out: &mut Vec<u8>, number: u32, deltas: &[i64]) {
    if deltas.is_empty() {
        return;
    }
    let mut packed = Vec::new();
    for delta in deltas {
        put_varint(&mut packed, to_zigzag(*delta));
    }
    put_bytes(out, number, &packed);
}

fn put_doubles(out: &mut Vec<u8>, number: u32, values: &[f64]) {
    if values.is_empty() {
        return;
    }
    let packed: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    put_bytes(out, number, &packed);
}
