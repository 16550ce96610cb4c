//! Replay of late samples from the log.
//!
//! Late samples were never appended in order, so pages give no information about them. Instead, a
//! position of the log determines which of them are in blocks. Those after that position are
//! restored to the tables of late rows with their original sequence numbers, so that the rule for
//! equal times gives the same result as before. All of them are visible to every reader.

use super::ReplayState;
use super::series::ReplaySeriesTable;
use crate::chunk::ChunkSample;
use crate::failpoints::{self, StoreFlaw};
use crate::head::late::LateRow;
use crate::ids::SeriesSlot;
use crate::index::EpochLeafCache;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::lock;
use crate::tombstones::StoreTombstones;
use firn_model::log::{DecimalHint, LogBatch, LogPosition};
use firn_model::sample::TimestampMs;

/// A late row of the log, with the slot of its series.
struct LateLogRow {
    slot: SeriesSlot,
    start: TimestampMs,
    row: LateRow,
}

/// State of the replay of late samples.
pub(super) struct LateReplay {
    /// Blocks contain the late samples of records up to this position.
    from: LogPosition,
    /// The highest sequence number of a batch with late samples.
    newest: AtomicU64,
    /// Rows whose series is not found yet.
    orphans: Mutex<Vec<LateLogRow>>,
}

impl LateReplay {
    /// Returns the initial state. Blocks contain the late samples of records up to `from`.
    pub(super) fn new(from: LogPosition) -> Self {
        Self {
            from,
            newest: AtomicU64::new(0),
            orphans: Mutex::default(),
        }
    }

    /// Returns the highest sequence number of a batch with late samples in the part of the log read
    /// so far.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// Removes the late samples that are in blocks or deleted from the batch at `position`.
    pub(super) fn drop_unneeded_rows(
        &self,
        position: LogPosition,
        batch: &mut LogBatch,
        tombstones: &StoreTombstones,
    ) {
        if !batch.has_late() {
            return;
        }
        if failpoints::has(StoreFlaw::NumbersLateByPosition) {
            batch.late_order = position.0;
        }
        self.newest.fetch_max(batch.late_order, Ordering::Relaxed);
        if position <= self.from {
            batch.late_floats = Default::default();
            batch.late_histograms.clear();
        }
        let order = batch.late_order;
        if !tombstones.may_have_late(position, order)
            || failpoints::has(StoreFlaw::ReplaysDeletedLate)
        {
            return;
        }
        let is_deleted = |slot, time| tombstones.has_late(position, order, SeriesSlot(slot), time);
        let before = std::mem::take(&mut batch.late_floats);
        for row in before.iter().filter(|row| !is_deleted(row.slot, row.time)) {
            batch.late_floats.push(row, DecimalHint::NONE);
        }
        batch
            .late_histograms
            .retain(|row| !is_deleted(row.slot, row.time));
    }
}

impl ReplayState<'_> {
    /// Adds the late samples of a batch to the tables of their shards. Those whose series is not
    /// found yet are kept.
    pub(super) fn apply_late_batch(&self, batch: &LogBatch, known: &ReplaySeriesTable) {
        let sequence = batch.late_order;
        let row = |time, value| LateRow {
            time,
            sequence,
            value,
        };
        let floats = batch.late_floats.iter().map(|float| LateLogRow {
            slot: SeriesSlot(float.slot),
            start: float.start,
            row: row(float.time, ChunkSample::Float(float.value)),
        });
        let histograms = batch.late_histograms.iter().map(|histogram| LateLogRow {
            slot: SeriesSlot(histogram.slot),
            start: histogram.start,
            row: row(
                histogram.time,
                ChunkSample::Histogram(histogram.value.clone()),
            ),
        });
        let unknown = self.apply_late_rows(floats.chain(histograms), known);
        lock(&self.late.orphans).extend(unknown);
    }

    /// Adds rows to the tables of their shards. Returns those whose series is not found.
    fn apply_late_rows(
        &self,
        rows: impl Iterator<Item = LateLogRow>,
        known: &ReplaySeriesTable,
    ) -> Vec<LateLogRow> {
        let mut unknown = Vec::new();
        let (mut marker, mut numbers) = (EpochLeafCache::default(), known.groups.cursor());
        for LateLogRow { slot, start, row } in rows {
            // Also slots without a series: a series created later must not inherit them.
            self.record_slot(slot);
            let Some((series, place)) = known.find(&mut numbers, slot) else {
                unknown.push(LateLogRow { slot, start, row });
                continue;
            };
            if failpoints::has(StoreFlaw::SkipsLateSealed) && known.is_sealed(series, row.time) {
                continue;
            }
            let (number, local) = self.store.head.decode_place(place);
            self.store
                .head
                .index
                .mark_late(&mut marker, series, row.time);
            let mut shard = lock(&self.store.head.shards[number]);
            shard.late.insert(local, row, start);
        }
        unknown
    }

    /// Adds the late samples whose series was created in a later record to the tables. Those
    /// without a series belong to removed series, or to series whose creation was never acked.
    pub(super) fn apply_late_orphans(&self) {
        let orphans = std::mem::take(&mut *lock(&self.late.orphans));
        self.apply_late_rows(orphans.into_iter(), &lock(&self.known));
        let shards = self.store.head.shards.iter();
        let bytes: usize = shards.map(|shard| lock(shard).late.memory_bytes()).sum();
        self.store.metrics.late_memory.set(bytes as i64);
    }
}
