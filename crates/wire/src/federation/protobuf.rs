//! Families as delimited protocol buffers (`io.prometheus.client.MetricFamily`).

use super::text::cumulative;
use super::{FederatedValue, Kind, Written};
use crate::protobuf::{WireType, put_bytes, put_key, put_varint, to_zigzag};
use firn_model::histogram::{Histogram, Span};

/// Numbers of fields.
mod field {
    pub const FAMILY_NAME: u32 = 1;
    pub const FAMILY_TYPE: u32 = 3;
    pub const FAMILY_METRIC: u32 = 4;

    pub const METRIC_LABEL: u32 = 1;
    pub const METRIC_UNTYPED: u32 = 5;
    pub const METRIC_TIME: u32 = 6;
    pub const METRIC_HISTOGRAM: u32 = 7;

    pub const LABEL_NAME: u32 = 1;
    pub const LABEL_VALUE: u32 = 2;
    pub const UNTYPED_VALUE: u32 = 1;

    pub const SUM: u32 = 2;
    pub const BUCKETS: u32 = 3;
    pub const COUNT: u32 = 4;
    pub const SCHEMA: u32 = 5;
    pub const ZERO_THRESHOLD: u32 = 6;
    pub const ZERO_COUNT: u32 = 8;
    pub const NEGATIVE_SPANS: u32 = 9;
    pub const NEGATIVE_COUNTS: u32 = 11;
    pub const POSITIVE_SPANS: u32 = 12;
    pub const POSITIVE_COUNTS: u32 = 14;

    pub const BUCKET_BOUND: u32 = 2;
    pub const BUCKET_COUNT: u32 = 4;
    pub const SPAN_OFFSET: u32 = 1;
    pub const SPAN_LENGTH: u32 = 2;
}

/// A family under way.
#[derive(Debug, Default)]
pub(super) struct Family {
    message: Vec<u8>,
    metric: Vec<u8>,
    part: Vec<u8>,
}

/// A float field, also where it has the value of an absent one.
fn put_set_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_key(out, number, WireType::Fixed64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_set_integer(out: &mut Vec<u8>, number: u32, value: u64) {
    put_key(out, number, WireType::Varint);
    put_varint(out, value);
}

impl Family {
    /// Begins a family.
    pub(super) fn begin(&mut self, name: &str, kind: Kind) {
        self.message.clear();
        put_bytes(&mut self.message, field::FAMILY_NAME, name.as_bytes());
        let kind = match kind {
            Kind::Untyped => 3,
            Kind::Histogram => 4,
            Kind::GaugeHistogram => 5,
        };
        put_set_integer(&mut self.message, field::FAMILY_TYPE, kind);
    }

    /// Appends a metric.
    pub(super) fn push(&mut self, sample: &Written<'_>) {
        self.metric.clear();
        for (name, value) in sample.labels {
            self.part.clear();
            put_bytes(&mut self.part, field::LABEL_NAME, name.as_bytes());
            put_bytes(&mut self.part, field::LABEL_VALUE, value);
            put_bytes(&mut self.metric, field::METRIC_LABEL, &self.part);
        }
        self.part.clear();
        if let FederatedValue::Float(value) = sample.value {
            put_set_double(&mut self.part, field::UNTYPED_VALUE, value);
            put_bytes(&mut self.metric, field::METRIC_UNTYPED, &self.part);
        }
        put_set_integer(&mut self.metric, field::METRIC_TIME, sample.time as u64);
        if let FederatedValue::Histogram(histogram) = sample.value {
            match histogram.has_custom_buckets() {
                true => put_classic(&mut self.part, histogram),
                false => put_native(&mut self.part, histogram),
            }
            put_bytes(&mut self.metric, field::METRIC_HISTOGRAM, &self.part);
        }
        put_bytes(&mut self.message, field::FAMILY_METRIC, &self.metric);
    }

    /// Appends the family to `out`, its length before it.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        put_varint(out, self.message.len() as u64);
        out.append(&mut self.message);
    }
}

/// Custom buckets as those that have always been there.
fn put_classic(out: &mut Vec<u8>, histogram: &Histogram) {
    let counts = histogram.counts.to_floats();
    put_set_double(out, field::SUM, histogram.sum);
    let mut bucket = Vec::new();
    for (bound, count) in cumulative(histogram, &counts.positive) {
        bucket.clear();
        put_set_double(&mut bucket, field::BUCKET_BOUND, bound);
        put_set_double(&mut bucket, field::BUCKET_COUNT, count);
        put_bytes(out, field::BUCKETS, &bucket);
    }
    put_set_double(out, field::COUNT, counts.count);
}

/// Exponential buckets, counted in floats.
fn put_native(out: &mut Vec<u8>, histogram: &Histogram) {
    let counts = histogram.counts.to_floats();
    put_set_double(out, field::SUM, histogram.sum);
    put_set_double(out, field::COUNT, counts.count);
    put_set_integer(out, field::SCHEMA, to_zigzag(histogram.schema.into()));
    put_set_double(out, field::ZERO_THRESHOLD, histogram.zero_threshold);
    put_set_double(out, field::ZERO_COUNT, counts.zero_count);
    put_spans(out, field::NEGATIVE_SPANS, &histogram.negative_spans);
    put_counts(out, field::NEGATIVE_COUNTS, &counts.negative);
    put_spans(out, field::POSITIVE_SPANS, &histogram.positive_spans);
    put_counts(out, field::POSITIVE_COUNTS, &counts.positive);
}

fn put_spans(out: &mut Vec<u8>, number: u32, spans: &[Span]) {
    let mut part = Vec::new();
    for span in spans {
        part.clear();
        let offset = to_zigzag(span.offset.into());
        put_set_integer(&mut part, field::SPAN_OFFSET, offset);
        put_set_integer(&mut part, field::SPAN_LENGTH, span.length.into());
        put_bytes(out, number, &part);
    }
}

/// Not packed: the message is of the second version of the format.
fn put_counts(out: &mut Vec<u8>, number: u32, counts: &[f64]) {
    counts
        .iter()
        .for_each(|count| put_set_double(out, number, *count));
}
