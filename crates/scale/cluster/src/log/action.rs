//! Actions: the output of the log core.

use crate::commit::{ReplayFrom, StateFormatError};
use crate::ids::{Epoch, LogTicket, SegmentSequence, WriterId};
use crate::segment::{
    FrameDamage, Segment, SegmentBody, SegmentError, SegmentFrameKind, SegmentHeader,
    UnknownFrameKind,
};
use firn_model::log::LogPosition;
use std::ops::Range;

/// A consequence of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// Sends a request to the bucket and passes the reply back with `writer`. A request that is
    /// sent again after a failure is delayed by the engine.
    Request {
        /// The writer that the reply must repeat.
        writer: WriterId,
        /// The request.
        request: LogRequest,
    },
    /// Begins a replay: drops all earlier delivered frames, and loads the checkpoint of the COMMIT
    /// at `checkpoint` (none if zero).
    BeginReplay {
        /// The position of the COMMIT.
        checkpoint: LogPosition,
    },
    /// The next frame of a replay.
    Deliver(DeliveredFrame),
    /// Frames of a replay are lost. Their number is logged and counted.
    ReportLoss(LogLoss),
    /// The replay is complete and appends are accepted from now on.
    Lead {
        /// The epoch of this leadership.
        epoch: Epoch,
        /// The position of the next record.
        next: LogPosition,
    },
    /// The takeover or leadership ended. The store must not be used any more.
    StepDown {
        /// The reason.
        reason: StepDownReason,
    },
    /// Appends are durable and in order; their positions ascend.
    Acknowledge {
        /// The appends with their positions.
        appends: Vec<(LogTicket, LogPosition)>,
    },
    /// Appends failed.
    Reject {
        /// The appends.
        tickets: Vec<LogTicket>,
        /// The reason.
        reason: RejectReason,
    },
    /// Strong reads may be answered.
    GrantReads {
        /// The reads.
        tickets: Vec<LogTicket>,
    },
    /// Strong reads must be sent to the leader.
    RefuseReads {
        /// The reads.
        tickets: Vec<LogTicket>,
    },
    /// Writes the checkpoint of the COMMIT at `position`, which is stored, and reports it as
    /// [`super::LogEvent::CheckpointStored`].
    WriteCheckpoint {
        /// The position of the COMMIT.
        position: LogPosition,
        /// Its version.
        version: u64,
        /// The begin of replays after the checkpoint.
        replay_from: ReplayFrom,
    },
    /// Deletes segments. It does not matter whether a deletion fails or is late.
    Delete {
        /// The numbers of the segments.
        sequences: Vec<SegmentSequence>,
    },
}

/// A request to the bucket. None of them is repeated by the client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogRequest {
    /// Creates a segment if its key is absent. [`super::LogReply::Created`]
    Create(Segment),
    /// Returns whether a segment exists. [`super::LogReply::Headed`]
    Head(SegmentSequence),
    /// Reads the header of a segment. [`super::LogReply::HeaderRead`]
    ReadHeader(SegmentSequence),
    /// Reads a segment. [`super::LogReply::SegmentRead`]
    ReadSegment(SegmentSequence),
    /// Lists the segments from a number on. [`super::LogReply::LogListed`]
    ListLog(SegmentSequence),
    /// Lists the checkpoints and reads the newest one; begins again if it was deleted in between.
    /// [`super::LogReply::StateRead`]
    ReadState,
}

/// The reason for the rejection of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// This process does not lead the partition. The append is not in the log and never will be.
    NotLeading,
    /// Too many bytes wait. The append is not in the log and never will be.
    QueueFull,
    /// The leadership ended before the outcome was certain. The append may be in the log.
    Unknown,
}

/// The reason for the end of a takeover or a leadership.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepDownReason {
    /// Another writer created a segment at a key of this one.
    #[error("another writer created segment {sequence}")]
    Fenced {
        /// The number of the segment.
        sequence: SegmentSequence,
        /// Its header, unless it is unreadable or was not read.
        header: Option<SegmentHeader>,
    },
    /// The HANDOFF is stored.
    #[error("handed off")]
    HandedOff,
    /// A segment cannot be decoded by this build, or its loss cannot be judged.
    #[error("segment {sequence}: {error}")]
    UnreadableSegment {
        /// The number of the segment.
        sequence: SegmentSequence,
        /// The error.
        error: SegmentError,
    },
    /// A frame has a kind that this build does not have.
    #[error(transparent)]
    UnknownFrame(UnknownFrameKind),
    /// A COMMIT cannot be decoded by this build.
    #[error("commit at position {}: {error}", position.0)]
    UnreadableCommit {
        /// The position of the COMMIT.
        position: LogPosition,
        /// The error.
        error: StateFormatError,
    },
    /// The newest checkpoint cannot be decoded by this build.
    #[error("newest checkpoint: {0}")]
    UnreadableCheckpoint(StateFormatError),
    /// Segments contradict each other, although no newer checkpoint exists.
    #[error("segment {sequence} is missing or does not follow the one before it")]
    Inconsistent {
        /// The number of the segment.
        sequence: SegmentSequence,
    },
}

/// A frame of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredFrame {
    /// The position of the frame.
    pub position: LogPosition,
    /// The kind of the frame.
    pub kind: SegmentFrameKind,
    /// The epoch of its writer.
    pub epoch: Epoch,
    /// The segment that contains the frame.
    pub sequence: SegmentSequence,
    /// The first segment of its unit.
    pub unit: SegmentSequence,
    pub(super) body: SegmentBody,
    pub(super) range: Range<usize>,
}

impl DeliveredFrame {
    /// Returns the payload of the frame.
    pub fn payload(&self) -> &[u8] {
        self.body
            .as_bytes()
            .get(self.range.clone())
            .unwrap_or_default()
    }
}

/// Frames that a replay lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogLoss {
    /// A part of a segment is damaged.
    Frames {
        /// The number of the segment.
        sequence: SegmentSequence,
        /// The lost frames.
        damage: FrameDamage,
    },
    /// The header of a segment is damaged, so all its frames are lost.
    Segment {
        /// The number of the segment.
        sequence: SegmentSequence,
        /// The size of the object.
        bytes: usize,
    },
}

/// Collects the actions of one event.
#[derive(Debug)]
pub(super) struct Outbox {
    writer: WriterId,
    actions: Vec<LogAction>,
}

impl Outbox {
    pub(super) fn new(writer: WriterId) -> Self {
        Self {
            writer,
            actions: Vec::new(),
        }
    }

    pub(super) fn writer(&self) -> WriterId {
        self.writer
    }

    pub(super) fn push(&mut self, action: LogAction) {
        self.actions.push(action);
    }

    pub(super) fn request(&mut self, request: LogRequest) {
        let writer = self.writer;
        self.push(LogAction::Request { writer, request });
    }

    pub(super) fn into_actions(self) -> Vec<LogAction> {
        self.actions
    }
}
