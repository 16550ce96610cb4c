//! The way of a batch's exemplars into its log record, and from there to those that are kept.

use super::Appender;
use super::scratch::{Scratch, UNINDEXED, UNKNOWN};
use crate::exemplars::Exemplars;
use crate::head::series::{Verdict, Window};
use crate::ids::SeriesRef;
use crate::sync::lock;
use firn_model::batch::Batch;
use firn_model::exemplar::SeriesExemplars;
use firn_model::labels::Labels;
use firn_model::log::Position;
use firn_model::store::{Appended, ExemplarRefusal, RefusedExemplars};
use std::sync::Arc;

/// Exemplars on their way through the log.
#[derive(Debug)]
pub(super) struct Admitted {
    exemplars: SeriesExemplars,
    kept: Arc<Exemplars>,
}

impl Admitted {
    /// Keeps them, now that the record at `position` is durable.
    pub(super) fn keep(&self, position: Position) {
        self.kept.add(&self.exemplars, position);
    }
}

impl Appender {
    /// Puts the exemplars of `batch` that are to be kept into its record; what was applied of the
    /// batch is in `scratch`.
    #[inline]
    pub(super) fn admit_exemplars(
        &self,
        scratch: &mut Scratch,
        batch: &Batch,
        window: Window,
        appended: &mut Appended,
    ) -> Option<Box<Admitted>> {
        match batch.exemplars().is_empty() || !self.exemplars.is_on() {
            true => None,
            false => self.admit_some(scratch, batch, window, appended),
        }
    }

    #[cold]
    fn admit_some(
        &self,
        scratch: &mut Scratch,
        batch: &Batch,
        window: Window,
        appended: &mut Appended,
    ) -> Option<Box<Admitted>> {
        let mut offered = SeriesExemplars::default();
        let mut offered_of = Vec::new();
        let mut refuse = |series: u64, refusal| {
            let labels = || self.labels_of(scratch, batch, series as usize);
            note(&mut appended.refused_exemplars, refusal, labels);
        };
        for (series, exemplar) in batch.exemplars().iter() {
            if batch.is_refused(series as usize) {
                continue;
            }
            let slot = self.slot_for_exemplars(scratch, batch, series as usize);
            match slot {
                None => {
                    self.exemplars.count_without_series();
                    refuse(series, ExemplarRefusal::NoSeries);
                }
                Some(_) if exemplar.time > window.max => {
                    self.exemplars.count_too_far_in_future();
                    refuse(series, ExemplarRefusal::TooFarInFuture);
                }
                Some(slot) => {
                    offered.push(self.numbers.slot(slot).0, exemplar);
                    offered_of.push(series);
                }
            }
        }
        let exemplars = self.exemplars.admit(&offered, |number, refusal| {
            refuse(offered_of[number], refusal);
        });
        scratch.record.exemplars.clone_from(&exemplars);
        (!exemplars.is_empty()).then(|| {
            Box::new(Admitted {
                exemplars,
                kept: self.exemplars.clone(),
            })
        })
    }

    /// The labels of series number `i` of the batch, read or not.
    fn labels_of(&self, scratch: &Scratch, batch: &Batch, i: usize) -> Labels {
        match batch.key(i) {
            Some(_) if scratch.slots[i] != UNINDEXED => self.index.series_labels(scratch.slots[i]),
            _ => batch.series(i).labels.to_owned(),
        }
    }

    /// The slot of series number `i` of the batch, if it is in the head and its samples, if it has
    /// any here, were not all refused.
    fn slot_for_exemplars(&self, scratch: &Scratch, batch: &Batch, i: usize) -> Option<SeriesRef> {
        let samples = batch.series(i);
        let (floats, histograms) = batch.offsets(i);
        let floats = &scratch.floats[floats..floats + samples.times.len()];
        let histograms = &scratch.histograms[histograms..histograms + samples.histograms.len()];
        let mut verdicts = floats
            .iter()
            .map(|o| o.verdict)
            .chain(histograms.iter().copied());
        let has_samples = !floats.is_empty() || !histograms.is_empty();
        if has_samples && verdicts.all(|verdict| matches!(verdict, Verdict::Refused(_))) {
            return None;
        }
        if scratch.slots[i] != UNINDEXED {
            return Some(scratch.slots[i]);
        }
        // A sender puts exemplars into series of their own: the one before has the same labels.
        let shard = lock(&self.shards[self.shard_of(scratch.prints[i])]);
        let local = shard.find(scratch.prints[i], UNKNOWN)?;
        shard.series(local).map(|series| series.slot)
    }
}

/// Counts an exemplar that was refused.
fn note(
    refused: &mut Vec<RefusedExemplars>,
    refusal: ExemplarRefusal,
    labels: impl Fn() -> Labels,
) {
    match refused.iter_mut().find(|known| known.refusal == refusal) {
        Some(known) => known.count += 1,
        None => refused.push(RefusedExemplars {
            refusal,
            count: 1,
            first_labels: labels(),
        }),
    }
}
