//! Creation: series of a batch that the head does not keep get their places in shards and index.
//!
//! ```text
//! shards: is it there by now? else its place is reserved -> index: creation, in batch order
//!                                                       -> shards: the series takes its place
//! ```
//!
//! Creations of several batches come one after the other, under the index's lock, so a place that
//! is reserved is of this batch alone: other batches see it as unknown and wait. Each shard is
//! entered twice for a batch, however many of its series are created there.

use super::Appender;
use super::scratch::{Scratch, UNKNOWN};
use super::series_budget::SeriesBudget;
use crate::head::series::{Series, Window};
use crate::head::shard::Found;
use crate::index::{Births, epoch_of};
use crate::sealed::group_of;
use crate::sync::lock;
use firn_model::batch::{Batch, SeriesSamples, Source};
use firn_model::error::Error;

/// The label by which budgets of new series are told apart.
const JOB: &str = "job";

/// What a new series takes in the index besides its labels, about.
const INDEXED_BYTES: usize = 128;

/// Births of one batch, while it is alone in the index.
struct Nursery<'a> {
    births: Births<'a>,
    /// Slots from here on are new; one below is of a series that returns.
    first_new: u32,
    /// How many more series the head takes, and of how many bytes.
    room: usize,
    room_bytes: usize,
    /// About what those take that were born.
    born_bytes: usize,
    born: u64,
    refused: u64,
}

impl Appender {
    /// Has the labels read that are needed; looks up again if some series is another one by them.
    pub(super) fn read_labels(
        &self,
        scratch: &mut Scratch,
        source: &mut dyn Source,
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
            let print = self.fingerprint_of(labels, &mut scratch.key);
            let known = &mut scratch.prints[*i as usize];
            is_another |= *known != print;
            *known = print;
        }
        if is_another {
            self.leave(scratch);
            scratch.group_by_shard(self);
            self.look_up(scratch);
        }
        Ok(())
    }

    /// Gives the unknown series that have a sample in the window their places in shards and index.
    pub(super) fn give_birth(&self, scratch: &mut Scratch, batch: &Batch, window: Window) {
        scratch.unborn.clear();
        for (i, local) in scratch.locals.iter().enumerate() {
            if *local == UNKNOWN && has_sample_in(batch.series(i), window) {
                scratch.unborn.push(i as u32);
            }
        }
        if scratch.unborn.is_empty() {
            return;
        }
        let births = self.index.births();
        let mut nursery = Nursery {
            first_new: births.next_slot(),
            births,
            room: self.room_for_series(),
            room_bytes: self
                .options
                .head_bytes_max
                .saturating_sub(self.memory_bytes()),
            born_bytes: 0,
            born: 0,
            refused: 0,
        };
        self.reserve(scratch);
        self.index_unborn(scratch, batch, &mut nursery);
        self.settle(scratch, &nursery);
        self.metrics.newborn_memory.add(nursery.born_bytes as i64);
        self.metrics.born_series.add(nursery.born);
        self.metrics.refused_series.add(nursery.refused);
    }

    /// Finds those of the unborn that another batch was faster with, and reserves the places of
    /// all others.
    fn reserve(&self, scratch: &mut Scratch) {
        scratch.group_unborn();
        for (number, shard) in self.shards.iter().enumerate() {
            let group = scratch.group_of_unborn(number);
            if group.is_empty() {
                continue;
            }
            let mut shard = lock(shard);
            for k in group {
                let i = scratch.unborn_by_shard[k] as usize;
                match shard.find_or_reserve(scratch.prints[i]) {
                    Found::Series(local, slot) => {
                        (scratch.locals[i], scratch.slots[i]) = (local, slot);
                    }
                    Found::Reserved(local) => scratch.locals[i] = local,
                    // The series is in this batch twice.
                    Found::ReservedBefore => {}
                }
            }
        }
    }

    /// Gives those with a reserved place their slots, in the order of the batch.
    fn index_unborn(&self, scratch: &mut Scratch, batch: &Batch, nursery: &mut Nursery<'_>) {
        let mut newcomers = lock(&self.budget);
        let first = || batch.iter().find_map(|s| s.times.first().copied());
        newcomers.turn_to(self.newest().or_else(first).unwrap_or(0));
        for k in 0..scratch.unborn.len() {
            let i = scratch.unborn[k] as usize;
            if scratch.locals[i] != UNKNOWN && scratch.slots[i] == UNKNOWN {
                let slot = self.index_one(scratch, batch, i, nursery, &mut newcomers);
                scratch.slots[i] = slot.unwrap_or(UNKNOWN);
            }
        }
    }

    /// The slot of series `i`, unless it is refused or the index is full.
    fn index_one(
        &self,
        scratch: &Scratch,
        batch: &Batch,
        i: usize,
        nursery: &mut Nursery<'_>,
        newcomers: &mut SeriesBudget,
    ) -> Option<u32> {
        let labels = batch.series(i).labels;
        let job = labels.get(JOB);
        let bytes = nursery.born_bytes + labels.as_bytes().len() + INDEXED_BYTES;
        let has_room = nursery.room > 0 && bytes <= nursery.room_bytes;
        if !has_room || !newcomers.admit(self.options.new_series, job) {
            nursery.refused += 1;
            return None;
        }
        let place = self.place(scratch.shard_of[i] as usize, scratch.locals[i]);
        let slot = nursery.births.add(labels, place).ok()?;
        nursery.room -= 1;
        match slot >= nursery.first_new {
            true => {
                nursery.born += 1;
                nursery.born_bytes = bytes;
            }
            false => newcomers.take_back(job),
        }
        Some(slot)
    }

    /// Puts series into the places that were reserved for them, and gives up those of the refused.
    fn settle(&self, scratch: &mut Scratch, nursery: &Nursery<'_>) {
        for (number, shard) in self.shards.iter().enumerate() {
            let group = scratch.group_of_unborn(number);
            if group.is_empty() {
                continue;
            }
            let mut shard = lock(shard);
            for k in group.clone() {
                let i = scratch.unborn_by_shard[k] as usize;
                let (local, slot) = (scratch.locals[i], scratch.slots[i]);
                if local == UNKNOWN || !shard.is_reserved(local) {
                    continue;
                }
                if slot == UNKNOWN {
                    shard.give_up(local);
                    scratch.locals[i] = UNKNOWN;
                    continue;
                }
                let mut series = Series::new(slot);
                if slot < nursery.first_new {
                    self.revive(&mut series);
                }
                shard.fill(local, series);
            }
            for k in group {
                let i = scratch.unborn_by_shard[k] as usize;
                if scratch.locals[i] == UNKNOWN
                    && let Some(local) = shard.find(scratch.prints[i], UNKNOWN)
                {
                    scratch.locals[i] = local;
                    scratch.slots[i] = shard.series(local).map_or(UNKNOWN, |s| s.slot);
                }
            }
        }
    }

    /// How many more series the head takes. One that retired costs a sixteenth: its terms and its
    /// page entries.
    fn room_for_series(&self) -> usize {
        let held = self.head_series() + self.index.retired_count() / 16;
        self.options.series_max.saturating_sub(held)
    }

    /// Prepares a series that comes back: what is sealed of it is older than what it takes, also
    /// of a batch that began before it retired.
    fn revive(&self, series: &mut Series) {
        // It has its place in the index by now, and its samples are not in the log yet: see
        // `Coverage::tick`.
        let group = group_of(series.slot);
        let mut revived = lock(&self.restored_groups);
        if revived.last() != Some(&group) {
            revived.push(group);
        }
        drop(revived);
        if let Some(newest) = self.newest() {
            let sealed = newest.saturating_sub(self.options.lateness_max_ms);
            let sealed = sealed.saturating_sub(1);
            series.begin_behind(sealed, None);
            self.index.mark(series.slot, epoch_of(sealed));
        }
    }
}

fn has_sample_in(series: SeriesSamples<'_>, window: Window) -> bool {
    let floats = series.times.iter().copied();
    let histograms = series.histograms.iter().map(|h| h.time);
    floats
        .chain(histograms)
        .any(|t| (window.min..=window.max).contains(&t))
}
