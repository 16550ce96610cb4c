//! Late samples: samples that are older than the newest one of their series.
//!
//! The rules are upstream's (`tsdb/head_append.go`). A late sample is accepted if it is within the
//! out-of-order window, counted from the newest sample of the store; otherwise it is too old. A
//! different value at the time of the newest sample of the series is a duplicate and is rejected,
//! unless the store is configured to keep another value than the first. If the caller accepts only
//! samples in order, late samples are rejected as out of order.

use super::Appender;
use super::scratch::AppendScratch;
use crate::chunk::{ChunkSample, DuplicatePolicy};
use crate::error::StorageError;
use crate::head::late::{LateAdmission, LateRow};
use crate::head::series::{AppendVerdict, AppendWindow};
use crate::head::shard::HeadShard;
use crate::ids::SeriesRef;
use firn_model::batch::Batch;
use firn_model::error::Error;
use firn_model::sample::{START_UNKNOWN, TimestampMs, is_stale};
use firn_model::store::{LateSamplePolicy, SampleRejection};
use std::sync::Arc;

/// Counts of the late samples of one batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LateCounts {
    taken: u64,
    /// Samples at the time of another late sample.
    repeated: u64,
    /// Samples rejected because too many late samples are in memory.
    refused: u64,
}

impl Appender {
    /// Stores those rejected samples of series `i` that may be late. Updates the verdict of the
    /// others with the reason for the rejection.
    #[cold]
    pub(super) fn append_late(
        &self,
        shard: &mut HeadShard,
        scratch: &mut AppendScratch,
        i: usize,
        batch: &Batch,
        window: AppendWindow,
        sequence: u64,
    ) {
        let local = scratch.locals[i];
        let samples = batch.series(i);
        let (floats, histograms) = batch.offsets(i);
        let Some(series) = shard.series(local) else {
            return;
        };
        let slot = series.slot;
        let is_first = !series.has_newest() && !shard.late.has(local);
        let mut is_any = false;
        let mut take =
            |verdict: &mut AppendVerdict, time, start, value: &dyn Fn() -> ChunkSample| {
                if !self.judge_late(verdict, slot, time, window) {
                    return;
                }
                let (value, duplicates) = (value(), self.parts.options.duplicates);
                if !may_be_late(&value, window.late) {
                    *verdict = AppendVerdict::Refused(SampleRejection::OutOfOrder);
                    return;
                }
                if self.late_bytes() > self.late_bytes_max() {
                    scratch.late.refused += 1;
                    return;
                }
                let row = LateRow {
                    time,
                    sequence,
                    value,
                };
                let admission = shard
                    .late
                    .add_unless_duplicate(local, row, start, duplicates);
                scratch.late.repeated += u64::from(admission != LateAdmission::New);
                *verdict = AppendVerdict::Known;
                if admission != LateAdmission::Known {
                    *verdict = AppendVerdict::Late;
                    scratch.oldest = scratch.oldest.min(time);
                    scratch.late.taken += 1;
                    is_any = true;
                    self.parts
                        .head
                        .index
                        .mark_late(&mut scratch.marker, slot, time);
                }
            };
        for (k, (time, value)) in samples.times.iter().zip(samples.values).enumerate() {
            let start = samples.start_times.get(k).copied().unwrap_or(START_UNKNOWN);
            let verdict = &mut scratch.floats[floats + k].verdict;
            take(verdict, *time, start, &|| ChunkSample::Float(*value));
        }
        for (k, sample) in samples.histograms.iter().enumerate() {
            let value = || ChunkSample::Histogram(Arc::new(sample.histogram.clone()));
            let verdict = &mut scratch.histograms[histograms + k];
            take(verdict, sample.time, sample.start_time, &value);
        }
        if is_any && is_first {
            scratch.created.push(i as u32);
        }
    }

    /// Returns whether a sample that was rejected in order is late. If it is rejected for another
    /// reason now, sets `verdict` to that reason.
    ///
    /// A sample at the time of a deleted one is a new sample, even if it has the same value.
    fn judge_late(
        &self,
        verdict: &mut AppendVerdict,
        slot: SeriesRef,
        time: TimestampMs,
        window: AppendWindow,
    ) -> bool {
        let rejection = match *verdict {
            AppendVerdict::Refused(rejection) => rejection,
            AppendVerdict::Known if self.is_deleted(slot, time) => SampleRejection::OutOfOrder,
            AppendVerdict::Known | AppendVerdict::Stored | AppendVerdict::Late => return false,
        };
        let is_late = match rejection {
            SampleRejection::OutOfOrder | SampleRejection::OutOfBounds => true,
            SampleRejection::DuplicateTimestamp => {
                self.parts.options.duplicates != DuplicatePolicy::KeepFirst
                    || self.is_deleted(slot, time)
            }
            SampleRejection::TooOld
            | SampleRejection::TooFarInFuture
            | SampleRejection::SeriesLimit
            | SampleRejection::ActiveSeriesLimit
            | SampleRejection::NewSeriesLimit
            | SampleRejection::JobSeriesLimit => false,
        };
        if !is_late {
            return false;
        }
        if time < window.late_min {
            *verdict = AppendVerdict::Refused(SampleRejection::TooOld);
            return false;
        }
        true
    }

    /// Returns whether the in-order sample of a series at `time` is deleted.
    fn is_deleted(&self, slot: SeriesRef, time: TimestampMs) -> bool {
        let view = self.parts.blocks.view();
        let deleted = &view.tombstones.in_order;
        !deleted.is_empty() && deleted.has(self.parts.head.numbers.slot(slot).0, time)
    }

    /// Returns the memory of all late samples, in bytes.
    fn late_bytes(&self) -> usize {
        usize::try_from(self.parts.metrics.late_memory.get()).unwrap_or(0)
    }

    /// Returns the memory, in bytes, above which late samples are rejected: twice the size at which
    /// they become due for a flush.
    fn late_bytes_max(&self) -> usize {
        self.parts.options.late_bytes_max().saturating_mul(2)
    }

    /// Adds the counts of late samples of a batch to the metrics. Returns an error if some samples
    /// were rejected for lack of memory: the sender must repeat the batch, whose other samples are
    /// stored and will then count as duplicates.
    pub(super) fn finish_late_counts(&self, scratch: &mut AppendScratch) -> Option<Error> {
        let counts = std::mem::take(&mut scratch.late);
        self.parts.metrics.late_samples.add(counts.taken);
        self.parts.metrics.late_repeated.add(counts.repeated);
        self.parts.metrics.late_refused.add(counts.refused);
        (counts.refused > 0).then(|| {
            let (bytes, limit) = (self.late_bytes(), self.late_bytes_max());
            StorageError::LateBacklog { bytes, limit }.into()
        })
    }
}

/// Returns whether the caller permits a late sample with this value.
fn may_be_late(value: &ChunkSample, late: LateSamplePolicy) -> bool {
    match (late, value) {
        (LateSamplePolicy::All | LateSamplePolicy::OfAnyAge, _) => true,
        (LateSamplePolicy::AllButStale, ChunkSample::Histogram(_)) => true,
        (LateSamplePolicy::AllButStale, ChunkSample::Float(value)) => !is_stale(*value),
        (LateSamplePolicy::Nothing, _) => false,
    }
}
