//! The set of blocks of a store: what the manifest names, opened, and what a reader holds of it.
//!
//! ```text
//! start:  manifest -> open what it names -> remove folders that it does not name
//! commit: new manifest, durable -> new view -> folders that left it go once no reader holds them
//! read:   view = blocks and cut time, one consistent pair
//! ```
//!
//! Invariants: a view never changes; blocks own the in-order samples before its cut time, pages and
//! head those from it on. A folder is removed only when the manifest that does not name it is
//! durable and no view that names it is held. Before the first block is written there is a manifest
//! without blocks, so that a crash before the commit leaves a folder that a manifest does not name:
//! blocks of one commit count together or not at all. A block that cannot be opened costs itself
//! alone: it is named, queries over its times are warned, and nothing else stops. If its bytes are
//! damaged it is in quarantine: the manifest says so, its folder stays as it is and where it is,
//! and a start takes it back if it opens again.

mod list;
pub(crate) mod plan;
mod rebuilt;

pub(crate) use list::{BlockEntry, BlockKind, BlockList, BlockSet};
pub(crate) use rebuilt::list_of_folders;

use crate::block::{Block, BlockCache, BlockId, remove_folder};
use crate::damage::{self, Damage, DamageKind, Damages};
use crate::error::StorageError;
use crate::sync::{Mutex, lock};
use arc_swap::ArcSwap;
use firn_model::env::Env;
use firn_model::labels::METRIC_NAME;
use firn_model::matcher::Matcher;
use firn_model::metrics::Gauge;
use firn_model::sample::{TimeRange, TimestampMs};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A block of a view.
#[derive(Debug)]
pub(crate) struct OpenBlock {
    pub(crate) entry: BlockEntry,
    pub(crate) block: Block,
    dir: PathBuf,
}

impl OpenBlock {
    /// Whether a series of it may match: the metrics of a shard are known.
    pub(crate) fn may_match(&self, matchers: &[Matcher]) -> bool {
        let Some(shard) = &self.block.meta().shard else {
            return true;
        };
        let of_metric = matchers.iter().filter(|m| m.name() == METRIC_NAME);
        of_metric
            .filter_map(Matcher::literal_set)
            .all(|names| names.iter().any(|name| shard.may_have(name)))
    }
}

/// The blocks at one moment, and what they own. A selection holds one for as long as it reads.
#[derive(Debug)]
pub(crate) struct View {
    /// Blocks own the in-order samples before this time.
    pub(crate) cut: TimestampMs,
    /// In the order in which they win at one time.
    pub(crate) blocks: Vec<Arc<OpenBlock>>,
}

impl View {
    /// The blocks that may hold samples in `range` of series that match.
    pub(crate) fn matching<'a>(
        &'a self,
        range: TimeRange,
        matchers: &'a [Matcher],
    ) -> impl Iterator<Item = &'a Arc<OpenBlock>> {
        let blocks = self.overlapping(range);
        blocks.filter(|open| open.may_match(matchers))
    }

    /// The blocks that may hold samples in `range`.
    pub(crate) fn overlapping(&self, range: TimeRange) -> impl Iterator<Item = &Arc<OpenBlock>> {
        let blocks = self.blocks.iter();
        blocks.filter(move |open| open.entry.range.overlaps(&range))
    }
}

/// See the module.
pub(crate) struct Blocks {
    env: Env,
    dir: PathBuf,
    pub(crate) cache: Arc<BlockCache>,
    damages: Arc<Damages>,
    view: ArcSwap<View>,
    /// Held by the commit under way.
    committing: Mutex<Committing>,
    /// Bytes of the blocks of the manifest.
    pub(crate) bytes: Gauge,
    /// How many blocks the manifest names.
    pub(crate) count: Gauge,
    /// Those that are in quarantine.
    pub(crate) bad: Gauge,
    /// Those that are read and not merged.
    pub(crate) apart: Gauge,
}

/// What the manifest says, and what is still to be removed.
struct Committing {
    list: BlockList,
    /// Blocks that left the manifest.
    left: Vec<Arc<OpenBlock>>,
    /// Folders of blocks that left the manifest and that were not open.
    left_unopened: Vec<PathBuf>,
    /// Views from before the newest commit.
    before: Vec<Arc<View>>,
    /// Blocks of which a merge met damage.
    apart: BTreeSet<BlockId>,
    /// Whether a commit failed since the last one that did not: its manifest may be durable, and a
    /// start would take it.
    is_in_doubt: bool,
}

impl Blocks {
    /// Opens the blocks in `dir`, which exists, and removes what the manifest does not name.
    pub(crate) fn open(
        env: &Env,
        dir: &Path,
        cache: Arc<BlockCache>,
        damages: Arc<Damages>,
    ) -> Result<Self, StorageError> {
        let found = BlockList::read(&*env.disk, dir)?;
        // The process may have ended between the renaming and its sync, and what is done from here
        // on trusts what was read.
        let synced = env.disk.sync_dir(dir);
        synced.map_err(StorageError::io("sync folder", dir))?;
        let blocks = Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            cache,
            damages,
            view: ArcSwap::from_pointee(View {
                cut: i64::MIN,
                blocks: Vec::new(),
            }),
            committing: Mutex::new(Committing {
                list: found.list,
                left: Vec::new(),
                left_unopened: Vec::new(),
                before: Vec::new(),
                apart: BTreeSet::new(),
                is_in_doubt: false,
            }),
            bytes: Gauge::default(),
            count: Gauge::default(),
            bad: Gauge::default(),
            apart: Gauge::default(),
        };
        let mut is_damaged = !found.damages.is_empty();
        for damage in found.damages {
            blocks.damages.report(damage);
        }
        is_damaged |= blocks.lacks_manifest()?;
        if is_damaged {
            blocks.take_what_is_there()?;
        }
        blocks.open_all();
        // What no manifest names may be all that is left of something: of what a merge was made of
        // that cannot be read.
        let is_all_there = blocks.view().blocks.len() == blocks.list().blocks.len();
        if !is_damaged && is_all_there {
            blocks.remove_unnamed(&found.others)?;
        }
        Ok(blocks)
    }

    /// Whether there are blocks and no manifest: it was lost, since there is one before there are
    /// blocks. Versions before this one wrote the first with the first commit; of those a block
    /// that was not committed is taken, too.
    fn lacks_manifest(&self) -> Result<bool, StorageError> {
        let lacks = self.list().version == 0 && !folders(&self.env, &self.dir)?.is_empty();
        if lacks {
            tracing::warn!("blocks exist but no manifest: using all complete blocks");
        }
        Ok(lacks)
    }

    /// What is there now.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// What the manifest says.
    pub(crate) fn list(&self) -> BlockList {
        lock(&self.committing).list.clone()
    }

    /// What the manifest says, and a view of the same moment: the folders of blocks stay while it
    /// is held, but for those of damaged ones.
    pub(crate) fn list_and_view(&self) -> (BlockList, Arc<View>) {
        let committing = lock(&self.committing);
        (committing.list.clone(), self.view())
    }

    /// A cache of its own for a reader of whole blocks, which reports damage as this one's does.
    pub(crate) fn cache_beside(&self, bytes_max: usize) -> Arc<BlockCache> {
        let cache = BlockCache::new(bytes_max);
        Arc::new(cache.reporting_to(self.damages.clone()))
    }

    /// The folder of all blocks.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder of a block.
    pub(crate) fn dir_of(&self, id: BlockId) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// The folder for a block that is to be written: there is a manifest, and none names it that a
    /// start may find. Fails while the disk does not say which manifest counts.
    pub(crate) fn dir_to_write(&self, id: BlockId) -> Result<PathBuf, StorageError> {
        let mut committing = lock(&self.committing);
        if committing.is_in_doubt || committing.list.version == 0 {
            let list = committing.list.clone();
            committing.list = self.put(&mut committing, list)?;
        }
        Ok(self.dir_of(id))
    }

    /// Makes `list` the manifest that counts, under the next version; returns it with that.
    fn put(
        &self,
        committing: &mut Committing,
        mut list: BlockList,
    ) -> Result<BlockList, StorageError> {
        list.version = committing.list.version + 1;
        committing.is_in_doubt = true;
        list.write(&*self.env.disk, &self.dir)?;
        committing.is_in_doubt = false;
        Ok(list)
    }

    /// Makes what `change` does to the list the truth: durable, then visible. Blocks that are new
    /// in the list are opened first; one that does not open fails the commit. One that the disk
    /// did not deliver before is tried again, and fails nothing.
    pub(crate) fn commit(&self, change: impl FnOnce(&mut BlockList)) -> Result<(), StorageError> {
        let mut committing = lock(&self.committing);
        let mut list = committing.list.clone();
        change(&mut list);
        let before = self.view();
        let mut blocks = Vec::with_capacity(list.blocks.len());
        for entry in list.blocks.iter().filter(|entry| !entry.is_bad) {
            let known = before.blocks.iter().find(|open| open.entry.id == entry.id);
            match known
                .cloned()
                .map_or_else(|| self.open_one(entry).map(Arc::new), Ok)
            {
                Ok(open) => blocks.push(open),
                Err(_) if committing.list.names(entry.id) => {}
                Err(e) => return Err(e),
            }
        }
        let list = self.put(&mut committing, list)?;
        let gone = committing.list.blocks.iter().filter(|e| !list.names(e.id));
        let gone: Vec<BlockId> = gone.map(|entry| entry.id).collect();
        for id in gone {
            match before.blocks.iter().find(|open| open.entry.id == id) {
                Some(open) => committing.left.push(open.clone()),
                None => committing.left_unopened.push(self.dir_of(id)),
            }
        }
        let cut = list.cut;
        committing.list = list;
        let Committing { list, apart, .. } = &mut *committing;
        apart.retain(|id| list.names(*id));
        self.measure(&committing);
        self.view.store(Arc::new(View { cut, blocks }));
        committing.before.push(before);
        Ok(())
    }

    /// Keeps a block apart of which some bytes are damaged: it is still read, and merged no more.
    pub(crate) fn keep_apart(&self, id: BlockId) {
        let mut committing = lock(&self.committing);
        committing.apart.insert(id);
        self.measure(&committing);
    }

    /// What the manifest says, without the blocks that merges leave alone.
    pub(crate) fn mergeable(&self) -> BlockList {
        let committing = lock(&self.committing);
        let mut list = committing.list.clone();
        for entry in &mut list.blocks {
            entry.is_bad |= committing.apart.contains(&entry.id);
        }
        list
    }

    /// The cut time of the oldest view that a reader may hold: pages before it are needed no more.
    pub(crate) fn cut_of_all_readers(&self) -> TimestampMs {
        let mut committing = lock(&self.committing);
        // One count is that of the list itself.
        committing.before.retain(|view| Arc::strong_count(view) > 1);
        let before = committing.before.iter().map(|view| view.cut);
        before
            .min()
            .unwrap_or(committing.list.cut)
            .min(committing.list.cut)
    }

    /// Removes the folders of blocks that left the manifest and that no reader holds.
    pub(crate) fn remove_left(&self) {
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
            if let Err(e) = removed.or_else(if_missing) {
                // The next start finds it unnamed.
                tracing::error!(
                    error = %e,
                    "failed to remove a block that was replaced or expired"
                );
            }
        }
    }

    fn open_one(&self, entry: &BlockEntry) -> Result<OpenBlock, StorageError> {
        let dir = self.dir_of(entry.id);
        Ok(OpenBlock {
            entry: entry.clone(),
            block: Block::open(&self.env, &dir, &self.cache)?,
            dir,
        })
    }

    /// Opens what the manifest names. What is damaged goes into quarantine, and what is there and
    /// opens comes out of it; what the disk does not deliver is reported and tried again later.
    fn open_all(&self) {
        let mut committing = lock(&self.committing);
        let mut blocks = Vec::new();
        let mut is_changed = false;
        for entry in &mut committing.list.blocks {
            match self.open_one(entry) {
                Ok(mut open) => {
                    if entry.is_bad {
                        tracing::info!(block = %entry.id, "block is intact again");
                        // What is known of it may be its name alone.
                        *entry = BlockEntry::of(open.block.meta(), entry.kind, entry.sequence);
                        open.entry = entry.clone();
                        is_changed = true;
                    }
                    blocks.push(Arc::new(open));
                }
                Err(e) => {
                    let fault = e.is_disk_fault();
                    is_changed |= !fault && !entry.is_bad;
                    entry.is_bad |= !fault;
                    let damage = Damage {
                        samples: Some(entry.samples),
                        ..damage::met(DamageKind::Blocks, &e).within(Some(entry.range))
                    };
                    self.damages.report(damage);
                }
            }
        }
        let cut = committing.list.cut;
        self.view.store(Arc::new(View { cut, blocks }));
        if is_changed {
            let list = committing.list.clone();
            match self.put(&mut committing, list) {
                Ok(list) => committing.list = list,
                Err(e) => tracing::error!(error = %e, "failed to record damaged blocks"),
            }
        }
        self.measure(&committing);
    }

    /// Without a manifest that reads the blocks that are whole count. Nothing is removed then.
    fn take_what_is_there(&self) -> Result<(), StorageError> {
        let mut committing = lock(&self.committing);
        let version = committing.list.version;
        let list = list_of_folders(&self.env, &self.dir, &self.cache, version)?;
        committing.list = self.put(&mut committing, list)?;
        Ok(())
    }

    /// Removes the folders and manifests that count no more.
    fn remove_unnamed(&self, manifests: &[PathBuf]) -> Result<(), StorageError> {
        let list = self.list();
        for id in folders(&self.env, &self.dir)? {
            if list.names(id) {
                continue;
            }
            match remove_folder(&self.env, &self.dir_of(id)) {
                Ok(()) => tracing::info!(
                    block = %id,
                    "removed a block that is not in the manifest"
                ),
                // It is not what counts, and need not be ours.
                Err(e) => tracing::warn!(
                    error = %e,
                    "failed to remove a block that is not in the manifest"
                ),
            }
        }
        for path in manifests {
            // One that stays is older than the one that counts.
            let _ = self.env.disk.remove_file(path);
        }
        Ok(())
    }

    fn measure(&self, committing: &Committing) {
        let list = &committing.list;
        let bytes: u64 = list.blocks.iter().map(|entry| entry.bytes).sum();
        self.bytes.set(bytes as i64);
        self.count.set(list.blocks.len() as i64);
        let bad = list.blocks.iter().filter(|entry| entry.is_bad);
        self.bad.set(bad.count() as i64);
        self.apart.set(committing.apart.len() as i64);
    }
}

/// The folders of blocks that are there.
fn folders(env: &Env, dir: &Path) -> Result<Vec<BlockId>, StorageError> {
    let names = env.disk.list(dir);
    let names = names.map_err(StorageError::io("list", dir))?;
    let ids = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    Ok(ids.collect())
}

/// A folder that is not there need not be removed.
fn if_missing(error: StorageError) -> Result<(), StorageError> {
    match &error {
        StorageError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
