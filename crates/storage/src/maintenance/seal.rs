//! Sealing: moves the samples of a group for a window of data time from the head into a page.
//!
//! ```text
//! copy (each shard for a moment) -> encode -> new series, then pages: write, sync
//!   -> readers find the page -> the head drops its samples (each shard for a moment)
//!   -> the log can be trimmed
//! ```
//!
//! A reader copies the head first and looks up pages after it, so between those steps it finds
//! samples twice and never misses one. Its result contains them once, because it reads from a page
//! only samples older than the copied ones. Only samples that every reader sees and that are
//! durable in the log are sealed. After a crash at any point, all complete pages are valid, and
//! replay skips their samples in the log.
//!
//! Samples that cannot be sealed affect only their own group (see [`troubles`]).
//!
//! Each tick seals a fixed fraction of the due groups. A queue of any length therefore shrinks by
//! that fraction, and a steady input gives a steady output.

mod encode;
pub(crate) mod troubles;

use super::coverage::Due;
use super::state::State;
use super::{Maintenance, PAUSE};
use crate::encoding::Malformed;
use crate::error::StorageError;
use crate::failpoints::{self, Flaw};
use crate::head::copies::Copies;
use crate::ids::{Local, SeriesRef};
use crate::index::{Place, SeriesCursor};
use crate::page::Page;
use crate::parts::options::SyncMode;
use crate::sealed::GROUP_SLOTS;
use crate::sealed::directory::PageEntry;
use crate::sealed::meta::PageMeta;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use firn_model::error::{Error, ErrorKind};
use firn_model::log::Position;
use firn_model::sample::{TimeRange, TimestampMs};
use std::sync::Arc;

/// A tick seals one in `TICKS` of the due groups, and at least one.
const TICKS: usize = 16;

/// Number of groups that share a sync. Their pages wait for it in memory, about 30 kB each.
const GROUPS_PER_SYNC: usize = 32;

/// Number of series copied or cut under one lock: about 50 us.
const SLICE: usize = 64;

/// Place of a series, and the time up to which it is sealed.
#[derive(Clone, Copy, Debug)]
struct Cut {
    shard: usize,
    local: Local,
    slot: SeriesRef,
    time: TimestampMs,
}

/// A group that is being sealed: its encoded pages, and the samples to drop from the head.
struct Sealed {
    due: Due,
    cuts: Vec<Cut>,
    /// Its encoded pages: usually one, several if one would be too large, none without samples.
    pages: Vec<(PageMeta, Vec<u8>)>,
    unsealed_after: Position,
    /// True if the head has no series of the group.
    is_gone: bool,
    /// The samples that cannot be sealed, if there are any.
    stuck: Option<Stuck>,
}

/// The part of a group that cannot be sealed.
struct Stuck {
    why: String,
    /// The affected series, each with the time up to which its samples would be dropped.
    series: Vec<Cut>,
    /// Number of their samples that are sealed nevertheless.
    saved: u64,
    range: Option<TimeRange>,
}

/// Treatment of samples that cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stance {
    /// They remain in head and log, and the group is not covered.
    Keep,
    /// They are dropped, and the group counts as covered.
    GiveUp,
}

/// Copies of the samples of a group that are to be sealed.
#[derive(Default)]
struct Taken {
    copies: Copies,
    /// The copied series in ascending order of slots.
    series: Vec<TakenSeries>,
}

/// A series with the number of its copy.
struct TakenSeries {
    shard: usize,
    local: Local,
    slot: SeriesRef,
    copy: usize,
}

impl Maintenance {
    /// Seals this tick's share of the due groups, or all groups if the log fills the disk or
    /// approaches its limit.
    pub(super) fn seal_due(&self, state: &mut State) {
        let Some(newest) = self.newest() else { return };
        let now = self.env.clock.monotonic();
        let mut due = state.coverage.due(newest);
        self.metrics.seal_queue.set(due.len() as i64);
        if now < state.seal_not_before {
            return;
        }
        let is_full =
            self.log.pressure().is_disk_full && self.log.positions().last > state.trimmed();
        let is_crowded = self.log.pressure().bytes > self.options.backlog_bytes_max / 2;
        if is_full || is_crowded {
            due = state.coverage.all(newest);
        }
        if !is_crowded {
            due.retain(|due| state.troubles.may_try(due.group, now));
        }
        if !is_full && !is_crowded {
            due.truncate(due.len().div_ceil(TICKS));
        }
        let start = now;
        let reserve_bytes = self.reserve_bytes(is_full);
        let mut outcome = self.seal(state, &due, reserve_bytes);
        if is_crowded && outcome.is_ok() {
            outcome = self.give_up_what_pins(state, newest, reserve_bytes);
        }
        if !due.is_empty() {
            let took = self.env.clock.monotonic().saturating_sub(start);
            self.metrics.seal_duration.observe(took);
        }
        // All groups were sealed for lack of space, and the next tick would not free more.
        if is_full || outcome.is_err() {
            state.seal_not_before = now.saturating_add(PAUSE);
        }
        if let Err(e) = outcome {
            self.metrics.seal_failures.inc();
            tracing::error!(error = %e, "failed to seal samples");
        }
    }

    /// Returns the disk space in bytes that pages must leave to the log: a failed write of the log
    /// stops all writes, while a long log does not. A log that accepts no records leaves half of
    /// its reserve to pages, because sealing is the way to free space.
    pub(super) fn reserve_bytes(&self, is_full: bool) -> u64 {
        self.log.pressure().free_bytes_min / if is_full { 2 } else { 1 }
    }

    /// Seals the groups, several with each sync. Samples that cannot be sealed remain in head and
    /// log.
    pub(crate) fn seal(
        &self,
        state: &mut State,
        due: &[Due],
        reserve_bytes: u64,
    ) -> Result<(), Error> {
        self.seal_as(state, due, (reserve_bytes, Stance::Keep))
    }

    /// Seals groups in batches that share a sync, and treats samples that cannot be sealed
    /// according to the stance.
    fn seal_as(
        &self,
        state: &mut State,
        due: &[Due],
        (reserve_bytes, stance): (u64, Stance),
    ) -> Result<(), Error> {
        for some in due.chunks(GROUPS_PER_SYNC) {
            let mut sealed = self.encode_groups(state, some, stance)?;
            failpoints::turn();
            if failpoints::has(Flaw::DropsBeforeWrite) {
                let mut cuts = sealed.iter_mut().map(|s| &mut s.cuts);
                cuts.try_for_each(|cuts| self.drop_sealed(cuts))?;
            }
            let written = self.write_pages(state, &sealed, reserve_bytes);
            let entries = match written {
                Ok(entries) => entries,
                Err(e) => {
                    state.segments.abandon();
                    return Err(e.into());
                }
            };
            for (sealed, entries) in sealed.into_iter().zip(entries) {
                self.publish(state, sealed, entries, stance)?;
            }
        }
        Ok(())
    }

    /// Copies and encodes those samples of the groups that every reader sees. Syncs the log first
    /// if its records may not be durable.
    fn encode_groups(
        &self,
        state: &State,
        due: &[Due],
        stance: Stance,
    ) -> Result<Vec<Sealed>, Error> {
        let reading = self.watermark.read_floor();
        if self.options.sync != SyncMode::Always {
            // A page survives a power loss, so all other parts of its batches must survive one too.
            self.log.sync()?;
        }
        let encode = |due: &Due| {
            let seen = match failpoints::has(Flaw::SealsUnseen) {
                true => u64::MAX,
                false => reading.sequence,
            };
            let (taken, is_gone) = self.copy_group(*due, seen);
            let unsealed_after = state.coverage.unsealed_after(*due, reading.sequence);
            let mut sealed = self.encode(*due, &taken, unsealed_after, stance);
            sealed.is_gone = is_gone;
            sealed
        };
        Ok(due.iter().map(encode).collect())
    }

    /// Copies the samples to seal of a group, in order of slots. The second value is true if the
    /// head has none of its series.
    fn copy_group(&self, due: Due, sequence: u64) -> (Taken, bool) {
        let of_group = self.numbers.of_group(due.group).unwrap_or_default();
        let end = self.index.published().min(of_group.end);
        let mut cursor = SeriesCursor::new(&self.index);
        let mut places: Vec<(usize, Local, SeriesRef)> = (of_group.start..end)
            .map(SeriesRef)
            .filter_map(|slot| {
                let place = cursor
                    .place(slot)
                    .filter(|place| *place != Place::EVICTED)?;
                let (shard, local) = self.shard_and_local(place);
                Some((shard, local, slot))
            })
            .collect();
        places.sort_unstable();
        let range = TimeRange::new(i64::MIN, due.end);
        let mut taken = Taken::default();
        for of_shard in places.chunk_by(|a, b| a.0 == b.0) {
            for slice in of_shard.chunks(SLICE) {
                let held = lock(&self.shards[slice[0].0]);
                for (shard, local, slot) in slice {
                    let Some(series) = held.series_of_slot(*local, *slot) else {
                        continue;
                    };
                    let hidden = held.hidden(*local, series, sequence);
                    if taken.copies.add(series, range, hidden) {
                        taken.series.push(TakenSeries {
                            shard: *shard,
                            local: *local,
                            slot: *slot,
                            copy: taken.copies.len() - 1,
                        });
                    }
                }
            }
        }
        taken.series.sort_unstable_by_key(|t| t.slot);
        (taken, places.is_empty())
    }

    /// Writes the pages of `sealed` and syncs them. Returns their entries for the directory, by
    /// group.
    fn write_pages(
        &self,
        state: &mut State,
        sealed: &[Sealed],
        reserve_bytes: u64,
    ) -> Result<Vec<Vec<Arc<PageEntry>>>, StorageError> {
        let pages = || sealed.iter().flat_map(|s| &s.pages);
        let bytes: usize = pages().map(|(_, page)| page.len()).sum();
        if bytes == 0 {
            return Ok(sealed.iter().map(|_| Vec::new()).collect());
        }
        self.look_for_room(reserve_bytes.saturating_add(bytes as u64))?;
        // After a restart, the labels of all series in a page must be found.
        let last = pages().filter_map(|(meta, _)| meta.slots().last()).max();
        if last >= Some(state.catalogue.end_slot()) {
            self.write_catalogue(state, state.trimmed())?;
        }
        let mut entries = Vec::with_capacity(sealed.len());
        for sealed in sealed {
            let mut of_group = Vec::with_capacity(sealed.pages.len());
            for (meta, page) in &sealed.pages {
                of_group.push(state.segments.append(meta.clone(), page)?);
            }
            entries.push(of_group);
        }
        if !failpoints::has(Flaw::SkipsPageSync) {
            state.segments.sync()?;
        }
        self.metrics.page_bytes.add(bytes as u64);
        Ok(entries)
    }

    /// Returns an error unless the disk has `required` free bytes.
    pub(super) fn look_for_room(&self, required: u64) -> Result<(), StorageError> {
        let path = self.dir.pages();
        // A disk that does not report its free space counts as having enough.
        let free = self.env.disk.free_bytes(&path).unwrap_or(u64::MAX);
        if free < required {
            return Err(StorageError::DiskFull {
                path,
                free,
                required,
            });
        }
        Ok(())
    }

    /// Makes the pages of a group visible to readers and drops their samples from the head.
    fn publish(
        &self,
        state: &mut State,
        mut sealed: Sealed,
        entries: Vec<Arc<PageEntry>>,
        stance: Stance,
    ) -> Result<(), Error> {
        let group = sealed.due.group;
        for (entry, (_, page)) in entries.into_iter().zip(std::mem::take(&mut sealed.pages)) {
            let open = Page::open(page.into()).map_err(malformed)?;
            self.sealed.cache.insert(&entry, Arc::new(open));
            self.metrics.sealed_pages.inc();
            self.sealed.directory.add(entry);
        }
        failpoints::turn();
        if let Some(stuck) = &sealed.stuck
            && stance == Stance::GiveUp
        {
            self.give_up(group, stuck);
        }
        self.drop_sealed(&mut sealed.cuts)?;
        failpoints::turn();
        let (due, unsealed_after) = (sealed.due, sealed.unsealed_after);
        state.coverage.sealed(due, unsealed_after, sealed.is_gone);
        let stuck = sealed.stuck.filter(|_| stance == Stance::Keep);
        self.note_trouble(state, group, stuck);
        Ok(())
    }

    /// Drops the samples that are in a page from the head.
    fn drop_sealed(&self, cuts: &mut [Cut]) -> Result<(), Error> {
        cuts.sort_unstable_by_key(|cut| (cut.shard, cut.local));
        for of_shard in cuts.chunk_by(|a, b| a.shard == b.shard) {
            for slice in of_shard.chunks(SLICE) {
                let mut shard = lock(&self.shards[slice[0].shard]);
                for cut in slice {
                    shard
                        .drop_through(cut.local, cut.slot, cut.time)
                        .map_err(malformed)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a mark with the current log position and data time to the coverage.
    pub(super) fn leave_mark(&self, state: &mut State) {
        // In this order: see `Coverage::tick`.
        let newest = || self.newest.load(Ordering::Acquire);
        let too_early = failpoints::has(Flaw::MarksTimeFirst).then(newest);
        failpoints::turn();
        let (sequence, position) = self.watermark.mark();
        failpoints::turn();
        let newest = too_early.unwrap_or_else(newest);
        let mark = super::coverage::Mark {
            newest,
            sequence,
            position,
        };
        // The end of the last group in which slots are assigned.
        let next = self.index.next_slot().next_multiple_of(GROUP_SLOTS);
        let end_group = self.numbers.group_of(SeriesRef(next));
        let mut restored = std::mem::take(&mut *lock(&self.restored_groups));
        if failpoints::has(Flaw::ForgetsRestored) {
            restored.clear();
        }
        state.coverage.tick(mark, end_group, &restored);
        let oldest = self.oldest_late();
        state.late.tick(mark, oldest);
    }
}

fn malformed(error: Malformed) -> Error {
    Error::new(ErrorKind::Internal, error.to_string())
}
