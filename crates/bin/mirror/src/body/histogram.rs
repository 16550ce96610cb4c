//! Encoder of native histograms for remote write 1.0: the fields of `prometheus.Histogram`.

use crate::protobuf::{push_deltas, push_float, push_floats, push_number, push_spans, zigzag};
use firn_model::batch::HistogramSample;
use firn_model::histogram::{HistogramCounts, ResetHint};

/// Encodes `sample` as a `prometheus.Histogram` message, without its tag and length.
pub(super) fn encode(sample: &HistogramSample) -> Vec<u8> {
    let (histogram, mut out) = (&sample.histogram, Vec::new());
    match &histogram.counts {
        HistogramCounts::Integer {
            count, zero_count, ..
        } => {
            push_number(&mut out, 1, *count);
            push_number(&mut out, 6, *zero_count);
        }
        HistogramCounts::Float {
            count, zero_count, ..
        } => {
            push_float(&mut out, 2, *count);
            push_float(&mut out, 7, *zero_count);
        }
    }
    push_float(&mut out, 3, histogram.sum);
    push_number(&mut out, 4, zigzag(histogram.schema.into()));
    push_float(&mut out, 5, histogram.zero_threshold);
    push_spans(&mut out, 8, &histogram.negative_spans);
    push_spans(&mut out, 11, &histogram.positive_spans);
    match &histogram.counts {
        HistogramCounts::Integer {
            positive, negative, ..
        } => {
            push_deltas(&mut out, 9, negative);
            push_deltas(&mut out, 12, positive);
        }
        HistogramCounts::Float {
            positive, negative, ..
        } => {
            push_floats(&mut out, 10, negative);
            push_floats(&mut out, 13, positive);
        }
    }
    let hint = match histogram.reset_hint {
        ResetHint::Unknown => 0,
        ResetHint::Reset => 1,
        ResetHint::NotReset => 2,
        ResetHint::Gauge => 3,
    };
    push_number(&mut out, 14, hint);
    // Protobuf encodes a negative int64 in ten bytes.
    push_number(&mut out, 15, sample.time as u64);
    push_floats(&mut out, 16, &histogram.custom_values);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::encode as encode_batch;
    use firn_model::batch::Batch;
    use firn_model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram};
    use firn_model::labels::Labels;
    use firn_model::sample::START_UNKNOWN;
    use firn_wire::WireLimits;
    use firn_wire::remote_write::{RemoteWriteDecoder, RemoteWriteOptions};

    fn check(histogram: Histogram) {
        let sample = HistogramSample {
            time: -7,
            start_time: START_UNKNOWN,
            histogram,
        };
        let mut batch = Batch::default();
        let labels = Labels::from_pairs([("__name__", "h")]);
        batch.label_bytes().extend_from_slice(labels.as_bytes());
        batch.push_histogram(sample.clone());
        batch.end_series();
        let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
        let body = encode_batch(&batch);
        let decoded = decoder
            .decode(RemoteWriteOptions::default(), &body)
            .unwrap();
        let series = decoded.batch.iter().next().unwrap();
        assert_eq!(series.histograms, [sample]);
    }

    #[test]
    fn histogram_of_either_kind_reads_back_equal() {
        let span = |offset, length| BucketSpan { offset, length };
        let integer = Histogram {
            reset_hint: ResetHint::Gauge,
            schema: -2,
            zero_threshold: 0.5,
            sum: -2.5,
            counts: HistogramCounts::Integer {
                count: 300,
                zero_count: 1,
                positive: vec![200, -150],
                negative: vec![49],
            },
            positive_spans: vec![span(-3, 1), span(2, 1)],
            negative_spans: vec![span(4, 1)],
            custom_values: Vec::new(),
        };
        let custom = Histogram {
            reset_hint: ResetHint::Reset,
            schema: CUSTOM_BUCKETS_SCHEMA,
            zero_threshold: 0.0,
            counts: HistogramCounts::Float {
                count: 6.5,
                zero_count: 0.0,
                positive: vec![2.5, 4.0],
                negative: Vec::new(),
            },
            positive_spans: vec![span(0, 2)],
            negative_spans: Vec::new(),
            custom_values: vec![-1.5, 2.0],
            ..integer.clone()
        };
        check(integer);
        check(custom);
    }
}
