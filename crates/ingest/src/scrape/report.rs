//! The series that report on each scrape.

use super::settings::JobSettings;
use super::target::Target;
use firn_model::batch::Batch;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::sample::{TimestampMs, stale_nan};
use std::time::Duration;

/// The names, in the order in which values are written; the last three are extra.
const NAMES: [&str; 8] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
    "scrape_timeout_seconds",
    "scrape_sample_limit",
    "scrape_body_size_bytes",
];

/// How many are written if no extra ones are asked for.
const ORDINARY: usize = 5;

/// The counts of one scrape, as Prometheus's scrape loop makes them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// Samples in the body.
    pub(super) scraped: u64,
    /// Samples that relabelling kept, those included that the store refuses or that repeat a
    /// series.
    pub(super) kept: u64,
    /// Series that no scrape since the last one with a body had a sample of that the store accepts.
    pub(super) added: u64,
    /// Bytes of the body; -1 if there were too many.
    pub(super) body_bytes: i64,
}

/// Writes the report of one target.
#[derive(Debug)]
pub(super) struct Reporter {
    labels: Vec<Labels>,
    timeout: f64,
    sample_limit: f64,
}

impl Reporter {
    pub(super) fn new(job: &JobSettings, target: &Target) -> Self {
        let count = if job.extra_metrics {
            NAMES.len()
        } else {
            ORDINARY
        };
        let labels = |name: &&str| {
            LabelsBuilder::from_labels(target.labels.as_ref())
                .set(METRIC_NAME, name.as_bytes())
                .build()
        };
        Self {
            labels: NAMES[..count].iter().map(labels).collect(),
            timeout: target.timeout.as_secs_f64(),
            sample_limit: job.limits.samples as f64,
        }
    }

    /// Reports a scrape at `time` that took `duration`.
    pub(super) fn report(
        &self,
        is_up: bool,
        duration: Duration,
        counts: Counts,
        time: TimestampMs,
        batch: &mut Batch,
    ) {
        let values = [
            f64::from(u8::from(is_up)),
            duration.as_secs_f64(),
            counts.scraped as f64,
            counts.kept as f64,
            counts.added as f64,
            self.timeout,
            self.sample_limit,
            counts.body_bytes as f64,
        ];
        for (labels, value) in self.labels.iter().zip(values) {
            batch.push_series(labels.as_ref(), &[(time, value)]);
        }
    }

    /// Says that there will be no more reports.
    pub(super) fn end(&self, time: TimestampMs, batch: &mut Batch) {
        for labels in &self.labels {
            batch.push_series(labels.as_ref(), &[(time, stale_nan())]);
        }
    }
}
