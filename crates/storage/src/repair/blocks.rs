//! Blocks that are damaged leave the manifest, and their folders the place that they had.
//!
//! A block is all or nothing: its pages are found by its index, and its index is what is damaged as
//! often as not. All files of its folder are copied before.

use crate::block::{BlockCache, BlockId, remove_folder};
use crate::blocks::{self, BlockList};
use crate::data_dir::DataDir;
use crate::error::StorageError;
use crate::verify::Report;
use firn_model::env::Env;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Of blocks that are opened to see what they are.
const CACHE_BYTES: usize = 1 << 20;

/// What becomes of the blocks.
pub(super) struct Plan {
    folder: PathBuf,
    /// The manifest as it is to be.
    list: BlockList,
    /// The blocks that are damaged, which it names no more.
    broken: BTreeSet<BlockId>,
    /// Manifests that are damaged.
    manifests: Vec<PathBuf>,
}

impl Plan {
    /// Takes what is damaged out of the manifest; nothing if nothing is. A manifest that is damaged
    /// or missing is made of the blocks that are whole.
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
        let names = files
            .iter()
            .filter_map(|file| file.strip_prefix(&folder).ok()?.iter().next());
        let ids = names.filter_map(|name| name.to_str()?.parse().ok());
        let mut broken: BTreeSet<BlockId> = ids.collect();
        let read = BlockList::read(&*env.disk, &folder)?;
        let mut list = read.list;
        if !read.damages.is_empty() || list.version == 0 {
            let cache = Arc::new(BlockCache::new(CACHE_BYTES));
            list = blocks::list_of_folders(env, &folder, &cache, list.version)?;
            // No finding is about them: no manifest named them.
            let unopened = list.blocks.iter().filter(|entry| entry.is_bad);
            broken.extend(unopened.map(|entry| entry.id));
        }
        list.blocks.retain(|entry| !broken.contains(&entry.id));
        list.version += 1;
        Ok(Some(Self {
            folder,
            list,
            broken,
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

    /// Writes the manifest, and removes what is damaged.
    pub(super) fn carry_out(self, env: &Env) -> Result<(), StorageError> {
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
