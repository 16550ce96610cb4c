//! Samples of zero at the times since when others count, as
//! `--enable-feature=created-timestamp-zero-ingestion` asks.
//!
//! They are a batch of their own, stored before that of their scrape: what the store refuses of
//! them, because it has newer samples or they are too old, is no loss. Follows upstream's
//! `tsdb/head_append_v2.go`.

use super::cache::Entry;
use firn_model::batch::{Batch, HistogramSample};
use firn_model::histogram::{Counts, Histogram, ResetHint};
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_wire::exposition::{Sample, Value};

/// Adds the zero that begins the series of `entry`, if `sample` says when that was and was taken
/// after it, at `time`; once for each beginning.
pub(super) fn push(batch: &mut Batch, entry: &mut Entry, sample: &Sample<'_>, time: TimestampMs) {
    let is_new = |start: &TimestampMs| *start < time && *start != entry.zero_made;
    let (Some(start), Some(labels)) = (sample.start.filter(is_new), &entry.labels) else {
        return;
    };
    entry.zero_made = start;
    batch.label_bytes().extend_from_slice(labels.as_bytes());
    match sample.value {
        Value::Float(_) => batch.push_float(start, 0.0),
        Value::Histogram(histogram) => batch.push_histogram(HistogramSample {
            time: start,
            start_time: START_UNKNOWN,
            histogram: zero_of(histogram),
        }),
    }
    batch.end_series();
}

/// A histogram without observations in the layout of another.
fn zero_of(histogram: &Histogram) -> Histogram {
    let counts = match histogram.counts {
        Counts::Integer { .. } => Counts::Integer {
            count: 0,
            zero_count: 0,
            positive: Vec::new(),
            negative: Vec::new(),
        },
        Counts::Float { .. } => Counts::Float {
            count: 0.0,
            zero_count: 0.0,
            positive: Vec::new(),
            negative: Vec::new(),
        },
    };
    Histogram {
        reset_hint: ResetHint::Reset,
        schema: histogram.schema,
        zero_threshold: histogram.zero_threshold,
        sum: 0.0,
        counts,
        positive_spans: Vec::new(),
        negative_spans: Vec::new(),
        custom_values: histogram.custom_values.clone(),
    }
}
