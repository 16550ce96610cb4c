//! Collects the samples of a piece of text in one batch: validates labels and fills in timestamps.
//!
//! Consecutive samples of one series form one series of the batch, whose labels are decoded once.

use super::{ImportSettings, add_dropped_sample};
use crate::exemplars;
use crate::outcome::{DropReason, DroppedSamples};
use firn_model::batch::{Batch, HistogramSample};
use firn_model::error::Error;
use firn_model::exemplar::SampleExemplars;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::store::RejectedSamples;
use firn_wire::WireLimits;
use firn_wire::exposition::{ExpositionEvent, ExpositionParser, ExpositionValue, LabelPairs};
use firn_wire::remote_write::{WriteRejectionReason, push_checked};

/// The batch of the current piece, with the settings of the import. Reused for all pieces.
pub(super) struct ImportBatch {
    limits: WireLimits,
    default_time: TimestampMs,
    extra_labels: Vec<(String, String)>,
    keeps_exemplars: bool,
    exemplars: SampleExemplars,
    ignored_exemplars: u64,
    pairs: LabelPairs,
    batch: Batch,
    /// Line number of each float in the batch.
    lines: Vec<u64>,
    /// The current series, if there is one: whether it is valid, or the reason why not.
    series: Option<Result<(), WriteRejectionReason>>,
    refused: Vec<DroppedSamples>,
}

impl ImportBatch {
    pub(super) fn new(settings: ImportSettings, limits: WireLimits, keeps_exemplars: bool) -> Self {
        Self {
            limits,
            default_time: settings.default_time,
            extra_labels: settings.extra_labels,
            keeps_exemplars,
            exemplars: SampleExemplars::default(),
            ignored_exemplars: 0,
            pairs: LabelPairs::default(),
            batch: Batch::default(),
            lines: Vec::new(),
            series: None,
            refused: Vec::new(),
        }
    }

    /// Returns the batch to store.
    pub(super) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Removes the samples of the previous piece.
    pub(super) fn clear_samples(&mut self) {
        self.batch.clear();
        self.lines.clear();
        self.series = None;
    }

    /// Finishes the batch by ending its last series.
    pub(super) fn end_batch(&mut self) {
        if self.series.take() == Some(Ok(())) {
            self.batch.end_series();
        }
    }

    /// Removes and returns the rejected samples.
    pub(super) fn take_refused(&mut self) -> Vec<DroppedSamples> {
        std::mem::take(&mut self.refused)
    }

    /// Returns the number of ignored exemplars and resets it.
    pub(super) fn take_ignored(&mut self) -> u64 {
        std::mem::take(&mut self.ignored_exemplars)
    }

    /// Returns the line of the first sample that the store rejected, for the error text. Returns
    /// `None` if it was not a float.
    pub(super) fn line_of_rejection(&self, rejected: &RejectedSamples) -> Option<u64> {
        (0..self.batch.series_count()).find_map(|i| {
            let series = self.batch.series(i);
            if series.labels != rejected.first_labels.as_ref() {
                return None;
            }
            let is_it = |time: &TimestampMs| *time == rejected.first_time;
            let at = series.times.iter().position(is_it)?;
            self.lines.get(self.batch.offsets(i).0 + at).copied()
        })
    }

    /// Adds the current sample of the parser, which is in this line. Fails if the labels cannot be
    /// parsed or a histogram is invalid; samples with invalid labels are only counted.
    pub(super) fn add_current_sample(
        &mut self,
        parser: &ExpositionParser<'_>,
        line: u64,
    ) -> Result<(), Error> {
        let ExpositionEvent::Sample(sample) = parser.event() else {
            return Ok(());
        };
        let is_same = sample.is_expected && self.series.is_some();
        let stands = match self.series {
            Some(stands) if is_same => stands,
            _ => self.begin_series(parser, line)?,
        };
        if let Err(refusal) = stands {
            // The first sample of the series was counted with the error text.
            if is_same {
                add_dropped_sample(&mut self.refused, DropReason::Refused(refusal), String::new);
            }
            return Ok(());
        }
        let time = sample.time.unwrap_or(self.default_time);
        parser.exemplars(&mut self.exemplars);
        if self.keeps_exemplars {
            exemplars::push_exemplars(&self.exemplars, &sample, time, &mut self.batch)
        } else {
            self.ignored_exemplars += self.exemplars.iter().count() as u64
        }
        match sample.value {
            ExpositionValue::Float(value) => {
                self.lines.push(line);
                self.batch.push_float(time, value);
            }
            ExpositionValue::Histogram(histogram) => {
                histogram.validate()?;
                self.batch.push_histogram(HistogramSample {
                    time,
                    start_time: sample.start.unwrap_or(START_UNKNOWN),
                    histogram: histogram.clone(),
                });
            }
        }
        Ok(())
    }

    /// Ends the current series and starts that of the parser's current sample. Returns whether it
    /// is valid; fails if its labels cannot be parsed.
    fn begin_series(
        &mut self,
        parser: &ExpositionParser<'_>,
        line: u64,
    ) -> Result<Result<(), WriteRejectionReason>, Error> {
        self.end_batch();
        parser.labels(&mut self.pairs)?;
        let extra = &self.extra_labels;
        let is_own = |name: &[u8]| extra.iter().all(|(label, _)| label.as_bytes() != name);
        let own = self.pairs.iter().filter(|(name, _)| is_own(name));
        let extra = extra.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        let pairs: Vec<(&[u8], &[u8])> = own.chain(extra).collect();
        let pushed = push_checked(pairs, &self.limits, self.batch.label_bytes());
        let stands = pushed.map_err(|offence| {
            let reason = DropReason::Refused(offence.refusal);
            let message = || format!("line {line}: {}", offence.message);
            add_dropped_sample(&mut self.refused, reason, message);
            offence.refusal
        });
        self.series = Some(stands);
        Ok(stands)
    }
}
