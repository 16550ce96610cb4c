//! The sweep: repeated rounds over all series, a share of them with each tick.
//!
//! It counts series for the gauges, drops chunks that are older than the retention, evicts silent
//! series and removes those without samples. After each complete pass over a shard, it releases
//! memory that a peak left behind. The whole head is visited every [`SWEEP_TICKS`] ticks regardless
//! of its size, and no tick does more than its share. Retention follows data time.

use super::state::MaintenanceState;
use crate::failpoints::{self, StoreFlaw};
use crate::ids::{SeriesRef, ShardLocalId};
use crate::index::epoch_from_time;
use crate::parts::head::StoreHead;
use crate::parts::metrics::StoreMetrics;
use crate::parts::options::LogTrimming;
use crate::parts::retention::RetentionPolicy;
use crate::sealed::SealedPages;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use firn_model::sample::TimestampMs;

/// Number of ticks for a sweep of the whole head, and so the maximum age of the gauges in seconds.
const SWEEP_TICKS: usize = 8;

/// Number of series visited under one lock: about 10 us.
const SLICE: u32 = 1_024;

/// Number of ticks for a round over the evicted series, and for a faster round after an epoch of
/// two hours was dropped: the evicted series whose last sample was in that epoch can then be
/// removed.
const EVICTED_TICKS: u32 = 256;
const EVICTED_HURRIED_TICKS: u32 = 16;

/// Number of evicted series visited under one lock of the index.
const EVICTED_SLICE: u32 = 4_096;

/// Maximum age in milliseconds of the newest sample of an active series, relative to the newest
/// sample of the store.
const ACTIVE_MS: i64 = 20 * 60_000;

/// Sweeps the series of the head and of the index.
#[derive(Clone, Copy)]
pub(crate) struct Sweeper<'a> {
    pub(super) trimming: LogTrimming,
    pub(super) head: &'a StoreHead,
    pub(super) sealed: &'a SealedPages,
    pub(super) policy: RetentionPolicy<'a>,
    pub(super) metrics: &'a StoreMetrics,
}

impl Sweeper<'_> {
    /// Frees the series and terms of the index that no reader holds any more.
    pub(super) fn free_garbage(&self, state: &mut MaintenanceState) {
        let garbage = std::mem::take(&mut state.garbage);
        let held = garbage
            .into_iter()
            .filter_map(|garbage| self.head.index.free_garbage(garbage));
        state.garbage = held.collect();
    }

    /// Sweeps this tick's share of the series: removes those whose samples left the retention, and
    /// updates the metrics of memory.
    pub(super) fn sweep_share(&self, state: &mut MaintenanceState) {
        let Some(newest) = self.head.newest() else {
            return;
        };
        let cutoff = self.policy.retaining.cutoff_at(newest);
        let has_dropped = self
            .head
            .index
            .drop_epochs_before(epoch_from_time(self.policy.head_read_start()));
        // Places without a series are visited too.
        let slices = state.places / SLICE as usize + self.head.shards.len();
        let mut gone = Vec::new();
        let mut is_round = false;
        for _ in 0..slices.div_ceil(SWEEP_TICKS) {
            is_round |= self.sweep_slice(state, newest, cutoff, &mut gone);
        }
        if !gone.is_empty() {
            gone.sort_unstable();
            self.metrics.removed_series.add(gone.len() as u64);
            state.garbage.push(self.head.index.remove_series(&gone));
        }
        self.remove_evicted(state, has_dropped);
        let mut chunks = 0;
        let mut late = 0;
        let mut tables = 0;
        state.places = 0;
        for shard in &self.head.shards {
            let mut shard = lock(shard);
            shard.drop_visible_batches(self.head.watermark.visible_to_all());
            chunks += shard.chunk_bytes;
            late += shard.late.memory_bytes();
            tables += shard.table_bytes();
            state.places += shard.end() as usize;
        }
        self.metrics.chunk_memory.set(chunks as i64);
        self.metrics.late_memory.set(late as i64);
        self.metrics.table_memory.set(tables as i64);
        if is_round {
            self.sealed.cache.evict_idle(newest);
            let bytes = self.head.index.memory_bytes();
            self.metrics.index_memory.set(bytes as i64);
            self.metrics.new_series_memory.set(0);
        }
    }

    /// Sweeps one slice of one shard and moves on to the next. Returns whether a round is complete.
    fn sweep_slice(
        &self,
        state: &mut MaintenanceState,
        newest: TimestampMs,
        cutoff: TimestampMs,
        gone: &mut Vec<SeriesRef>,
    ) -> bool {
        let evict_before = newest.saturating_sub(self.head.lateness_ms());
        self.head
            .evicted_to
            .fetch_max(evict_before, Ordering::Relaxed);
        let mut idle = Vec::new();
        let mut shard = lock(&self.head.shards[state.shard]);
        let end = shard.end().min(state.local.0 + SLICE);
        for local in (state.local.0..end).map(ShardLocalId) {
            let Some(series) = shard.series_mut(local) else {
                continue;
            };
            if series.open.last_time() >= newest.saturating_sub(ACTIVE_MS) {
                state.active += 1;
            }
            let freed = series.drop_before(cutoff);
            // New samples must be newer than the sealed ones. A series that never had a sample is
            // idle too: a batch that is about to append one counts as appending.
            let is_idle = series.chunk_count() == 0
                && (!series.has_newest() || series.open.last_time() < evict_before);
            let slot = series.slot;
            shard.chunk_bytes -= freed;
            if is_idle && !shard.late.has(local) {
                idle.push((slot, local));
            }
        }
        let is_end = end == shard.end();
        if is_end {
            shard.active = std::mem::take(&mut state.active);
        }
        drop(shard);
        failpoints::turn();
        self.evict_idle_series(state.shard, &idle, gone);
        state.local = ShardLocalId(end);
        if is_end {
            lock(&self.head.shards[state.shard]).shrink();
            state.local = ShardLocalId(0);
            state.shard = (state.shard + 1) % self.head.shards.len();
        }
        is_end && state.shard == 0
    }

    /// Removes idle series from a shard. Series with samples in pages are evicted, the others are
    /// added to `gone`.
    ///
    /// If the log keeps its records, all series are evicted. A replay of the whole log takes an
    /// older series with the labels of a newer one as deleted with its samples, so a series must
    /// have one slot for as long as the log has its records.
    fn evict_idle_series(
        &self,
        number: usize,
        idle: &[(SeriesRef, ShardLocalId)],
        gone: &mut Vec<SeriesRef>,
    ) {
        if idle.is_empty() {
            return;
        }
        // Creation takes the locks in the same order, so that no series is restored before it is
        // evicted.
        let mut creation = self.head.index.create_series();
        let mut shard = lock(&self.head.shards[number]);
        if shard.appending > 0 && !failpoints::has(StoreFlaw::EvictsAppending) {
            return;
        }
        let members = self.head.index.members();
        let mut evicted = Vec::new();
        for (slot, local) in idle {
            let series = shard.series_of_slot(*local, *slot);
            if series.is_none_or(|s| s.chunk_count() > 0) || shard.late.has(*local) {
                continue;
            }
            shard.remove(*local);
            let is_needed = members.contains(*slot) || self.trimming == LogTrimming::Never;
            if is_needed && !failpoints::has(StoreFlaw::RemovesSealed) {
                evicted.push(*slot);
            } else {
                gone.push(*slot);
            }
        }
        evicted.sort_unstable();
        self.metrics.evicted_series.add(evicted.len() as u64);
        creation.evict_series(&evicted);
    }

    /// Removes this tick's share of the evicted series all of whose samples are older than the
    /// retention.
    fn remove_evicted(&self, state: &mut MaintenanceState, has_dropped: bool) {
        if self.trimming == LogTrimming::Never {
            return;
        }
        let MaintenanceState {
            evicted, garbage, ..
        } = state;
        let end = self.head.index.next_slot();
        if has_dropped {
            evicted.hurried = end;
        }
        let ticks = match evicted.hurried {
            0 => EVICTED_TICKS,
            _ => EVICTED_HURRIED_TICKS,
        };
        for _ in 0..(end / ticks).div_ceil(EVICTED_SLICE).max(1) {
            let first = evicted.next;
            let last = end.min(first.saturating_add(EVICTED_SLICE));
            evicted.next = if last == end { 0 } else { last };
            evicted.hurried = evicted.hurried.saturating_sub(last - first);
            if let Some((count, left)) = self.head.index.remove_evicted(first, last) {
                self.metrics.removed_series.add(count as u64);
                garbage.push(left);
            }
        }
    }
}
