//! The home of the blocks of a partition: files in the bucket, the list of them in the log.
//!
//! ```text
//! publish: files of new blocks -> COMMIT -> checkpoint -> the log before it is trimmed
//! restored: newest checkpoint -> block list, catalogue, begin of the replay
//! run_maintenance: checkpoints that failed, files of removed blocks, files in no list
//! ```
//!
//! A COMMIT is the commit point: a block that no COMMIT adds does not exist. Invariants:
//!
//! - A COMMIT enters the log only after all files of its blocks are stored with their sizes.
//! - Each attempt to upload a block has a random name of its own, so that a late creation or
//!   deletion of an earlier attempt affects no listed block.
//! - A file is deleted only if no list of the last [`HomeOptions::gc_grace`] names its block, and
//!   no takeover can begin with a list that does.
//! - A leader appends no record before the checkpoint of the last COMMIT of its predecessors is
//!   stored. A process that lost the log may still write that checkpoint, with series that it
//!   created later; a leader that had not started from a checkpoint at this position would give
//!   their slots to other series.
//!
//! This module leaves to the log: order, fencing and the trim; to the store: which blocks there
//! are, and their bytes.

mod block_files;
mod checkpointing;
mod entries;
mod garbage;
mod known_blocks;
mod options;
#[cfg(test)]
mod tests;
mod upload;

pub use options::HomeFlaw;
pub use options::HomeOptions;

use crate::commit::{BlockChange, CommittedBlock};
use crate::engine::BucketLog;
use block_files::BucketFiles;
use checkpointing::CheckpointRetry;
use firn_bucket::Bucket;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::sync::lock;
use firn_storage::home::{BlockHome, CatalogueSource, HomeCommit, HomeFiles, RestoredHome};
use garbage::HomeGarbage;
use known_blocks::KnownBlocks;
use std::sync::{Arc, Mutex, OnceLock};

/// The home of the blocks of one partition, for one takeover of its log. Created by the owner of
/// the log, before a store is opened with both.
pub struct BucketHome {
    bucket: Arc<dyn Bucket>,
    env: Env,
    log: BucketLog,
    options: HomeOptions,
    source: OnceLock<CatalogueSource>,
    known: Arc<KnownBlocks>,
    retry: Mutex<CheckpointRetry>,
    garbage: Mutex<HomeGarbage>,
}

impl BucketHome {
    /// Creates the home of the partition of `log`. New blocks are read from the disk of `env`.
    pub fn new(bucket: Arc<dyn Bucket>, env: Env, log: BucketLog, options: HomeOptions) -> Self {
        Self {
            bucket,
            env,
            log,
            options,
            source: OnceLock::new(),
            known: Arc::default(),
            retry: Mutex::default(),
            garbage: Mutex::default(),
        }
    }

    /// Returns whether COMMITs follow the checkpoint from which the store started: its process
    /// ended between a COMMIT and its checkpoint. The owner then calls
    /// [`BucketHome::write_checkpoint`] and takes over again. The answer is final once the store is
    /// open. Until then, nothing is published or deleted.
    pub fn needs_checkpoint(&self) -> bool {
        self.log.is_checkpoint_behind()
    }

    fn upload_added(&self, commit: &HomeCommit) -> Result<Vec<CommittedBlock>, Error> {
        let uploads = commit.added.iter().map(|(entry, folder)| {
            let name = self.draw_name(entry);
            self.describe_block(entry, name, folder)
                .and_then(|block| self.upload_files(&block, folder).map(|()| block))
        });
        uploads.collect()
    }

    /// Publishes a COMMIT before its files: the effect of a planted flaw.
    fn publish_early(&self, commit: &HomeCommit) -> Result<(), Error> {
        let mut added = Vec::new();
        for (entry, folder) in &commit.added {
            added.push(self.describe_block(entry, self.draw_name(entry), folder)?);
        }
        self.append_commit(commit, added.clone())?;
        for (block, (_, folder)) in added.iter().zip(&commit.added) {
            self.upload_files(block, folder)?;
        }
        Ok(())
    }

    /// Appends the COMMIT, whose files are stored.
    fn append_commit(&self, commit: &HomeCommit, added: Vec<CommittedBlock>) -> Result<(), Error> {
        let list = self.log.block_list();
        let mut removed = Vec::with_capacity(commit.removed.len());
        for id in &commit.removed {
            let block = entries::find_block(&list, *id).ok_or_else(|| {
                let text = format!("block {id} is to be removed, but it is not listed");
                Error::new(ErrorKind::Internal, text)
            })?;
            removed.push(block.clone());
        }
        let change = BlockChange {
            cut: commit.cut,
            late_through: commit.late_through,
            added: added.clone(),
            removed: removed.iter().map(|block| block.name.clone()).collect(),
        };
        let position = self.log.commit(change, commit.covered)?;
        self.known.add(added);
        lock(&self.garbage).add_removed(removed, position, self.log.now());
        Ok(())
    }

    fn require_current_list(&self) -> Result<(), Error> {
        if !self.needs_checkpoint() {
            return Ok(());
        }
        let text = "the partition is taken over again, because its last checkpoint is missing";
        Err(Error::new(ErrorKind::Unavailable, text))
    }
}

impl BlockHome for BucketHome {
    /// Returns the default if the takeover has ended; the log then returns the reason to the store.
    fn restored(&self) -> RestoredHome {
        let Ok(restored) = self.log.restored_state() else {
            return RestoredHome::default();
        };
        self.known.add(restored.list.blocks.iter().cloned());
        entries::restored_home(restored)
    }

    fn set_catalogue_source(&self, source: CatalogueSource) {
        // A store sets it once.
        let _ = self.source.set(source);
    }

    fn publish(&self, commit: &HomeCommit) -> Result<(), Error> {
        self.require_current_list()?;
        if self.options.has(HomeFlaw::CommitsBeforeUpload) {
            return self.publish_early(commit);
        }
        let added = self.upload_added(commit)?;
        self.append_commit(commit, added)?;
        // The COMMIT is durable. Without the checkpoint the log is only longer.
        self.repeat_checkpoint(true);
        Ok(())
    }

    fn run_maintenance(&self) {
        if self.log.ended().is_some() || self.needs_checkpoint() {
            return;
        }
        self.repeat_checkpoint(false);
        self.collect_garbage();
    }

    fn files(&self) -> Arc<dyn HomeFiles> {
        Arc::new(BucketFiles {
            bucket: self.bucket.clone(),
            partition: self.log.partition(),
            known: self.known.clone(),
        })
    }
}
