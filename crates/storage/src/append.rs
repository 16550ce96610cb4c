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
use crate::head::series::{Series, Value, Verdict, Window};
use crate::head::shard::{Shard, WARM};
use crate::head::watermark::Taken;
use crate::ids::{Local, SeriesRef};
use crate::index::{EPOCH_MS, Marker, epoch_of};
use crate::maintenance::Maintenance;
use crate::parts::Parts;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, lock};
use exemplars::Admitted;
use firn_model::batch::{Batch, Source};
use firn_model::error::Error;
use firn_model::log::{LogBatch, OnDurable};
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::store::{AppendBounds, Appended, Ticket};
use scratch::{Outcome, Scratch};
use series_budget::SeriesBudget;
use std::sync::Arc;

/// Appends batches: finds or creates their series, fills the head, and passes records to the log.
/// Created by the store; one per store, used by all writers at once.
pub(crate) struct Appender {
    parts: Arc<Parts>,
    maintenance: Arc<Maintenance>,
    /// Working memory of finished appends, reused by the next ones.
    scratch: Mutex<Vec<Scratch>>,
    budget: Mutex<SeriesBudget>,
}

impl std::ops::Deref for Appender {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Appender {
    /// Returns an appender to the head and log in `parts`. `maintenance` is notified after each
    /// append, so that it can seal and flush.
    pub(crate) fn new(parts: Arc<Parts>, maintenance: Arc<Maintenance>) -> Self {
        Self {
            parts,
            maintenance,
            scratch: Mutex::default(),
            budget: Mutex::default(),
        }
    }

    /// Returns the `top` jobs with the most rejected new series in the current window, each with
    /// its number of rejections.
    pub(crate) fn offenders(&self, top: usize) -> Vec<(String, u64)> {
        lock(&self.budget).offenders(top)
    }

    /// Returns an error if a batch would be rejected now: the log accepts no records, or sealing
    /// lags too far behind.
    pub(crate) fn admit(&self) -> Result<(), Error> {
        self.log.admit()?;
        self.admit_behind_sealing()
    }

    pub(crate) fn append_batch(&self, source: &mut dyn Source, bounds: AppendBounds) -> Ticket {
        // The caller of a batch with a journal was admitted before it changed its state.
        if source.batch().journal().is_none()
            && let Err(e) = self.admit()
        {
            return Ticket::ready(Err(e));
        }
        if let Err(e) = self.read_foreign_keys(source) {
            return Ticket::ready(Err(e));
        }
        let mut scratch = lock(&self.scratch).pop().unwrap_or_default();
        let window = self.window(bounds, || first_time(source.batch()));
        scratch.begin(self, source);
        self.look_up(&mut scratch);
        let ticket = match self.read_labels(&mut scratch, source) {
            Ok(()) => {
                let batch = source.batch();
                failpoints::turn();
                self.create_missing(&mut scratch, batch, window);
                failpoints::turn();
                let taken = self.apply(&mut scratch, batch, window);
                failpoints::turn();
                let mut appended = scratch.fill_record(self, batch, taken.sequence);
                let refusal = self.end_late(&mut scratch);
                self.metrics.appended_samples.add(appended.stored as u64);
                let exemplars = self.admit_exemplars(&mut scratch, batch, window, &mut appended);
                let record = std::mem::take(&mut scratch.record);
                self.hand_to_log(taken, record, (appended, refusal), exemplars)
            }
            Err(e) => {
                self.leave(&scratch);
                Ticket::ready(Err(e))
            }
        };
        let mut spare = lock(&self.scratch);
        // More than one per appending thread would never be used.
        if spare.len() < self.env.compute.threads() {
            spare.push(scratch);
        }
        drop(spare);
        self.maintenance.after_append();
        ticket
    }

    /// Reads all labels of the batch if its keys have another format than those of the store,
    /// because their fingerprints cannot match.
    fn read_foreign_keys(&self, source: &mut dyn Source) -> Result<(), Error> {
        if source.batch().has_keys_of(self.options.key_format) {
            return Ok(());
        }
        let all: Vec<u32> = (0..source.batch().series_count() as u32).collect();
        source.read_labels(&all)
    }

    /// Finds the series of the batch in the head, and counts the batch as appending in each shard
    /// it touches. Series that are not found keep the place `UNKNOWN`, and their labels will be
    /// read.
    fn look_up(&self, scratch: &mut Scratch) {
        scratch.wanted.clear();
        for (number, shard) in self.shards.iter().enumerate() {
            let group = scratch.group(number);
            if group.is_empty() {
                continue;
            }
            let mut shard = lock(shard);
            shard.appending += 1;
            let (mut guess, mut warm) = (Local(0), 0);
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
                        shard.warm(next.iter().map(|at| scratch.prints[*at as usize]));
                    }
                    continue;
                };
                scratch.locals[at] = local;
                // Batches of a target have a stable order, in which its series were created.
                guess = Local(local.0 + 1);
                scratch.slots[at] = series.slot;
                if !series.has_newest() {
                    scratch.wanted.push(at as u32);
                }
            }
        }
    }

    /// Undoes the count of appending batches that [`Appender::look_up`] incremented in each shard.
    fn leave(&self, scratch: &Scratch) {
        for (number, shard) in self.shards.iter().enumerate() {
            if !scratch.group(number).is_empty() {
                lock(shard).appending -= 1;
            }
        }
    }

    /// Appends the samples under one sequence number, which it returns.
    fn apply(&self, scratch: &mut Scratch, batch: &Batch, mut window: Window) -> Taken {
        let mut newest = i64::MIN;
        let mut taken: Option<Taken> = None;
        let mut held: Option<MutexGuard<'_, Shard>> = None;
        for (number, shard) in self.shards.iter().enumerate() {
            let mut shard = lock(shard);
            // Only now may the next batch enter the previous shard, so that it cannot overtake this
            // one.
            drop(held.take());
            // The number and the floor are read under the lock of the first shard: see
            // `Parts::raise_floor`.
            let begin = || {
                window.min = window.min.max(self.floor.load(Ordering::Relaxed));
                self.watermark.next()
            };
            let sequence = taken.get_or_insert_with(begin).sequence;
            let group = scratch.group(number);
            if !group.is_empty() {
                let late_bytes = shard.late.memory_bytes();
                shard.appending -= 1;
                for i in group {
                    let i = scratch.grouped[i] as usize;
                    let stored_to = self
                        .append_sole(&mut shard, scratch, i, batch, window, sequence)
                        .unwrap_or_else(|| {
                            self.append_series(&mut shard, scratch, i, batch, window, sequence)
                        });
                    newest = newest.max(stored_to);
                }
                shard.end_batch(sequence, self.watermark.floor());
                let grown = shard.late.memory_bytes() as i64 - late_bytes as i64;
                if grown != 0 {
                    self.metrics.late_memory.add(grown);
                }
            }
            held = Some(shard);
        }
        self.newest.fetch_max(newest, Ordering::Relaxed);
        taken.expect("a store has at least one shard")
    }

    /// Appends the only sample of a series to its open chunk and returns the time of the sample.
    /// This is the fast path for a series with one float, which covers nearly all series of a
    /// batch. Returns `None` without effect for all others; the caller must then call
    /// [`Appender::append_series`].
    #[inline]
    fn append_sole(
        &self,
        shard: &mut Shard,
        scratch: &mut Scratch,
        i: usize,
        batch: &Batch,
        window: Window,
        sequence: u64,
    ) -> Option<TimestampMs> {
        let (time, value) = batch.sole_float(i)?;
        let local = scratch.locals[i];
        let series = shard.series_mut(local)?;
        let before = EpochBefore::of(series);
        let is_in_window = (window.min..=window.max).contains(&time);
        if before.is_none || time >= before.end || !is_in_window {
            return None;
        }
        let bytes = series.push_sole(time, value)?;
        series.last_sequence = sequence as u32;
        scratch.floats[batch.offsets(i).0] = Outcome::stored(series);
        shard.chunk_bytes += bytes;
        shard.note(local, 1);
        Some(time)
    }

    /// Appends all samples of a series, in order or late. Returns the newest stored time, or
    /// `i64::MIN` if no sample was stored in order.
    fn append_series(
        &self,
        shard: &mut Shard,
        scratch: &mut Scratch,
        i: usize,
        batch: &Batch,
        window: Window,
        sequence: u64,
    ) -> TimestampMs {
        let samples = batch.series(i);
        let local = scratch.locals[i];
        let (floats, histograms) = batch.offsets(i);
        let Some(series) = shard.series_mut(local) else {
            scratch.refuse_missing((floats, histograms), samples, window);
            return i64::MIN;
        };
        let is_first = !series.has_newest();
        let closed = series.closed().len();
        let before_bytes = series.bytes_since(closed);
        let mut stored = 0;
        for (k, (time, value)) in samples.times.iter().zip(samples.values).enumerate() {
            let start = samples.start_times.get(k).copied().unwrap_or(START_UNKNOWN);
            let epoch = EpochBefore::of(series);
            let verdict = series.append(window, *time, start, Value::Float(*value));
            scratch.floats[floats + k].verdict = verdict;
            if verdict == Verdict::Stored {
                stored += 1;
                scratch.floats[floats + k] = Outcome::stored(series);
                self.mark_if_new(&mut scratch.marker, series.slot, epoch, *time);
            }
        }
        for (k, sample) in samples.histograms.iter().enumerate() {
            let epoch = EpochBefore::of(series);
            let value = Value::Histogram(&sample.histogram);
            let verdict = series.append(window, sample.time, sample.start_time, value);
            scratch.histograms[histograms + k] = verdict;
            if verdict == Verdict::Stored {
                stored += 1;
                self.mark_if_new(&mut scratch.marker, series.slot, epoch, sample.time);
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
                shard.note(local, stored);
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
    fn mark_if_new(
        &self,
        marker: &mut Marker,
        slot: SeriesRef,
        before: EpochBefore,
        time: TimestampMs,
    ) {
        if time >= before.end || before.is_none {
            self.index.mark_with(marker, slot, epoch_of(time));
        }
    }

    /// Appends the record to the log. The returned ticket resolves when the record is durable and
    /// visible to readers.
    fn hand_to_log(
        &self,
        taken: Taken,
        record: LogBatch,
        (appended, refusal): (Appended, Option<Error>),
        exemplars: Option<Box<Admitted>>,
    ) -> Ticket {
        let (ticket, resolver) = Ticket::new();
        if let Some(refusal) = refusal {
            resolver.refuse_early(refusal);
        }
        if record.is_empty() {
            taken.complete(None, resolver, appended);
            return ticket;
        }
        let (early, watermark) = (resolver.early(), self.watermark.clone());
        let mark = (!record.journal.is_none()).then_some(record.journal.mark);
        let journal = self.journal.clone();
        let done = OnDurable::new(move |outcome| match outcome {
            Ok(position) => {
                if let Some(exemplars) = exemplars {
                    exemplars.keep(position);
                }
                if let Some(mark) = mark {
                    journal.note(mark, position);
                }
                taken.complete(Some(position), resolver, appended);
            }
            Err(e) => taken.fail(e, resolver),
        });
        let done = done.or_delayed(move |reason| {
            watermark.delay(&reason);
            early.refuse(reason);
        });
        self.log.append(record, done);
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
struct EpochBefore {
    end: TimestampMs,
    is_none: bool,
}

impl EpochBefore {
    #[inline]
    fn of(series: &Series) -> Self {
        Self {
            end: (epoch_of(series.open.last_time()) + 1).saturating_mul(EPOCH_MS),
            is_none: !series.has_newest(),
        }
    }
}
