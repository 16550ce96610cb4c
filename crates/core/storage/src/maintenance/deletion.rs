//! Deletes: hides the matching samples that are visible now, without rewriting any.
//!
//! ```text
//! look up head and blocks -> commit: tombstones of pages, head, log and blocks, durable, visible
//!     -> the head drops deleted late samples -> a cut of deleted samples begins again
//! ```
//!
//! A cut, a merge or [`super::compaction::Compactor::clean_tombstones`] leaves the samples out of
//! the block that it writes, and removes the tombstones. Invariants: a sample that is not visible
//! when the delete begins is not hidden; maintenance does not move samples during a delete, except
//! for merges, after which the blocks are looked up again.

use super::cut::Cutter;
use super::flush::{DueLateSeries, LateFlusher};
use super::state::MaintenanceState;
use crate::block::BlockId;
use crate::blocks::{BlockList, Blocks, BlocksView};
use crate::error::StorageError;
use crate::failpoints::{self, StoreFlaw};
use crate::head::shard::HeadShard;
use crate::ids::{SeriesRef, ShardLocalId};
use crate::index::{HeadSeriesPlace, SeriesCursor};
use crate::parts::head::StoreHead;
use crate::parts::options::{StoreOptions, StoreSyncMode};
use crate::sealed::SealedPages;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::tombstones::{DeletedRuns, LateTombstones, StoreTombstones};
use firn_model::budget::Reservation;
use firn_model::error::{Error, ErrorKind};
use firn_model::log::{DurableLog, LogPosition};
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::DeleteRequest;
use std::sync::Arc;

/// Number of series visited under one lock: about 20 us.
const SLICE: usize = 256;

/// Maximum number of times that blocks are looked up again because a merge replaced some.
const ATTEMPTS: usize = 10;

/// Deletes samples by tombstones.
#[derive(Clone, Copy)]
pub(crate) struct SeriesDeleter<'a> {
    pub(super) options: &'a StoreOptions,
    pub(super) log: &'a dyn DurableLog,
    pub(super) head: &'a StoreHead,
    pub(super) sealed: &'a SealedPages,
    pub(super) blocks: &'a Blocks,
    pub(super) cutter: Cutter<'a>,
    pub(super) flusher: LateFlusher<'a>,
}

/// A series of the head in a shard.
#[derive(Clone, Copy)]
struct DeletedMemSeries {
    series: SeriesRef,
    local: ShardLocalId,
}

impl SeriesDeleter<'_> {
    /// Deletes the samples of a request that are visible now. They are invisible for later reads,
    /// also after a crash, once this returns.
    pub(super) fn delete(
        &self,
        state: &mut MaintenanceState,
        request: DeleteRequest<'_>,
    ) -> Result<(), Error> {
        if request.range.min > request.range.max {
            return Ok(());
        }
        if self.options.sync != StoreSyncMode::Always {
            // A tombstone must not outlive the samples that define its end.
            self.log.sync()?;
        }
        for matcher in request.sets.iter().flatten() {
            matcher.bind(request.budget, request.cancel);
        }
        let _rewrite = self.blocks.rewrites.begin();
        let reading = self.head.watermark.begin_read();
        let position = self.head.watermark.durable_position();
        let found = self.find_in_head(request)?;
        let in_order = self.list_in_order(&found, request, reading.sequence)?;
        let mut taken = self.flusher.collect_due_series(reading.sequence);
        taken.retain(|due| {
            let mut rows = due.rows(reading.sequence);
            found.binary_search(&due.slot).is_ok()
                && rows.any(|(row, _)| request.range.contains(row.time))
        });
        let late = self.late_tombstones(&taken, request.range, reading.sequence, position);
        self.commit(request, &in_order, late.as_ref())?;
        failpoints::turn();
        if !taken.is_empty() {
            let (sequence, range) = (reading.sequence, request.range);
            self.flusher.drop_rows(state, taken, |row| {
                row.sequence <= sequence && range.contains(row.time)
            });
        }
        self.cutter.restart_after_delete(state, &in_order);
        Ok(())
    }

    /// Removes the tombstones of late samples that the log does not contain any more.
    pub(super) fn forget_trimmed(&self) {
        let late = &self.blocks.view().tombstones.late;
        if late.is_empty() {
            return;
        }
        let first = self.log.positions().first;
        if late.iter().any(|late| late.position < first) {
            // The next tick repeats it.
            let _ = self.blocks.commit(|list| {
                let mut left = StoreTombstones::clone(&list.tombstones);
                left.late.retain(|late| late.position >= first);
                list.tombstones = Arc::new(left);
            });
        }
    }

    /// Returns the series of the index that match, each once.
    fn find_in_head(&self, request: DeleteRequest<'_>) -> Result<Vec<SeriesRef>, Error> {
        let mut found = Vec::new();
        for matchers in request.sets {
            let slots = self
                .head
                .index
                .lookup(matchers, request.range, request.cancel)?;
            found.extend(slots.slots());
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Returns the tombstones of in-order samples of pages and head.
    fn list_in_order(
        &self,
        found: &[SeriesRef],
        request: DeleteRequest<'_>,
        watermark: u64,
    ) -> Result<DeletedRuns, Error> {
        let range = request.range;
        let mut memory = request.budget.create_reservation();
        let mut by_shard: Vec<Vec<DeletedMemSeries>> = vec![Vec::new(); self.head.shards.len()];
        let mut ends: Vec<(SeriesRef, TimestampMs)> = Vec::with_capacity(found.len());
        let mut cursor = SeriesCursor::new(&self.head.index.dictionary);
        // In-order samples of a series that is restored from now on are not older.
        let evicted_end = self
            .head
            .evicted_to
            .load(Ordering::Relaxed)
            .saturating_sub(1);
        for series in found {
            match cursor.place(*series) {
                None => {}
                Some(HeadSeriesPlace::EVICTED) => ends.push((*series, evicted_end)),
                Some(place) => {
                    let (shard, local) = self.head.decode_place(place);
                    let series = *series;
                    by_shard[shard].push(DeletedMemSeries { series, local });
                }
            }
        }
        for (shard, wanted) in self.head.shards.iter().zip(&by_shard) {
            for slice in wanted.chunks(SLICE) {
                let shard = lock(shard);
                for one in slice {
                    if let Some(end) = self.visible_end(&shard, *one, watermark, &mut memory)? {
                        ends.push((one.series, end));
                    }
                }
            }
        }
        let cut = self.blocks.view().cut;
        let mut ranges: Vec<(u64, TimeRange)> = Vec::with_capacity(ends.len());
        for (series, end) in ends {
            let deleted = TimeRange::new(range.min, range.max.min(end));
            if deleted.min <= deleted.max && deleted.max >= cut {
                ranges.push((self.head.numbers.slot(series).0, deleted));
            }
        }
        ranges.sort_unstable_by_key(|(slot, _)| *slot);
        Ok(ranges.into_iter().collect())
    }

    /// Returns a time that no visible in-order sample of a series is after, and that all later ones
    /// are after. Returns `None` if no sample of the series is visible.
    fn visible_end(
        &self,
        shard: &HeadShard,
        one: DeletedMemSeries,
        watermark: u64,
        memory: &mut Reservation,
    ) -> Result<Option<TimestampMs>, Error> {
        let Some(series) = shard.series_of_slot(one.local, one.series) else {
            return Ok(None);
        };
        if !series.has_newest() {
            return Ok(None);
        }
        let hidden = shard.count_hidden(one.local, series, watermark);
        if failpoints::has(StoreFlaw::DeletesLaterSamples) {
            return Ok(Some(TimestampMs::MAX));
        }
        if hidden == 0 {
            return Ok(Some(series.open.last_time()));
        }
        // The slot of a series whose creation is not durable may be assigned again after a crash.
        if hidden >= series.sample_count() && !self.has_page(one.series, memory)? {
            return Ok(None);
        }
        let end = series.end_before_newest(hidden);
        end.map(Some).map_err(|e| {
            let text = format!("a chunk in memory cannot be decoded: {e}");
            Error::new(ErrorKind::Internal, text)
        })
    }

    /// Returns whether a page contains samples of the series.
    fn has_page(&self, series: SeriesRef, memory: &mut Reservation) -> Result<bool, Error> {
        let group = self.head.numbers.group_of(series);
        let slot = self.head.numbers.slot(series);
        let directory = &self.sealed.directory;
        let pages = directory.find_overlapping([group].into_iter(), TimeRange::ALL, memory)?;
        memory.shrink_to(0);
        let mut pages = pages.iter().flat_map(|(_, pages)| pages);
        Ok(pages.any(|page| page.has_series(slot)))
    }

    /// Returns the tombstones of late samples in the log.
    fn late_tombstones(
        &self,
        taken: &[DueLateSeries],
        range: TimeRange,
        sequence: u64,
        position: LogPosition,
    ) -> Option<LateTombstones> {
        let slots = taken.iter().map(|due| self.head.numbers.slot(due.slot).0);
        let mut slots: Vec<u64> = slots.collect();
        slots.sort_unstable();
        (!slots.is_empty()).then(|| LateTombstones {
            sequence,
            position,
            runs: slots.into_iter().map(|slot| (slot, range)).collect(),
        })
    }

    /// Adds the tombstones to the list of blocks, with those of the blocks.
    fn commit(
        &self,
        request: DeleteRequest<'_>,
        in_order: &DeletedRuns,
        late: Option<&LateTombstones>,
    ) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let (list, view) = self.blocks.list_and_view();
            check_readable(&list, &view, request.range)?;
            let of_blocks = find_in_blocks(&view, request)?;
            if in_order.is_empty() && late.is_none() && of_blocks.is_empty() {
                return Ok(());
            }
            failpoints::turn();
            let mut is_current = false;
            self.blocks.commit(|list| {
                is_current = view.blocks.iter().all(|open| list.contains(open.entry.id));
                if is_current {
                    let all = list.tombstones.with(in_order, late.cloned(), &of_blocks);
                    list.tombstones = Arc::new(all);
                }
            })?;
            if is_current {
                return Ok(());
            }
        }
        let text = format!("blocks were merged {ATTEMPTS} times during the delete: repeat it");
        Err(Error::new(ErrorKind::Unavailable, text))
    }
}

/// Returns an error if a block with samples in `range` cannot be read: after a repair its samples
/// would be visible.
fn check_readable(list: &BlockList, view: &BlocksView, range: TimeRange) -> Result<(), Error> {
    let is_open = |id: BlockId| view.blocks.iter().any(|open| open.entry.id == id);
    let mut overlapping = list
        .blocks
        .iter()
        .filter(|entry| entry.range.overlaps(&range));
    match overlapping.find(|entry| !is_open(entry.id)) {
        Some(entry) => Err(StorageError::DeletesInBadBlock {
            block: entry.id.to_string(),
        }
        .into()),
        None => Ok(()),
    }
}

/// Returns the tombstones of each block with a matching series.
fn find_in_blocks(
    view: &BlocksView,
    request: DeleteRequest<'_>,
) -> Result<Vec<(BlockId, DeletedRuns)>, Error> {
    let mut of_blocks = Vec::new();
    let mut memory = request.budget.create_reservation();
    for open in view.find_overlapping(request.range) {
        let mut ordinals = Vec::new();
        for matchers in request.sets.iter().filter(|set| open.may_match(set)) {
            ordinals.append(&mut open.block.lookup(matchers, request.cancel, &mut memory)?);
        }
        ordinals.sort_unstable();
        ordinals.dedup();
        let series = ordinals
            .into_iter()
            .map(|ordinal| (u64::from(ordinal), request.range));
        let runs: DeletedRuns = series.collect();
        if !runs.is_empty() {
            of_blocks.push((open.entry.id, runs));
        }
        memory.shrink_to(0);
    }
    Ok(of_blocks)
}
