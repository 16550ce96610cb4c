//! The set of blocks of a store: the blocks listed in the manifest, opened, and the views through
//! which readers access them.
//!
//! ```text
//! start:  manifest -> open the listed blocks -> remove folders that are not listed
//! commit: new manifest, durable -> new view -> remove unlisted folders that no reader holds
//! read:   view = blocks and cut time, one consistent pair
//! ```
//!
//! Invariants:
//!
//! - A view never changes. Blocks own the in-order samples before its cut time; pages and head own
//!   those from the cut time on.
//! - A folder is removed only after a manifest without it is durable and no view with it is held.
//! - A manifest without blocks is written before the first block. A crash before a commit therefore
//!   leaves a folder that no manifest lists, so the blocks of one commit take effect together or
//!   not at all.
//! - A block that cannot be opened affects no other block. It is reported, and queries over its
//!   time range return a warning. If its bytes are damaged, it is quarantined: the manifest records
//!   this, its folder stays unchanged in place, and the next start uses it again if it can be
//!   opened.

pub mod home;
mod home_disk;
mod list;
mod opening;
pub(crate) mod plan;
mod rebuilt;
mod rewrites;
mod tombstone_file;
mod view;

pub use list::{BlockEntry, BlockKind};
pub(crate) use list::{BlockList, BlockSet};
pub(crate) use rebuilt::rebuild_list;
pub(crate) use rewrites::SampleRewrites;
pub(crate) use view::{BlocksView, OpenBlock};

use crate::block::{Block, BlockCache, BlockId, remove_folder};
use crate::damage::DamageList;
use crate::error::StorageError;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use arc_swap::ArcSwap;
use firn_model::env::Env;
use firn_model::log::LogPosition;
use firn_model::metrics::Gauge;
use firn_model::sample::TimestampMs;
use home::{BlockHome, HomeCommit, HomeDisk, RestoredHome};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The blocks of a store and their manifest. Readers take a `BlocksView` without locking; commits
/// are serialized by a mutex.
pub(crate) struct Blocks {
    env: Env,
    dir: PathBuf,
    pub(crate) cache: Arc<BlockCache>,
    damages: Arc<DamageList>,
    view: ArcSwap<BlocksView>,
    /// State of the manifest, locked for the duration of a commit.
    committing: Mutex<BlocksCommitState>,
    /// The place outside of the folder that keeps the blocks, if there is one. Then the folder has
    /// no manifest.
    home: Option<Arc<dyn BlockHome>>,
    /// Changes of the stored samples other than appends.
    pub(crate) rewrites: SampleRewrites,
    /// The position before which blocks contain all samples, for the next commit.
    covered: AtomicU64,
    /// Total size of the blocks in the manifest, in bytes.
    pub(crate) bytes: Gauge,
    /// Number of blocks in the manifest.
    pub(crate) count: Gauge,
    /// Number of quarantined blocks.
    pub(crate) bad: Gauge,
    /// Number of blocks that are read but excluded from merges.
    pub(crate) apart: Gauge,
}

/// The current manifest, and the folders and views that await cleanup.
struct BlocksCommitState {
    list: BlockList,
    /// Blocks that are no longer in the manifest and whose folders still exist.
    left: Vec<Arc<OpenBlock>>,
    /// Folders of blocks that were removed from the manifest without being open.
    left_unopened: Vec<PathBuf>,
    /// Views older than the latest commit that readers may still hold.
    before: Vec<Arc<BlocksView>>,
    /// Blocks in which a merge found damage.
    apart: BTreeSet<BlockId>,
    /// True from a failed commit until the next successful one. The manifest of the failed commit
    /// may be durable, and a start would use it.
    is_in_doubt: bool,
}

impl Blocks {
    /// Opens the blocks in `dir`, which must exist, and removes the folders and manifests that are
    /// not in use.
    pub(crate) fn open(
        env: &Env,
        dir: &Path,
        cache: Arc<BlockCache>,
        damages: Arc<DamageList>,
    ) -> Result<Self, StorageError> {
        let found = BlockList::read(&*env.disk, dir)?;
        // A previous process may have ended between the rename and its sync. The steps below rely
        // on the manifest that was read, so make it durable first.
        let synced = env.disk.sync_dir(dir);
        synced.map_err(StorageError::io("sync folder", dir))?;
        let blocks = Self::new(env.clone(), dir, cache, damages, found.list);
        let mut is_damaged = !found.damages.is_empty();
        for damage in found.damages {
            blocks.damages.report(damage);
        }
        is_damaged |= blocks.is_manifest_missing()?;
        if is_damaged {
            blocks.rebuild_manifest()?;
        }
        if let Some(damage) = found.lost_tombstones {
            blocks.damages.report(damage);
        }
        blocks.open_listed_blocks()?;
        // If a block cannot be read or the manifest was damaged, a folder that is not listed may
        // hold the only copy of some data, such as an input of an unreadable merged block.
        let is_all_there = blocks.view().blocks.len() == blocks.list().blocks.len();
        if !is_damaged && is_all_there {
            blocks.remove_unlisted_folders(&found.others)?;
        }
        Ok(blocks)
    }

    /// Opens the blocks of `home`. The folder `dir` contains only those that this process writes.
    /// Returns an error if `home` does not answer: without a block, later answers would be
    /// incomplete.
    pub(crate) fn open_home(
        env: &Env,
        dir: &Path,
        cache: Arc<BlockCache>,
        damages: Arc<DamageList>,
        home: Arc<dyn BlockHome>,
        restored: RestoredHome,
    ) -> Result<Self, StorageError> {
        let mut env = env.clone();
        env.disk = Arc::new(HomeDisk::new(env.disk, dir.to_path_buf(), home.files()));
        let covered = AtomicU64::new(restored.replay_from.0);
        let list = BlockList::from_restored(restored);
        let mut blocks = Self::new(env, dir, cache, damages, list);
        blocks.home = Some(home);
        blocks.covered = covered;
        blocks.open_listed_blocks()?;
        Ok(blocks)
    }

    fn new(
        env: Env,
        dir: &Path,
        cache: Arc<BlockCache>,
        damages: Arc<DamageList>,
        list: BlockList,
    ) -> Self {
        Self {
            env,
            dir: dir.to_path_buf(),
            cache,
            damages,
            view: ArcSwap::from_pointee(BlocksView {
                cut: i64::MIN,
                blocks: Vec::new(),
                tombstones: Arc::default(),
            }),
            committing: Mutex::new(BlocksCommitState {
                list,
                left: Vec::new(),
                left_unopened: Vec::new(),
                before: Vec::new(),
                apart: BTreeSet::new(),
                is_in_doubt: false,
            }),
            home: None,
            rewrites: SampleRewrites::default(),
            covered: AtomicU64::new(0),
            bytes: Gauge::default(),
            count: Gauge::default(),
            bad: Gauge::default(),
            apart: Gauge::default(),
        }
    }

    /// Returns the current view, without waiting for a commit in progress.
    pub(crate) fn view(&self) -> Arc<BlocksView> {
        self.view.load_full()
    }

    /// Returns a copy of the current manifest, waiting for a commit in progress.
    pub(crate) fn list(&self) -> BlockList {
        lock(&self.committing).list.clone()
    }

    /// Returns the manifest and the view of the same moment. The folders of the listed blocks are
    /// not removed while the view is held, except those of blocks that could not be opened.
    pub(crate) fn list_and_view(&self) -> (BlockList, Arc<BlocksView>) {
        let committing = lock(&self.committing);
        (committing.list.clone(), self.view())
    }

    /// Creates a separate cache for a reader of whole blocks, which reports damage to the same
    /// registry.
    pub(crate) fn new_separate_cache(&self, bytes_max: usize) -> Arc<BlockCache> {
        let cache = BlockCache::new(bytes_max);
        Arc::new(cache.with_damages(self.damages.clone()))
    }

    /// Returns the folder that contains all blocks.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the folder of a block.
    pub(crate) fn block_dir(&self, id: BlockId) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// Returns the folder for a new block. First ensures that a manifest exists, and that no
    /// manifest which a start could find lists the block. Returns an error while the outcome of a
    /// failed commit cannot be determined.
    pub(crate) fn prepare_block_dir(&self, id: BlockId) -> Result<PathBuf, StorageError> {
        let mut committing = lock(&self.committing);
        if self.home.is_none() && (committing.is_in_doubt || committing.list.version == 0) {
            let list = committing.list.clone();
            committing.list = self.write_manifest(&mut committing, list)?;
        }
        Ok(self.block_dir(id))
    }

    /// Writes `list` as the current manifest with the next version number and returns it. With a
    /// home, publishes its differences from the current list instead.
    fn write_manifest(
        &self,
        committing: &mut BlocksCommitState,
        mut list: BlockList,
    ) -> Result<BlockList, StorageError> {
        list.version = committing.list.version + 1;
        if let Some(home) = &self.home {
            let commit = self.home_commit(&committing.list, &list);
            home.publish(&commit).map_err(StorageError::Home)?;
            return Ok(list);
        }
        committing.is_in_doubt = true;
        list.write(&*self.env.disk, &self.dir)?;
        committing.is_in_doubt = false;
        Ok(list)
    }

    /// Returns the differences between two lists.
    fn home_commit(&self, before: &BlockList, list: &BlockList) -> HomeCommit {
        let added = list.blocks.iter().filter(|b| !before.contains(b.id));
        let removed = before.blocks.iter().filter(|b| !list.contains(b.id));
        HomeCommit {
            cut: list.cut,
            late_through: list.late_through,
            added: added
                .map(|entry| (entry.clone(), self.block_dir(entry.id)))
                .collect(),
            removed: removed.map(|entry| entry.id).collect(),
            covered: LogPosition(self.covered.load(Ordering::Acquire)),
        }
    }

    /// Records that the blocks of the current list contain all samples of the records before
    /// `position`, and publishes it if it has grown.
    pub(crate) fn publish_coverage(&self, position: LogPosition) -> Result<(), StorageError> {
        let before = self.covered.fetch_max(position.0, Ordering::AcqRel);
        if before >= position.0 {
            return Ok(());
        }
        let published = self.commit(|_| {});
        if published.is_err() {
            // The next tick repeats it.
            self.covered.store(before, Ordering::Release);
        }
        published
    }

    /// Lets the home do work that is due, while no commit runs.
    pub(crate) fn run_home_maintenance(&self) {
        if let Some(home) = &self.home {
            let _committing = lock(&self.committing);
            home.run_maintenance();
        }
    }

    /// Returns the access to files by which blocks are opened.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Applies `change` to the manifest, makes it durable and then publishes it to readers. New
    /// blocks are opened first, and the commit fails if one of them cannot be opened. Blocks that
    /// were already listed but not open are retried without failing the commit.
    pub(crate) fn commit(&self, change: impl FnOnce(&mut BlockList)) -> Result<(), StorageError> {
        let mut committing = lock(&self.committing);
        let mut list = committing.list.clone();
        change(&mut list);
        list.prune_tombstones();
        list.assert_follows(&committing.list);
        let before = self.view();
        let mut blocks = Vec::with_capacity(list.blocks.len());
        for entry in list.blocks.iter().filter(|entry| !entry.is_bad) {
            let known = before.blocks.iter().find(|open| open.entry.id == entry.id);
            match known
                .cloned()
                .map_or_else(|| self.open_block(entry).map(Arc::new), Ok)
            {
                Ok(open) => blocks.push(open),
                Err(_) if committing.list.contains(entry.id) => {}
                Err(e) => return Err(e),
            }
        }
        let list = self.write_manifest(&mut committing, list)?;
        let gone = committing
            .list
            .blocks
            .iter()
            .filter(|e| !list.contains(e.id));
        let gone: Vec<BlockId> = gone.map(|entry| entry.id).collect();
        for id in gone {
            match before.blocks.iter().find(|open| open.entry.id == id) {
                Some(open) => committing.left.push(open.clone()),
                None => committing.left_unopened.push(self.block_dir(id)),
            }
        }
        let (cut, tombstones) = (list.cut, list.tombstones.clone());
        committing.list = list;
        let BlocksCommitState { list, apart, .. } = &mut *committing;
        apart.retain(|id| list.contains(*id));
        self.update_gauges(&committing);
        self.view.store(Arc::new(BlocksView {
            cut,
            blocks,
            tombstones,
        }));
        committing.before.push(before);
        Ok(())
    }

    /// Excludes a block with damaged bytes from merges; it can still be read.
    pub(crate) fn exclude_from_merges(&self, id: BlockId) {
        let mut committing = lock(&self.committing);
        committing.apart.insert(id);
        self.update_gauges(&committing);
    }

    /// Returns the manifest with all blocks that must not be merged marked as bad.
    pub(crate) fn list_mergeable(&self) -> BlockList {
        let committing = lock(&self.committing);
        let mut list = committing.list.clone();
        for entry in &mut list.blocks {
            entry.is_bad |= committing.apart.contains(&entry.id);
        }
        list
    }

    /// Returns the oldest cut time of all views that may be held; no reader needs pages before it.
    pub(crate) fn oldest_reader_cut(&self) -> TimestampMs {
        let mut committing = lock(&self.committing);
        // One of the references is the one in this list.
        committing.before.retain(|view| Arc::strong_count(view) > 1);
        let before = committing.before.iter().map(|view| view.cut);
        before
            .min()
            .unwrap_or(committing.list.cut)
            .min(committing.list.cut)
    }

    /// Removes the folders of blocks that left the manifest and that no reader holds.
    pub(crate) fn remove_dropped_folders(&self) {
        let mut committing = lock(&self.committing);
        committing.before.retain(|view| Arc::strong_count(view) > 1);
        let (held, free): (Vec<_>, Vec<_>) = std::mem::take(&mut committing.left)
            .into_iter()
            .partition(|open| Arc::strong_count(open) > 1);
        committing.left = held;
        let unopened = std::mem::take(&mut committing.left_unopened);
        drop(committing);
        let free = free.into_iter().map(|open| open.dir.clone());
        for dir in free.chain(unopened) {
            let removed = remove_folder(&self.env, &dir);
            if let Err(e) = removed.or_else(ignore_missing_folder) {
                // The next start removes it, because the manifest does not list it.
                tracing::error!(
                    error = %e,
                    "failed to remove a block that was replaced or expired"
                );
            }
        }
    }

    fn open_block(&self, entry: &BlockEntry) -> Result<OpenBlock, StorageError> {
        let dir = self.block_dir(entry.id);
        Ok(OpenBlock {
            entry: entry.clone(),
            block: Block::open(&self.env, &dir, &self.cache)?,
            dir,
        })
    }

    fn update_gauges(&self, committing: &BlocksCommitState) {
        let list = &committing.list;
        let bytes: u64 = list.blocks.iter().map(|entry| entry.bytes).sum();
        self.bytes.set(bytes as i64);
        self.count.set(list.blocks.len() as i64);
        let bad = list.blocks.iter().filter(|entry| entry.is_bad);
        self.bad.set(bad.count() as i64);
        self.apart.set(committing.apart.len() as i64);
    }
}

/// Returns the ids of all folders in `dir` whose names are block ids.
fn list_block_folders(env: &Env, dir: &Path) -> Result<Vec<BlockId>, StorageError> {
    let names = env.disk.list(dir);
    let names = names.map_err(StorageError::io("list", dir))?;
    let ids = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    Ok(ids.collect())
}

/// Ignores the error if the folder does not exist.
fn ignore_missing_folder(error: StorageError) -> Result<(), StorageError> {
    match &error {
        StorageError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
