//! The flush: moves late samples from the head into late blocks.
//!
//! ```text
//! due -> rows of all batches that every reader sees -> blocks, one for each window of data time
//!     -> manifest: blocks, and the log position up to which late samples are in blocks
//!     -> readers find the blocks -> the head drops the rows -> the log can be trimmed
//! ```
//!
//! A reader copies the head before it takes its view of the blocks, so it finds a row once or twice
//! and never misses it; a row found twice is the same in both. A crash before the manifest is
//! written leaves folders that it does not contain, and the rows in the log. If a crash happens
//! later, replay skips the rows.
//!
//! All rows of batches up to a mark are flushed together, so that the log is not needed for late
//! samples up to the position of the mark. Rows are due when the oldest one arrived a window of
//! data time ago, when they take too much memory, or when the log that contains them is too long.

use super::state::{MaintenanceState, PAUSE};
use crate::blocks::Blocks;
use crate::failpoints::{self, StoreFlaw};
use crate::head::late::{LateRow, LateSeries};
use crate::head::shard::HeadShard;
use crate::ids::{SeriesRef, ShardLocalId};
use crate::import::{ImportBuffer, ImportTarget};
use crate::parts::head::StoreHead;
use crate::parts::metrics::StoreMetrics;
use crate::parts::options::{StoreOptions, StoreSyncMode};
use crate::sync::lock;
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::log::DurableLog;
use firn_model::sample::{TimeRange, TimestampMs};
use std::sync::Arc;

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

/// Flushes late samples from the head into late blocks.
#[derive(Clone, Copy)]
pub(crate) struct LateFlusher<'a> {
    pub(super) options: &'a StoreOptions,
    pub(super) env: &'a Env,
    pub(super) log: &'a dyn DurableLog,
    pub(super) head: &'a StoreHead,
    pub(super) blocks: &'a Arc<Blocks>,
    pub(super) metrics: &'a StoreMetrics,
}

impl LateFlusher<'_> {
    /// Flushes the late samples if they are due.
    pub(super) fn flush_if_due(&self, state: &mut MaintenanceState) {
        let now = self.env.clock.monotonic();
        if now < state.flush_not_before || !self.is_due(state) {
            return;
        }
        if let Err(e) = self.flush(state) {
            self.metrics.flush_failures.inc();
            tracing::error!(error = %e, "failed to flush late samples to blocks");
            state.flush_not_before = now.saturating_add(PAUSE);
        }
    }

    /// Moves the late samples that every reader sees into blocks.
    pub(crate) fn flush(&self, state: &mut MaintenanceState) -> Result<(), Error> {
        let (sequence, position) = self.head.watermark.visible_position();
        let reading = self.head.watermark.begin_read_visible_to_all();
        // An earlier reader is still copying, and blocks would show it rows that it must not see.
        if reading.sequence < sequence {
            return Ok(());
        }
        if self.options.sync != StoreSyncMode::Always {
            // A block survives a power loss, so all other parts of its batches must survive one
            // too.
            self.log.sync()?;
        }
        let mut taken = self.collect_due_series(sequence);
        if taken.is_empty() {
            return Ok(());
        }
        let mut import = ImportTarget::from_blocks(self.env, self.blocks).begin();
        let mut buffer = self.build_flush_buffer(&taken, sequence);
        let rows = buffer.sample_count();
        buffer.flush(&mut import)?;
        if failpoints::has(StoreFlaw::DropsLateFirst) {
            let taken = std::mem::take(&mut taken);
            self.drop_rows(state, taken, |row| row.sequence <= sequence);
        }
        failpoints::turn();
        let flushed = import.commit_late_through(position)?;
        // The head drops all of these rows.
        assert_eq!(flushed.samples, rows, "late samples in blocks");
        drop(reading);
        failpoints::turn();
        self.drop_rows(state, taken, |row| row.sequence <= sequence);
        self.metrics.flushed_samples.add(flushed.samples);
        self.metrics.block_bytes_written.add(flushed.bytes);
        Ok(())
    }

    /// Returns the rows to flush. If several rows of a series have the same time, only the one that
    /// takes precedence is kept.
    fn build_flush_buffer(&self, taken: &[DueLateSeries], sequence: u64) -> ImportBuffer {
        let duplicates = self.options.duplicates;
        let mut buffer = ImportBuffer::new(self.options.cut_ms);
        for due in taken {
            let labels = self.head.index.dictionary.series_labels(due.slot);
            let mut rows = due.rows(sequence).peekable();
            while let Some(mut stays) = rows.next() {
                while let Some(next) = rows.next_if(|(next, _)| next.time == stays.0.time) {
                    if duplicates.replaces(&stays.0.value, &next.0.value) {
                        stays = next;
                    }
                }
                let (row, start) = stays;
                buffer.push(labels.as_ref(), row.time, start, row.value.clone());
            }
        }
        buffer
    }

    /// Returns whether late rows are due for a flush.
    pub(crate) fn is_due(&self, state: &MaintenanceState) -> bool {
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
    pub(crate) fn collect_due_series(&self, sequence: u64) -> Vec<DueLateSeries> {
        let mut due = Vec::new();
        for (number, shard) in self.head.shards.iter().enumerate() {
            let shard = lock(shard);
            if shard.late.oldest().is_none_or(|oldest| oldest > sequence) {
                continue;
            }
            due.extend(collect_shard_series(number, &shard, sequence));
        }
        due.sort_unstable_by_key(|due| due.slot);
        due
    }

    /// Drops the rows of the series in `taken` for which `is_gone` is true, after readers can find
    /// them in blocks, or after they were deleted.
    pub(crate) fn drop_rows(
        &self,
        state: &mut MaintenanceState,
        mut taken: Vec<DueLateSeries>,
        is_gone: impl Fn(&LateRow) -> bool,
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
                    shard.late.drop_rows(due.local, &is_gone);
                }
                let freed = before - shard.late.memory_bytes();
                self.metrics.late_memory.add(-(freed as i64));
            }
            let mut shard = lock(shard);
            shard.late.settle();
            self.mark_late_rows(&shard);
        }
        self.head.index.end_late_marks();
        let oldest = self.head.oldest_late_sequence();
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
fn collect_shard_series(number: usize, shard: &HeadShard, sequence: u64) -> Vec<DueLateSeries> {
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
