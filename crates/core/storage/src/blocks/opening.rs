//! Opens the blocks in the list at a start, removes folders that are not in it, and rebuilds a
//! missing manifest.

use super::list::BlockEntry;
use super::rebuilt::rebuild_list;
use super::view::BlocksView;
use super::{Blocks, list_block_folders};
use crate::block::remove_folder;
use crate::damage;
use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use crate::sync::lock;
use std::path::PathBuf;
use std::sync::Arc;

impl Blocks {
    /// Returns whether blocks exist but no manifest. The manifest must have been lost, because one
    /// is always written before the first block. Older versions wrote it with the first commit; for
    /// them, a block that was never committed may be used, too.
    pub(super) fn is_manifest_missing(&self) -> Result<bool, StorageError> {
        let lacks =
            self.list().version == 0 && !list_block_folders(&self.env, &self.dir)?.is_empty();
        if lacks {
            tracing::warn!("blocks exist but no manifest: using all complete blocks");
        }
        Ok(lacks)
    }

    /// Opens the blocks in the manifest. Damaged blocks are quarantined, and quarantined blocks
    /// that can be opened are released. Blocks that failed with a disk fault are reported and
    /// retried later. Returns an error if the home does not answer.
    pub(super) fn open_listed_blocks(&self) -> Result<(), StorageError> {
        let mut committing = lock(&self.committing);
        let mut blocks = Vec::new();
        let mut is_changed = false;
        for entry in &mut committing.list.blocks {
            match self.open_block(entry) {
                Ok(mut open) => {
                    if entry.is_bad {
                        tracing::info!(block = %entry.id, "block is intact again");
                        // The entry of a quarantined block may contain only its id.
                        *entry =
                            BlockEntry::from_meta(open.block.meta(), entry.kind, entry.sequence);
                        open.entry = entry.clone();
                        is_changed = true;
                    }
                    blocks.push(Arc::new(open));
                }
                Err(e) if e.is_home_fault() => return Err(e),
                Err(e) => {
                    let fault = e.is_disk_fault();
                    is_changed |= !fault && !entry.is_bad;
                    entry.is_bad |= !fault;
                    let damage = Damage {
                        samples: Some(entry.samples),
                        ..damage::damage_from_error(DamageKind::Blocks, &e)
                            .with_time_range(Some(entry.range))
                    };
                    self.damages.report(damage);
                }
            }
        }
        self.view.store(Arc::new(BlocksView {
            cut: committing.list.cut,
            blocks,
            tombstones: committing.list.tombstones.clone(),
        }));
        // A home does not record damage: each start opens the blocks again.
        if is_changed && self.home.is_none() {
            let list = committing.list.clone();
            match self.write_manifest(&mut committing, list) {
                Ok(list) => committing.list = list,
                Err(e) => tracing::error!(error = %e, "failed to record damaged blocks"),
            }
        }
        self.update_gauges(&committing);
        Ok(())
    }

    /// Builds a new manifest from all complete blocks, for a start without a readable one. Removes
    /// nothing.
    pub(super) fn rebuild_manifest(&self) -> Result<(), StorageError> {
        let mut committing = lock(&self.committing);
        let version = committing.list.version;
        let list = rebuild_list(&self.env, &self.dir, &self.cache, version)?;
        committing.list = self.write_manifest(&mut committing, list)?;
        Ok(())
    }

    /// Removes the folders of blocks that are not in the manifest, and the manifests that are not
    /// in use.
    pub(super) fn remove_unlisted_folders(
        &self,
        manifests: &[PathBuf],
    ) -> Result<(), StorageError> {
        let list = self.list();
        for id in list_block_folders(&self.env, &self.dir)? {
            if list.contains(id) {
                continue;
            }
            match remove_folder(&self.env, &self.block_dir(id)) {
                Ok(()) => tracing::info!(
                    block = %id,
                    "removed a block that is not in the manifest"
                ),
                // The folder is not in use and may not belong to Firn.
                Err(e) => tracing::warn!(
                    error = %e,
                    "failed to remove a block that is not in the manifest"
                ),
            }
        }
        for path in manifests {
            // A manifest that remains is older than the current one and therefore harmless.
            let _ = self.env.disk.remove_file(path);
        }
        Ok(())
    }
}
