//! The write path of the store: appends a batch of samples to the head and writes it to the log.
//!
//! ```text
//! fingerprints -> lookup, shard by shard -> labels of unknown series -> creation, in batch order
//! -> append, shard by shard, under one sequence number -> one log record -> durable -> visible
//! ```
//!
//! A series is found by the fingerprint of its key, so the labels of an existing series are not
//! read. A sender may encode equal labels in another order or form. Such a key has a different
//! fingerprint: its labels are read, encoded in the key format of the store, and looked up again.
//!
//! Series are created in the order of the batch, so that the series of a target get neighbouring
//! slots. The creation is logged by the batch that stores the first sample of the series, which may
//! differ from the batch that created it; a batch that is acked later waits for that record.
//!
//! The append pass enters every shard in the same order and releases the lock of a shard only after
//! it holds the next one. Batches therefore never overtake each other, each shard sees ascending
//! sequence numbers, and several batches can be in progress in different shards.

mod creation;
mod exemplars;
mod late;
mod scratch;
mod series_budget;
#[cfg(test)]
mod tests;

use crate::failpoints;
use crate::head::series::{AppendVerdict, AppendWindow, MemSeries, SampleValueRef};
use crate::head::shard::{HeadShard, WARM};
use crate::head::watermark::SequenceGuard;
use crate::ids::{SeriesRef, ShardLocalId};
use crate::index::{EPOCH_MS, EpochLeafCache, epoch_from_time};
use crate::maintenance::Maintenance;
use crate::parts::StoreParts;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, lock};
use exemplars::AdmittedExemplars;
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::Error;
use firn_model::log::{DurableCallbacks, LogBatch};
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::store::{AppendBounds, AppendOutcome, Ticket};
use scratch::{AppendScratch, FloatAppendOutcome};
use series_budget::SeriesBudgetWindow;
use std::sync::Arc;

/// Appends batches: finds or creates their series, fills the head, and passes records to the log.
/// Created by the store; one per store, used by all writers at once.
pub(crate) struct Appender {
    parts: Arc<StoreParts>,
    maintenance: Arc<Maintenance>,
    /// Working memory of finished appends, reused by the next ones.
    scratch: Mutex<Vec<AppendScratch>>,
    budget: Mutex<SeriesBudgetWindow>,
}

impl Appender {
    /// Returns an appender to the head and log in `parts`. `maintenance` is notified after each
    /// append, so that it can seal and flush.
    pub(crate) fn new(parts: Arc<StoreParts>, maintenance: Arc<Maintenance>) -> Self {
        Self {
            parts,
            maintenance,
            scratch: Mutex::default(),
            budget: Mutex::default(),
        }
    }

    /// Returns the jobs with rejected new series in the current window, each with its number of
    /// rejections.
    pub(crate) fn list_rejected_jobs(&self) -> Vec<(String, u64)> {
        lock(&self.budget).list_rejected_jobs()
    }

    /// Returns an error if a batch would be rejected now: the log accepts no records, or sealing
    /// lags too far behind.
    pub(crate) fn check_admission(&self) -> Result<(), Error> {
        self.parts.log.check_append()?;
        self.parts.check_sealing_lag()
    }

    pub(crate) fn append_batch(
        &self,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        // The caller of a batch with a journal was admitted before it changed its state.
        if source.batch().journal().is_empty()
            && let Err(e) = self.check_admission()
        {
            return Ticket::resolved(Err(e));
        }
        if let Err(e) = self.read_foreign_keys(source) {
            return Ticket::resolved(Err(e));
        }
        let mut scratch = lock(&self.scratch).pop().unwrap_or_default();
        let window = self
            .parts
            .head
            .window(bounds, || first_time(source.batch()));
        scratch.begin(&self.parts, source);
        self.find_batch_series(&mut scratch);
        let ticket = match self.read_labels(&mut scratch, source) {
            Ok(()) => {
                let batch = source.batch();
                failpoints::turn();
                self.create_missing(&mut scratch, batch, window);
                failpoints::turn();
                let taken = self.append_samples(&mut scratch, batch, window);
                failpoints::turn();
                let mut appended = scratch.fill_record(&self.parts, batch, taken.sequence);
                if !appended.rejected.is_empty() {
                    let limits = self.parts.series_limits.get();
                    for rejected in &mut appended.rejected {
                        rejected.limit = limits.of(rejected.rejection);
                    }
                }
                let refusal = self.finish_late_counts(&mut scratch);
                self.parts
                    .metrics
                    .appended_samples
                    .add(appended.stored as u64);
                let exemplars = self.admit_exemplars(&mut scratch, batch, window, &mut appended);
                let record = std::mem::take(&mut scratch.record);
                self.append_to_log(taken, record, appended, refusal, exemplars)
            }
            Err(e) => {
                self.end_appending(&scratch);
                Ticket::resolved(Err(e))
            }
        };
        let mut spare = lock(&self.scratch);
        // More than one per appending thread would never be used.
        if spare.len() < self.parts.env.compute.threads() {
            spare.push(scratch);
        }
        drop(spare);
        self.maintenance.run_after_append();
        ticket
    }

    /// Reads all labels of the batch if its keys have another format than those of the store,
    /// because their fingerprints cannot match.
    fn read_foreign_keys(&self, source: &mut dyn BatchSource) -> Result<(), Error> {
        if source.batch().has_key_format(self.parts.options.key_format) {
            return Ok(());
        }
        let all: Vec<u32> = (0..source.batch().series_count() as u32).collect();
        source.read_labels(&all)
    }

    /// Finds the series of the batch in the head, and counts the batch as appending in each shard
    /// it touches. Series that are not found keep the place `UNKNOWN`, and their labels will be
    /// read.
    fn find_batch_series(&self, scratch: &mut AppendScratch) {
        scratch.wanted.clear();
        for (number, shard) in self.parts.head.shards.iter().enumerate() {
            let group = scratch.shard_range(number);
            if group.is_empty() {
                continue;
            }
            let mut shard = lock(shard);
            shard.appending += 1;
            let (mut guess, mut warm) = (ShardLocalId(0), 0);
            for i in group.clone() {
                let at = scratch.grouped[i] as usize;
                let found = shard.find(scratch.prints[at], guess);
                let series = found.and_then(|local| Some((local, shard.series(local)?)));
                let Some((local, series)) = series else {
                    scratch.wanted.push(at as u32);
                    // An unknown series is usually followed by more of them.
                    if i >= warm {
                        warm = group.end.min(i + 1 + WARM);
                        let next = &scratch.grouped[i + 1..warm];
                        shard.prefetch_cells(next.iter().map(|at| scratch.prints[*at as usize]));
                    }
                    continue;
                };
                scratch.locals[at] = local;
                // Batches of a target have a stable order, in which its series were created.
                guess = ShardLocalId(local.0 + 1);
                scratch.slots[at] = series.slot;
                if !series.has_newest() {
                    scratch.wanted.push(at as u32);
                }
            }
        }
    }

    /// Undoes the count of appending batches that [`Appender::find_batch_series`] incremented in
    /// each shard.
    fn end_appending(&self, scratch: &AppendScratch) {
        for (number, shard) in self.parts.head.shards.iter().enumerate() {
            if !scratch.shard_range(number).is_empty() {
                lock(shard).end_appending();
            }
        }
    }

    /// Appends the samples under one sequence number, which it returns.
    fn append_samples(
        &self,
        scratch: &mut AppendScratch,
        batch: &Batch,
        mut window: AppendWindow,
    ) -> SequenceGuard {
        let (mut newest, mut oldest) = (i64::MIN, i64::MAX);
        let mut taken: Option<SequenceGuard> = None;
        let mut held: Option<MutexGuard<'_, HeadShard>> = None;
        for (number, shard) in self.parts.head.shards.iter().enumerate() {
            let mut shard = lock(shard);
            // Only now may the next batch enter the previous shard, so that it cannot overtake this
            // one.
            drop(held.take());
            // The number and the floor are read under the lock of the first shard: see
            // `StoreHead::raise_in_order_min`.
            let begin = || {
                window.min = window
                    .min
                    .max(self.parts.head.floor.load(Ordering::Relaxed));
                self.parts.head.watermark.begin_batch()
            };
            let sequence = taken.get_or_insert_with(begin).sequence;
            let group = scratch.shard_range(number);
            if !group.is_empty() {
                let late_bytes = shard.late.memory_bytes();
                shard.end_appending();
                for i in group {
                    let i = scratch.grouped[i] as usize;
                    let sole = self.append_sole(&mut shard, scratch, i, batch, window, sequence);
                    oldest = oldest.min(sole.unwrap_or(i64::MAX));
                    let stored_to = sole.unwrap_or_else(|| {
                        self.append_series(&mut shard, scratch, i, batch, window, sequence)
                    });
                    newest = newest.max(stored_to);
                }
                shard.end_batch(sequence, self.parts.head.watermark.visible_to_all());
                let grown = shard.late.memory_bytes() as i64 - late_bytes as i64;
                if grown != 0 {
                    self.parts.metrics.late_memory.add(grown);
                }
            }
            held = Some(shard);
        }
        self.parts.head.newest.fetch_max(newest, Ordering::Relaxed);
        let taken = taken.expect("a store has at least one shard");
        let oldest = oldest.min(scratch.oldest);
        if oldest != i64::MAX {
            // Before the batch becomes visible.
            self.parts.head.batch_times.record(taken.sequence, oldest);
        }
        taken
    }

    /// Appends the only sample of a series to its open chunk and returns the time of the sample.
    /// This is the fast path for a series with one float, which covers nearly all series of a
    /// batch. Returns `None` without effect for all others; the caller must then call
    /// [`Appender::append_series`].
    #[inline]
    fn append_sole(
        &self,
        shard: &mut HeadShard,
        scratch: &mut AppendScratch,
        i: usize,
        batch: &Batch,
        window: AppendWindow,
        sequence: u64,
    ) -> Option<TimestampMs> {
        let (time, value) = batch.single_float(i)?;
        let local = scratch.locals[i];
        let series = shard.series_mut(local)?;
        let before = NewestSampleEpoch::from_series(series);
        let is_in_window = (window.min..=window.max).contains(&time);
        if before.is_none || time >= before.end || !is_in_window {
            return None;
        }
        let bytes = series.push_sole(time, value)?;
        series.last_sequence = sequence as u32;
        scratch.floats[batch.offsets(i).0] = FloatAppendOutcome::from_stored(series);
        shard.chunk_bytes += bytes;
        shard.record_append(local, 1);
        Some(time)
    }

    /// Appends all samples of a series, in order or late. Returns the newest stored time, or
    /// `i64::MIN` if no sample was stored in order.
    fn append_series(
        &self,
        shard: &mut HeadShard,
        scratch: &mut AppendScratch,
        i: usize,
        batch: &Batch,
        window: AppendWindow,
        sequence: u64,
    ) -> TimestampMs {
        let samples = batch.series(i);
        let local = scratch.locals[i];
        let (floats, histograms) = batch.offsets(i);
        let Some(series) = shard.series_mut(local) else {
            scratch.reject_missing(i, batch, window);
            return i64::MIN;
        };
        let is_first = !series.has_newest();
        let closed = series.closed().len();
        let before_bytes = series.bytes_since(closed);
        let mut stored = 0;
        for (k, (time, value)) in samples.times.iter().zip(samples.values).enumerate() {
            let start = samples.start_times.get(k).copied().unwrap_or(START_UNKNOWN);
            let epoch = NewestSampleEpoch::from_series(series);
            let verdict = series.append(window, *time, start, SampleValueRef::Float(*value));
            scratch.floats[floats + k].verdict = verdict;
            if verdict == AppendVerdict::Stored {
                stored += 1;
                scratch.oldest = scratch.oldest.min(*time);
                scratch.floats[floats + k] = FloatAppendOutcome::from_stored(series);
                self.mark_new_epoch(&mut scratch.marker, series.slot, epoch, *time);
            }
        }
        for (k, sample) in samples.histograms.iter().enumerate() {
            let epoch = NewestSampleEpoch::from_series(series);
            let value = SampleValueRef::Histogram(&sample.histogram);
            let verdict = series.append(window, sample.time, sample.start_time, value);
            scratch.histograms[histograms + k] = verdict;
            if verdict == AppendVerdict::Stored {
                stored += 1;
                scratch.oldest = scratch.oldest.min(sample.time);
                self.mark_new_epoch(&mut scratch.marker, series.slot, epoch, sample.time);
            }
        }
        let newest = match stored {
            0 => i64::MIN,
            _ => {
                if is_first {
                    scratch.created.push(i as u32);
                }
                series.last_sequence = sequence as u32;
                let newest = series.open.last_time();
                let after_bytes = series.bytes_since(closed);
                shard.chunk_bytes = shard.chunk_bytes + after_bytes - before_bytes;
                shard.record_append(local, stored);
                newest
            }
        };
        let all = samples.times.len() + samples.histograms.len();
        if window.takes_late() && (stored as usize) < all {
            self.append_late(shard, scratch, i, batch, window, sequence);
        }
        newest
    }

    /// Records in the index that the series has a sample in the epoch of `time`, unless its
    /// previous sample is in the same epoch.
    #[inline]
    fn mark_new_epoch(
        &self,
        marker: &mut EpochLeafCache,
        slot: SeriesRef,
        before: NewestSampleEpoch,
        time: TimestampMs,
    ) {
        if time >= before.end || before.is_none {
            self.parts
                .head
                .index
                .mark_sample_cached(marker, slot, epoch_from_time(time));
        }
    }

    /// Appends the record to the log. The returned ticket resolves when the record is durable and
    /// visible to readers.
    fn append_to_log(
        &self,
        taken: SequenceGuard,
        record: LogBatch,
        appended: AppendOutcome,
        refusal: Option<Error>,
        exemplars: Option<Box<AdmittedExemplars>>,
    ) -> Ticket {
        let (ticket, resolver) = Ticket::new();
        if let Some(refusal) = refusal {
            resolver.reject_early(refusal);
        }
        if record.is_empty() {
            taken.complete(None, resolver, appended);
            return ticket;
        }
        let (early, watermark) = (resolver.early_rejecter(), self.parts.head.watermark.clone());
        let mark = (!record.journal.is_empty()).then_some(record.journal.mark);
        let journal = self.parts.journal.clone();
        let done = DurableCallbacks::new(move |outcome| match outcome {
            Ok(position) => {
                if let Some(exemplars) = exemplars {
                    exemplars.store(position);
                }
                if let Some(mark) = mark {
                    journal.register_record(mark, position);
                }
                taken.complete(Some(position), resolver, appended);
            }
            Err(e) => taken.fail(e, resolver),
        });
        let done = done.or_delayed(move |reason| {
            watermark.record_delay(&reason);
            early.reject(reason);
        });
        self.parts.log.append(record, done);
        ticket
    }
}

/// Returns the time of the first sample of a batch, float or histogram.
fn first_time(batch: &Batch) -> Option<TimestampMs> {
    batch.iter().find_map(|series| {
        let of_histogram = || series.histograms.first().map(|sample| sample.time);
        series.times.first().copied().or_else(of_histogram)
    })
}

/// End of the epoch that contains the newest sample of a series, read before the next append.
#[derive(Clone, Copy)]
struct NewestSampleEpoch {
    end: TimestampMs,
    is_none: bool,
}

impl NewestSampleEpoch {
    #[inline]
    fn from_series(series: &MemSeries) -> Self {
        Self {
            end: (epoch_from_time(series.open.last_time()) + 1).saturating_mul(EPOCH_MS),
            is_none: !series.has_newest(),
        }
    }
}
