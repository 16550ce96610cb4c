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
pub(crate) mod failures;
mod pages;
mod troubles;

use pages::PageEntries;
pub(super) use pages::PageWriter;

use super::coverage::{CoverageMark, DueGroup};
use super::state::{MaintenanceState, PAUSE};
use crate::damage::DamageList;
use crate::encoding::DecodeError;
use crate::failpoints::{self, StoreFlaw};
use crate::head::copies::SeriesCopies;
use crate::ids::{GroupId, SeriesRef, ShardLocalId};
use crate::index::{HeadSeriesPlace, SeriesCursor};
use crate::parts::head::StoreHead;
use crate::parts::metrics::StoreMetrics;
use crate::parts::options::{StoreOptions, StoreSyncMode};
use crate::parts::retention::RetentionPolicy;
use crate::sealed::GROUP_SLOTS;
use crate::sealed::meta::SealedPageMeta;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use firn_model::env::Clock;
use firn_model::error::{Error, ErrorKind};
use firn_model::log::{DurableLog, LogPosition};
use firn_model::sample::{TimeRange, TimestampMs};
use std::collections::BTreeSet;

/// A tick seals one in `TICKS` of the due groups, and at least one.
const TICKS: usize = 16;

/// Number of groups that share a sync. Their pages wait for it in memory, about 30 kB each.
const GROUPS_PER_SYNC: usize = 32;

/// Number of series copied or cut under one lock: about 50 us.
const SLICE: usize = 64;

/// Number of series visited under one lock: about 10 us.
const VISITED_SLICE: u32 = 1_024;

/// Seals groups: moves their samples from the head into pages.
#[derive(Clone, Copy)]
pub(crate) struct Sealer<'a> {
    pub(super) options: &'a StoreOptions,
    pub(super) clock: &'a dyn Clock,
    pub(super) log: &'a dyn DurableLog,
    pub(super) head: &'a StoreHead,
    pub(super) policy: RetentionPolicy<'a>,
    pub(super) pages: PageWriter<'a>,
    pub(super) metrics: &'a StoreMetrics,
    pub(super) damages: &'a DamageList,
}

/// Place of a series, and the time up to which it is sealed.
#[derive(Clone, Copy, Debug)]
struct SeriesSealPoint {
    shard: usize,
    local: ShardLocalId,
    slot: SeriesRef,
    time: TimestampMs,
}

/// A group that is being sealed: its encoded pages, and the samples to drop from the head.
struct EncodedGroup {
    due: DueGroup,
    cuts: Vec<SeriesSealPoint>,
    /// Its encoded pages: usually one, several if one would be too large, none without samples.
    pages: Vec<(SealedPageMeta, Vec<u8>)>,
    unsealed_after: LogPosition,
    /// True if the head has no series of the group.
    is_gone: bool,
    /// The samples that cannot be sealed, if there are any.
    stuck: Option<UnsealableSamples>,
}

/// The part of a group that cannot be sealed.
struct UnsealableSamples {
    why: String,
    /// The affected series, each with the time up to which its samples would be dropped.
    series: Vec<SeriesSealPoint>,
    /// Number of their samples that are sealed nevertheless.
    saved: u64,
    range: Option<TimeRange>,
}

/// Treatment of samples that cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnsealablePolicy {
    /// They remain in head and log, and the group is not covered.
    Keep,
    /// They are dropped, and the group counts as covered.
    GiveUp,
}

/// Copies of the samples of a group that are to be sealed.
#[derive(Default)]
struct GroupSampleCopies {
    copies: SeriesCopies,
    /// The copied series in ascending order of slots.
    series: Vec<CopiedSeries>,
}

/// A series with the number of its copy.
struct CopiedSeries {
    shard: usize,
    local: ShardLocalId,
    slot: SeriesRef,
    copy: usize,
}

impl Sealer<'_> {
    /// Seals this tick's share of the due groups, or all groups if the log fills the disk or
    /// approaches its limit.
    pub(super) fn seal_due_groups(&self, state: &mut MaintenanceState) {
        let Some(newest) = self.head.newest() else {
            return;
        };
        let now = self.clock.monotonic();
        let mut due = state.coverage.list_due_groups(newest);
        self.metrics.seal_queue.set(due.len() as i64);
        if now < state.seal_not_before {
            return;
        }
        let is_full = self.log.pressure().is_disk_full
            && self.log.positions().last > state.trimmed_position();
        let is_crowded = self.log.pressure().unsealed_bytes > self.options.backlog_bytes_max / 2;
        if is_full || is_crowded {
            due = state.coverage.list_all_groups(newest);
        }
        if !is_crowded {
            due.retain(|due| state.troubles.can_seal(due.group, now));
        }
        if !is_full && !is_crowded {
            due.truncate(due.len().div_ceil(TICKS));
        }
        let start = now;
        let reserve_bytes = self.pages.space.log_reserve_bytes(is_full);
        let mut outcome = self.seal_groups(state, &due, reserve_bytes);
        if is_crowded && outcome.is_ok() {
            outcome = self.give_up_pinning_groups(state, newest, reserve_bytes);
        }
        if !due.is_empty() {
            let took = self.clock.monotonic().saturating_sub(start);
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

    /// Seals the groups, several with each sync. Samples that cannot be sealed remain in head and
    /// log.
    pub(crate) fn seal_groups(
        &self,
        state: &mut MaintenanceState,
        due: &[DueGroup],
        reserve_bytes: u64,
    ) -> Result<(), Error> {
        self.seal_groups_with(state, due, reserve_bytes, UnsealablePolicy::Keep)
    }

    /// Seals groups in batches that share a sync, and treats samples that cannot be sealed
    /// according to the stance.
    fn seal_groups_with(
        &self,
        state: &mut MaintenanceState,
        due: &[DueGroup],
        reserve_bytes: u64,
        stance: UnsealablePolicy,
    ) -> Result<(), Error> {
        for some in due.chunks(GROUPS_PER_SYNC) {
            let mut sealed = self.encode_groups(state, some, stance)?;
            failpoints::turn();
            if failpoints::has(StoreFlaw::DropsBeforeWrite) {
                let mut cuts = sealed.iter_mut().map(|s| &mut s.cuts);
                cuts.try_for_each(|cuts| self.drop_sealed(cuts))?;
            }
            let written = self.pages.write(state, &sealed, reserve_bytes);
            let entries = match written {
                Ok(entries) => entries,
                Err(e) => {
                    state.segments.abandon();
                    return Err(e.into());
                }
            };
            assert_eq!(sealed.len(), entries.len(), "entries for each sealed group");
            for (sealed, entries) in sealed.into_iter().zip(entries) {
                self.publish_group(state, sealed, entries, stance)?;
            }
        }
        Ok(())
    }

    /// Copies and encodes those samples of the groups that every reader sees. Syncs the log first
    /// if its records may not be durable.
    fn encode_groups(
        &self,
        state: &MaintenanceState,
        due: &[DueGroup],
        stance: UnsealablePolicy,
    ) -> Result<Vec<EncodedGroup>, Error> {
        let reading = self.head.watermark.begin_read_visible_to_all();
        if self.options.sync != StoreSyncMode::Always {
            // A page survives a power loss, so all other parts of its batches must survive one too.
            self.log.sync()?;
        }
        let encode = |due: &DueGroup| {
            let seen = if failpoints::has(StoreFlaw::SealsUnseen) {
                u64::MAX
            } else {
                reading.sequence
            };
            let (taken, is_gone) = self.copy_group(*due, seen);
            let unsealed_after = state.coverage.unsealed_after(*due, reading.sequence);
            let mut sealed = self.encode_group(*due, &taken, unsealed_after, stance);
            sealed.is_gone = is_gone;
            sealed
        };
        Ok(due.iter().map(encode).collect())
    }

    /// Copies the samples to seal of a group, in order of slots. The second value is true if the
    /// head has none of its series.
    fn copy_group(&self, due: DueGroup, sequence: u64) -> (GroupSampleCopies, bool) {
        let of_group = self
            .head
            .numbers
            .group_numbers(due.group)
            .unwrap_or_default();
        let end = self.head.index.published_end().min(of_group.end);
        let mut cursor = SeriesCursor::new(&self.head.index.dictionary);
        let mut places: Vec<(usize, ShardLocalId, SeriesRef)> = (of_group.start..end)
            .map(SeriesRef)
            .filter_map(|slot| {
                let place = cursor
                    .place(slot)
                    .filter(|place| *place != HeadSeriesPlace::EVICTED)?;
                let (shard, local) = self.head.decode_place(place);
                Some((shard, local, slot))
            })
            .collect();
        places.sort_unstable();
        let range = TimeRange::new(i64::MIN, due.end);
        let mut taken = GroupSampleCopies::default();
        for of_shard in places.chunk_by(|a, b| a.0 == b.0) {
            for slice in of_shard.chunks(SLICE) {
                let held = lock(&self.head.shards[slice[0].0]);
                for (shard, local, slot) in slice {
                    let Some(series) = held.series_of_slot(*local, *slot) else {
                        continue;
                    };
                    let hidden = held.count_hidden(*local, series, sequence);
                    if taken.copies.add(series, range, hidden) {
                        taken.series.push(CopiedSeries {
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
        // The builder of the page checks the same order again.
        debug_assert!(taken.series.is_sorted_by(|a, b| a.slot < b.slot));
        (taken, places.is_empty())
    }

    /// Makes the pages of a group visible to readers and drops their samples from the head.
    fn publish_group(
        &self,
        state: &mut MaintenanceState,
        mut sealed: EncodedGroup,
        entries: PageEntries,
        stance: UnsealablePolicy,
    ) -> Result<(), Error> {
        let group = sealed.due.group;
        self.pages
            .publish(entries, std::mem::take(&mut sealed.pages))?;
        failpoints::turn();
        if let Some(stuck) = &sealed.stuck
            && stance == UnsealablePolicy::GiveUp
        {
            self.give_up_group(group, stuck);
        }
        self.drop_sealed(&mut sealed.cuts)?;
        failpoints::turn();
        let (due, unsealed_after) = (sealed.due, sealed.unsealed_after);
        state
            .coverage
            .record_sealed(due, unsealed_after, sealed.is_gone);
        let stuck = sealed.stuck.filter(|_| stance == UnsealablePolicy::Keep);
        self.record_seal_result(state, group, stuck);
        Ok(())
    }

    /// Drops the samples that are in a page from the head.
    fn drop_sealed(&self, cuts: &mut [SeriesSealPoint]) -> Result<(), Error> {
        cuts.sort_unstable_by_key(|cut| (cut.shard, cut.local));
        for of_shard in cuts.chunk_by(|a, b| a.shard == b.shard) {
            for slice in of_shard.chunks(SLICE) {
                let mut shard = lock(&self.head.shards[slice[0].shard]);
                for cut in slice {
                    shard
                        .drop_through(cut.local, cut.slot, cut.time)
                        .map_err(malformed_error)?;
                }
            }
        }
        Ok(())
    }

    /// Seals the samples of the head before `end`. Returns whether there were none left.
    pub(super) fn seal_before(
        &self,
        state: &mut MaintenanceState,
        end: TimestampMs,
    ) -> Result<bool, Error> {
        let groups = self.find_groups_before(end);
        if groups.is_empty() {
            return Ok(true);
        }
        let end = end.saturating_sub(1);
        let due: Vec<DueGroup> = groups
            .into_iter()
            .map(|group| DueGroup { group, end })
            .collect();
        self.record_mark(state);
        self.seal_groups(state, &due, self.pages.space.log_reserve_bytes(false))?;
        Ok(false)
    }

    /// Returns the groups with samples before `end` in the head. Visits every series, in slices.
    fn find_groups_before(&self, end: TimestampMs) -> BTreeSet<GroupId> {
        let mut groups = BTreeSet::new();
        for shard in &self.head.shards {
            let mut first = 0;
            loop {
                let shard = lock(shard);
                let last = shard.end().min(first + VISITED_SLICE);
                let series = (first..last).filter_map(|local| shard.series(ShardLocalId(local)));
                let older = series.filter(|s| s.range().is_some_and(|range| range.min < end));
                groups.extend(older.map(|series| self.head.numbers.group_of(series.slot)));
                first = last;
                if last == shard.end() {
                    break;
                }
            }
        }
        groups
    }

    /// Seals all samples of the closed log up to its last record.
    pub(super) fn seal_all(
        &self,
        state: &mut MaintenanceState,
        last: LogPosition,
    ) -> Result<(), Error> {
        // Only samples that every reader may see can be sealed.
        self.head.watermark.wait_for_readers();
        self.record_mark(state);
        let all = state
            .coverage
            .list_all_groups(self.head.newest.load(Ordering::Acquire));
        loop {
            let before = self.metrics.sealed_samples.get();
            self.seal_groups(state, &all, 0)?;
            if state.coverage.covered_position() >= last {
                return Ok(());
            }
            // A column that is too long for one page is sealed in several passes.
            if self.metrics.sealed_samples.get() == before {
                let message = "some samples are not in any page; the log is kept";
                return Err(Error::new(ErrorKind::Internal, message.to_owned()));
            }
        }
    }

    /// Adds a mark with the current log position and data time to the coverage.
    pub(super) fn record_mark(&self, state: &mut MaintenanceState) {
        // In this order: see `Coverage::record_mark`.
        let newest = || self.head.newest.load(Ordering::Acquire);
        let too_early = failpoints::has(StoreFlaw::MarksTimeFirst).then(newest);
        failpoints::turn();
        let (sequence, position) = self.head.watermark.visible_position();
        failpoints::turn();
        let newest = too_early.unwrap_or_else(newest);
        let mark = CoverageMark {
            newest,
            sequence,
            position,
        };
        // The end of the last group in which slots are assigned.
        let next = self.head.index.next_slot().next_multiple_of(GROUP_SLOTS);
        let end_group = self.head.numbers.group_of(SeriesRef(next));
        let mut restored = std::mem::take(&mut *lock(&self.head.restored_groups));
        if failpoints::has(StoreFlaw::ForgetsRestored) {
            restored.clear();
        }
        state.coverage.record_mark(mark, end_group, &restored);
        if let Some(marks) = &mut state.cut_marks {
            marks.record_mark(mark);
        }
        let oldest = self.head.oldest_late_sequence();
        state.late.record_mark(mark, oldest);
    }
}

fn malformed_error(error: DecodeError) -> Error {
    Error::new(ErrorKind::Internal, error.to_string())
}
