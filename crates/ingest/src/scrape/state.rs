//! What one target's scrapes leave for the next: which series there were.
//!
//! Invariant: a series gets at most one staleness marker after its last sample, later than that
//! sample; series with times of their own in the exposition get none, because nobody knows when
//! they end.

use super::Target;
use firn_model::batch::Batch;
use firn_model::error::Error;
use firn_model::labels::{Labels, LabelsBuilder, LabelsRef, METRIC_NAME};
use firn_model::sample::{TimestampMs, stale_nan};
use firn_wire::WireLimits;
use firn_wire::exposition::{self, ParseOptions};
use std::collections::BTreeMap;
use std::time::Duration;

/// The series that report on each scrape, in the order in which [`Report`] has their values.
const REPORT_NAMES: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];

type Report = [f64; REPORT_NAMES.len()];

/// A series that the target has exposed.
#[derive(Debug)]
struct Seen {
    /// The scrape that had it last.
    scrape: u64,
    has_own_time: bool,
    is_marked: bool,
}

/// The memory of one target's scrapes, and the batch of the last one.
#[derive(Debug)]
pub struct ScrapeState {
    options: ParseOptions,
    report_labels: Vec<Labels>,
    series: BTreeMap<Box<[u8]>, Seen>,
    scrape: u64,
    newest: Option<TimestampMs>,
    batch: Batch,
}

impl ScrapeState {
    /// Nothing scraped yet.
    pub fn new(target: &Target, limits: WireLimits) -> Self {
        let labels = |name: &&str| {
            LabelsBuilder::from_labels(target.labels.as_ref())
                .set(METRIC_NAME, name.as_bytes())
                .build()
        };
        Self {
            options: ParseOptions {
                target_labels: target.labels.clone(),
                honor_labels: target.honor_labels,
                honor_timestamps: target.honor_timestamps,
                time: 0,
                limits,
            },
            report_labels: REPORT_NAMES.iter().map(labels).collect(),
            series: BTreeMap::new(),
            scrape: 0,
            newest: None,
            batch: Batch::default(),
        }
    }

    /// The samples of the last scrape, its staleness markers and its report.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Lends the batch to a thread that stores it; [`ScrapeState::give_back`] keeps its memory.
    pub fn lend_batch(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }

    /// Takes a lent batch back.
    pub fn give_back(&mut self, batch: Batch) {
        self.batch = batch;
    }

    /// Takes the answer to a scrape at `time` that took `duration` and makes its batch. Fails if
    /// the scrape did; the batch then says that the target is down.
    pub fn take(
        &mut self,
        fetched: Result<Vec<u8>, Error>,
        time: TimestampMs,
        duration: Duration,
    ) -> Result<(), Error> {
        self.batch.clear();
        self.scrape += 1;
        self.newest = Some(time);
        self.options.time = time;
        let samples = fetched.and_then(|text| self.read(&text));
        let (up, scraped, added) = match &samples {
            Ok((scraped, added)) => (1.0, *scraped as f64, *added as f64),
            Err(_) => {
                self.batch.clear();
                (0.0, 0.0, 0.0)
            }
        };
        self.mark_vanished(time);
        if samples.is_ok() {
            // After a failure the series are remembered: they are not new when they come back.
            self.series.retain(|_, seen| seen.scrape == self.scrape);
        }
        self.report([up, duration.as_secs_f64(), scraped, scraped, added], time);
        samples.map(|_| ())
    }

    /// Reads an exposition into the batch. Returns how many samples it has and how many series of
    /// them are new.
    fn read(&mut self, text: &[u8]) -> Result<(usize, usize), Error> {
        let exposition = exposition::parse(text, &self.options, &mut self.batch)?;
        let mut with_own_time = exposition.with_own_time.into_iter().peekable();
        let mut added = 0;
        for (i, series) in self.batch.iter().enumerate() {
            let seen = Seen {
                scrape: self.scrape,
                has_own_time: with_own_time.next_if_eq(&i).is_some(),
                is_marked: false,
            };
            match self.series.get_mut(series.labels.as_bytes()) {
                Some(known) => *known = seen,
                None => {
                    added += 1;
                    self.series.insert(series.labels.as_bytes().into(), seen);
                }
            }
        }
        Ok((self.batch.series_count(), added))
    }

    /// Adds a staleness marker for every series that the last scrape did not have.
    fn mark_vanished(&mut self, time: TimestampMs) {
        for (labels, seen) in &mut self.series {
            let has_vanished = seen.scrape != self.scrape && !seen.is_marked;
            if has_vanished && !seen.has_own_time {
                let labels = LabelsRef::from_canonical(labels);
                self.batch.push_series(labels, &[(time, stale_nan())]);
                seen.is_marked = true;
            }
        }
    }

    fn report(&mut self, values: Report, time: TimestampMs) {
        for (labels, value) in self.report_labels.iter().zip(values) {
            self.batch.push_series(labels.as_ref(), &[(time, value)]);
        }
    }

    /// Makes the last batch: everything ends now.
    pub fn end(&mut self, now: TimestampMs) {
        self.batch.clear();
        let Some(newest) = self.newest.take() else {
            return;
        };
        let time = now.max(newest.saturating_add(1));
        self.scrape += 1;
        self.mark_vanished(time);
        self.series.clear();
        self.report([stale_nan(); REPORT_NAMES.len()], time);
    }
}
