//! Writes the series that describe each scrape, such as `up`.

use super::settings::ScrapeJobSettings;
use firn_ingest::targets::ScrapeTarget;
use firn_model::batch::Batch;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::sample::{TimestampMs, stale_nan};
use std::time::Duration;

/// Metric names, in the order of the values; the last three are extra metrics.
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

/// Number of series without extra metrics.
const ORDINARY: usize = 5;

/// The counts of one scrape, with the definitions of Prometheus's scrape loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ScrapeCounts {
    /// Number of samples in the body, before relabelling.
    pub(super) scraped: u64,
    /// Number of samples after relabelling, including those that the store rejects and duplicates
    /// within the scrape.
    pub(super) kept: u64,
    /// Number of new series with an accepted sample, compared with the scrapes since the latest one
    /// with a body.
    pub(super) added: u64,
    /// Size of the body in bytes; -1 if it exceeded the limit.
    pub(super) body_bytes: i64,
}

/// Writes the report series of one target, whose labels are computed once.
#[derive(Debug)]
pub(super) struct ScrapeReporter {
    labels: Vec<Labels>,
    timeout: f64,
    sample_limit: f64,
}

impl ScrapeReporter {
    pub(super) fn new(job: &ScrapeJobSettings, target: &ScrapeTarget) -> Self {
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
    pub(super) fn report_scrape(
        &self,
        is_up: bool,
        duration: Duration,
        counts: ScrapeCounts,
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

    /// Ends the report series with staleness markers.
    pub(super) fn end_series(&self, time: TimestampMs, batch: &mut Batch) {
        for labels in &self.labels {
            batch.push_series(labels.as_ref(), &[(time, stale_nan())]);
        }
    }
}
