//! Adds the exemplars of a scraped sample to a batch.

use firn_model::batch::Batch;
use firn_model::exemplar::{SampleExemplars, TimedExemplar};
use firn_model::sample::TimestampMs;
use firn_wire::exposition::{ExpositionSample, ExpositionValue};

/// Adds the exemplars of `sample`, whose timestamp is `time`, in the order in which the store
/// accepts most of them. As in upstream, an exemplar of a native histogram needs its own timestamp,
/// without which duplicates could not be detected.
pub fn push_exemplars(
    exemplars: &SampleExemplars,
    sample: &ExpositionSample<'_>,
    time: TimestampMs,
    batch: &mut Batch,
) {
    if exemplars.is_empty() {
        return;
    }
    let is_histogram = matches!(sample.value, ExpositionValue::Histogram(_));
    let timed = exemplars.iter().map(|exemplar| TimedExemplar {
        labels: exemplar.labels,
        value: exemplar.value,
        time: exemplar.time.unwrap_or(time),
        has_own_time: exemplar.time.is_some(),
    });
    let mut timed: Vec<_> = timed
        .filter(|exemplar| exemplar.has_own_time || !is_histogram)
        .collect();
    timed.sort_by(TimedExemplar::compare);
    for exemplar in timed {
        batch.push_exemplar(exemplar);
    }
}
