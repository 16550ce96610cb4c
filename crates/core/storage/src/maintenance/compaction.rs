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
//! continue. A merge omits samples that the retention rules no longer keep.

mod expiry;
mod merging;
pub(super) mod progress;

use super::disk_space::DiskSpace;
use super::state::PAUSE;
use crate::block::{BlockId, BlockMeta, remove_folder};
use crate::blocks::plan::{self, MergePlan};
use crate::blocks::{BlockEntry, BlockList, Blocks};
use crate::damage::{self, DamageKind, DamageList};
use crate::error::StorageError;
use crate::failpoints::{self, StoreFlaw};
use crate::parts::metrics::StoreMetrics;
use crate::parts::options::StoreOptions;
use crate::parts::retention::RetentionPolicy;
use crate::tombstones::DeletedRuns;
use firn_model::env::Env;
use firn_model::sample::TimeRange;
use merging::{MergeFailure, MergeJob, MergeResult};
use progress::CompactionProgress;
use std::sync::Arc;

/// Minimum number of samples merged per tick: about 100 ms of CPU time.
const SHARE_MIN: u64 = 4 << 20;

/// Maximum number of ticks of a merge: ten minutes at one per second.
const TICKS_MAX: u64 = 600;

/// Blocks cover at most this fraction of the retention, so that retention frees space in steps.
const OF_RETENTION: i64 = 10;

/// Maximum time range of a block if the retention is unlimited: that of a retention of one year.
const WINDOW_MAX_MS: i64 = 36 * 24 * 3_600_000;

/// Compacts blocks: plans merges, advances them in shares and commits their results.
#[derive(Clone, Copy)]
pub(crate) struct Compactor<'a> {
    pub(super) options: &'a StoreOptions,
    pub(super) env: &'a Env,
    pub(super) blocks: &'a Blocks,
    pub(super) policy: RetentionPolicy<'a>,
    pub(super) space: DiskSpace<'a>,
    pub(super) metrics: &'a StoreMetrics,
    pub(super) damages: &'a DamageList,
}

impl Compactor<'_> {
    /// Runs one share of the compaction: continues the current merge or starts the next one.
    pub(super) fn run_share(&self, under_way: &mut CompactionProgress) {
        let now = self.env.clock.monotonic();
        if now < under_way.not_before {
            return;
        }
        let outcome = match under_way.merging.take() {
            Some(merging) => self.advance_merge(merging),
            None => self.begin_merge(under_way),
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
    fn begin_merge(
        &self,
        under_way: &mut CompactionProgress,
    ) -> Result<Option<MergeJob>, StorageError> {
        let list = self.blocks.list_mergeable();
        let window_min = self.options.cut_ms.max(1);
        let due = plan::plan_next_merge(&list, window_min, self.max_block_window());
        let due = due.or_else(|| self.plan_expiry(&list, &mut under_way.expiry));
        let Some(merge) = due else {
            self.metrics.compaction_left.set(0);
            return Ok(None);
        };
        let bytes = merge.inputs.iter().map(|block| block.bytes).sum::<u64>();
        self.space.check_free_beside_log(bytes)?;
        match self.create_job(merge) {
            Ok(merging) => {
                let clock = &*self.env.clock;
                self.metrics.merging.begin(clock, merging.total_series());
                self.advance_merge(merging)
            }
            Err(failure) => self.exclude_bad_input(failure).map(|()| None),
        }
    }

    fn create_job(&self, merge: MergePlan) -> Result<MergeJob, MergeFailure> {
        let cutoffs = self.policy.cutoffs();
        MergeJob::new(self.env, self.blocks, merge, self.options, cutoffs)
    }

    /// Merges one share. Returns the merge if it is not complete yet.
    fn advance_merge(&self, mut merging: MergeJob) -> Result<Option<MergeJob>, StorageError> {
        let share = SHARE_MIN.max(merging.samples_in / TICKS_MAX);
        match merging.advance(share) {
            Ok(false) => {
                let left = merging.samples_in.saturating_sub(merging.samples_done);
                self.metrics.compaction_left.set(left as i64);
                let (series, bytes) = (merging.merged_series(), merging.written_bytes());
                self.metrics.merging.update_progress(series, bytes);
                Ok(Some(merging))
            }
            Ok(true) => {
                self.commit_merge(merging)?;
                Ok(None)
            }
            Err(failure) => {
                self.metrics.merging.stop();
                merging.abandon();
                self.exclude_bad_input(failure).map(|()| None)
            }
        }
    }

    /// Replaces the inputs by the result of the merge.
    fn commit_merge(&self, merging: MergeJob) -> Result<(), StorageError> {
        let merged = merging.finish()?;
        failpoints::turn();
        let mut is_replaced = false;
        self.blocks
            .commit(|list| is_replaced = replace_inputs(list, &merged))?;
        let MergeResult {
            plan: merge, metas, ..
        } = merged;
        let bytes = metas.iter().map(BlockMeta::file_bytes).sum();
        self.metrics.block_bytes_written.add(bytes);
        self.metrics.merging.end(&*self.env.clock, bytes);
        if is_replaced {
            self.metrics.compactions.inc();
            tracing::info!(
                block = %merge.output_id(0),
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
        // An input was removed by the retention or got tombstones in the meantime.
        let mut folders = metas.iter().map(|meta| self.blocks.block_dir(meta.id));
        folders.try_for_each(|folder| remove_folder(self.env, &folder))
    }

    /// Rewrites all blocks that have tombstones, one after the other, without the deleted samples.
    /// A merge in progress is discarded and planned again later.
    pub(super) fn clean_tombstones(
        &self,
        under_way: &mut CompactionProgress,
    ) -> Result<(), StorageError> {
        if let Some(merging) = under_way.merging.take() {
            merging.abandon();
            self.metrics.merging.stop();
        }
        // A delete of the meantime is for the next call.
        for rewrite in plan::plan_cleaning(&self.blocks.list()) {
            let bytes = rewrite.inputs.iter().map(|block| block.bytes).sum::<u64>();
            self.space.check_free_beside_log(bytes)?;
            let mut merging = self.create_job(rewrite).map_err(|failure| failure.error)?;
            let (clock, series) = (&*self.env.clock, merging.total_series());
            self.metrics.merging.begin(clock, series);
            if let Err(failure) = merging.advance(u64::MAX) {
                self.metrics.merging.stop();
                merging.abandon();
                return Err(failure.error);
            }
            self.commit_merge(merging)?;
        }
        self.blocks.remove_dropped_folders();
        Ok(())
    }

    /// Handles a failed merge: if an input cannot be read, reports it and excludes it from merges
    /// until restart. Returns other errors.
    fn exclude_bad_input(&self, failure: MergeFailure) -> Result<(), StorageError> {
        let Some((id, range)) = failure.input else {
            return Err(failure.error);
        };
        let is_damaged = matches!(&failure.error, StorageError::Damaged { .. });
        if !is_damaged && !failure.error.is_disk_fault() {
            return Err(failure.error);
        }
        let damage = damage::damage_from_error(DamageKind::Blocks, &failure.error);
        self.damages
            .report_read_damage(damage.with_time_range(Some(range)));
        self.blocks.exclude_from_merges(id);
        Ok(())
    }

    /// Returns the maximum time range of a block in milliseconds, a fraction of the longest
    /// retention time.
    fn max_block_window(&self) -> i64 {
        let of_retention = self.policy.retaining.longest_ms() / OF_RETENTION;
        of_retention.clamp(
            self.options.cut_ms.max(1),
            WINDOW_MAX_MS.max(self.options.cut_ms),
        )
    }
}

/// Replaces the inputs of a merge in the list by its results. Returns false without a change if an
/// input is gone, or has other tombstones than those that the merge applied.
fn replace_inputs(list: &mut BlockList, merged: &MergeResult) -> bool {
    let (merge, metas) = (&merged.plan, &merged.metas);
    let is_applied = |applied: &(BlockId, Option<Arc<DeletedRuns>>)| {
        list.tombstones.of_block(applied.0) == applied.1.as_ref()
            || failpoints::has(StoreFlaw::KeepsTombstonedResult)
    };
    if !merged.deleted.iter().all(is_applied) {
        return false;
    }
    let is_input = |entry: &BlockEntry| merge.inputs.iter().any(|input| input.id == entry.id);
    let found = list.blocks.iter().filter(|entry| is_input(entry)).count();
    if found < merge.inputs.len() {
        return false;
    }
    let inputs = merge.inputs.iter().map(|input| input.range);
    let inputs = inputs.reduce(TimeRange::hull);
    assert!(
        metas
            .iter()
            .all(|meta| inputs.is_some_and(|inputs| inputs.hull(meta.range) == inputs)),
        "merge of {inputs:?} into blocks of other times"
    );
    list.blocks.retain(|entry| !is_input(entry));
    for meta in metas.iter().filter(|meta| meta.samples > 0) {
        list.add(BlockEntry::from_meta(meta, merge.kind, merge.sequence));
    }
    true
}
