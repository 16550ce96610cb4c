//! Encoder of expositions in the Prometheus protobuf format, for targets that are scraped in tests.
//!
//! ```text
//! body = { length | family }*                     io.prometheus.client.MetricFamily
//! family = name(1) | type(3) | metric(4)*
//! metric = label(1)* | counter(3) or histogram(7) | time(6)
//! counter = value(1) | start time(3)
//! ```
//!
//! Consecutive samples of a series with the same type form a family, and each sample is a metric
//! with its own timestamp. Floats are encoded as counters, because only counters and histograms
//! have start timestamps. The format has no field for custom bucket bounds.

use crate::answers::data::{AnswerTestData, AnswerTestSample};
use crate::protobuf::{push_float, push_floats, push_message, push_number, push_spans};
use crate::protobuf::{push_uvarint, zigzag};
use firn_model::histogram::{Histogram, HistogramCounts, ResetHint};
use firn_model::labels::{Labels, METRIC_NAME};
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_promql::value::QueryPointValue;

/// Encodes all samples of `data` as the body of a scrape response, with explicit timestamps.
pub fn encode(data: &AnswerTestData) -> Vec<u8> {
    let mut body = Vec::new();
    for (labels, samples) in &data.series {
        for run in samples.chunk_by(|a, b| kind(a) == kind(b)) {
            let family = family(labels, run);
            push_uvarint(&mut body, family.len() as u64);
            body.extend_from_slice(&family);
        }
    }
    body
}

/// Returns the number of the metric type in `io.prometheus.client.MetricType`: counter, histogram
/// or gauge histogram.
fn kind(sample: &AnswerTestSample) -> u64 {
    match &sample.value {
        QueryPointValue::Float(_) => 0,
        QueryPointValue::Histogram(h) if h.reset_hint == ResetHint::Gauge => 5,
        QueryPointValue::Histogram(_) => 4,
    }
}

fn family(labels: &Labels, run: &[AnswerTestSample]) -> Vec<u8> {
    let mut out = Vec::new();
    push_message(&mut out, 1, labels.get(METRIC_NAME));
    push_number(&mut out, 3, run.first().map_or(0, kind));
    let mut pairs = Vec::new();
    for (name, value) in labels.iter().filter(|(name, _)| *name != METRIC_NAME) {
        let mut pair = Vec::new();
        push_message(&mut pair, 1, name.as_bytes());
        push_message(&mut pair, 2, value);
        push_message(&mut pairs, 1, &pair);
    }
    for sample in run {
        let mut metric = pairs.clone();
        match &sample.value {
            QueryPointValue::Float(value) => {
                let mut counter = Vec::new();
                push_float(&mut counter, 1, *value);
                push_start(&mut counter, 3, sample.start_time);
                push_message(&mut metric, 3, &counter);
            }
            QueryPointValue::Histogram(value) => {
                let mut histogram = histogram(value);
                push_start(&mut histogram, 15, sample.start_time);
                push_message(&mut metric, 7, &histogram);
            }
        }
        push_number(&mut metric, 6, sample.time as u64);
        push_message(&mut out, 4, &metric);
    }
    out
}

/// Appends a `google.protobuf.Timestamp` as the given field, or nothing if the start timestamp is
/// unknown.
fn push_start(out: &mut Vec<u8>, field: u64, start_time: TimestampMs) {
    if start_time == START_UNKNOWN {
        return;
    }
    let mut time = Vec::new();
    push_number(&mut time, 1, start_time.div_euclid(1000) as u64);
    push_number(&mut time, 2, start_time.rem_euclid(1000) as u64 * 1_000_000);
    push_message(out, field, &time);
}

fn histogram(histogram: &Histogram) -> Vec<u8> {
    let mut out = Vec::new();
    push_float(&mut out, 2, histogram.sum);
    push_number(&mut out, 5, zigzag(histogram.schema.into()));
    push_float(&mut out, 6, histogram.zero_threshold);
    push_spans(&mut out, 9, &histogram.negative_spans);
    push_spans(&mut out, 12, &histogram.positive_spans);
    if let HistogramCounts::Float {
        count,
        zero_count,
        positive,
        negative,
    } = &histogram.counts
    {
        push_float(&mut out, 4, *count);
        push_float(&mut out, 8, *zero_count);
        push_floats(&mut out, 11, negative);
        push_floats(&mut out, 14, positive);
    }
    out
}
