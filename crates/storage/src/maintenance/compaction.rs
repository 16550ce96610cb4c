//! Compaction: merges blocks of neighbouring times, and late blocks, into one block.
//!
//! ```text
//! plan (pure, from the manifest) -> a share of the merge with each tick -> block synced
//!     -> manifest: the result replaces its inputs -> readers -> remove the folders of the inputs
//! ```
//!
//! It runs on a thread of its own, beside sealing and the cut. A share is a number of samples,
//! which limits the rate; a merge that would take too long gets larger shares. The merge holds a
//! few units of each input and one series, regardless of the number of series. Equal inputs give
//! identical bytes. A block that cannot be read is marked as bad and excluded; other merges
//! continue.

mod merging;
pub(super) mod progress;

use super::{Maintenance, PAUSE};
use crate::block::{BlockMeta, remove_folder};
use crate::blocks::plan::{self, Merge};
use crate::blocks::{BlockEntry, BlockList};
use crate::damage::{self, DamageKind};
use crate::error::StorageError;
use crate::failpoints;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use firn_model::env::Work;
use merging::{Failure, Merging};
use std::sync::Arc;

/// Minimum number of samples merged per tick: about 100 ms of CPU time.
const SHARE_MIN: u64 = 4 << 20;

/// Maximum number of ticks of a merge: ten minutes at one per second.
const TICKS_MAX: u64 = 600;

/// Blocks cover at most this fraction of the retention, so that retention frees space in steps.
const OF_RETENTION: i64 = 10;

/// Maximum time range of a block if the retention is unlimited: that of a retention of one year.
const WINDOW_MAX_MS: i64 = 36 * 24 * 3_600_000;

/// Guard of the current share. When it is dropped, also by a panic, the next share may be
/// scheduled.
struct Scheduled(Arc<Maintenance>);

impl Drop for Scheduled {
    fn drop(&mut self) {
        self.0
            .compaction
            .is_scheduled
            .store(false, Ordering::Release);
    }
}

impl Maintenance {
    /// Schedules a share of the compaction on its thread, unless one is running.
    pub(super) fn compact_share(&self) {
        let Some(me) = self.me.upgrade() else { return };
        if self.compaction.is_scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let scheduled = Scheduled(me);
        let job = move || scheduled.0.compact();
        self.env.compute.spawn(Work::Compaction, Box::new(job));
    }

    /// Runs one share of the compaction: continues the current merge or starts the next one.
    fn compact(&self) {
        let mut under_way = lock(&self.compaction.under_way);
        let now = self.env.clock.monotonic();
        if now < under_way.not_before {
            return;
        }
        let outcome = match under_way.merging.take() {
            Some(merging) => self.go_on(merging),
            None => self.begin_merge(),
        };
        match outcome {
            Ok(merging) => under_way.merging = merging,
            Err(e) => {
                self.metrics.compaction_failures.inc();
                self.metrics.merging.stop();
                tracing::error!(error = %e, "failed to compact blocks");
                under_way.not_before = now.saturating_add(PAUSE);
            }
        }
    }

    /// Starts the next merge that is due, if there is one.
    fn begin_merge(&self) -> Result<Option<Merging>, StorageError> {
        let Some(merge) = plan::next(
            &self.blocks.mergeable(),
            self.options.cut_ms.max(1),
            self.window_max(),
        ) else {
            self.metrics.compaction_left.set(0);
            return Ok(None);
        };
        let bytes = merge.inputs.iter().map(|block| block.bytes).sum::<u64>();
        self.look_for_room(bytes.saturating_add(self.reserve_bytes(false)))?;
        match Merging::new(&self.env, &self.blocks, merge, &self.options) {
            Ok(merging) => {
                let clock = &*self.env.clock;
                self.metrics.merging.begin(clock, merging.series());
                self.go_on(merging)
            }
            Err(failure) => self.leave_bad_input(failure).map(|()| None),
        }
    }

    /// Merges one share. Returns the merge if it is not complete yet.
    fn go_on(&self, mut merging: Merging) -> Result<Option<Merging>, StorageError> {
        let share = SHARE_MIN.max(merging.samples_in / TICKS_MAX);
        match merging.advance(share) {
            Ok(false) => {
                let left = merging.samples_in.saturating_sub(merging.samples_done);
                self.metrics.compaction_left.set(left as i64);
                let (series, bytes) = (merging.series_done(), merging.written_bytes());
                self.metrics.merging.go_on(series, bytes);
                Ok(Some(merging))
            }
            Ok(true) => {
                self.end_merge(merging)?;
                Ok(None)
            }
            Err(failure) => {
                self.metrics.merging.stop();
                merging.abandon();
                self.leave_bad_input(failure).map(|()| None)
            }
        }
    }

    /// Replaces the inputs by the result of the merge.
    fn end_merge(&self, merging: Merging) -> Result<(), StorageError> {
        let (merge, metas) = merging.finish()?;
        failpoints::turn();
        let mut is_replaced = false;
        self.blocks
            .commit(|list| is_replaced = replace(list, &merge, &metas))?;
        let bytes = metas.iter().map(BlockMeta::file_bytes).sum();
        self.metrics.block_bytes_written.add(bytes);
        self.metrics.merging.end(&*self.env.clock, bytes);
        if is_replaced {
            self.metrics.compactions.inc();
            tracing::info!(
                block = %merge.id(0),
                blocks = metas.len(),
                inputs = merge.inputs.len(),
                level = merge.level,
                series = metas.iter().map(|meta| u64::from(meta.series)).sum::<u64>(),
                samples = metas.iter().map(|meta| meta.samples).sum::<u64>(),
                bytes,
                "compacted blocks"
            );
            return Ok(());
        }
        // An input was deleted by the retention in the meantime.
        let mut folders = metas.iter().map(|meta| self.blocks.dir_of(meta.id));
        folders.try_for_each(|folder| remove_folder(&self.env, &folder))
    }

    /// Handles a failed merge: if an input cannot be read, reports it and excludes it from merges
    /// until restart. Returns other errors.
    fn leave_bad_input(&self, failure: Failure) -> Result<(), StorageError> {
        let Some((id, range)) = failure.input else {
            return Err(failure.error);
        };
        let is_damaged = matches!(&failure.error, StorageError::Damaged { .. });
        if !is_damaged && !failure.error.is_disk_fault() {
            return Err(failure.error);
        }
        let damage = damage::met(DamageKind::Blocks, &failure.error);
        self.damages.report_met(damage.within(Some(range)));
        self.blocks.keep_apart(id);
        Ok(())
    }

    /// Returns the maximum time range of a block in milliseconds, a fraction of the retention time.
    fn window_max(&self) -> i64 {
        let of_retention = self.retaining.limits().time_ms / OF_RETENTION;
        of_retention.clamp(
            self.options.cut_ms.max(1),
            WINDOW_MAX_MS.max(self.options.cut_ms),
        )
    }
}

/// Replaces the inputs of `merge` in the list by the blocks of `metas`. Returns false without a
/// change if an input is gone.
fn replace(list: &mut BlockList, merge: &Merge, metas: &[BlockMeta]) -> bool {
    let is_input = |entry: &BlockEntry| merge.inputs.iter().any(|input| input.id == entry.id);
    let found = list.blocks.iter().filter(|entry| is_input(entry)).count();
    if found < merge.inputs.len() {
        return false;
    }
    list.blocks.retain(|entry| !is_input(entry));
    for meta in metas.iter().filter(|meta| meta.samples > 0) {
        list.add(BlockEntry::of(meta, merge.kind, merge.sequence));
    }
    true
}
