//! Repairs damaged blocks: files with a second copy are restored, and a block that lost data is
//! replaced by a new block with all of its readable data.
//!
//! A block without readable data is removed from the manifest. All files of a replaced block and
//! the damaged files of a restored block are copied before.

use super::rewrite;
use crate::block::{Block, BlockCache, BlockId, BlockMeta, INDEX, INDEX_COPY, remove_folder};
use crate::blocks::{self, BlockEntry, BlockList};
use crate::damage::DamageKind;
use crate::data_dir::DataDir;
use crate::error::StorageError;
use crate::verify::{VerifyFinding, VerifyReport};
use firn_model::env::Env;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of the cache for blocks that are inspected or rewritten, in bytes.
const CACHE_BYTES: usize = 32 << 20;

/// The planned changes to the blocks and to their manifest.
pub(super) struct BlockRepairPlan {
    folder: PathBuf,
    /// The new content of the manifest.
    list: BlockList,
    /// Blocks that lost data. Their entries in `list` are replaced by those of the rewritten
    /// blocks.
    broken: BTreeSet<BlockId>,
    /// Blocks with damage that can be repaired completely from a second copy.
    recovered: BTreeSet<BlockId>,
    /// Manifests that are damaged.
    manifests: Vec<PathBuf>,
}

impl BlockRepairPlan {
    /// Plans the repair; returns `None` if no block is damaged. If the manifest is damaged or
    /// missing, it is rebuilt from the existing blocks.
    pub(super) fn plan_repair(
        env: &Env,
        dir: &DataDir,
        found: &VerifyReport,
    ) -> Result<Option<Self>, StorageError> {
        let folder = dir.blocks();
        let files = found.findings.iter().map(|finding| &finding.damage.file);
        let files: Vec<&PathBuf> = files.filter(|file| file.starts_with(&folder)).collect();
        if files.is_empty() {
            return Ok(None);
        }
        let block_of = |finding: &&VerifyFinding| -> Option<BlockId> {
            let inside = finding.damage.file.strip_prefix(&folder).ok()?;
            inside.iter().next()?.to_str()?.parse().ok()
        };
        let of_blocks = |is_lost: bool| {
            let findings = found.findings.iter();
            let findings = findings.filter(|finding| finding.damage.kind == DamageKind::Blocks);
            let findings =
                findings.filter(move |finding| (finding.damage.samples != Some(0)) == is_lost);
            findings.filter_map(|finding| block_of(&finding))
        };
        let mut broken: BTreeSet<BlockId> = of_blocks(true).collect();
        // If both the index and its copy are damaged, there is no intact copy to restore from.
        let is_hit =
            |id: &BlockId, file: &str| files.contains(&&folder.join(id.to_string()).join(file));
        broken.extend(of_blocks(false).filter(|id| is_hit(id, INDEX) && is_hit(id, INDEX_COPY)));
        let recovered = of_blocks(false).filter(|id| !broken.contains(id)).collect();
        let read = BlockList::read(&*env.disk, &folder)?;
        let mut list = read.list;
        if !read.damages.is_empty() || list.version == 0 {
            let cache = Arc::new(BlockCache::new(CACHE_BYTES));
            list = blocks::rebuild_list(env, &folder, &cache, list.version)?;
            // The verification did not report these, because no manifest listed them.
            let unopened = list.blocks.iter().filter(|entry| entry.is_bad);
            broken.extend(unopened.map(|entry| entry.id));
        }
        Ok(Some(Self {
            folder,
            list,
            broken,
            recovered,
            manifests: read.damages.into_iter().map(|damage| damage.file).collect(),
        }))
    }

    /// Returns all files in the folders of the blocks that lost data.
    pub(super) fn files(&self, env: &Env) -> Vec<PathBuf> {
        let folders = self
            .broken
            .iter()
            .map(|id| self.folder.join(id.to_string()));
        // A folder that cannot be listed does not exist.
        let files = folders.flat_map(|folder| {
            let names = env.disk.list(&folder).unwrap_or_default().into_iter();
            names
                .map(|name| folder.join(name))
                .collect::<Vec<PathBuf>>()
        });
        files.collect()
    }

    /// Restores files, rewrites blocks and the manifest, and then removes the damaged blocks.
    pub(super) fn apply(mut self, env: &Env) -> Result<(), StorageError> {
        for id in &self.recovered {
            let dir = self.folder.join(id.to_string());
            open(env, &dir)?.restore(env, &dir)?;
        }
        for id in &self.broken {
            let rewritten = match open(env, &self.folder.join(id.to_string())) {
                Ok(block) => {
                    let deleted = self.list.tombstones.of_block(*id).map(|runs| &**runs);
                    rewrite::rewrite(env, &self.folder, &block, deleted)?
                }
                Err(_) => None,
            };
            replace(&mut self.list, *id, rewritten.as_ref());
        }
        self.list.prune_tombstones();
        self.list.version += 1;
        self.list.write(&*env.disk, &self.folder)?;
        for path in self.manifests {
            // Writing the new manifest may already have removed the newest of them.
            let _ = env.disk.remove_file(&path);
        }
        for id in self.broken {
            let place = self.folder.join(id.to_string());
            if env.disk.list(&place).is_ok() {
                remove_folder(env, &place)?;
            }
        }
        let synced = env.disk.sync_dir(&self.folder);
        synced.map_err(StorageError::io("sync folder", &self.folder))
    }
}

fn open(env: &Env, dir: &Path) -> Result<Block, StorageError> {
    Block::open(env, dir, &Arc::new(BlockCache::new(CACHE_BYTES)))
}

/// Replaces the entry of a block by that of the rewritten one, or removes it if no data is left.
fn replace(list: &mut BlockList, id: BlockId, left: Option<&BlockMeta>) {
    let Some(at) = list.blocks.iter().position(|entry| entry.id == id) else {
        return;
    };
    match left {
        Some(meta) => {
            let known = &list.blocks[at];
            list.blocks[at] = BlockEntry::from_meta(meta, known.kind, known.sequence);
        }
        None => {
            list.blocks.remove(at);
        }
    }
}
