//! The state that a target keeps from one scrape to the next, and the batch of each scrape. Pure.
//!
//! ```text
//! body -> parser -> for each sample: cache, or labels + relabelling + limits -> batch
//!                                            vanished series: staleness markers --> batch
//!                                                             report: up, ... --> batch
//! ```
//!
//! Follows `scrape/scrape.go` of Prometheus with one difference: the samples of a scrape that fails
//! halfway are not stored, so that their series become stale too.
//!
//! Invariant: a series gets at most one staleness marker after its latest sample, with a greater
//! timestamp. Series with explicit timestamps in the body get none unless the job requests it,
//! because their end is unknown.

mod samples;

use super::anchors::ScrapedFamily;
use super::cache::{SeriesCache, SeriesCacheSlot};
use super::histograms::HistogramLimits;
use super::labelling::ScrapeLabeller;
use super::report::{ScrapeCounts, ScrapeReporter};
use super::settings::ScrapeJobSettings;
use firn_http_client::{DecodedBody, MemoryShare, TOO_LARGE};
use firn_ingest::DroppedSamples;
use firn_ingest::targets::{ScrapeTarget, TargetStatus};
use firn_model::batch::Batch;
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::SampleExemplars;
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;
use firn_model::store::{RejectedSamples, SampleRejection};
use firn_wire::WireLimits;
use firn_wire::exposition::{
    ExpositionEvent, ExpositionFormat, ExpositionMetadata, ExpositionParser, FamilyMetadataField,
    LabelPairs, ParserSwitches,
};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// Number of samples between two checks of the batch's memory.
const CHECK_SAMPLES: u64 = 1024;

/// The state of one target's scrapes, and the batch of the latest one. Owned by the runner of the
/// target.
#[derive(Debug)]
pub(super) struct ScrapeState {
    job: Arc<ScrapeJobSettings>,
    limits: WireLimits,
    labeller: ScrapeLabeller,
    switches: ParserSwitches,
    histogram_limits: HistogramLimits,
    reporter: ScrapeReporter,
    status: Arc<TargetStatus>,
    cache: SeriesCache,
    /// Memory reservation of the cache.
    memory: MemoryShare,
    format: Option<ExpositionFormat>,
    scrape: u64,
    newest: Option<TimestampMs>,
    batch: Batch,
    /// Zero samples that begin series, to be stored before the batch.
    zeros: Batch,
    /// Family in the latest metadata of the body.
    family: ScrapedFamily,
    /// Exemplars of one sample; `None` if the store keeps none.
    exemplars: Option<SampleExemplars>,
    /// Timestamps at which the store accepts the first sample of a series.
    accepted_times: RangeInclusive<TimestampMs>,
}

/// The result of a scrape, beside its batch, for status, metrics and log. The batch remains in the
/// [`ScrapeState`].
#[derive(Debug)]
pub(super) struct ScrapeResult {
    /// The error of the scrape, if it failed.
    pub(super) outcome: Result<(), Error>,
    /// Duration of the scrape, as reported.
    pub(super) duration: Duration,
    /// Samples that were dropped although the scrape succeeded.
    pub(super) dropped: Option<DroppedSamples>,
}

/// The treatment of a sample while a body is read, before its value matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScrapedSampleAction {
    /// Relabelling drops its series, so that it is not stored.
    Dropped,
    /// The scrape already contains a sample of its series, and both have the time of the scrape.
    Repeated,
    /// The sample is stored if it is valid.
    Wanted,
}

/// Counts and findings while a body is read, from which report and errors are built.
#[derive(Debug, Default)]
struct ScrapeBodyFindings {
    counts: ScrapeCounts,
    pushed: u64,
    duplicates: usize,
    /// Series of the first duplicate.
    first_duplicate: Labels,
    has_too_many_samples: bool,
    has_too_many_buckets: bool,
    needs_memory: bool,
}

impl ScrapeState {
    /// Returns the state before the first scrape.
    pub(super) fn new(
        job: Arc<ScrapeJobSettings>,
        target: &ScrapeTarget,
        status: Arc<TargetStatus>,
        limits: WireLimits,
        memory: MemoryShare,
    ) -> Self {
        Self {
            labeller: ScrapeLabeller::new(&job, target, limits),
            switches: parser_switches(&job, target),
            histogram_limits: HistogramLimits::new(&job.limits),
            reporter: ScrapeReporter::new(&job, target),
            job,
            limits,
            status,
            cache: SeriesCache::default(),
            memory,
            format: None,
            // A virtual scrape before the first one, which has tracked no series.
            scrape: 1,
            newest: None,
            batch: Batch::default(),
            zeros: Batch::default(),
            family: ScrapedFamily::default(),
            exemplars: None,
            accepted_times: TimestampMs::MIN..=TimestampMs::MAX,
        }
    }

    /// Applies other settings. Cached series are kept if their labels would be the same.
    pub(super) fn reconfigure(&mut self, job: Arc<ScrapeJobSettings>, target: &ScrapeTarget) {
        let labeller = ScrapeLabeller::new(&job, target, self.limits);
        let switches = parser_switches(&job, target);
        if !labeller.computes_same_labels(&self.labeller) || switches != self.switches {
            self.cache.forget_keys();
        }
        self.labeller = labeller;
        self.switches = switches;
        self.histogram_limits = HistogramLimits::new(&job.limits);
        self.reporter = ScrapeReporter::new(&job, target);
        self.job = job;
    }

    /// Sets whether exemplars are kept.
    pub(super) fn keep_exemplars(&mut self, keeps_exemplars: bool) {
        if keeps_exemplars != self.exemplars.is_some() {
            self.exemplars = keeps_exemplars.then(SampleExemplars::default);
        }
    }

    /// Sets the timestamps at which the store accepts the first sample of a series: a series whose
    /// samples are all rejected is not counted as added.
    pub(super) fn set_accepted_times(&mut self, times: RangeInclusive<TimestampMs>) {
        self.accepted_times = times;
    }

    /// Returns the samples of the latest scrape, with its staleness markers and its report.
    pub(super) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Returns zero samples to be stored before the batch; usually none.
    pub(super) fn zeros(&self) -> &Batch {
        &self.zeros
    }

    /// Processes the response to a scrape at `time` and builds its batch; `elapsed` returns the
    /// duration of the scrape. If it failed, the batch reports the target as down.
    pub(super) fn process_response(
        &mut self,
        fetched: Result<DecodedBody, Error>,
        time: TimestampMs,
        elapsed: impl FnOnce() -> Duration,
    ) -> ScrapeResult {
        self.batch.clear();
        self.zeros.clear();
        self.scrape += 1;
        self.newest = Some(time);
        let mut reading = ScrapeBodyFindings::default();
        let is_empty = matches!(&fetched, Ok(body) if body.bytes.is_empty());
        let outcome = match fetched {
            Ok(body) => {
                reading.counts.body_bytes = body.bytes.len() as i64;
                self.parse_body(&body, time, &mut reading)
            }
            Err(e) => {
                if e.message == TOO_LARGE {
                    reading.counts.body_bytes = -1;
                }
                Err(e)
            }
        };
        let before = self.scrape - 1;
        match &outcome {
            Ok(()) => {
                let gone = self.cache.vanished_labels(before, self.scrape);
                self.mark_stale(&gone, time);
                if is_empty {
                    self.cache.end_empty_scrape();
                } else {
                    self.cache.end_successful_scrape(self.scrape);
                    self.status
                        .lock_metadata()
                        .remove_missing_families(self.scrape);
                }
            }
            Err(_) => {
                self.batch.clear();
                self.zeros.clear();
                let gone = self.cache.all_tracked_labels(before, self.scrape);
                self.mark_stale(&gone, time);
                self.cache.end_failed_scrape(reading.needs_memory);
                // Skips a scrape number, as if no series were tracked, so that marked series cannot
                // become stale again.
                self.scrape += 1;
            }
        }
        self.memory.shrink_to(self.cache.bytes());
        let (is_up, duration) = (outcome.is_ok(), elapsed());
        self.reporter
            .report_scrape(is_up, duration, reading.counts, time, &mut self.batch);
        let duplicates = || {
            DroppedSamples::from(&RejectedSamples {
                rejection: SampleRejection::DuplicateTimestamp,
                count: reading.duplicates,
                first_labels: reading.first_duplicate,
                first_time: time,
                first_series: 0,
                limit: None,
            })
        };
        ScrapeResult {
            dropped: (is_up && reading.duplicates > 0).then(duplicates),
            outcome,
            duration,
        }
    }

    /// Parses a body into the batch; the first error fails the scrape.
    fn parse_body(
        &mut self,
        body: &DecodedBody,
        time: TimestampMs,
        reading: &mut ScrapeBodyFindings,
    ) -> Result<(), Error> {
        if body.bytes.is_empty() {
            // Prometheus does not check the content type of an empty body either.
            return Ok(());
        }
        let chosen =
            ExpositionFormat::from_content_type(&body.content_type, self.job.fallback_protocol)?;
        if let Some(complaint) = &chosen.complaint {
            debug!(job = self.job.name, complaint, "unexpected content type");
        }
        if self.format.replace(chosen.format) != Some(chosen.format) {
            self.cache.forget_keys();
        }
        self.cache.rewind_order();
        self.family.clear();
        let mut parser = ExpositionParser::new(chosen.format, &body.bytes, self.switches);
        let mut pairs = LabelPairs::default();
        loop {
            let expected = self.cache.expected_series();
            let (expected, key) = expected.map_or((None, &[][..]), |(slot, key)| (Some(slot), key));
            if !parser.advance_expecting(key)? {
                break;
            }
            match parser.event() {
                ExpositionEvent::Metadata(metadata) => self.apply_metadata(&metadata),
                ExpositionEvent::Sample(sample) => {
                    reading.counts.scraped += 1;
                    let slot = match expected.filter(|_| sample.is_expected) {
                        Some(slot) => Some(slot),
                        None => self.cache.find_key(sample.key),
                    };
                    let slot = match slot {
                        Some(slot) => slot,
                        None if self.is_at_sample_limit(reading.pushed) => {
                            // A kept sample beyond the limit fails the scrape; the remaining ones
                            // are still counted.
                            parser.labels(&mut pairs)?;
                            if self.labeller.label_series(&pairs)?.is_some() {
                                reading.counts.kept += 1;
                                reading.has_too_many_samples = true;
                            }
                            continue;
                        }
                        None => {
                            parser.labels(&mut pairs)?;
                            self.add_series(sample.key, &pairs, reading)?
                        }
                    };
                    if let Some(exemplars) = &mut self.exemplars {
                        parser.exemplars(exemplars);
                    }
                    self.push_sample(slot, &sample, time, reading)?;
                }
            }
        }
        if reading.has_too_many_samples {
            return limit_error("sample limit exceeded");
        }
        if reading.has_too_many_buckets {
            return limit_error("histogram bucket limit exceeded");
        }
        Ok(())
    }

    fn apply_metadata(&mut self, metadata: &ExpositionMetadata<'_>) {
        if self.job.start_times.are_made {
            self.family.apply_metadata(metadata);
        }
        let mut table = self.status.lock_metadata();
        table.update_family(metadata.name, self.scrape, |known| match &metadata.field {
            FamilyMetadataField::Type(kind) => known.kind = kind.name(),
            FamilyMetadataField::Help(help) if **help != *known.help.as_bytes() => {
                known.help = String::from_utf8_lossy(help).into_owned();
            }
            FamilyMetadataField::Unit(unit) if **unit != *known.unit.as_bytes() => {
                known.unit = String::from_utf8_lossy(unit).into_owned();
            }
            FamilyMetadataField::Help(_) | FamilyMetadataField::Unit(_) => {}
        });
    }

    /// Computes the labels of a new series and adds it to the cache. Fails if they are invalid or
    /// the memory budget is exhausted.
    fn add_series(
        &mut self,
        key: &[u8],
        pairs: &LabelPairs,
        reading: &mut ScrapeBodyFindings,
    ) -> Result<SeriesCacheSlot, Error> {
        let labels = self.labeller.label_series(pairs)?;
        let slot = self.cache.add_series(key, labels, 0);
        self.reserve_cache(reading)?;
        Ok(slot)
    }

    /// Reserves the memory to which the cache has grown. A failure is recorded, so that the end of
    /// the scrape frees memory.
    fn reserve_cache(&mut self, reading: &mut ScrapeBodyFindings) -> Result<(), Error> {
        self.memory
            .grow_to(self.cache.bytes())
            .inspect_err(|_| reading.needs_memory = true)
    }

    /// Builds the last batch: all series become stale at `time`, or just after their last sample.
    pub(super) fn mark_all_stale(&mut self, time: TimestampMs) {
        self.batch.clear();
        self.zeros.clear();
        let Some(newest) = self.newest.take() else {
            return;
        };
        let time = time.max(newest.saturating_add(1));
        let gone = self.cache.vanished_labels(self.scrape, u64::MAX);
        self.mark_stale(&gone, time);
        self.cache = SeriesCache::default();
        self.reporter.end_series(time, &mut self.batch);
    }
}

/// Returns the parser options for the target's bodies.
fn parser_switches(job: &ScrapeJobSettings, target: &ScrapeTarget) -> ParserSwitches {
    ParserSwitches {
        type_and_unit_labels: job.type_and_unit_labels,
        start_times: job.start_times.are_parsed(),
        native_histograms: target.native_histograms,
        convert_classic_histograms: target.convert_classic,
        always_classic_histograms: target.always_classic,
    }
}

fn limit_error<T>(message: &str) -> Result<T, Error> {
    Err(Error::new(ErrorKind::Limited, message))
}
