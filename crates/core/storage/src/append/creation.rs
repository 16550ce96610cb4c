//! Series creation: gives the unknown series of a batch a place in their shard and a slot in the
//! index.
//!
//! ```text
//! shards: created meanwhile? otherwise reserve a place -> index: create, in batch order
//!                                                      -> shards: fill the reserved place
//! ```
//!
//! The lock of the index serializes the creations of all batches, so a reserved place belongs to
//! this batch alone: other batches treat its series as unknown and wait. A batch enters each shard
//! twice, however many series it creates there.

use super::Appender;
use super::scratch::{AppendScratch, UNINDEXED, UNKNOWN};
use super::series_budget::SeriesBudgetWindow;
use crate::head::series::{AppendWindow, MemSeries};
use crate::head::shard::SeriesPlacement;
use crate::ids::SeriesRef;
use crate::index::{SeriesCreation, epoch_from_time};
use crate::parts::series_limits::SeriesLimits;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use firn_model::batch::{Batch, BatchSource, SeriesSamples};
use firn_model::error::Error;
use firn_model::store::SampleRejection;

/// Name of the label that selects the budget of a new series.
const JOB: &str = "job";

/// Approximate memory of a new series in the index, in bytes, without its labels.
const INDEXED_BYTES: usize = 128;

/// The creation of the new series of one batch. Holds the lock of the index while it exists.
struct MissingSeriesCreation<'a> {
    index: SeriesCreation<'a>,
    /// The first new slot. A lower slot belongs to an evicted series that is restored.
    first_new: SeriesRef,
    limits: SeriesLimits,
    /// Number of series that the tenant may still have in memory.
    active_room: usize,
    /// Remaining capacity of the head, in series and in bytes.
    room: usize,
    room_bytes: usize,
    /// Approximate memory of the series created so far, in bytes.
    created_bytes: usize,
    created: u64,
    refused: u64,
}

impl Appender {
    /// Reads the labels that are needed for creation. If the canonical key of a series differs from
    /// the key of the batch, computes the fingerprints again and repeats the lookup.
    pub(super) fn read_labels(
        &self,
        scratch: &mut AppendScratch,
        source: &mut dyn BatchSource,
    ) -> Result<(), Error> {
        if scratch.wanted.is_empty() {
            return Ok(());
        }
        scratch.order_wanted();
        source.read_labels(&scratch.wanted)?;
        let batch = source.batch();
        let mut is_another = false;
        for i in &scratch.wanted {
            if !batch.key_may_differ(*i as usize) {
                continue;
            }
            let labels = batch.series(*i as usize).labels;
            let print = self.parts.fingerprint_of(labels, &mut scratch.key);
            let known = &mut scratch.prints[*i as usize];
            is_another |= *known != print;
            *known = print;
        }
        if is_another {
            self.end_appending(scratch);
            scratch.group_by_shard(&self.parts);
            self.find_batch_series(scratch);
        }
        Ok(())
    }

    /// Creates the unknown series that have a sample in the window, in shards and index. Series
    /// beyond a limit remain unknown.
    pub(super) fn create_missing(
        &self,
        scratch: &mut AppendScratch,
        batch: &Batch,
        window: AppendWindow,
    ) {
        scratch.missing.clear();
        for (i, local) in scratch.locals.iter().enumerate() {
            if *local == UNKNOWN && has_sample_in(batch.series(i), window) {
                scratch.missing.push(i as u32);
            }
        }
        if scratch.missing.is_empty() {
            return;
        }
        let used = self.parts.record_head_usage();
        let options = &self.parts.options;
        let limits = self.parts.series_limits.get();
        let index = self.parts.head.index.create_series();
        let mut creating = MissingSeriesCreation {
            first_new: index.next_slot(),
            index,
            limits,
            active_room: limits.active.saturating_sub(used.series),
            room: options.series_max.saturating_sub(used.series),
            room_bytes: options.head_bytes_max.saturating_sub(used.bytes),
            created_bytes: 0,
            created: 0,
            refused: 0,
        };
        self.reserve(scratch);
        self.index_missing(scratch, batch, &mut creating);
        self.fill_reserved_places(scratch, &creating);
        self.parts
            .metrics
            .new_series_memory
            .add(creating.created_bytes as i64);
        self.parts.metrics.created_series.add(creating.created);
        self.parts.metrics.refused_series.add(creating.refused);
    }

    /// Finds the missing series that another batch created in the meantime, and reserves places for
    /// all others.
    fn reserve(&self, scratch: &mut AppendScratch) {
        scratch.group_missing();
        for (number, shard) in self.parts.head.shards.iter().enumerate() {
            let group = scratch.missing_shard_range(number);
            if group.is_empty() {
                continue;
            }
            let mut shard = lock(shard);
            for k in group {
                let i = scratch.missing_by_shard[k] as usize;
                match shard.find_or_reserve(scratch.prints[i]) {
                    SeriesPlacement::Series(local, slot) => {
                        (scratch.locals[i], scratch.slots[i]) = (local, slot);
                    }
                    SeriesPlacement::Reserved(local) => scratch.locals[i] = local,
                    // The batch contains the series twice.
                    SeriesPlacement::ReservedBefore => {}
                }
            }
        }
    }

    /// Gives each series with a reserved place its slot, in the order of the batch.
    fn index_missing(
        &self,
        scratch: &mut AppendScratch,
        batch: &Batch,
        creating: &mut MissingSeriesCreation<'_>,
    ) {
        let mut budget = lock(&self.budget);
        let first = || batch.iter().find_map(|s| s.times.first().copied());
        let newest = self.parts.head.newest().or_else(first).unwrap_or(0);
        budget.roll_window(newest, creating.limits.window_ms);
        for k in 0..scratch.missing.len() {
            let i = scratch.missing[k] as usize;
            if scratch.locals[i] != UNKNOWN && scratch.slots[i] == UNINDEXED {
                scratch.slots[i] = match self.index_series(scratch, batch, i, creating, &mut budget)
                {
                    Ok(slot) => slot,
                    Err(limit) => {
                        creating.refused += 1;
                        scratch.limited.push((i as u32, limit));
                        UNINDEXED
                    }
                };
            }
        }
    }

    /// Returns the slot of series `i`, or the limit that rejects it.
    fn index_series(
        &self,
        scratch: &AppendScratch,
        batch: &Batch,
        i: usize,
        creating: &mut MissingSeriesCreation<'_>,
        budget: &mut SeriesBudgetWindow,
    ) -> Result<SeriesRef, SampleRejection> {
        let labels = batch.series(i).labels;
        let job = labels.get(JOB);
        let bytes = creating.created_bytes + labels.as_bytes().len() + INDEXED_BYTES;
        if creating.active_room == 0 {
            return Err(SampleRejection::ActiveSeriesLimit);
        }
        if creating.room == 0 || bytes > creating.room_bytes {
            return Err(SampleRejection::SeriesLimit);
        }
        budget.try_admit(creating.limits.new, job)?;
        let place = self
            .parts
            .head
            .encode_place(scratch.shard_of[i] as usize, scratch.locals[i]);
        let slot = creating.index.add_series(labels, place);
        let slot = slot.map_err(|_| SampleRejection::SeriesLimit)?;
        creating.room -= 1;
        creating.active_room -= 1;
        if slot >= creating.first_new {
            creating.created += 1;
            creating.created_bytes = bytes;
        } else {
            budget.revert_admission(job)
        }
        Ok(slot)
    }

    /// Fills the reserved places with their series, and frees the places of rejected series.
    fn fill_reserved_places(
        &self,
        scratch: &mut AppendScratch,
        creating: &MissingSeriesCreation<'_>,
    ) {
        for (number, shard) in self.parts.head.shards.iter().enumerate() {
            let group = scratch.missing_shard_range(number);
            if group.is_empty() {
                continue;
            }
            let mut shard = lock(shard);
            for k in group.clone() {
                let i = scratch.missing_by_shard[k] as usize;
                let (local, slot) = (scratch.locals[i], scratch.slots[i]);
                if local == UNKNOWN || !shard.is_reserved(local) {
                    continue;
                }
                if slot == UNINDEXED {
                    shard.free_reserved(local);
                    scratch.locals[i] = UNKNOWN;
                    continue;
                }
                let mut series = MemSeries::new(slot);
                if slot < creating.first_new {
                    self.restore(&mut series);
                }
                shard.fill_reserved(local, series);
            }
            for k in group {
                let i = scratch.missing_by_shard[k] as usize;
                if scratch.locals[i] == UNKNOWN
                    && let Some(local) = shard.find(scratch.prints[i], UNKNOWN)
                {
                    scratch.locals[i] = local;
                    scratch.slots[i] = shard.series(local).map_or(UNINDEXED, |s| s.slot);
                }
            }
        }
    }

    /// Prepares an evicted series that is restored. It accepts only samples newer than its sealed
    /// ones, even from a batch that began before the eviction.
    fn restore(&self, series: &mut MemSeries) {
        // Its place is already in the index, but its samples are not in the log yet: see
        // `Coverage::tick`.
        let group = self.parts.head.numbers.group_of(series.slot);
        let mut restored = lock(&self.parts.head.restored_groups);
        if restored.last() != Some(&group) {
            restored.push(group);
        }
        drop(restored);
        if let Some(newest) = self.parts.head.newest() {
            // The limit of lateness at the time of eviction may have been higher or lower than now.
            let sealed = newest.saturating_sub(self.parts.head.lateness_ms());
            let sealed = sealed.max(self.parts.head.evicted_to.load(Ordering::Relaxed));
            let sealed = sealed.saturating_sub(1);
            series.set_newest_sealed(sealed, None);
            self.parts
                .head
                .index
                .mark_sample(series.slot, epoch_from_time(sealed));
        }
    }
}

/// Returns whether any sample of a series is at a time at which it may create the series.
fn has_sample_in(series: SeriesSamples<'_>, window: AppendWindow) -> bool {
    let floats = series.times.iter().copied();
    let histograms = series.histograms.iter().map(|h| h.time);
    floats.chain(histograms).any(|t| window.contains(t))
}
