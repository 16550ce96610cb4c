//! Samples as chunks and logs hold them: floats and histograms in one sequence.

use firn_model::histogram::{Counts, Histogram, ResetHint};
use firn_model::sample::{TimestampMs, is_stale};

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A float; staleness markers are left as they are.
    Float(f64),
    /// A native histogram; one whose sum is the staleness marker is one.
    Histogram(Box<Histogram>),
}

/// A sample of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When it was taken.
    pub time: TimestampMs,
    /// Since when it counts; 0 where that is not known.
    pub start_time: TimestampMs,
    /// What was measured.
    pub value: Value,
}

impl Sample {
    /// Whether it says that its series ended.
    pub fn is_stale(&self) -> bool {
        match &self.value {
            Value::Float(value) => is_stale(*value),
            Value::Histogram(histogram) => histogram.is_stale(),
        }
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        let behind = match &self.value {
            Value::Float(_) => 0,
            Value::Histogram(histogram) => {
                let spans = histogram.positive_spans.len() + histogram.negative_spans.len();
                let numbers = histogram.counts.bucket_count() + histogram.custom_values.len();
                size_of::<Histogram>() + 8 * (spans + numbers)
            }
        };
        size_of::<Self>() + behind
    }
}

/// The histogram that says its series ended, with the counts of its kind.
pub(super) fn stale_histogram(sum: f64, is_float: bool) -> Histogram {
    let counts = match is_float {
        true => Counts::Float {
            count: 0.0,
            zero_count: 0.0,
            positive: Vec::new(),
            negative: Vec::new(),
        },
        false => Counts::Integer {
            count: 0,
            zero_count: 0,
            positive: Vec::new(),
            negative: Vec::new(),
        },
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
