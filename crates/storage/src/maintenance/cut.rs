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

use super::coverage::Due;
use super::state::State;
use super::{Maintenance, PAUSE};
use crate::block::{BlockId, BlockMeta, BlockWriter, Sayings, Source};
use crate::blocks::{BlockEntry, BlockKind};
use crate::error::StorageError;
use crate::failpoints::{self, Flaw};
use crate::ids::{GroupId, Local};
use crate::sync::lock;
use firn_model::error::Error;
use firn_model::sample::{TimeRange, TimestampMs};
use order::SeriesOrder;
use progress::{Step, Writing};
use std::collections::BTreeSet;
use std::time::Duration;

/// Number of series visited under one lock: about 10 us.
const SLICE: u32 = 1_024;

/// Additional steps per tick for each waiting cut.
const STEPS_EACH: i64 = 2;

/// Maximum number of additional steps per tick.
const STEPS_MAX: i64 = 32;

/// Time after which a tick starts no further step, because sealing waits for the tick.
const STEPS_WITHIN: Duration = Duration::from_millis(200);

impl Maintenance {
    /// Performs this tick's share of the cut: one step, and more if further cuts are due. A replay
    /// that advances hours of data time per second therefore leaves no backlog.
    pub(super) fn cut_share(&self, state: &mut State) {
        let now = self.env.clock.monotonic();
        if now < state.cut.not_before {
            return;
        }
        let mut steps = 0;
        while steps <= self.steps_for_others(&state.cut.step) {
            match self.cut_step(state) {
                Ok(true) => steps += 1,
                Ok(false) => return,
                Err(e) => return self.give_up_cut(state, &e),
            }
            if self.env.clock.monotonic().saturating_sub(now) >= STEPS_WITHIN {
                return;
            }
        }
    }

    /// Ends the current cut after an error: removes the incomplete block, and pauses before the
    /// next attempt.
    fn give_up_cut(&self, state: &mut State, error: &Error) {
        self.metrics.cut_failures.inc();
        tracing::error!(error = %error, "failed to cut a block");
        if let Step::Writing(writing) = std::mem::take(&mut state.cut.step) {
            let _ = writing.writer.abandon();
        }
        self.metrics.cutting.stop();
        state.cut.not_before = self.env.clock.monotonic().saturating_add(PAUSE);
    }

    /// Returns the number of additional steps per tick, for the cuts that are due after the current
    /// one.
    fn steps_for_others(&self, step: &Step) -> i64 {
        let length = self.options.cut_ms.max(1);
        let end = match step {
            // The start of the first cut is not determined yet.
            Step::Idle if self.blocks.view().cut == i64::MIN => return 0,
            Step::Idle => self.blocks.view().cut.saturating_add(length),
            Step::Closing { end, .. } => *end,
            Step::Writing(writing) => writing.end,
        };
        let closed = self.closed().unwrap_or(i64::MIN);
        let waiting = closed.saturating_sub(end).max(0) / length;
        waiting.saturating_mul(STEPS_EACH).min(STEPS_MAX)
    }

    /// Takes the next step. Returns whether there was one.
    fn cut_step(&self, state: &mut State) -> Result<bool, Error> {
        match &mut state.cut.step {
            Step::Idle => {
                let Some(end) = self.cut_due() else {
                    return Ok(false);
                };
                // A segment that could not be read before may be readable again, after a restart or
                // on another disk.
                state.segments.check_delivered_before(end)?;
                self.raise_floor(end);
                let sequence = self.watermark.newest();
                state.cut.step = Step::Closing { end, sequence };
            }
            Step::Closing { end, sequence } => {
                let (end, sequence) = (*end, *sequence);
                if self.watermark.mark().0 < sequence {
                    return Ok(false);
                }
                if self.seal_before(state, end)? {
                    state.cut.step = self.begin_block(end)?;
                }
            }
            Step::Writing(writing) => {
                let is_done = self.write_partition(writing)?;
                let (series, bytes) = (writing.series_done, writing.writer.written_bytes());
                self.metrics.cutting.go_on(series, bytes);
                if !is_done {
                    return Ok(true);
                }
                failpoints::turn();
                if let Step::Writing(writing) = std::mem::take(&mut state.cut.step) {
                    self.commit_block(*writing)?;
                }
            }
        }
        Ok(true)
    }

    /// Returns the end of the next cut if it is due: no sample before it is accepted in order any
    /// more, and pages contain all of them.
    fn cut_due(&self) -> Option<TimestampMs> {
        let closed = self.closed()?;
        let cut = self.blocks.view().cut;
        if cut != i64::MIN && self.cut_behind(cut) > closed {
            return None;
        }
        let oldest = self.sealed.directory.oldest_from(cut)?;
        let end = self.cut_behind(oldest);
        (end <= closed).then_some(end)
    }

    /// Returns the time before which cuts are due. No batch sent now has an in-order sample before
    /// it, and pages contain all of those samples.
    fn closed(&self) -> Option<TimestampMs> {
        self.newest()?.checked_sub(self.options.open_ms())
    }

    /// Raises the floor to its possible value before the restart, so that a sample that was late
    /// then is still late.
    pub(crate) fn restore_floor(&self) {
        if let Some(closed) = self.closed() {
            let length = self.options.cut_ms.max(1);
            self.raise_floor(closed.div_euclid(length).saturating_mul(length));
        }
    }

    /// Returns the end of the cut that contains a sample at `time`.
    fn cut_behind(&self, time: TimestampMs) -> TimestampMs {
        let length = self.options.cut_ms.max(1);
        time.div_euclid(length)
            .saturating_add(1)
            .saturating_mul(length)
    }

    /// Seals the samples of the head before `end`. Returns whether there were none left.
    fn seal_before(&self, state: &mut State, end: TimestampMs) -> Result<bool, Error> {
        let groups = self.groups_with_samples_before(end);
        if groups.is_empty() {
            return Ok(true);
        }
        let end = end.saturating_sub(1);
        let due: Vec<Due> = groups.into_iter().map(|group| Due { group, end }).collect();
        self.leave_mark(state);
        self.seal(state, &due, self.reserve_bytes(false))?;
        Ok(false)
    }

    /// Returns the groups with samples before `end` in the head. Visits every series, in slices.
    fn groups_with_samples_before(&self, end: TimestampMs) -> BTreeSet<GroupId> {
        let mut groups = BTreeSet::new();
        for shard in &self.shards {
            let mut first = 0;
            loop {
                let shard = lock(shard);
                let last = shard.end().min(first + SLICE);
                let series = (first..last).filter_map(|local| shard.series(Local(local)));
                let older = series.filter(|s| s.range().is_some_and(|range| range.min < end));
                groups.extend(older.map(|series| self.numbers.group_of(series.slot)));
                first = last;
                if last == shard.end() {
                    break;
                }
            }
        }
        groups
    }

    /// Starts a block for the samples before `end` that are in pages and in no block.
    fn begin_block(&self, end: TimestampMs) -> Result<Step, StorageError> {
        let cut = self.blocks.view().cut;
        let range = TimeRange::new(cut, end.saturating_sub(1));
        let pages = self.sealed.directory.all_overlapping(range);
        let order = SeriesOrder::new(self, &pages);
        let bytes: u64 = pages
            .iter()
            .flat_map(|(_, pages)| pages)
            .map(|p| u64::from(p.bytes))
            .sum();
        self.look_for_room(bytes.saturating_add(self.reserve_bytes(false)))?;
        let samples = pass::samples_in(&pages);
        let id = BlockId::new(end, u128::from(self.env.rng.next_u64()) << 16);
        let source = Source {
            id,
            is_late: false,
            level: 1,
            sources: vec![id],
            range: Some(TimeRange::new(
                end.saturating_sub(self.options.cut_ms.max(1)),
                end.saturating_sub(1),
            )),
        };
        let mut writer = BlockWriter::create(&self.env, &self.blocks.dir_to_write(id)?, source)?;
        writer.expect_exemplars(self.exemplars.len() as u64);
        let clock = &*self.env.clock;
        self.metrics.cutting.begin(clock, order.len() as u64);
        Ok(Step::Writing(Box::new(Writing {
            end,
            range,
            id,
            writer,
            samples_each: samples / order.len().max(1) + 1,
            samples_at_once: pass::samples_at_once(samples),
            series_done: 0,
            order,
            pages,
        })))
    }

    /// Completes the block and commits it, so that readers use it instead of the pages.
    fn commit_block(&self, writing: Writing) -> Result<(), StorageError> {
        let Writing {
            end,
            id,
            mut writer,
            ..
        } = writing;
        let length = self.options.cut_ms.max(1);
        let range = TimeRange::new(end.saturating_sub(length), end.saturating_sub(1));
        writer.say(&Sayings::at(range, &self.metadata()))?;
        let meta = match writer.sample_count() {
            0 => {
                let _ = writer.abandon();
                None
            }
            _ => Some(writer.finish()?),
        };
        failpoints::turn();
        self.blocks.commit(|list| {
            list.cut = match failpoints::has(Flaw::CutsTooFar) {
                true => end.saturating_add(1),
                false => end,
            };
            if let Some(meta) = &meta {
                let sequence = list.take_sequence();
                list.add(BlockEntry::of(meta, BlockKind::Main, sequence));
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
