//! Exemplars of a batch: selects those that can be stored, adds them to the log record, and keeps
//! them in memory once the record is durable.

use super::Appender;
use super::scratch::{AppendScratch, UNINDEXED, UNKNOWN};
use crate::exemplars::ExemplarStorage;
use crate::head::series::{AppendVerdict, AppendWindow};
use crate::ids::SeriesRef;
use crate::sync::lock;
use firn_model::batch::Batch;
use firn_model::exemplar::SeriesExemplars;
use firn_model::labels::Labels;
use firn_model::log::LogPosition;
use firn_model::store::{AppendOutcome, ExemplarRejection, RejectedExemplars};
use std::sync::Arc;

/// Exemplars in a log record that is not durable yet.
#[derive(Debug)]
pub(super) struct AdmittedExemplars {
    exemplars: SeriesExemplars,
    kept: Arc<ExemplarStorage>,
}

impl AdmittedExemplars {
    /// Stores the exemplars in memory. Called when the record at `position` is durable.
    pub(super) fn store(&self, position: LogPosition) {
        self.kept.add(&self.exemplars, position);
    }
}

impl Appender {
    /// Adds the exemplars of `batch` that pass the checks to its log record, and counts rejected
    /// ones in `appended`. `scratch` contains the outcome of each sample of the batch.
    #[inline]
    pub(super) fn admit_exemplars(
        &self,
        scratch: &mut AppendScratch,
        batch: &Batch,
        window: AppendWindow,
        appended: &mut AppendOutcome,
    ) -> Option<Box<AdmittedExemplars>> {
        if batch.exemplars().is_empty() || !self.parts.exemplars.is_on() {
            None
        } else {
            self.admit_some(scratch, batch, window, appended)
        }
    }

    #[cold]
    fn admit_some(
        &self,
        scratch: &mut AppendScratch,
        batch: &Batch,
        window: AppendWindow,
        appended: &mut AppendOutcome,
    ) -> Option<Box<AdmittedExemplars>> {
        let mut offered = SeriesExemplars::default();
        let mut offered_of = Vec::new();
        let mut refuse = |series: u64, refusal| {
            let series = series as usize;
            let first = || (self.series_labels(scratch, batch, series), series);
            count_rejected(&mut appended.refused_exemplars, refusal, first);
        };
        for (series, exemplar) in batch.exemplars().iter() {
            if batch.is_refused(series as usize) {
                continue;
            }
            let slot = self.slot_for_exemplars(scratch, batch, series as usize);
            match slot {
                None => {
                    self.parts.exemplars.count_without_series();
                    refuse(series, ExemplarRejection::NoSeries);
                }
                Some(_) if exemplar.time > window.max => {
                    self.parts.exemplars.count_too_far_in_future();
                    refuse(series, ExemplarRejection::TooFarInFuture);
                }
                Some(slot) => {
                    offered.push(self.parts.head.numbers.slot(slot).0, exemplar);
                    offered_of.push(series);
                }
            }
        }
        let exemplars = self.parts.exemplars.admit(&offered, |number, refusal| {
            refuse(offered_of[number], refusal);
        });
        scratch.record.exemplars.clone_from(&exemplars);
        (!exemplars.is_empty()).then(|| {
            Box::new(AdmittedExemplars {
                exemplars,
                kept: self.parts.exemplars.clone(),
            })
        })
    }

    /// Returns the labels of series `i` of the batch, from the index if the batch has only its key.
    fn series_labels(&self, scratch: &AppendScratch, batch: &Batch, i: usize) -> Labels {
        match batch.key(i) {
            Some(_) if scratch.slots[i] != UNINDEXED => self
                .parts
                .head
                .index
                .dictionary
                .series_labels(scratch.slots[i]),
            _ => batch.series(i).labels.to_owned(),
        }
    }

    /// Returns the slot of series `i` of the batch for its exemplars. Returns `None` if the series
    /// is not in the head, or if the batch has samples of it and all of them were rejected.
    fn slot_for_exemplars(
        &self,
        scratch: &AppendScratch,
        batch: &Batch,
        i: usize,
    ) -> Option<SeriesRef> {
        let samples = batch.series(i);
        let (floats, histograms) = batch.offsets(i);
        let floats = &scratch.floats[floats..floats + samples.times.len()];
        let histograms = &scratch.histograms[histograms..histograms + samples.histograms.len()];
        let mut verdicts = floats
            .iter()
            .map(|o| o.verdict)
            .chain(histograms.iter().copied());
        let has_samples = !floats.is_empty() || !histograms.is_empty();
        if has_samples && verdicts.all(|verdict| matches!(verdict, AppendVerdict::Refused(_))) {
            return None;
        }
        if scratch.slots[i] != UNINDEXED {
            return Some(scratch.slots[i]);
        }
        // Senders put exemplars into a separate entry after the samples, with the same labels.
        let shard = lock(&self.parts.head.shards[self.parts.head.shard_of(scratch.prints[i])]);
        let local = shard.find(scratch.prints[i], UNKNOWN)?;
        shard.series(local).map(|series| series.slot)
    }
}

/// Counts one rejected exemplar under its reason, with the series of the first one: its labels and
/// its index in the batch.
fn count_rejected(
    refused: &mut Vec<RejectedExemplars>,
    refusal: ExemplarRejection,
    first: impl FnOnce() -> (Labels, usize),
) {
    match refused.iter_mut().find(|known| known.refusal == refusal) {
        Some(known) => known.count += 1,
        None => {
            let (first_labels, first_series) = first();
            refused.push(RejectedExemplars {
                refusal,
                count: 1,
                first_labels,
                first_series,
            });
        }
    }
}
