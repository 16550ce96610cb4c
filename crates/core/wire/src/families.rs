//! Writes `io.prometheus.client.MetricFamily` messages, for the exposition of this process and for
//! federation.
//!
//! ```text
//! body = { length | family }*
//! family = name(1) | help(2) | type(3) | metric(4)*
//! metric = label(1)* | value for its type | time(6)
//! ```
//!
//! The messages use proto2: a field may be written even if it has its default value, and repeated
//! numbers are not packed. The callers decide which fields a metric has; [`crate::exposition`]
//! reads such messages.

use crate::protobuf::{WireType, put_bytes, put_integer, put_key, put_varint, to_zigzag};
use firn_model::histogram::BucketSpan;

/// The media type of delimited families, each of which is preceded by its length.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.google.protobuf; \
     proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Field numbers of the messages.
pub(crate) mod field {
    pub(crate) const FAMILY_NAME: u32 = 1;
    pub(crate) const FAMILY_HELP: u32 = 2;
    pub(crate) const FAMILY_TYPE: u32 = 3;
    pub(crate) const FAMILY_METRIC: u32 = 4;

    pub(crate) const METRIC_LABEL: u32 = 1;
    pub(crate) const METRIC_GAUGE: u32 = 2;
    pub(crate) const METRIC_COUNTER: u32 = 3;
    pub(crate) const METRIC_UNTYPED: u32 = 5;
    pub(crate) const METRIC_TIME: u32 = 6;
    pub(crate) const METRIC_HISTOGRAM: u32 = 7;

    pub(crate) const LABEL_NAME: u32 = 1;
    pub(crate) const LABEL_VALUE: u32 = 2;
    /// Value field of counters, gauges and untyped metrics.
    pub(crate) const VALUE: u32 = 1;

    pub(crate) const COUNT: u32 = 1;
    pub(crate) const SUM: u32 = 2;
    pub(crate) const BUCKETS: u32 = 3;
    pub(crate) const FLOAT_COUNT: u32 = 4;
    pub(crate) const SCHEMA: u32 = 5;
    pub(crate) const ZERO_THRESHOLD: u32 = 6;
    pub(crate) const ZERO_COUNT: u32 = 7;
    pub(crate) const ZERO_FLOAT_COUNT: u32 = 8;
    pub(crate) const NEGATIVE_SPANS: u32 = 9;
    pub(crate) const NEGATIVE_COUNTS: u32 = 11;
    pub(crate) const POSITIVE_SPANS: u32 = 12;
    pub(crate) const POSITIVE_DELTAS: u32 = 13;
    pub(crate) const POSITIVE_COUNTS: u32 = 14;

    pub(crate) const BUCKET_COUNT: u32 = 1;
    pub(crate) const BUCKET_BOUND: u32 = 2;
    pub(crate) const BUCKET_FLOAT_COUNT: u32 = 4;
    pub(crate) const SPAN_OFFSET: u32 = 1;
    pub(crate) const SPAN_LENGTH: u32 = 2;
}

/// The type of a family, with the numbers of `io.prometheus.client.ProtobufMetricType`. Summaries
/// are missing, because neither writer produces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtobufMetricType {
    Counter = 0,
    Gauge = 1,
    Untyped = 3,
    Histogram = 4,
    GaugeHistogram = 5,
}

/// An unfinished family, to which the writers add metrics; empty at first and after
/// [`ProtobufFamilyEncoder::finish`]. Reused for all families of a body.
#[derive(Debug, Default)]
pub(crate) struct ProtobufFamilyEncoder {
    message: Vec<u8>,
    /// Working memory for a message within a metric.
    part: Vec<u8>,
}

impl ProtobufFamilyEncoder {
    /// Starts a family and discards an unfinished one. An empty help text is left out.
    pub(crate) fn begin(&mut self, name: &str, help: &str, metric_type: ProtobufMetricType) {
        self.message.clear();
        put_bytes(&mut self.message, field::FAMILY_NAME, name.as_bytes());
        if !help.is_empty() {
            put_bytes(&mut self.message, field::FAMILY_HELP, help.as_bytes());
        }
        put_integer(&mut self.message, field::FAMILY_TYPE, metric_type as u64);
    }

    /// Appends a label to the unfinished metric `metric`, whose bytes belong to the caller until
    /// [`ProtobufFamilyEncoder::push`].
    pub(crate) fn put_label(&mut self, metric: &mut Vec<u8>, name: &str, value: &[u8]) {
        self.part.clear();
        put_bytes(&mut self.part, field::LABEL_NAME, name.as_bytes());
        put_bytes(&mut self.part, field::LABEL_VALUE, value);
        put_bytes(metric, field::METRIC_LABEL, &self.part);
    }

    /// Appends a finished metric, an encoded `Metric` message, to the family.
    pub(crate) fn push(&mut self, metric: &[u8]) {
        put_bytes(&mut self.message, field::FAMILY_METRIC, metric);
    }

    /// Appends the family with its length to `out`, unless it is empty.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.message.is_empty() {
            put_varint(out, self.message.len() as u64);
            out.append(&mut self.message);
        }
    }
}

/// Writes a float field even if it has the default value, which proto2 distinguishes from an absent
/// field.
pub(crate) fn put_set_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_key(out, number, WireType::Fixed64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes an integer field even if it has the default value, which proto2 distinguishes from an
/// absent field.
pub(crate) fn put_set_integer(out: &mut Vec<u8>, number: u32, value: u64) {
    put_key(out, number, WireType::Varint);
    put_varint(out, value);
}

/// Writes the spans of native buckets as one `BucketSpan` message each, not packed.
pub(crate) fn put_spans(out: &mut Vec<u8>, number: u32, spans: &[BucketSpan]) {
    let mut part = Vec::new();
    for span in spans {
        part.clear();
        let offset = to_zigzag(span.offset.into());
        put_set_integer(&mut part, field::SPAN_OFFSET, offset);
        put_set_integer(&mut part, field::SPAN_LENGTH, span.length.into());
        put_bytes(out, number, &part);
    }
}
