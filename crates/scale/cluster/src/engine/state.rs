//! The state of a log in a bucket under its lock, and the effects that run without it.

use super::block_ledger::BlockLedger;
use super::deletions::SegmentDeletions;
use super::stall::BucketTrouble;
use super::stored_bytes::StoredBytes;
use super::unit_writer::UnitWriter;
use crate::commit::BlockChange;
use crate::ids::{Epoch, LogTicket, SegmentSequence, WriterId};
use crate::log::{DeliveredFrame, LogCore, LogReply, LogRequest};
use firn_model::error::{Error, ErrorKind};
use firn_model::log::{DurableCallbacks, LogBatch, LogDamage, LogPosition};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The phase of a log, from its takeover to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BucketLogPhase {
    /// The takeover has not read all records yet.
    TakingOver,
    /// Appends are accepted.
    Leading,
    /// All records are durable, and the successor need not wait.
    HandedOff,
    /// The log accepts nothing any more. Contains the reason.
    Ended(String),
}

/// The content of a frame that is not encoded.
pub(super) enum UnencodedFrame {
    Batch(Box<LogBatch>),
    Commit {
        change: BlockChange,
        covered: LogPosition,
    },
    Barrier,
}

impl UnencodedFrame {
    /// Returns the memory that it takes while it waits.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Batch(batch) => batch.memory_bytes(),
            Self::Commit { .. } | Self::Barrier => 0,
        }
    }
}

/// A frame that is not encoded, with its position.
pub(super) struct QueuedAppend {
    pub(super) position: LogPosition,
    pub(super) frame: UnencodedFrame,
}

/// An append without an outcome.
pub(super) struct WaitingAppend {
    pub(super) done: DurableCallbacks,
    pub(super) bytes: usize,
    pub(super) since: Duration,
}

/// An item of a replay.
pub(super) enum ReplayedItem {
    Frame(DeliveredFrame),
    Loss(LogDamage),
}

impl ReplayedItem {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.payload().len(),
            Self::Loss(_) => 0,
        }
    }
}

/// A request that is repeated later.
pub(super) struct DelayedRequest {
    pub(super) due: Duration,
    pub(super) writer: WriterId,
    pub(super) request: LogRequest,
}

/// An effect of an event, which runs without the lock and in order.
pub(super) enum EngineEffect {
    Send(WriterId, LogRequest),
    Delete(SegmentSequence),
    Report(DurableCallbacks, Result<LogPosition, Error>),
    Delay(Box<dyn FnOnce(Error) + Send>, Error),
}

/// The state of a request for a read lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseRequestState {
    Waiting,
    Granted,
    Refused,
}

/// The state of a log in a bucket.
pub(super) struct BucketLogState {
    pub(super) core: LogCore,
    pub(super) phase: BucketLogPhase,
    /// The reason for which this process lost its log, if it did.
    pub(super) fault: Option<String>,
    /// True after a close: appends are rejected, the queue is still written.
    pub(super) is_closed: bool,
    /// The position of the next append.
    pub(super) next: LogPosition,
    pub(super) durable: LogPosition,
    pub(super) queue: Vec<QueuedAppend>,
    /// The encoder; absent while a job uses it.
    pub(super) unit: Option<Box<UnitWriter>>,
    pub(super) ends_unit: bool,
    pub(super) waiting: BTreeMap<LogTicket, WaitingAppend>,
    pub(super) waiting_bytes: usize,
    pub(super) replayed: VecDeque<ReplayedItem>,
    pub(super) replayed_bytes: usize,
    /// True after the store has begun to read.
    pub(super) is_read: bool,
    /// Segments that wait until the store has read those before them.
    pub(super) held_back: VecDeque<(WriterId, LogReply)>,
    pub(super) delayed: Vec<DelayedRequest>,
    /// The records whose samples are not sealed.
    pub(super) unsealed: StoredBytes,
    /// The records that are not trimmed.
    pub(super) kept: StoredBytes,
    /// The position from which on the log is kept.
    pub(super) first: LogPosition,
    pub(super) ledger: BlockLedger,
    /// The wall-clock time of the last COMMIT of this process, in milliseconds.
    pub(super) last_commit_ms: Option<i64>,
    pub(super) deletions: SegmentDeletions,
    /// Strong reads that wait for a lease, and those whose outcome no caller has taken yet.
    pub(super) reads: BTreeMap<LogTicket, LeaseRequestState>,
    pub(super) reads_begun: u64,
    pub(super) trouble: BucketTrouble,
    pub(super) outbox: VecDeque<EngineEffect>,
    pub(super) is_draining: bool,
}

impl BucketLogState {
    pub(super) fn new(core: LogCore) -> Self {
        Self {
            core,
            phase: BucketLogPhase::TakingOver,
            fault: None,
            is_closed: false,
            next: LogPosition(1),
            durable: LogPosition(0),
            queue: Vec::new(),
            unit: Some(Box::default()),
            ends_unit: false,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            replayed: VecDeque::new(),
            replayed_bytes: 0,
            is_read: false,
            held_back: VecDeque::new(),
            delayed: Vec::new(),
            unsealed: StoredBytes::default(),
            kept: StoredBytes::default(),
            first: LogPosition(1),
            ledger: BlockLedger::default(),
            last_commit_ms: None,
            deletions: SegmentDeletions::default(),
            reads: BTreeMap::new(),
            reads_begun: 0,
            trouble: BucketTrouble::default(),
            outbox: VecDeque::new(),
            is_draining: false,
        }
    }

    /// Returns the reason for which appends are rejected, if they are.
    pub(super) fn refusal(&self, queue_bytes_max: usize) -> Option<Error> {
        let text = match &self.phase {
            BucketLogPhase::TakingOver => "the log is being read".to_owned(),
            BucketLogPhase::HandedOff => "the log is handed off".to_owned(),
            BucketLogPhase::Ended(reason) => {
                format!("this process does not write the log: {reason}")
            }
            BucketLogPhase::Leading if self.is_closed => "the log is closed".to_owned(),
            BucketLogPhase::Leading if self.trouble.is_stalled => {
                let reason = self.trouble.reason();
                format!("the bucket does not store the log, writes are retried: {reason}")
            }
            BucketLogPhase::Leading if self.waiting_bytes >= queue_bytes_max => {
                let bytes = self.waiting_bytes;
                format!("{bytes} bytes wait for the bucket, limit {queue_bytes_max}")
            }
            BucketLogPhase::Leading => return None,
        };
        Some(Error::new(ErrorKind::Unavailable, text))
    }

    /// Adds an append without an outcome.
    pub(super) fn insert_waiting(&mut self, ticket: LogTicket, append: WaitingAppend) {
        self.waiting_bytes += append.bytes;
        let before = self.waiting.insert(ticket, append);
        assert!(before.is_none(), "two appends at position {}", ticket.0);
    }

    /// Reports the outcome of an append, after earlier effects.
    pub(super) fn finish(&mut self, ticket: LogTicket, outcome: Result<LogPosition, Error>) {
        if outcome.is_err() {
            self.ledger.drop_queued(LogPosition(ticket.0));
        }
        if let Some(append) = self.waiting.remove(&ticket) {
            self.waiting_bytes -= append.bytes;
            let report = EngineEffect::Report(append.done, outcome);
            self.outbox.push_back(report);
        }
    }

    /// Fails all appends without an outcome, and forgets everything that is not sent.
    pub(super) fn end(&mut self, phase: BucketLogPhase) {
        let reason = match &phase {
            BucketLogPhase::Ended(reason) => reason.clone(),
            _ => "the log is handed off".to_owned(),
        };
        self.phase = phase;
        self.queue.clear();
        self.delayed.clear();
        self.held_back.clear();
        self.deletions.clear();
        let is_kept = |effect: &EngineEffect| {
            !matches!(effect, EngineEffect::Send(..) | EngineEffect::Delete(_))
        };
        self.outbox.retain(is_kept);
        let waiting = self.reads.values_mut();
        for read in waiting.filter(|read| **read == LeaseRequestState::Waiting) {
            *read = LeaseRequestState::Refused;
        }
        while let Some(ticket) = self.waiting.keys().next().copied() {
            let error = Error::new(ErrorKind::Unavailable, reason.clone());
            self.finish(ticket, Err(error));
        }
    }

    /// Begins the leadership `epoch`, whose first record has position `next`.
    pub(super) fn lead(&mut self, epoch: Epoch, next: LogPosition) {
        tracing::info!(
            epoch = epoch.0,
            next = next.0,
            "this process writes the log"
        );
        self.phase = BucketLogPhase::Leading;
        self.ledger.epoch = epoch;
        self.next = next;
        self.durable = next.previous();
    }

    /// Ends the log because of a fault.
    pub(super) fn fail(&mut self, reason: String) {
        self.fault = Some(reason.clone());
        self.end(BucketLogPhase::Ended(reason));
    }

    /// Returns whether this process writes the log no more.
    pub(super) fn is_over(&self) -> bool {
        matches!(
            self.phase,
            BucketLogPhase::HandedOff | BucketLogPhase::Ended(_)
        )
    }

    /// Sets the outcome of strong reads that wait for a lease.
    pub(super) fn settle_reads(&mut self, tickets: Vec<LogTicket>, outcome: LeaseRequestState) {
        for ticket in tickets {
            // A read that no longer waits was removed.
            if let Some(read) = self.reads.get_mut(&ticket) {
                *read = outcome;
            }
        }
    }

    /// Returns whether all appends are in the core, so that it may hand off.
    pub(super) fn is_encoded(&self) -> bool {
        self.queue.is_empty() && self.unit.is_some()
    }
}
