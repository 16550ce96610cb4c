//! Damaged blocks: files with a second copy are restored, and a new block of all readable data
//! replaces a block that lost something.
//!
//! A block without readable data leaves the manifest. All files of a replaced block are copied
//! before, and of a restored block the damaged file.

use super::rewrite;
use crate::block::{Block, BlockCache, BlockId, BlockMeta, INDEX, INDEX_COPY, remove_folder};
use crate::blocks::{self, BlockEntry, BlockList};
use crate::damage::DamageKind;
use crate::data_dir::DataDir;
use crate::error::StorageError;
use crate::verify::{Finding, Report};
use firn_model::env::Env;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of blocks that are opened to see what they are, or read for what is whole of them.
const CACHE_BYTES: usize = 32 << 20;

/// What becomes of the blocks.
pub(super) struct Plan {
    folder: PathBuf,
    /// The manifest as it is to be.
    list: BlockList,
    /// The blocks that lost something. It names what is made of them in their place.
    broken: BTreeSet<BlockId>,
    /// Blocks of which everything that is damaged is in a second place.
    recovered: BTreeSet<BlockId>,
    /// Manifests that are damaged.
    manifests: Vec<PathBuf>,
}

impl Plan {
    /// What is to be done; nothing if no block is damaged. A manifest that is damaged or missing is
    /// made of the blocks that are there.
    pub(super) fn of(
        env: &Env,
        dir: &DataDir,
        found: &Report,
    ) -> Result<Option<Self>, StorageError> {
        let folder = dir.blocks();
        let files = found.findings.iter().map(|finding| &finding.damage.file);
        let files: Vec<&PathBuf> = files.filter(|file| file.starts_with(&folder)).collect();
        if files.is_empty() {
            return Ok(None);
        }
        let block_of = |finding: &&Finding| -> Option<BlockId> {
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
        // What lacks both has no second place.
        let is_hit =
            |id: &BlockId, file: &str| files.contains(&&folder.join(id.to_string()).join(file));
        broken.extend(of_blocks(false).filter(|id| is_hit(id, INDEX) && is_hit(id, INDEX_COPY)));
        let recovered = of_blocks(false).filter(|id| !broken.contains(id)).collect();
        let read = BlockList::read(&*env.disk, &folder)?;
        let mut list = read.list;
        if !read.damages.is_empty() || list.version == 0 {
            let cache = Arc::new(BlockCache::new(CACHE_BYTES));
            list = blocks::list_of_folders(env, &folder, &cache, list.version)?;
            // No finding is about them: no manifest named them.
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

    /// All files of the folders of blocks that are damaged.
    pub(super) fn files(&self, env: &Env) -> Vec<PathBuf> {
        let folders = self
            .broken
            .iter()
            .map(|id| self.folder.join(id.to_string()));
        // A folder that cannot be listed is gone.
        let files = folders.flat_map(|folder| {
            let names = env.disk.list(&folder).unwrap_or_default().into_iter();
            names
                .map(|name| folder.join(name))
                .collect::<Vec<PathBuf>>()
        });
        files.collect()
    }

    /// Writes files and blocks anew, then the manifest, and removes what is damaged.
    pub(super) fn carry_out(mut self, env: &Env) -> Result<(), StorageError> {
        for id in &self.recovered {
            let dir = self.folder.join(id.to_string());
            open(env, &dir)?.restore(env, &dir)?;
        }
        for id in &self.broken {
            let rewritten = match open(env, &self.folder.join(id.to_string())) {
                Ok(block) => rewrite::rewrite(env, &self.folder, &block)?,
                Err(_) => None,
            };
            replace(&mut self.list, *id, rewritten.as_ref());
        }
        self.list.version += 1;
        self.list.write(&*env.disk, &self.folder)?;
        for path in self.manifests {
            // The newest of them left when the new one was written.
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

/// Puts what is left of a block in its place in the list.
fn replace(list: &mut BlockList, id: BlockId, left: Option<&BlockMeta>) {
    let Some(at) = list.blocks.iter().position(|entry| entry.id == id) else {
        return;
    };
    match left {
        Some(meta) => {
            let known = &list.blocks[at];
            list.blocks[at] = BlockEntry::of(meta, known.kind, known.sequence);
        }
        None => {
            list.blocks.remove(at);
        }
    }
}
