//! Samples that their series cannot append in order, on their way into the late ones.
//!
//! Upstream's rules (`tsdb/head_append.go`): such a sample is late if it is not further behind the
//! newest of the store than the window says, else it is too old. Another value at the time of the
//! newest sample of the series is a duplicate and refused, unless the store is told to keep others
//! than the first. What the caller wants in order or not at all is refused as out of order.

use super::Appender;
use super::scratch::Scratch;
use crate::chunk::{Duplicates, Sample};
use crate::error::StorageError;
use crate::head::late::{Admission, LateRow};
use crate::head::series::{Verdict, Window};
use crate::head::shard::Shard;
use firn_model::batch::Batch;
use firn_model::error::Error;
use firn_model::sample::{START_UNKNOWN, TimestampMs, is_stale};
use firn_model::store::{Rejection, TakeLate};
use std::sync::Arc;

/// Late samples of a batch, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LateCounts {
    taken: u64,
    /// At the time of another late one.
    repeated: u64,
    /// Because too many are in memory.
    refused: u64,
}

impl Appender {
    /// Takes those samples of series `i` late that were refused and may be; says of the others why
    /// they are not taken.
    #[cold]
    pub(super) fn append_late(
        &self,
        shard: &mut Shard,
        scratch: &mut Scratch,
        i: usize,
        batch: &Batch,
        window: Window,
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
        let mut take = |verdict: &mut Verdict, time, start, value: &dyn Fn() -> Sample| {
            if !self.judge_late(verdict, time, window) {
                return;
            }
            let (value, duplicates) = (value(), self.options.duplicates);
            if !may_be_late(&value, window.late) {
                *verdict = Verdict::Refused(Rejection::OutOfOrder);
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
            let admission = shard.late.admit(local, row, start, duplicates);
            scratch.late.repeated += u64::from(admission != Admission::New);
            *verdict = Verdict::Known;
            if admission != Admission::Known {
                *verdict = Verdict::Late;
                scratch.late.taken += 1;
                is_any = true;
                self.index.mark_late(&mut scratch.marker, slot, time);
            }
        };
        for (k, (time, value)) in samples.times.iter().zip(samples.values).enumerate() {
            let start = samples.start_times.get(k).copied().unwrap_or(START_UNKNOWN);
            let verdict = &mut scratch.floats[floats + k].verdict;
            take(verdict, *time, start, &|| Sample::Float(*value));
        }
        for (k, sample) in samples.histograms.iter().enumerate() {
            let value = || Sample::Histogram(Arc::new(sample.histogram.clone()));
            let verdict = &mut scratch.histograms[histograms + k];
            take(verdict, sample.time, sample.start_time, &value);
        }
        if is_any && is_first {
            scratch.created.push(i as u32);
        }
    }

    /// Whether a sample that was judged is late; if it is refused for another reason now, `verdict`
    /// says so.
    fn judge_late(&self, verdict: &mut Verdict, time: TimestampMs, window: Window) -> bool {
        let Verdict::Refused(rejection) = *verdict else {
            return false;
        };
        let is_late = match rejection {
            Rejection::OutOfOrder | Rejection::OutOfBounds => true,
            Rejection::DuplicateTimestamp => self.options.duplicates != Duplicates::KeepFirst,
            Rejection::TooOld | Rejection::TooFarInFuture | Rejection::SeriesLimit => false,
        };
        if !is_late {
            return false;
        }
        if time < window.late_min {
            *verdict = Verdict::Refused(Rejection::TooOld);
            return false;
        }
        true
    }

    /// Bytes of the late samples in memory.
    fn late_bytes(&self) -> usize {
        usize::try_from(self.metrics.late_memory.get()).unwrap_or(0)
    }

    /// Beyond so many bytes late samples are refused: twice what makes them due to leave.
    fn late_bytes_max(&self) -> usize {
        self.options.late_bytes_max().saturating_mul(2)
    }

    /// Counts the late samples of a batch, and says why it must be sent again if some of them found
    /// no room: the rest of it is stored, and is known then.
    pub(super) fn end_late(&self, scratch: &mut Scratch) -> Option<Error> {
        let counts = std::mem::take(&mut scratch.late);
        self.metrics.late_samples.add(counts.taken);
        self.metrics.late_repeated.add(counts.repeated);
        self.metrics.late_refused.add(counts.refused);
        (counts.refused > 0).then(|| {
            let (bytes, limit) = (self.late_bytes(), self.late_bytes_max());
            StorageError::LateBacklog { bytes, limit }.into()
        })
    }
}

/// Whether the caller lets a sample with this value be late.
fn may_be_late(value: &Sample, late: TakeLate) -> bool {
    match (late, value) {
        (TakeLate::All | TakeLate::OfAnyAge, _) => true,
        (TakeLate::AllButStale, Sample::Histogram(_)) => true,
        (TakeLate::AllButStale, Sample::Float(value)) => !is_stale(*value),
        (TakeLate::Nothing, _) => false,
    }
}
