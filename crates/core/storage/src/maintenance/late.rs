//! Late samples in the head: when they are due for a flush, which ones are flushed, and their
//! removal from the head.
//!
//! All rows of batches up to a mark are flushed together, so that the log is not needed for late
//! samples up to the position of the mark. Rows are due when the oldest one arrived a window of
//! data time ago, when they take too much memory, or when the log that contains them is too long.

use super::Maintenance;
use super::state::MaintenanceState;
use crate::head::late::{LateRow, LateSeries};
use crate::head::shard::HeadShard;
use crate::ids::{SeriesRef, ShardLocalId};
use crate::sync::lock;
use firn_model::sample::{TimeRange, TimestampMs};

/// Number of series whose rows are dropped under one lock: about 50 us.
const SLICE: usize = 64;

/// The late rows of a series, some of which are due for a flush.
#[derive(Debug)]
pub(crate) struct DueLateSeries {
    shard: usize,
    local: ShardLocalId,
    pub(crate) slot: SeriesRef,
    /// The late samples of the series, shared with the head.
    rows: LateSeries,
}

impl DueLateSeries {
    /// Returns the rows of batches up to `sequence` with their start timestamps, in order of time
    /// and then of arrival.
    pub(crate) fn rows(&self, sequence: u64) -> impl Iterator<Item = (&LateRow, TimestampMs)> {
        let rows = self.rows.rows(TimeRange::ALL);
        rows.filter(move |(row, _)| row.sequence <= sequence)
    }
}

impl Maintenance {
    /// Returns the smallest sequence number of a batch with a late row in the head.
    pub(super) fn oldest_late_sequence(&self) -> Option<u64> {
        let shards = self.head.shards.iter();
        shards.filter_map(|shard| lock(shard).late.oldest()).min()
    }

    /// Returns whether late rows are due for a flush.
    pub(crate) fn is_late_flush_due(&self, state: &MaintenanceState) -> bool {
        let Some(since) = state.late.oldest_row_time() else {
            return false;
        };
        // A store with only late samples has no newest time yet.
        let age = self
            .head
            .newest()
            .map_or(0, |newest| newest.saturating_sub(since));
        let bytes = usize::try_from(self.metrics.late_memory.get()).unwrap_or(0);
        let pressure = self.log.pressure();
        age >= self.options.window_ms
            || bytes > self.options.late_bytes_max()
            || pressure.is_disk_full
            || pressure.unsealed_bytes > self.options.backlog_bytes_max / 2
    }

    /// Returns the series with late rows of batches up to `sequence`, by slot. The rows remain in
    /// the head.
    pub(crate) fn collect_late_series(&self, sequence: u64) -> Vec<DueLateSeries> {
        let mut due = Vec::new();
        for (number, shard) in self.head.shards.iter().enumerate() {
            let shard = lock(shard);
            if shard.late.oldest().is_none_or(|oldest| oldest > sequence) {
                continue;
            }
            due.extend(collect_due_series(number, &shard, sequence));
        }
        due.sort_unstable_by_key(|due| due.slot);
        due
    }

    /// Drops the rows of batches up to `sequence` of the series in `taken`, after readers can find
    /// them in blocks.
    pub(crate) fn drop_flushed_rows(
        &self,
        state: &mut MaintenanceState,
        mut taken: Vec<DueLateSeries>,
        sequence: u64,
    ) {
        taken.sort_unstable_by_key(|due| (due.shard, due.local));
        self.head.index.begin_late_marks();
        for (number, shard) in self.head.shards.iter().enumerate() {
            let first = taken.partition_point(|due| due.shard < number);
            let end = taken.partition_point(|due| due.shard <= number);
            for slice in taken[first..end].chunks(SLICE) {
                let mut shard = lock(shard);
                let before = shard.late.memory_bytes();
                for due in slice {
                    shard.late.drop_through(due.local, sequence);
                }
                let freed = before - shard.late.memory_bytes();
                self.metrics.late_memory.add(-(freed as i64));
            }
            let mut shard = lock(shard);
            shard.late.settle();
            self.mark_late_rows(&shard);
        }
        self.head.index.end_late_marks();
        let oldest = self.oldest_late_sequence();
        state.late.advance_covered(oldest);
    }

    /// Adds the remaining late rows of a shard to the new marks.
    fn mark_late_rows(&self, shard: &HeadShard) {
        for (local, rows) in shard.late.iter() {
            if let (Some(series), Some(range)) = (shard.series(local), rows.range()) {
                self.head.index.keep_late_mark(series.slot, range);
            }
        }
    }
}

/// Returns the series of a shard with late rows of batches up to `sequence`.
fn collect_due_series(number: usize, shard: &HeadShard, sequence: u64) -> Vec<DueLateSeries> {
    let with_rows = shard
        .late
        .iter()
        .filter(|(_, rows)| rows.has_through(sequence));
    let due = with_rows.filter_map(|(local, rows)| {
        Some(DueLateSeries {
            shard: number,
            local,
            slot: shard.series(local)?.slot,
            rows: rows.clone(),
        })
    });
    due.collect()
}
