//! Deletion of files that no list needs any more.
//!
//! ```text
//! COMMIT removes a block -> gc_grace, and a checkpoint without it -> its files are deleted
//! LIST -> BARRIER acknowledged -> old files that neither the list nor the queue names are deleted
//! ```
//!
//! The second way finds uploads without a COMMIT and blocks whose leader ended before their grace.
//! Its BARRIER proves that this process still led after the LIST, so that no COMMIT is missing in
//! its block list: a file of the LIST that the block list does not name can never be listed.
//! Uploads of later leaders and of this one are not in that LIST. A removal by a predecessor is
//! before this leadership, so the search begins a grace period after it.
//!
//! Invariant: a deletion, however late, affects only names that no later COMMIT adds.

use super::{BucketHome, HomeFlaw, HomeOptions};
use crate::block_objects::{BlockObject, objects_of_block};
use crate::commit::CommittedBlock;
use crate::object_name::{ObjectName, block_prefix};
use firn_bucket::{BlockingBucket, BucketError, KeyPrefix, ListedObject, ObjectKey};
use firn_model::error::Error;
use firn_model::log::LogPosition;
use firn_model::sync::lock;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Maximum number of blocks whose files one call deletes, so that the store can go on.
const BLOCKS_AT_ONCE: usize = 16;

/// Maximum number of files in no list that one search deletes.
const ORPHANS_AT_ONCE: usize = 1_000;

/// Maximum number of files of a partition.
const LISTED_MAX: usize = 10_000_000;

/// The blocks that wait for their deletion, and the time of the next search.
#[derive(Debug, Default)]
pub(super) struct HomeGarbage {
    removed: VecDeque<RemovedBlock>,
    /// The time of the next search; `None` before the first call.
    search_at: Option<Duration>,
    is_failing: bool,
}

/// A block that a COMMIT removed.
#[derive(Debug)]
struct RemovedBlock {
    block: CommittedBlock,
    /// The position of the COMMIT.
    position: LogPosition,
    since: Duration,
}

impl HomeGarbage {
    /// Adds blocks that the COMMIT at `position` removed.
    pub(super) fn add_removed(
        &mut self,
        blocks: Vec<CommittedBlock>,
        position: LogPosition,
        now: Duration,
    ) {
        self.removed
            .extend(blocks.into_iter().map(|block| RemovedBlock {
                block,
                position,
                since: now,
            }));
    }

    /// Removes and returns a block whose files may be deleted.
    fn take_due(
        &mut self,
        options: &HomeOptions,
        now: Duration,
        checkpoint: LogPosition,
    ) -> Option<RemovedBlock> {
        let is_due = |removed: &mut RemovedBlock| {
            let is_old = now.saturating_sub(removed.since) >= options.gc_grace;
            options.has(HomeFlaw::DeletesWithoutGrace) || is_old && removed.position <= checkpoint
        };
        self.removed.pop_front_if(is_due)
    }

    /// Returns whether a search is due, and sets the time of the next one.
    fn begin_search(&mut self, options: &HomeOptions, now: Duration) -> bool {
        let search_at = *self.search_at.get_or_insert(now + options.gc_grace);
        let is_due = now >= search_at;
        if is_due {
            self.search_at = Some(now + options.orphan_interval);
        }
        is_due
    }
}

impl BucketHome {
    /// Deletes the files of removed blocks and those in no list, as far as they are due.
    pub(super) fn collect_garbage(&self) {
        let outcome = self
            .delete_removed_blocks()
            .and_then(|()| self.delete_orphans());
        let is_failing = outcome.is_err();
        let was_failing = std::mem::replace(&mut lock(&self.garbage).is_failing, is_failing);
        if let Err(error) = outcome
            && !was_failing
        {
            let partition = self.log.partition();
            tracing::warn!(%partition, %error, "files of removed blocks are not deleted yet");
        }
    }

    fn delete_removed_blocks(&self) -> Result<(), Error> {
        for _ in 0..BLOCKS_AT_ONCE {
            let checkpoint = self.log.checkpoint_position();
            let now = self.log.now();
            let due = lock(&self.garbage).take_due(&self.options, now, checkpoint);
            let Some(removed) = due else {
                break;
            };
            self.known.remove(&removed.block.name);
            if let Err(error) = self.delete_files(&removed.block) {
                lock(&self.garbage).removed.push_front(removed);
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn delete_files(&self, block: &CommittedBlock) -> Result<(), BucketError> {
        let bucket = BlockingBucket(&*self.bucket);
        let mut objects = objects_of_block(self.log.partition(), block).into_iter();
        objects.try_for_each(|object| bucket.delete(&object.key))
    }

    fn delete_orphans(&self) -> Result<(), Error> {
        if !lock(&self.garbage).begin_search(&self.options, self.log.now()) {
            return Ok(());
        }
        let bucket = BlockingBucket(&*self.bucket);
        let prefix = block_prefix(&self.options.tenant, self.log.partition());
        let listed = bucket.list_all(&KeyPrefix::new(&prefix)?, LISTED_MAX)?;
        if !self.options.has(HomeFlaw::OmitsBarrier) {
            self.log.append_barrier()?;
        }
        let named = self.named_keys();
        let age_ms = i64::try_from(self.options.orphan_age.as_millis()).unwrap_or(i64::MAX);
        let limit_ms = self.env.clock.now_ms().saturating_sub(age_ms);
        let is_orphan = |object: &&ListedObject| {
            let is_block = matches!(object.key.as_str().parse(), Ok(ObjectName::Block { .. }));
            is_block && object.head.modified_ms < limit_ms && !named.contains(&object.key)
        };
        let orphans: Vec<&ListedObject> = listed
            .iter()
            .filter(is_orphan)
            .take(ORPHANS_AT_ONCE)
            .collect();
        for object in &orphans {
            bucket.delete(&object.key)?;
        }
        if !orphans.is_empty() {
            let (partition, files) = (self.log.partition(), orphans.len());
            tracing::info!(%partition, files, "deleted files of blocks that no list names");
        }
        Ok(())
    }

    /// Returns the keys of all files that are listed or wait for their grace.
    fn named_keys(&self) -> BTreeSet<ObjectKey> {
        let partition = self.log.partition();
        let keys_of = |block: &CommittedBlock| {
            let objects = objects_of_block(partition, block).into_iter();
            objects.map(|object: BlockObject| object.key)
        };
        let list = self.log.block_list();
        let mut named: BTreeSet<ObjectKey> = list.blocks.iter().flat_map(keys_of).collect();
        let garbage = lock(&self.garbage);
        named.extend(garbage.removed.iter().flat_map(|r| keys_of(&r.block)));
        named
    }
}
