//! Samples of zero at the times since when others count, as
//! `--enable-feature=created-timestamp-zero-ingestion` asks.
//!
//! They are a batch of their own, stored before that of their scrape: what the store refuses of
//! them, because it has newer samples or they are too old, is no loss. Follows upstream's
//! `tsdb/head_append_v2.go`.

use super::cache::Entry;
use firn_model::batch::{Batch, HistogramSample};
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
            histogram: histogram.emptied(),
        }),
    }
    batch.end_series();
}
