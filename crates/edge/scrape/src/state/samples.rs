//! Adds the samples of a response to the batch, and staleness markers for series that ended.

use super::{CHECK_SAMPLES, ScrapeBodyFindings, ScrapeState, ScrapedSampleAction, limit_error};
use crate::anchors::AnchoredSample;
use crate::cache::SeriesCacheSlot;
use crate::{anchors, histograms, zeros};
use firn_ingest::exemplars;
use firn_model::batch::HistogramSample;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, TimestampMs, stale_nan};
use firn_wire::exposition::{ExpositionSample, ExpositionValue};

impl ScrapeState {
    /// Adds a sample of the series at `slot` to the batch. Fails if the sample or the batch exceeds
    /// a limit.
    pub(super) fn push_sample(
        &mut self,
        slot: SeriesCacheSlot,
        sample: &ExpositionSample<'_>,
        time: TimestampMs,
        reading: &mut ScrapeBodyFindings,
    ) -> Result<(), Error> {
        self.cache.record_position(slot);
        let own_time = sample.time.filter(|_| self.job.honor_timestamps);
        match self.record_sighting(slot, own_time.is_some()) {
            ScrapedSampleAction::Dropped => return Ok(()),
            ScrapedSampleAction::Repeated => {
                self.note_duplicate(slot, reading);
                return Ok(());
            }
            ScrapedSampleAction::Wanted => {}
        }
        let tracks = own_time.is_none() || self.job.track_timestamps_staleness;
        let time = own_time.unwrap_or(time);
        if self.job.start_times.are_made {
            self.push_anchored(slot, sample, time, tracks, reading)?;
        } else {
            self.push_final_sample(slot, sample, time, tracks, reading)?;
        }
        reading.counts.kept += 1;
        Ok(())
    }

    /// Adds the difference between a sample and its series' anchor to the batch. Fails if the
    /// sample is an invalid histogram or exceeds a limit.
    fn push_anchored(
        &mut self,
        slot: SeriesCacheSlot,
        sample: &ExpositionSample<'_>,
        time: TimestampMs,
        tracks: bool,
        reading: &mut ScrapeBodyFindings,
    ) -> Result<(), Error> {
        match self.relate_to_anchor(slot, sample, time, reading)? {
            AnchoredSample::Unchanged => {
                self.push_final_sample(slot, sample, time, tracks, reading)
            }
            AnchoredSample::Since(start, amount) => {
                let sample = ExpositionSample {
                    start: Some(start),
                    value: amount.as_sample_value(),
                    ..*sample
                };
                self.push_final_sample(slot, &sample, time, tracks, reading)
            }
            AnchoredSample::LeftOut => {
                let scrape = self.scrape;
                if let Some(entry) = self.cache.entry_mut(slot) {
                    if tracks && entry.is_tracked() {
                        entry.track_scrape(scrape);
                    }
                    reading.counts.added += u64::from(!entry.is_counted);
                    entry.is_counted = true;
                }
                Ok(())
            }
        }
    }

    /// Records that this scrape contains a sample of the series at `slot`.
    #[inline]
    fn record_sighting(
        &mut self,
        slot: SeriesCacheSlot,
        has_own_time: bool,
    ) -> ScrapedSampleAction {
        let scrape = self.scrape;
        let Some(entry) = self.cache.entry_mut(slot) else {
            return ScrapedSampleAction::Dropped;
        };
        let is_second = entry.seen == scrape;
        entry.seen = scrape;
        if entry.labels.is_none() {
            return ScrapedSampleAction::Dropped;
        }
        if is_second && !has_own_time {
            return ScrapedSampleAction::Repeated;
        }
        ScrapedSampleAction::Wanted
    }

    #[cold]
    fn note_duplicate(&self, slot: SeriesCacheSlot, reading: &mut ScrapeBodyFindings) {
        reading.counts.kept += 1;
        if reading.duplicates == 0
            && let Some(labels) = self.cache.entry(slot).and_then(|e| e.labels.as_ref())
        {
            reading.first_duplicate = labels.clone();
        }
        reading.duplicates += 1;
    }

    /// Relates a sample to its series' anchor, unless it has a start timestamp of its own. Fails if
    /// it is an invalid histogram or the memory budget is exhausted.
    fn relate_to_anchor(
        &mut self,
        slot: SeriesCacheSlot,
        sample: &ExpositionSample<'_>,
        time: TimestampMs,
        reading: &mut ScrapeBodyFindings,
    ) -> Result<AnchoredSample, Error> {
        let family = &self.family;
        let counted = self.cache.update_anchor(slot, |anchor, labels| {
            if sample.start.is_some() {
                *anchor = None;
                return Ok(AnchoredSample::Unchanged);
            }
            anchors::relate_to_anchor(anchor, labels, family, sample, time)
        });
        self.reserve_cache(reading)?;
        counted.unwrap_or(Ok(AnchoredSample::Unchanged))
    }

    /// Adds a sample in its final form to the batch. Fails if the batch exceeds its limit.
    #[inline]
    fn push_final_sample(
        &mut self,
        slot: SeriesCacheSlot,
        sample: &ExpositionSample<'_>,
        time: TimestampMs,
        tracks: bool,
        reading: &mut ScrapeBodyFindings,
    ) -> Result<(), Error> {
        let at_limit = self.is_at_sample_limit(reading.pushed);
        let Some(entry) = self.cache.entry_mut(slot) else {
            return Ok(());
        };
        if tracks {
            entry.track_scrape(self.scrape);
        }
        if at_limit {
            reading.has_too_many_samples = true;
            return Ok(());
        }
        reading.pushed += 1;
        let is_added = !entry.is_counted && self.accepted_times.contains(&time);
        entry.is_counted |= is_added;
        if let Some(exemplars) = &self.exemplars {
            exemplars::push_exemplars(exemplars, sample, time, &mut self.batch);
        }
        let start_times = self.job.start_times;
        if start_times.make_zeros {
            zeros::push_zero(&mut self.zeros, entry, sample, time);
        }
        let labels = entry.labels.as_ref().map_or(&[][..], Labels::as_bytes);
        self.batch.label_bytes().extend_from_slice(labels);
        let start = sample.start.filter(|_| start_times.are_stored);
        match (sample.value, start) {
            (ExpositionValue::Float(value), None) => self.batch.push_float(time, value),
            (ExpositionValue::Float(value), Some(start)) => {
                self.batch.push_float_with_start(time, value, start);
            }
            (ExpositionValue::Histogram(histogram), start) => {
                histogram.validate()?;
                let Some(histogram) =
                    histograms::reduce_to_limits(histogram, self.histogram_limits)
                else {
                    reading.has_too_many_buckets = true;
                    self.batch.drop_series();
                    return Ok(());
                };
                self.batch.push_histogram(HistogramSample {
                    time,
                    start_time: start.unwrap_or(START_UNKNOWN),
                    histogram,
                });
            }
        }
        self.batch.end_series();
        // Like Prometheus, which counts no series as added after a sample that exceeds a limit.
        if is_added && !reading.has_too_many_samples && !reading.has_too_many_buckets {
            reading.counts.added += 1;
        }
        self.check_batch_memory(reading.pushed)
    }

    /// Returns whether a scrape with `pushed` stored samples has reached the sample limit.
    pub(super) fn is_at_sample_limit(&self, pushed: u64) -> bool {
        let limit = self.job.limits.samples;
        limit > 0 && pushed >= limit
    }

    fn check_batch_memory(&self, pushed: u64) -> Result<(), Error> {
        let limit = self.limits.batch_bytes_max;
        if !pushed.is_multiple_of(CHECK_SAMPLES) || self.batch.memory_bytes() <= limit {
            return Ok(());
        }
        limit_error(&format!(
            "samples of one scrape need too much memory: limit {limit} bytes"
        ))
    }

    /// Adds a staleness marker at `time` for each of these series.
    pub(super) fn mark_stale(&mut self, gone: &[Labels], time: TimestampMs) {
        for labels in gone {
            self.batch
                .push_series(labels.as_ref(), &[(time, stale_nan())]);
        }
    }
}
