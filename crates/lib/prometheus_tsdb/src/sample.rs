//! Samples of chunks and logs: floats and histograms in one sequence.

use firn_model::histogram::{Histogram, HistogramCounts, ResetHint};
use firn_model::sample::{TimestampMs, is_stale};

/// The value of a sample; histograms are boxed because floats are much more frequent. Staleness
/// markers exist in both forms.
#[derive(Clone, Debug, PartialEq)]
pub enum TsdbSampleValue {
    /// A float, which may be a staleness marker.
    Float(f64),
    /// A native histogram, which is a staleness marker if its sum is one.
    Histogram(Box<Histogram>),
}

/// A sample of a series, as read from a chunk or a log.
#[derive(Clone, Debug, PartialEq)]
pub struct TsdbSample {
    /// Timestamp in milliseconds since the Unix epoch.
    pub time: TimestampMs,
    /// Start timestamp in milliseconds; 0 if it is unknown.
    pub start_time: TimestampMs,
    /// The value, which also determines the kind of the sample.
    pub value: TsdbSampleValue,
}

impl TsdbSample {
    /// Returns whether the sample is a staleness marker. Both types of values have such a marker.
    pub fn is_stale(&self) -> bool {
        match &self.value {
            TsdbSampleValue::Float(value) => is_stale(*value),
            TsdbSampleValue::Histogram(histogram) => histogram.is_stale(),
        }
    }

    /// Returns the memory of the sample in bytes. Spans and buckets of a histogram are included.
    pub fn memory_bytes(&self) -> usize {
        let behind = match &self.value {
            TsdbSampleValue::Float(_) => 0,
            TsdbSampleValue::Histogram(histogram) => {
                let spans = histogram.positive_spans.len() + histogram.negative_spans.len();
                let numbers = histogram.counts.bucket_count() + histogram.custom_values.len();
                size_of::<Histogram>() + 8 * (spans + numbers)
            }
        };
        size_of::<Self>() + behind
    }
}

/// Returns a histogram that is a staleness marker, with integer or float counts.
pub(super) fn stale_histogram(sum: f64, is_float: bool) -> Histogram {
    let counts = if is_float {
        HistogramCounts::Float {
            count: 0.0,
            zero_count: 0.0,
            positive: Vec::new(),
            negative: Vec::new(),
        }
    } else {
        HistogramCounts::Integer {
            count: 0,
            zero_count: 0,
            positive: Vec::new(),
            negative: Vec::new(),
        }
    };
    Histogram {
        reset_hint: ResetHint::Unknown,
        schema: 0,
        zero_threshold: 0.0,
        sum,
        counts,
        positive_spans: Vec::new(),
        negative_spans: Vec::new(),
        custom_values: Vec::new(),
    }
}
