//! The audit of one partition: its checkpoint, its log, and the files of its blocks.

use super::PartitionAudit;
use super::walk::AuditWalk;
use crate::block_objects::objects_of_block;
use crate::checkpoint::Checkpoint;
use crate::cluster_format::ClusterFormat;
use crate::commit::BlockState;
use crate::ids::{PartitionId, SegmentSequence};
use crate::object_name::ObjectName;
use crate::segment::HEADER_BYTES;
use firn_bucket::{BlockingBucket, Bucket, BucketError, ListedObject, ObjectKey};
use firn_model::log::LogPosition;
use std::collections::BTreeMap;

/// The objects of a partition in a list.
#[derive(Debug, Default)]
pub(super) struct ListedPartition {
    /// The sizes of segments.
    pub(super) segments: BTreeMap<SegmentSequence, u64>,
    checkpoints: BTreeMap<LogPosition, ObjectKey>,
    /// The sizes of files of blocks.
    files: BTreeMap<ObjectKey, u64>,
}

impl ListedPartition {
    /// Adds an object of the partition.
    pub(super) fn add(&mut self, name: ObjectName, object: ListedObject) {
        match name {
            ObjectName::Segment(_, sequence) => {
                self.segments.insert(sequence, object.head.bytes);
            }
            ObjectName::State(_, position) => {
                self.checkpoints.insert(position, object.key);
            }
            ObjectName::Block { .. } => {
                self.files.insert(object.key, object.head.bytes);
            }
            ObjectName::Format => {}
        }
    }

    pub(super) fn audit(
        self,
        bucket: &dyn Bucket,
        cluster: &ClusterFormat,
        partition: PartitionId,
    ) -> Result<PartitionAudit, BucketError> {
        let mut found = PartitionAudit {
            partition,
            segments: self.segments.len() as u64,
            segment_bytes: self.segments.values().sum(),
            checkpoints: self.checkpoints.len() as u64,
            ..PartitionAudit::default()
        };
        let checkpoint = match self.read_checkpoint(bucket)? {
            Ok(checkpoint) => checkpoint,
            Err(finding) => {
                found.findings.push(finding);
                return Ok(found);
            }
        };
        let (position, state) = checkpoint.map_or_else(
            || (LogPosition(0), BlockState::default()),
            |checkpoint| (checkpoint.position, checkpoint.state),
        );
        let before = self.segments.range(..state.replay_from.sequence);
        let data = before.filter(|(_, bytes)| **bytes > HEADER_BYTES as u64);
        found.untrimmed = data.count() as u64;
        let walk = AuditWalk::begin(cluster, partition, position, state);
        let list = walk.read(bucket, &self.segments, &mut found)?;
        self.compare_files(bucket, &list, &mut found)?;
        Ok(found)
    }

    /// Reads the newest checkpoint. An inner error is a finding.
    fn read_checkpoint(
        &self,
        bucket: &dyn Bucket,
    ) -> Result<Result<Option<Checkpoint>, String>, BucketError> {
        let Some((position, key)) = self.checkpoints.last_key_value() else {
            return Ok(Ok(None));
        };
        let Some(bytes) = BlockingBucket(bucket).get(key)? else {
            return Ok(Err(format!("checkpoint {key} was deleted meanwhile")));
        };
        Ok(match Checkpoint::decode(&bytes) {
            Ok(found) if found.position == *position => Ok(Some(found)),
            Ok(_) => Err(format!("checkpoint {key} is that of another position")),
            Err(error) => Err(format!("checkpoint {key}: {error}")),
        })
    }

    /// Compares the files in the list with those that exist.
    fn compare_files(
        &self,
        bucket: &dyn Bucket,
        list: &BlockState,
        found: &mut PartitionAudit,
    ) -> Result<(), BucketError> {
        let mut unnamed: BTreeMap<&ObjectKey, u64> = self
            .files
            .iter()
            .map(|(key, bytes)| (key, *bytes))
            .collect();
        found.blocks = list.blocks.len() as u64;
        for object in list
            .blocks
            .iter()
            .flat_map(|block| objects_of_block(found.partition, block))
        {
            found.block_bytes += object.bytes;
            unnamed.remove(&object.key);
            let bytes = match self.files.get(&object.key) {
                Some(bytes) => Some(*bytes),
                // Stored after the list, maybe.
                None => {
                    let head = BlockingBucket(bucket).head(&object.key)?;
                    head.map(|head| head.bytes)
                }
            };
            let key = &object.key;
            match bytes {
                None => found.findings.push(format!("listed file {key} is missing")),
                Some(bytes) if bytes != object.bytes => {
                    let expected = object.bytes;
                    let text = format!("listed file {key} has {bytes} bytes, expected {expected}");
                    found.findings.push(text);
                }
                Some(_) => {}
            }
        }
        found.orphans = unnamed.len() as u64;
        found.orphan_bytes = unnamed.values().sum();
        Ok(())
    }
}
