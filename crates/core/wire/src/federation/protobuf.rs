//! Encodes federated series as delimited protobuf families (layout: `crate::families`).

use super::text::cumulative_buckets;
use super::{FederatedFamilyKind, FederatedSample, FederatedValue};
use crate::families::{
    self, ProtobufMetricType, field, put_set_double, put_set_integer, put_spans,
};
use crate::protobuf::{put_bytes, to_zigzag};
use firn_model::histogram::Histogram;

/// The family that is being written, with working memory for its metrics. Reused for all families
/// of a response.
#[derive(Debug, Default)]
pub(super) struct FederatedProtobufFamily {
    family: families::ProtobufFamilyEncoder,
    metric: Vec<u8>,
    part: Vec<u8>,
}

impl FederatedProtobufFamily {
    /// Starts a family of the given kind without a help text.
    pub(super) fn begin(&mut self, name: &str, kind: FederatedFamilyKind) {
        let metric_type = match kind {
            FederatedFamilyKind::Untyped => ProtobufMetricType::Untyped,
            FederatedFamilyKind::Histogram => ProtobufMetricType::Histogram,
            FederatedFamilyKind::GaugeHistogram => ProtobufMetricType::GaugeHistogram,
        };
        self.family.begin(name, "", metric_type);
    }

    /// Appends a sample to the family as a metric with its timestamp.
    pub(super) fn push(&mut self, sample: &FederatedSample<'_>) {
        self.metric.clear();
        for (name, value) in sample.labels {
            self.family.put_label(&mut self.metric, name, value);
        }
        self.part.clear();
        if let FederatedValue::Float(value) = sample.value {
            put_set_double(&mut self.part, field::VALUE, value);
            put_bytes(&mut self.metric, field::METRIC_UNTYPED, &self.part);
        }
        put_set_integer(&mut self.metric, field::METRIC_TIME, sample.time as u64);
        if let FederatedValue::Histogram(histogram) = sample.value {
            if histogram.has_custom_buckets() {
                put_classic(&mut self.part, histogram)
            } else {
                put_native(&mut self.part, histogram)
            }
            put_bytes(&mut self.metric, field::METRIC_HISTOGRAM, &self.part);
        }
        self.family.push(&self.metric);
    }

    /// Appends the finished family to `out`, preceded by its length. The family is empty
    /// afterwards.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        self.family.finish(out);
    }
}

/// Writes a histogram with custom buckets as a classic histogram with float counts.
fn put_classic(out: &mut Vec<u8>, histogram: &Histogram) {
    let counts = histogram.counts.to_floats();
    put_set_double(out, field::SUM, histogram.sum);
    let mut bucket = Vec::new();
    for (bound, count) in cumulative_buckets(histogram, &counts.positive) {
        bucket.clear();
        put_set_double(&mut bucket, field::BUCKET_BOUND, bound);
        put_set_double(&mut bucket, field::BUCKET_FLOAT_COUNT, count);
        put_bytes(out, field::BUCKETS, &bucket);
    }
    put_set_double(out, field::FLOAT_COUNT, counts.count);
}

/// Writes a histogram with exponential buckets, whose counts are floats. Spans are written as they
/// are in the histogram.
fn put_native(out: &mut Vec<u8>, histogram: &Histogram) {
    let counts = histogram.counts.to_floats();
    put_set_double(out, field::SUM, histogram.sum);
    put_set_double(out, field::FLOAT_COUNT, counts.count);
    put_set_integer(out, field::SCHEMA, to_zigzag(histogram.schema.into()));
    put_set_double(out, field::ZERO_THRESHOLD, histogram.zero_threshold);
    put_set_double(out, field::ZERO_FLOAT_COUNT, counts.zero_count);
    put_spans(out, field::NEGATIVE_SPANS, &histogram.negative_spans);
    put_counts(out, field::NEGATIVE_COUNTS, &counts.negative);
    put_spans(out, field::POSITIVE_SPANS, &histogram.positive_spans);
    put_counts(out, field::POSITIVE_COUNTS, &counts.positive);
}

fn put_counts(out: &mut Vec<u8>, number: u32, counts: &[f64]) {
    counts
        .iter()
        .for_each(|count| put_set_double(out, number, *count));
}
