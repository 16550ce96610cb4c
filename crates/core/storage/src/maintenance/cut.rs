//! The cut: moves two hours of data time from pages into a block.
//!
//! ```text
//! due -> no in-order sample before the end is accepted any more
//!     -> samples in the head before the end are sealed
//!     -> a partition of the series with each tick: columns from pages, into the block
//!     -> block synced -> manifest: block and cut time -> readers
//!     -> pages, epochs and silent series are removed
//! ```
//!
//! Nothing waits for the cut: appends continue, and readers use pages until the manifest is
//! committed. A tick does one share, or more if further cuts are due. The cut holds the columns of
//! one partition, so its memory does not depend on the size of the block. A crash leaves a folder
//! that is not in the manifest. Damaged pages that a cut skips are removed afterwards, so a cut
//! waits for pages that the disk temporarily fails to read. Invariant: after the commit every
//! in-order sample before the cut time is in a block, and none is in the head.

mod order;
mod pass;
pub(super) mod progress;

pub(super) use pass::CutSources;

use super::disk_space::DiskSpace;
use super::seal::Sealer;
use super::state::{MaintenanceState, PAUSE};
use crate::block::{BlockId, BlockMeta, BlockSpec, BlockWriter};
use crate::blocks::{BlockEntry, BlockKind, Blocks};
use crate::error::StorageError;
use crate::failpoints::{self, StoreFlaw};
use crate::parts::head::StoreHead;
use crate::parts::metrics::StoreMetrics;
use crate::parts::options::StoreOptions;
use crate::tombstones::DeletedRuns;
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::sample::{TimeRange, TimestampMs};
use progress::{BlockCutProgress, BlockCutStep};
use std::time::Duration;

/// Additional steps per tick for each waiting cut.
const STEPS_EACH: i64 = 2;

/// Maximum number of additional steps per tick.
const STEPS_MAX: i64 = 32;

/// Time after which a tick starts no further step, because sealing waits for the tick.
const STEPS_WITHIN: Duration = Duration::from_millis(200);

/// Cuts blocks: closes two hours of data time, and moves its samples from pages into a block.
#[derive(Clone, Copy)]
pub(crate) struct Cutter<'a> {
    pub(super) options: &'a StoreOptions,
    pub(super) env: &'a Env,
    pub(super) head: &'a StoreHead,
    pub(super) blocks: &'a Blocks,
    pub(super) sources: CutSources<'a>,
    pub(super) sealer: Sealer<'a>,
    pub(super) space: DiskSpace<'a>,
    pub(super) metrics: &'a StoreMetrics,
}

impl Cutter<'_> {
    /// Performs this tick's share of the cut: one step, and more if further cuts are due. A replay
    /// that advances hours of data time per second therefore leaves no backlog.
    pub(super) fn run_share(&self, state: &mut MaintenanceState) {
        let now = self.env.clock.monotonic();
        if now < state.cut.not_before {
            return;
        }
        let mut steps = 0;
        while steps <= self.extra_steps_per_tick(&state.cut.step) {
            match self.run_step(state) {
                Ok(true) => steps += 1,
                Ok(false) => return,
                Err(e) => return self.abandon(state, &e),
            }
            if self.env.clock.monotonic().saturating_sub(now) >= STEPS_WITHIN {
                return;
            }
        }
    }

    /// Ends the current cut after an error: removes the incomplete block, and pauses before the
    /// next attempt.
    fn abandon(&self, state: &mut MaintenanceState, error: &Error) {
        self.metrics.cut_failures.inc();
        tracing::error!(error = %error, "failed to cut a block");
        if let BlockCutStep::Writing(writing) = std::mem::take(&mut state.cut.step) {
            let _ = writing.writer.abandon();
        }
        self.metrics.cutting.stop();
        state.cut.not_before = self.env.clock.monotonic().saturating_add(PAUSE);
    }

    /// Ends the current cut if its block may contain samples in `deleted`. The next tick begins it
    /// again.
    pub(super) fn restart_after_delete(&self, state: &mut MaintenanceState, deleted: &DeletedRuns) {
        if failpoints::has(StoreFlaw::KeepsTombstonedResult) {
            return;
        }
        match &state.cut.step {
            BlockCutStep::Writing(writing) if deleted.overlaps(writing.range) => {}
            _ => return,
        }
        if let BlockCutStep::Writing(writing) = std::mem::take(&mut state.cut.step) {
            let _ = writing.writer.abandon();
        }
        self.metrics.cutting.stop();
    }

    /// Returns the number of additional steps per tick, for the cuts that are due after the current
    /// one.
    fn extra_steps_per_tick(&self, step: &BlockCutStep) -> i64 {
        let length = self.options.cut_ms.max(1);
        let end = match step {
            // The start of the first cut is not determined yet.
            BlockCutStep::Idle if self.blocks.view().cut == i64::MIN => return 0,
            BlockCutStep::Idle => self.blocks.view().cut.saturating_add(length),
            BlockCutStep::Closing { end, .. } => *end,
            BlockCutStep::Writing(writing) => writing.end,
        };
        let closed = self.closed_time().unwrap_or(i64::MIN);
        let waiting = closed.saturating_sub(end).max(0) / length;
        waiting.saturating_mul(STEPS_EACH).min(STEPS_MAX)
    }

    /// Takes the next step. Returns whether there was one.
    fn run_step(&self, state: &mut MaintenanceState) -> Result<bool, Error> {
        match &mut state.cut.step {
            BlockCutStep::Idle => {
                let Some(end) = self.due_cut_end() else {
                    return Ok(false);
                };
                // A segment that could not be read before may be readable again, after a restart or
                // on another disk.
                state.segments.check_readable_before(end)?;
                self.head.raise_in_order_min(end);
                let sequence = self.head.watermark.newest();
                state.cut.step = BlockCutStep::Closing { end, sequence };
            }
            BlockCutStep::Closing { end, sequence } => {
                let (end, sequence) = (*end, *sequence);
                if self.head.watermark.visible_position().0 < sequence {
                    return Ok(false);
                }
                if self.sealer.seal_before(state, end)? {
                    state.cut.step = self.begin_block(end)?;
                }
            }
            BlockCutStep::Writing(writing) => {
                let is_done = self.sources.write_partition(writing)?;
                let (series, bytes) = (writing.series_done, writing.writer.written_bytes());
                self.metrics.cutting.update_progress(series, bytes);
                if !is_done {
                    return Ok(true);
                }
                failpoints::turn();
                if let BlockCutStep::Writing(writing) = std::mem::take(&mut state.cut.step) {
                    self.commit_block(*writing)?;
                }
            }
        }
        Ok(true)
    }

    /// Returns the end of the next cut if it is due: no sample before it is accepted in order any
    /// more, and pages contain all of them.
    fn due_cut_end(&self) -> Option<TimestampMs> {
        let closed = self.closed_time()?;
        let cut = self.blocks.view().cut;
        if cut != i64::MIN && self.cut_end_after(cut) > closed {
            return None;
        }
        let oldest = self.sources.find_oldest_since(cut)?;
        let end = self.cut_end_after(oldest);
        (end <= closed).then_some(end)
    }

    /// Returns the time before which cuts are due. No batch sent now has an in-order sample before
    /// it, and pages contain all of those samples.
    fn closed_time(&self) -> Option<TimestampMs> {
        self.head.newest()?.checked_sub(self.options.open_ms())
    }

    /// Raises the floor to its possible value before the restart, so that a sample that was late
    /// then is still late.
    pub(crate) fn restore_floor(&self) {
        if let Some(closed) = self.closed_time() {
            let length = self.options.cut_ms.max(1);
            self.head
                .raise_in_order_min(closed.div_euclid(length).saturating_mul(length));
        }
    }

    /// Returns the end of the cut that contains a sample at `time`.
    fn cut_end_after(&self, time: TimestampMs) -> TimestampMs {
        let length = self.options.cut_ms.max(1);
        time.div_euclid(length)
            .saturating_add(1)
            .saturating_mul(length)
    }

    /// Starts a block for the samples before `end` that are in pages and in no block.
    fn begin_block(&self, end: TimestampMs) -> Result<BlockCutStep, StorageError> {
        let view = self.blocks.view();
        let range = TimeRange::new(view.cut, end.saturating_sub(1));
        let (pages, order) = self.sources.list_series(range);
        let bytes: u64 = pages
            .iter()
            .flat_map(|(_, pages)| pages)
            .map(|p| u64::from(p.bytes))
            .sum();
        self.space.check_free_beside_log(bytes)?;
        let samples = pass::estimate_samples(&pages);
        let id = BlockId::new(end, u128::from(self.env.rng.next_u64()) << 16);
        let source = BlockSpec {
            id,
            is_late: false,
            level: 1,
            sources: vec![id],
            range: Some(TimeRange::new(
                end.saturating_sub(self.options.cut_ms.max(1)),
                end.saturating_sub(1),
            )),
        };
        let mut writer =
            BlockWriter::create(self.env, &self.blocks.prepare_block_dir(id)?, source)?;
        writer.expect_exemplars(self.sources.exemplars.len() as u64);
        let clock = &*self.env.clock;
        self.metrics.cutting.begin(clock, order.len() as u64);
        Ok(BlockCutStep::Writing(Box::new(BlockCutProgress {
            end,
            range,
            id,
            writer,
            samples_each: samples / order.len().max(1) + 1,
            samples_at_once: pass::samples_per_pass(samples),
            series_done: 0,
            order,
            pages,
            tombstones: view.tombstones.clone(),
        })))
    }

    /// Completes the block and commits it, so that readers use it instead of the pages.
    fn commit_block(&self, writing: BlockCutProgress) -> Result<(), StorageError> {
        let BlockCutProgress {
            end,
            id,
            range: cut_range,
            mut writer,
            ..
        } = writing;
        let length = self.options.cut_ms.max(1);
        let range = TimeRange::new(end.saturating_sub(length), end.saturating_sub(1));
        writer.push_metadata(&self.sources.collect_metadata(range))?;
        let meta = match writer.sample_count() {
            0 => {
                let _ = writer.abandon();
                None
            }
            _ => Some(writer.finish()?),
        };
        // Pages and head own all other samples.
        assert!(
            meta.as_ref()
                .is_none_or(|meta| cut_range.hull(meta.range) == cut_range),
            "block of {meta:?} in a cut of {cut_range:?}"
        );
        failpoints::turn();
        self.blocks.commit(|list| {
            assert!(list.cut < end, "cut at {} after {}", end, list.cut);
            list.cut = if failpoints::has(StoreFlaw::CutsTooFar) {
                end.saturating_add(1)
            } else {
                end
            };
            if let Some(meta) = &meta {
                let sequence = list.next_sequence();
                list.add(BlockEntry::from_meta(meta, BlockKind::Main, sequence));
            }
        })?;
        self.metrics.cuts.inc();
        let bytes = meta.as_ref().map_or(0, BlockMeta::file_bytes);
        self.metrics.cutting.end(&*self.env.clock, bytes);
        if let Some(meta) = meta {
            self.metrics.block_bytes_written.add(meta.file_bytes());
            tracing::info!(
                block = %id,
                from = meta.range.min,
                to = meta.range.max,
                series = meta.series,
                samples = meta.samples,
                bytes = meta.file_bytes(),
                "cut a block"
            );
        }
        Ok(())
    }
}
