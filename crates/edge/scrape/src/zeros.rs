//! Zero samples at the start timestamps of scraped series, for
//! `--enable-feature=created-timestamp-zero-ingestion`.
//!
//! They form a separate batch, which is stored before that of their scrape. Rejected zeros, because
//! the store has newer samples or they are too old, are not an error. Follows upstream's
//! `tsdb/head_append_v2.go`.

use super::cache::SeriesCacheEntry;
use firn_model::batch::{Batch, HistogramSample};
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_wire::exposition::{ExpositionSample, ExpositionValue};

/// Adds a zero at the start of the series of `entry`, if `sample` at `time` has a start timestamp
/// before `time`; once for each start.
pub(super) fn push_zero(
    batch: &mut Batch,
    entry: &mut SeriesCacheEntry,
    sample: &ExpositionSample<'_>,
    time: TimestampMs,
) {
    let is_new = |start: &TimestampMs| *start < time && *start != entry.zero_made;
    let (Some(start), Some(labels)) = (sample.start.filter(is_new), &entry.labels) else {
        return;
    };
    entry.zero_made = start;
    batch.label_bytes().extend_from_slice(labels.as_bytes());
    match sample.value {
        ExpositionValue::Float(_) => batch.push_float(start, 0.0),
        ExpositionValue::Histogram(histogram) => batch.push_histogram(HistogramSample {
            time: start,
            start_time: START_UNKNOWN,
            histogram: histogram.without_observations(),
        }),
    }
    batch.end_series();
}
