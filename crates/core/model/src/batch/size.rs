//! Sizes of the data in a batch, for the usage of tenants.
//!
//! Invariant: the size of a batch is the sum of the sizes of its series.

use super::{Batch, LabelDecodeOutcome, LabelDecodeState};

/// Bytes of a float sample: its timestamp and its value.
const FLOAT_BYTES: usize = 16;

/// Bytes of a native histogram without its buckets: timestamp, sum, count and zero count.
const HISTOGRAM_BYTES: usize = 32;

/// Bytes of a bucket of a native histogram.
const BUCKET_BYTES: usize = 8;

impl Batch {
    /// Returns the size of series `index` in bytes: its encoded labels, 16 bytes for each float,
    /// and 32 bytes and 8 for each bucket of a histogram. Zero if it was rejected.
    pub fn series_data_bytes(&self, index: usize) -> usize {
        let span = self.labels[index];
        if span.form == LabelDecodeState::Read(LabelDecodeOutcome::Refused) {
            return 0;
        }
        let samples = self.series(index);
        let histograms = samples.histograms.iter();
        let histograms = histograms
            .map(|sample| HISTOGRAM_BYTES + BUCKET_BYTES * sample.histogram.counts.bucket_count());
        span.range().len() + FLOAT_BYTES * samples.times.len() + histograms.sum::<usize>()
    }

    /// Returns the size of all series in bytes. One pass over the positions of the labels if the
    /// batch has only floats and no rejected series, as nearly all batches.
    pub fn data_bytes(&self) -> usize {
        if !self.histograms.is_empty() || self.refused_samples > 0 {
            return (0..self.series_count())
                .map(|index| self.series_data_bytes(index))
                .sum();
        }
        let labels: usize = self.labels.iter().map(|span| span.range().len()).sum();
        labels + FLOAT_BYTES * self.times.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::HistogramSample;
    use crate::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
    use crate::labels::Labels;
    use crate::sample::START_UNKNOWN;
    use crate::series_key::CanonicalKeys;

    fn histogram() -> HistogramSample {
        let histogram = Histogram {
            reset_hint: ResetHint::Unknown,
            schema: 0,
            zero_threshold: 0.0,
            sum: 3.0,
            counts: HistogramCounts::Integer {
                count: 3,
                zero_count: 0,
                positive: vec![1, 1],
                negative: Vec::new(),
            },
            positive_spans: vec![BucketSpan {
                offset: 0,
                length: 2,
            }],
            negative_spans: Vec::new(),
            custom_values: Vec::new(),
        };
        HistogramSample {
            time: 1,
            start_time: START_UNKNOWN,
            histogram,
        }
    }

    #[test]
    fn data_of_a_batch_are_labels_floats_and_buckets() {
        let labels = Labels::from_pairs([("__name__", "up")]);
        let label_bytes = labels.as_bytes().len();
        let mut batch = Batch::default();
        batch.push_series(labels.as_ref(), &[(1, 1.0), (2, 1.0)]);
        assert_eq!(batch.data_bytes(), label_bytes + 32);
        batch.label_bytes().extend_from_slice(labels.as_bytes());
        batch.push_histogram(histogram());
        batch.end_series();
        assert_eq!(batch.series_data_bytes(0), label_bytes + 32);
        assert_eq!(batch.series_data_bytes(1), label_bytes + 48);
        assert_eq!(batch.data_bytes(), 2 * label_bytes + 80);
    }

    #[test]
    fn rejected_series_has_no_data() {
        let mut batch = Batch::default();
        for at in [0, 3] {
            batch.push_float(1, 1.0);
            batch.end_unread_series(at..at + 3);
        }
        batch.put_message(vec![0; 6], &CanonicalKeys);
        assert_eq!(batch.data_bytes(), 38);
        let refused = |_: &[u8], _: &[u8], _: &mut Vec<u8>| Ok(LabelDecodeOutcome::Refused);
        batch.read_key::<()>(0, refused).unwrap();
        assert_eq!(batch.series_data_bytes(0), 0);
        assert_eq!(batch.data_bytes(), 19);
    }
}
