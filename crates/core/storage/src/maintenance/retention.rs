//! Retention of blocks and pages: by time and by size. Limits and counters are in
//! `parts/retention.rs`.
//!
//! ```text
//! by time: blocks and page segments all of whose samples are too old
//! by size: the oldest blocks until the rest fits; if no blocks are left, the oldest page segments
//! ```
//!
//! Blocks and segments are first removed from the manifest, then their files are deleted; nothing
//! is rewritten. Blocks are deleted whole, so up to a block less than the limit may remain.
//! Invariant: the size limit does not delete pages to which the head may still add, or pages that a
//! cut is reading.

use super::disk_space::DiskSpace;
use super::manifest::ManifestWriter;
use super::state::MaintenanceState;
use crate::block::{BlockId, remove_folder};
use crate::blocks::{BlockEntry, BlockSet};
use crate::failpoints::{self, StoreFlaw};
use crate::parts::metrics::StoreMetrics;
use crate::parts::options::StoreOptions;
use crate::parts::retention::RetentionPolicy;
use crate::sealed::SealedPages;
use crate::sync::atomic::Ordering;
use firn_model::env::Env;
use firn_model::sample::TimestampMs;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Removes blocks and pages beyond the retention, and pages whose samples are in blocks.
#[derive(Clone, Copy)]
pub(crate) struct ExpiredDataRemover<'a> {
    pub(super) options: &'a StoreOptions,
    pub(super) env: &'a Env,
    pub(super) sealed: &'a SealedPages,
    pub(super) policy: RetentionPolicy<'a>,
    pub(super) manifest: ManifestWriter<'a>,
    pub(super) space: DiskSpace<'a>,
    pub(super) metrics: &'a StoreMetrics,
}

impl ExpiredDataRemover<'_> {
    /// Removes blocks that are older than the retention time from the manifest, and deletes the
    /// folders of those that no reader holds.
    pub(super) fn drop_old_blocks(&self) {
        let cutoff = self.policy.cutoff();
        let list = self.policy.blocks.list();
        let old = BlockSet::split_into_sets(&list.blocks).filter(|set| set.range().max < cutoff);
        let old = old.flat_map(|set| set.blocks());
        let old: BTreeSet<BlockId> = old.map(|block| block.id).collect();
        if self.remove_from_manifest(&old) {
            self.policy.retaining.by_time.inc();
        }
        self.policy.blocks.remove_dropped_folders();
    }

    /// Enforces the size limit: removes the oldest blocks from the manifest, or, if there are none,
    /// deletes the oldest page segments, until all files together fit.
    pub(super) fn enforce_size_limit(&self, state: &mut MaintenanceState) {
        self.update_size_gauges(state);
        let limit = self.size_limit();
        self.policy
            .retaining
            .limit_bytes
            .set(i64::try_from(limit.unwrap_or(0)).unwrap_or(i64::MAX));
        let Some(limit) = limit else { return };
        let others = self.bytes_beside_blocks();
        let list = self.policy.blocks.list();
        let beyond = find_blocks_beyond(&list.blocks, limit.saturating_sub(others));
        if self.remove_from_manifest(&beyond) {
            self.policy.retaining.by_size.inc();
            tracing::info!(
                blocks = beyond.len(),
                limit,
                "blocks beyond the retention size"
            );
            self.policy.blocks.remove_dropped_folders();
        }
        if beyond.len() == list.blocks.len() && others > limit {
            self.drop_pages_to_free(others - limit, state);
        }
    }

    /// Removes blocks from the manifest. Returns whether that succeeded.
    fn remove_from_manifest(&self, gone: &BTreeSet<BlockId>) -> bool {
        if gone.is_empty() {
            return false;
        }
        if failpoints::has(StoreFlaw::RemovesBeforeCommit) {
            let dirs = gone.iter().map(|id| self.policy.blocks.block_dir(*id));
            dirs.for_each(|dir| drop(remove_folder(self.env, &dir)));
        }
        let _rewrite = self.policy.blocks.rewrites.begin();
        let dropped = self.policy.blocks.commit(|list| {
            list.blocks.retain(|block| !gone.contains(&block.id));
        });
        if let Err(e) = &dropped {
            tracing::error!(error = %e, "failed to delete blocks beyond the retention");
        }
        dropped.is_ok()
    }

    /// Deletes the oldest page segments until they free `bytes` bytes. Keeps segments with times at
    /// which samples may still be appended.
    fn drop_pages_to_free(&self, bytes: u64, state: &mut MaintenanceState) {
        let Some(newest) = self.policy.newest() else {
            return;
        };
        if state.cut.is_under_way() {
            return;
        }
        // Older samples are sealed, and nothing is appended in order before this time.
        let closed = newest.saturating_sub(self.options.open_ms());
        let Some(cutoff) = state.segments.find_size_cutoff(bytes, closed) else {
            return;
        };
        let before = self
            .policy
            .retaining
            .pages_gone_before
            .fetch_max(cutoff, Ordering::Relaxed);
        if before < cutoff {
            self.policy.retaining.by_size.inc();
            tracing::info!(before = cutoff, "pages beyond the retention size");
            self.drop_old_pages(state);
            self.update_size_gauges(state);
        }
    }

    /// Updates the gauges of the sizes of all files that count against the limit.
    fn update_size_gauges(&self, state: &MaintenanceState) {
        // Pages whose samples are in blocks are deleted as soon as no reader needs them, and are
        // not counted twice.
        let pages = state
            .segments
            .count_bytes_since(self.policy.blocks.view().cut);
        let gauges = [
            (&self.policy.retaining.page_bytes, pages),
            (
                &self.policy.retaining.catalogue_bytes,
                state.catalogue.bytes(),
            ),
            (
                &self.policy.retaining.exemplar_bytes,
                state.exemplars.bytes(),
            ),
        ];
        for (gauge, bytes) in gauges {
            gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// Returns the size limit of all files in bytes, if there is one.
    fn size_limit(&self) -> Option<u64> {
        let limits = self.policy.retaining.limits();
        let of_disk = limits.percent.and_then(|percent| {
            // If the disk does not report its size, only the limit in bytes applies.
            let total = self.space.total_bytes()?;
            Some((total as f64 * percent / 100.0) as u64)
        });
        of_disk.or(limits.bytes)
    }

    /// Returns the bytes of all files except blocks, for which blocks and then pages must make
    /// room.
    pub(crate) fn bytes_beside_blocks(&self) -> u64 {
        let log = self.space.log_file_bytes();
        log.saturating_add(self.policy.retaining.file_bytes())
    }

    /// Removes the page segments that are older than the retention, or whose samples are in blocks.
    pub(super) fn drop_old_pages(&self, state: &mut MaintenanceState) {
        let mut cutoff = self.policy.head_read_start();
        if failpoints::has(StoreFlaw::UnlinksEarly) {
            cutoff = cutoff.saturating_add(self.options.window_ms);
        }
        match state.segments.take_segments_before(cutoff) {
            Ok(old) if old.is_empty() => {}
            Ok(old) => match self.manifest.write(state) {
                Ok(()) => state.segments.schedule_removal(old),
                Err(e) => {
                    tracing::error!(
                        error = %e,
                        "failed to delete pages beyond the retention: keeping them"
                    );
                    return state.segments.restore_segments(old);
                }
            },
            Err(e) => {
                return tracing::error!(
                    error = %e,
                    "failed to complete pages beyond the retention"
                );
            }
        }
        let (segments, sealed) = (&mut state.segments, self.sealed);
        // The removal may include pages beyond the retention, whose samples are in no block.
        let rewrites = &self.policy.blocks.rewrites;
        let _rewrite = segments.has_scheduled().then(|| rewrites.begin());
        let removed = segments.remove_scheduled(&sealed.directory, &sealed.cache);
        self.metrics.removed_segments.add(removed as u64);
        self.metrics.page_segments.set(segments.count() as i64);
    }
}

/// Returns the blocks beyond `bytes`, counted from the newest one: the first one that does not fit,
/// and all older ones, as upstream.
fn find_blocks_beyond(blocks: &[BlockEntry], bytes: u64) -> BTreeSet<BlockId> {
    let mut newest_first: Vec<BlockSet<'_>> = BlockSet::split_into_sets(blocks).collect();
    newest_first.sort_by_key(|set| {
        let newest: TimestampMs = set.range().max;
        (Reverse(newest), set.blocks()[0].id)
    });
    let mut total: u64 = 0;
    let kept = newest_first.iter().take_while(|set| {
        total = total.saturating_add(set.bytes());
        total <= bytes
    });
    let kept = kept.count();
    let gone = newest_first[kept..].iter().flat_map(BlockSet::blocks);
    gone.map(|block| block.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::BlockKind;
    use firn_model::sample::TimeRange;

    /// Checks blocks given as (newest time, bytes); the ones with the newest times in `gone` must
    /// be removed.
    #[track_caller]
    fn check(blocks: &[(i64, u64)], bytes: u64, gone: &[i64]) {
        let entry = |(number, &(max, bytes)): (usize, &(i64, u64))| BlockEntry {
            id: BlockId::new(max, number as u128),
            kind: BlockKind::Main,
            is_bad: false,
            sequence: number as u64,
            level: 1,
            range: TimeRange::new(0, max),
            bytes,
            series: 1,
            samples: 1,
        };
        let list: Vec<BlockEntry> = blocks.iter().enumerate().map(entry).collect();
        let beyond = find_blocks_beyond(&list, bytes);
        let found = list.iter().filter(|block| beyond.contains(&block.id));
        let found: Vec<i64> = found.map(|block| block.range.max).collect();
        assert_eq!(found, gone, "{blocks:?} in {bytes} bytes");
    }

    #[test]
    fn blocks_beyond_a_size_are_the_oldest_whole_ones() {
        let blocks = [(1, 10), (4, 10), (2, 10), (3, 10)];
        check(&blocks, 40, &[]);
        check(&blocks, 39, &[1]);
        check(&blocks, 30, &[1]);
        check(&blocks, 20, &[1, 2]);
        check(&blocks, 0, &[1, 4, 2, 3]);
        check(&[], 0, &[]);
        // A block that does not fit causes the removal of all older ones, even small ones.
        check(&[(1, 1), (2, 90), (3, 10)], 50, &[1, 2]);
        check(&[(1, 0), (2, u64::MAX), (3, u64::MAX)], 50, &[1, 2, 3]);
    }
}
