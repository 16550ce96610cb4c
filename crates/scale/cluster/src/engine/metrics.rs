//! The metrics of a log in a bucket, and the gauges from which its pressure is read without a lock.

use crate::log::CreateOutcome;
use firn_model::metrics::{Collect, Counter, DurationHistogram, Gauge, MetricSink, MetricValue};
use std::time::Duration;

/// The values of the label `outcome`, in the order of [`outcome_index`].
const OUTCOMES: [&str; 4] = ["ambiguous", "exists", "refused", "stored"];

/// Metrics of the logs that share them, exported under `firn_log_`.
#[derive(Debug, Default)]
pub struct BucketLogMetrics {
    create_duration: DurationHistogram,
    creates: [Counter; OUTCOMES.len()],
    pub(super) fenced: Counter,
    pub(super) lost_records: Counter,
    pub(super) foreign_objects: Counter,
    pub(super) outages: Counter,
    pub(super) stalled: Gauge,
    pub(super) kept_bytes: Gauge,
    pub(super) unsealed_bytes: Gauge,
    pub(super) queued_bytes: Gauge,
}

fn outcome_index(outcome: CreateOutcome) -> usize {
    match outcome {
        CreateOutcome::Ambiguous => 0,
        CreateOutcome::Exists => 1,
        CreateOutcome::Refused => 2,
        CreateOutcome::Stored => 3,
    }
}

impl BucketLogMetrics {
    fn collect_creates(&self, sink: &mut dyn MetricSink) {
        for (outcome, count) in OUTCOMES.iter().zip(&self.creates) {
            sink.metric(
                "firn_log_creates_total",
                "Attempts to create a segment of the log in the bucket.",
                &[("outcome", *outcome)],
                MetricValue::Counter(count.get() as f64),
            );
        }
    }

    /// Counts an attempt to create a segment.
    pub(super) fn record_create(&self, outcome: CreateOutcome, took: Duration) {
        self.creates[outcome_index(outcome)].inc();
        self.create_duration.observe(took);
    }

    /// Returns the number of attempts to create a segment with this outcome.
    pub fn creates(&self, outcome: CreateOutcome) -> u64 {
        self.creates[outcome_index(outcome)].get()
    }
}

impl Collect for BucketLogMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        self.collect_creates(sink);
        sink.metric(
            "firn_log_create_duration_seconds",
            "Duration of attempts to create a segment of the log in the bucket.",
            &[],
            MetricValue::Histogram(&self.create_duration),
        );
        let counters = [
            (
                "firn_log_ambiguous_total",
                "Attempts to create a segment whose outcome had to be read.",
                &self.creates[outcome_index(CreateOutcome::Ambiguous)],
            ),
            (
                "firn_log_fenced_total",
                "Leaderships that ended because another process took over.",
                &self.fenced,
            ),
            (
                "firn_log_lost_records_total",
                "Records of damaged segments that a replay could not read.",
                &self.lost_records,
            ),
            (
                "firn_log_foreign_objects_total",
                "Objects beside the log that are no segments.",
                &self.foreign_objects,
            ),
            (
                "firn_log_outages_total",
                "Times at which writes were rejected because the bucket did not store the log.",
                &self.outages,
            ),
        ];
        for (name, help, counter) in counters {
            sink.metric(name, help, &[], MetricValue::Counter(counter.get() as f64));
        }
        let gauges = [
            (
                "firn_log_stalled",
                "1 while writes are rejected because the bucket does not store the log.",
                &self.stalled,
            ),
            (
                "firn_log_size_bytes",
                "Bytes of the log in the bucket.",
                &self.kept_bytes,
            ),
            (
                "firn_log_unsealed_bytes",
                "Bytes of the log in the bucket whose samples are only in the head.",
                &self.unsealed_bytes,
            ),
            (
                "firn_log_queued_bytes",
                "Memory of records that are not durable yet.",
                &self.queued_bytes,
            ),
        ];
        for (name, help, gauge) in gauges {
            sink.metric(name, help, &[], MetricValue::Gauge(gauge.get() as f64));
        }
    }
}
