//! Events: the input of the log core.

use crate::commit::{BlockChange, ReplayFrom, StateFormatError};
use crate::ids::{LogTicket, SegmentSequence, WriterId};
use crate::segment::{HEADER_BYTES, Segment, SegmentError, SegmentFrameKind, SegmentHeader};
use firn_model::log::LogPosition;

/// An input of the log core.
#[derive(Clone, Debug)]
pub enum LogEvent {
    /// Time passed. The engine sends it at least ten times per lease and flush interval.
    Tick,
    /// Begins a takeover, unless one is running or the core leads. `writer` is a random identifier
    /// that is used for this takeover alone.
    TakeOver {
        /// The identifier.
        writer: WriterId,
    },
    /// Appends a record.
    Append(RecordAppend),
    /// Appends a BARRIER, which proves that this process leads when it is acknowledged.
    Barrier {
        /// The identifier of the outcome.
        ticket: LogTicket,
    },
    /// Appends a COMMIT.
    Commit(CommitRequest),
    /// The checkpoint of the COMMIT at a position is stored.
    CheckpointStored {
        /// The position of the COMMIT.
        position: LogPosition,
    },
    /// Requests a permission to answer a strong read. The caller requests it before it computes the
    /// answer, and again before it sends it.
    Read {
        /// The identifier of the outcome.
        ticket: LogTicket,
    },
    /// Stops appends and strong reads, writes the queued records and ends the leadership.
    HandOff,
    /// The bucket replied to a request.
    Reply {
        /// The writer of the request.
        writer: WriterId,
        /// The reply.
        reply: LogReply,
    },
}

/// A record to append.
#[derive(Clone, Debug)]
pub struct RecordAppend {
    /// The identifier of the outcome.
    pub ticket: LogTicket,
    /// [`SegmentFrameKind::Record`] or [`SegmentFrameKind::DeltaRecord`].
    pub kind: SegmentFrameKind,
    /// The encoded record.
    pub payload: Vec<u8>,
    /// True if the record begins a unit: it does not depend on records before it. The first record
    /// of a leadership always does.
    pub begins_unit: bool,
}

/// A COMMIT to append. All files of its blocks must be stored.
#[derive(Clone, Debug)]
pub struct CommitRequest {
    /// The identifier of the outcome.
    pub ticket: LogTicket,
    /// The change of the block list.
    pub change: BlockChange,
    /// Blocks contain all records before this position. The core rounds it down to a unit, and
    /// replays begin there.
    pub covered: LogPosition,
    /// True if the COMMIT begins a unit.
    pub begins_unit: bool,
}

/// A reply of the bucket to a [`super::LogRequest`].
#[derive(Clone, Debug)]
pub enum LogReply {
    /// The outcome of a create.
    Created {
        /// The number of the segment.
        sequence: SegmentSequence,
        /// The outcome.
        outcome: CreateOutcome,
    },
    /// The header of a segment.
    HeaderRead {
        /// The number of the segment.
        sequence: SegmentSequence,
        /// The header.
        found: Lookup<SegmentHeader>,
    },
    /// A whole segment.
    SegmentRead {
        /// The number of the segment.
        sequence: SegmentSequence,
        /// The segment.
        found: Lookup<Segment>,
    },
    /// The outcome of a HEAD.
    Headed {
        /// The number of the segment.
        sequence: SegmentSequence,
        /// The outcome.
        outcome: HeadOutcome,
    },
    /// The segments from a number on, in ascending order, or `None` if the request failed.
    LogListed {
        /// The segments.
        segments: Option<Vec<ListedSegment>>,
    },
    /// The newest checkpoint at the time of a LIST that began after the request, or the default if
    /// there is none.
    StateRead {
        /// The head of the checkpoint.
        found: StateLookup,
    },
}

/// The outcome of a create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateOutcome {
    /// The bucket stored the segment.
    Stored,
    /// The key exists (412).
    Exists,
    /// The segment may be stored now, later or never: 409, 5xx, a timeout, a broken connection.
    Ambiguous,
    /// The bucket rejected the request, for example because of its permissions or its rate.
    Refused,
}

/// The outcome of a HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadOutcome {
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present,
    /// The request failed.
    Failed,
}

/// The outcome of a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lookup<T> {
    /// The key does not exist.
    Absent,
    /// The object.
    Present(T),
    /// The object exists and is not valid.
    Unreadable(SegmentError),
    /// The request failed.
    Failed,
}

/// The outcome of a read of the newest checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateLookup {
    /// The head of the newest checkpoint; the default if there is none.
    Newest(CheckpointHead),
    /// The newest checkpoint is not valid.
    Unreadable(StateFormatError),
    /// The request failed.
    Failed,
}

/// An entry of a list of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListedSegment {
    /// The number of the segment.
    pub sequence: SegmentSequence,
    /// The size of the object in bytes.
    pub bytes: u64,
}

impl ListedSegment {
    /// Returns whether the segment is a header alone: FENCE or HANDOFF.
    pub(super) fn is_bare(&self) -> bool {
        self.bytes <= HEADER_BYTES as u64
    }
}

/// The parts of a checkpoint that the log core needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointHead {
    /// The position of its last COMMIT; zero if there is no checkpoint.
    pub position: LogPosition,
    /// The version of that COMMIT.
    pub version: u64,
    /// The begin of a replay.
    pub replay_from: ReplayFrom,
}

impl Default for CheckpointHead {
    fn default() -> Self {
        Self {
            position: LogPosition(0),
            version: 0,
            replay_from: ReplayFrom::BEGIN,
        }
    }
}
