//! The walk of an audit along the log, from the begin of replays on.

use super::PartitionAudit;
use crate::cluster_format::ClusterFormat;
use crate::commit::{BlockState, CommitRecord};
use crate::ids::{ClusterId, Epoch, PartitionId, SegmentSequence, WriterId};
use crate::object_name::ObjectName;
use crate::segment::{Segment, SegmentFrameKind, SegmentKind, SegmentPlace};
use bytes::Bytes;
use firn_bucket::{Bucket, BucketError, BucketFailure, ObjectKey, ReadResult};
use firn_model::log::LogPosition;
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, sync_channel};

/// Number of segments that are read at once.
const READS: usize = 16;

/// The place of a walk, and the block list up to there.
pub(super) struct AuditWalk {
    cluster: ClusterId,
    partition: PartitionId,
    window: u64,
    next: SegmentSequence,
    epoch: Epoch,
    writer: WriterId,
    /// The position of the next frame.
    position: LogPosition,
    /// The position of the checkpoint, which contains the COMMITs up to there.
    checkpoint: LogPosition,
    list: BlockState,
}

/// A read on its way.
type PendingSegment = (SegmentSequence, Receiver<ReadResult<Bytes>>);

impl AuditWalk {
    pub(super) fn begin(
        cluster: &ClusterFormat,
        partition: PartitionId,
        checkpoint: LogPosition,
        list: BlockState,
    ) -> Self {
        let from = list.replay_from;
        Self {
            cluster: cluster.cluster,
            partition,
            window: cluster.window.get().into(),
            next: from.sequence,
            epoch: from.epoch,
            writer: from.writer,
            position: from.position,
            checkpoint,
            list,
        }
    }

    /// Reads the listed segments, adds counts and findings to `found`, and returns the block list
    /// after the last COMMIT.
    pub(super) fn read(
        mut self,
        bucket: &dyn Bucket,
        listed: &BTreeMap<SegmentSequence, u64>,
        found: &mut PartitionAudit,
    ) -> Result<BlockState, BucketError> {
        let mut sequences = listed.range(self.next..).map(|(sequence, _)| *sequence);
        let mut pending: VecDeque<PendingSegment> = VecDeque::new();
        loop {
            while pending.len() < READS
                && let Some(sequence) = sequences.next()
            {
                pending.push_back((sequence, self.request(bucket, sequence)));
            }
            let Some((sequence, receiver)) = pending.pop_front() else {
                break;
            };
            let bytes = receiver.recv().unwrap_or_else(|_| {
                let text = "the bucket was stopped during an audit";
                Err(BucketError::new(BucketFailure::Stopped, text))
            })?;
            if sequence < self.next {
                found.void += 1;
                continue;
            }
            if let Err(finding) = self.pass(sequence, bytes, found) {
                found.findings.push(finding);
                break;
            }
        }
        Ok(self.list)
    }

    fn request(
        &self,
        bucket: &dyn Bucket,
        sequence: SegmentSequence,
    ) -> Receiver<ReadResult<Bytes>> {
        let name = ObjectName::Segment(self.partition, sequence).to_string();
        let key = ObjectKey::new(&name).expect("names of objects are keys");
        let (sender, receiver) = sync_channel(1);
        let done = move |read| drop(sender.send(read));
        bucket.get(&key, Box::new(done));
        receiver
    }

    /// Passes a segment at or behind the next key. An error ends the walk.
    fn pass(
        &mut self,
        sequence: SegmentSequence,
        bytes: Option<Bytes>,
        found: &mut PartitionAudit,
    ) -> Result<(), String> {
        if sequence > self.next {
            // Creates in flight may be stored out of order, but only within the window.
            let end = self.next.plus(self.window);
            if sequence < end {
                return Ok(());
            }
            return Err(format!(
                "segment {} is missing before segment {sequence}",
                self.next
            ));
        }
        let Some(bytes) = bytes else {
            return Err(format!("segment {sequence} was deleted meanwhile"));
        };
        let place = SegmentPlace {
            cluster: self.cluster,
            partition: self.partition,
            sequence,
        };
        let segment = Segment::decode(place, &bytes);
        let segment = segment.map_err(|e| format!("segment {sequence}: {e}"))?;
        let header = &segment.header;
        let is_of_epoch = (header.epoch, header.writer) == (self.epoch, self.writer);
        match header.kind {
            SegmentKind::Fence if header.epoch > self.epoch => {
                (self.epoch, self.writer) = (header.epoch, header.writer);
                self.next = sequence.plus(self.window);
            }
            SegmentKind::Data if is_of_epoch => {
                self.read_frames(&segment, found);
                self.next = sequence.next();
            }
            SegmentKind::HandOff if is_of_epoch => self.next = sequence.next(),
            kind => {
                let (found, expected) = (header.epoch, self.epoch);
                return Err(format!(
                    "segment {sequence} is {kind:?} of epoch {found}, expected epoch {expected}"
                ));
            }
        }
        Ok(())
    }

    fn read_frames(&mut self, segment: &Segment, found: &mut PartitionAudit) {
        let header = &segment.header;
        let sequence = header.sequence;
        if header.first != self.position {
            let (first, expected) = (header.first.0, self.position.0);
            found.findings.push(format!(
                "segment {sequence} begins at position {first}, expected {expected}"
            ));
        }
        self.position = header.end();
        found.frames += u64::from(header.frames);
        for frame in segment.frames() {
            let frame = match frame {
                Ok(Ok(frame)) => frame,
                Ok(Err(damage)) => {
                    found.findings.push(format!("segment {sequence}: {damage}"));
                    continue;
                }
                Err(error) => {
                    found.findings.push(format!("segment {sequence}: {error}"));
                    return;
                }
            };
            if frame.kind != SegmentFrameKind::Commit || frame.position <= self.checkpoint {
                continue;
            }
            found.commits += 1;
            let applied = CommitRecord::decode(frame.payload)
                .map_err(|e| e.to_string())
                .and_then(|commit| self.list.apply(&commit).map_err(|e| e.to_string()));
            if let Err(error) = applied {
                let position = frame.position.0;
                found
                    .findings
                    .push(format!("commit at position {position}: {error}"));
            }
        }
    }
}
