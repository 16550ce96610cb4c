//! The world of the exhaustive model: a bucket, a network and a few processes, each with a real
//! log core.
//!
//! Time has two values: every instant is now or long ago. A duration of a lease is longer than now
//! and shorter than the distance between both, so one move of time ends all leases and waits that
//! began before it.

use super::process::Process;
use crate::checkpoint::Checkpoint;
use crate::commit::{BlockState, CommitRecord, ReplayFrom};
use crate::ids::{Epoch, LogTicket, PartitionId, SegmentSequence, WriterId};
use crate::log::{
    CheckpointHead, CoreState, CreateOutcome, ListedSegment, LogAction, LogCoreOptions, LogEvent,
    LogReply, LogRequest, Lookup, RejectReason, StateLookup, StepDownReason,
};
use crate::segment::{HEADER_BYTES, Segment, SegmentFrameKind, SegmentKind};
use firn_model::log::LogPosition;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The time of every event.
pub const NOW: Duration = Duration::from_secs(1_000);

/// The duration of a lease in scenarios with one.
pub const LEASE: Duration = Duration::from_secs(100);

/// Tickets: of records their number, of others these.
pub const COMMIT_TICKET: LogTicket = LogTicket(100);
pub const READ_TICKETS: [LogTicket; 2] = [LogTicket(200), LogTicket(201)];

/// A set of records, one bit each.
pub type Records = u8;

/// An object of the log, with the parts of its frames that distinguish it from others at its place.
#[derive(Clone, Debug)]
pub struct Object {
    pub segment: Segment,
    /// Of each frame its position and its record, or the COMMIT.
    pub frames: Vec<(LogPosition, Content)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    Record(u8),
    Commit { version: u64, from: ReplayFrom },
}

impl Object {
    pub fn new(segment: &Segment) -> Self {
        let mut frames = Vec::new();
        for frame in segment.frames() {
            let frame = frame.expect("a known kind").expect("an intact frame");
            frames.push((frame.position, content(frame.kind, frame.payload)));
        }
        Self {
            segment: segment.clone(),
            frames,
        }
    }
}

impl Hash for Object {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.segment.header.hash(state);
        self.frames.hash(state);
    }
}

/// A record is as long as its number and one more.
fn content(kind: SegmentFrameKind, payload: &[u8]) -> Content {
    match kind {
        SegmentFrameKind::Commit => {
            let commit = CommitRecord::decode(payload).expect("an intact commit");
            Content::Commit {
                version: commit.version,
                from: commit.replay_from,
            }
        }
        _ => Content::Record(payload.len() as u8 - 1),
    }
}

/// A checkpoint in the bucket or on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Saved {
    pub head: CheckpointHead,
    /// The records before the begin of replays.
    pub covered: Records,
}

/// The acknowledged records and the results of strong reads, which later states must not
/// contradict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Promises {
    pub acked: Records,
    /// Records that a strong read has shown.
    pub seen: Records,
    /// Records that were rejected for certain.
    pub never: Records,
    /// Records that a leader of a later epoch replayed, and those that one did not find.
    pub found: Records,
    pub missed: Records,
}

/// Events that a scenario allows a number of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spent {
    pub records: u8,
    pub commits: u8,
    pub crashes: u8,
    pub hand_offs: u8,
    pub takeovers: u8,
    pub losses: u8,
}

/// A state of the model.
#[derive(Clone, Debug)]
pub struct World {
    /// True if replies whose time matters little are immediate.
    pub is_brief: bool,
    /// True if the segments of a replay are not.
    pub is_replay_slow: bool,
    /// The log, by key; key zero is unused.
    pub objects: Vec<Option<Rc<Object>>>,
    /// The checkpoints, oldest first.
    pub saved: Vec<Saved>,
    /// Checkpoints on their way, with their writers.
    pub saving: Vec<(WriterId, Saved)>,
    /// Deletions on their way, one bit per key.
    pub deleting: u32,
    /// Creates that clients gave up, and that may still arrive.
    pub late: Vec<Rc<Object>>,
    pub processes: Vec<Rc<Process>>,
    /// The epoch in which each record was appended.
    pub epochs: [u8; 4],
    pub promises: Promises,
    pub spent: Spent,
    /// The first broken rule.
    pub violation: Option<String>,
}

impl World {
    pub fn new(options: &Arc<LogCoreOptions>, processes: usize, keys: usize) -> Self {
        let process = Rc::new(Process::new(options));
        Self {
            is_brief: false,
            is_replay_slow: false,
            objects: vec![None; keys + 1],
            saved: vec![Saved {
                head: CheckpointHead::default(),
                covered: 0,
            }],
            saving: Vec::new(),
            deleting: 0,
            late: Vec::new(),
            processes: vec![process; processes],
            epochs: [0; 4],
            promises: Promises::default(),
            spent: Spent::default(),
            violation: None,
        }
    }

    pub fn object(&self, sequence: SegmentSequence) -> Option<&Rc<Object>> {
        self.objects.get(sequence.0 as usize)?.as_ref()
    }

    pub fn newest(&self) -> &Saved {
        let newest = self.saved.iter().max_by_key(|saved| saved.head.position);
        newest.expect("there is the empty one")
    }

    pub fn broken(&mut self, text: impl FnOnce() -> String) {
        self.violation.get_or_insert_with(text);
    }

    /// Creates an object if its key is absent, and returns whether it was.
    pub fn create(&mut self, object: &Rc<Object>) -> bool {
        let key = object.segment.header.sequence.0 as usize;
        let slot = &mut self.objects[key];
        let is_absent = slot.is_none();
        if is_absent {
            *slot = Some(object.clone());
        }
        is_absent
    }

    /// The smallest identifier that occurs nowhere.
    pub fn unused_writer(&self) -> WriterId {
        let objects = self.objects.iter().flatten().chain(&self.late);
        let mut used: Vec<u128> = objects.map(|o| o.segment.header.writer.0).collect();
        used.extend(self.processes.iter().map(|p| p.core.writer.0));
        used.extend(self.saving.iter().map(|(writer, _)| writer.0));
        let saved = self.saved.iter().chain(self.saving.iter().map(|(_, s)| s));
        used.extend(saved.map(|s| s.head.replay_from.writer.0));
        let unused = (1..).find(|id| !used.contains(id));
        WriterId(unused.expect("identifiers do not end"))
    }

    /// Passes an event to a core, and everything that follows at once.
    pub fn event(&mut self, i: usize, event: LogEvent) {
        let process = Rc::make_mut(&mut self.processes[i]);
        let actions = process.core.step(NOW, event);
        process.is_fresh = process.core.is_fresh(NOW);
        for action in actions {
            self.act(i, action);
        }
    }

    /// Passes a reply to the core that waits for it.
    pub fn reply(&mut self, i: usize, reply: LogReply) {
        let writer = self.processes[i].core.writer;
        self.event(i, LogEvent::Reply { writer, reply });
    }

    fn act(&mut self, i: usize, action: LogAction) {
        match action {
            LogAction::Request { request, .. } => self.request(i, request),
            LogAction::BeginReplay { checkpoint } => self.begin_replay(i, checkpoint),
            LogAction::Deliver(frame) => {
                let found = content(frame.kind, frame.payload());
                self.deliver(i, frame.position, found);
            }
            LogAction::ReportLoss(loss) => self.broken(|| format!("{i} lost {loss:?}")),
            LogAction::Lead { epoch, next } => self.lead(i, epoch, next),
            LogAction::StepDown { reason } => self.step_down(i, &reason),
            LogAction::Acknowledge { appends } => {
                for (ticket, _) in appends.iter().filter(|a| a.0 != COMMIT_TICKET) {
                    self.promises.acked |= 1 << ticket.0;
                    Rc::make_mut(&mut self.processes[i]).acked |= 1 << ticket.0;
                }
            }
            LogAction::Reject { tickets, reason } => {
                for ticket in tickets.iter().filter(|t| **t != COMMIT_TICKET) {
                    if reason != RejectReason::Unknown {
                        self.promises.never |= 1 << ticket.0;
                    }
                }
            }
            LogAction::GrantReads { tickets } => self.show(i, &tickets),
            LogAction::RefuseReads { tickets } => {
                let process = Rc::make_mut(&mut self.processes[i]);
                process.reads.retain(|read| !tickets.contains(&read.0));
            }
            LogAction::WriteCheckpoint { position, .. } => self.write_checkpoint(i, position),
            LogAction::Delete { sequences } => {
                for sequence in sequences {
                    self.deleting |= 1 << sequence.0;
                }
            }
        }
    }

    /// Answers strong reads.
    fn show(&mut self, i: usize, tickets: &[LogTicket]) {
        let process = Rc::make_mut(&mut self.processes[i]);
        let view = process.view();
        let mut missing = 0;
        process.reads.retain(|(ticket, needed)| {
            let is_granted = tickets.contains(ticket);
            missing |= if is_granted { needed & !view } else { 0 };
            !is_granted
        });
        if missing != 0 {
            self.broken(|| format!("a read at {i} lacks records {missing:b}"));
        }
        self.promises.seen |= view;
    }

    /// Sends a request. Reads whose time matters little are answered at once: those of segments,
    /// which never change, and the list of a trim, which is before the deletions anyway.
    fn request(&mut self, i: usize, request: LogRequest) {
        let process = Rc::make_mut(&mut self.processes[i]);
        let is_immediate = match &request {
            LogRequest::ReadSegment(_) => !self.is_replay_slow,
            LogRequest::ReadHeader(sequence) => process.created & 1 << sequence.0 == 0,
            LogRequest::ListLog(_) => self.is_brief || process.leads(),
            _ => false,
        };
        if let LogRequest::Create(segment) = &request {
            let key = segment.header.sequence.0;
            if process.created & 1 << key == 0 && segment.header.kind == SegmentKind::Data {
                process.own.extend(Object::new(segment).frames);
            }
            process.created |= 1 << key;
        }
        if is_immediate {
            self.answer(i, &request);
        } else {
            process.requests.push(request);
        }
    }

    /// Answers a request that does not change the bucket.
    pub fn answer(&mut self, i: usize, request: &LogRequest) {
        let reply = match *request {
            LogRequest::ReadState => LogReply::StateRead {
                found: StateLookup::Newest(self.newest().head),
            },
            LogRequest::ListLog(from) => {
                let objects = self.objects.iter().flatten();
                let objects = objects.filter(|o| o.segment.header.sequence >= from);
                let segments = objects.map(|object| ListedSegment {
                    sequence: object.segment.header.sequence,
                    bytes: (HEADER_BYTES + object.segment.body.as_bytes().len()) as u64,
                });
                LogReply::LogListed {
                    segments: Some(segments.collect()),
                }
            }
            LogRequest::ReadHeader(sequence) => LogReply::HeaderRead {
                sequence,
                found: match self.object(sequence) {
                    Some(object) => Lookup::Present(object.segment.header),
                    None => Lookup::Absent,
                },
            },
            LogRequest::ReadSegment(sequence) => LogReply::SegmentRead {
                sequence,
                found: match self.object(sequence) {
                    Some(object) => Lookup::Present(object.segment.clone()),
                    None => Lookup::Absent,
                },
            },
            LogRequest::Head(_) | LogRequest::Create(_) => unreachable!("these are moves"),
        };
        self.reply(i, reply);
    }

    /// Passes the outcome of a create to its core.
    pub fn created(&mut self, i: usize, sequence: SegmentSequence, outcome: CreateOutcome) {
        self.reply(i, LogReply::Created { sequence, outcome });
    }

    fn begin_replay(&mut self, i: usize, checkpoint: LogPosition) {
        let mut saved = self.saved.iter();
        let saved = saved.find(|saved| saved.head.position == checkpoint);
        let saved = *saved.expect("a checkpoint that was read exists");
        let process = Rc::make_mut(&mut self.processes[i]);
        process.covered = saved.covered;
        process.version = saved.head.version;
        process.replayed.clear();
    }

    fn deliver(&mut self, i: usize, position: LogPosition, found: Content) {
        let process = Rc::make_mut(&mut self.processes[i]);
        match found {
            Content::Record(record) => {
                let last = process.replayed.last();
                let is_later = last.is_none_or(|(before, _)| *before < position);
                let is_new = process.view() & 1 << record == 0;
                process.replayed.push((position, record));
                if !is_later || !is_new {
                    self.broken(|| format!("{i} replays record {record} twice or out of order"));
                }
            }
            Content::Commit { version, .. } => {
                // Replays begin at the COMMIT of their checkpoint or before it.
                let is_next = version == process.version + 1;
                let is_known = version <= process.version;
                process.version = process.version.max(version);
                if !is_next && !is_known {
                    self.broken(|| format!("{i} replays commit {version} out of order"));
                }
            }
        }
    }

    fn lead(&mut self, i: usize, epoch: Epoch, next: LogPosition) {
        let view = self.processes[i].view();
        let earlier = (0..self.spent.records).filter(|r| {
            let appended = self.epochs[usize::from(*r)];
            u64::from(appended) < epoch.0
        });
        let earlier = earlier.fold(0, |all: Records, record| all | 1 << record);
        self.promises.found |= view;
        self.promises.missed |= earlier & !view;
        let mut others = self.processes.iter().enumerate();
        if others.any(|(j, other)| j != i && other.core.epoch() == Some(epoch)) {
            self.broken(|| format!("{i} is the second leader of epoch {epoch}"));
        }
        let last = self.processes[i].replayed.last().copied();
        if last.is_some_and(|(position, _)| position >= next) {
            self.broken(|| format!("{i} appends at position {} again", next.0));
        }
    }

    fn step_down(&mut self, i: usize, reason: &StepDownReason) {
        let writer = self.processes[i].core.writer;
        let is_justified = match reason {
            StepDownReason::HandedOff => true,
            StepDownReason::Fenced { sequence, .. } => {
                let object = self.object(*sequence);
                object.is_some_and(|object| object.segment.header.writer != writer)
            }
            _ => false,
        };
        if !is_justified {
            self.broken(|| format!("{i} steps down without a cause: {reason}"));
        }
    }

    fn write_checkpoint(&mut self, i: usize, position: LogPosition) {
        let process = &self.processes[i];
        let mut own = process.own.iter();
        let Some((_, Content::Commit { version, from })) = own.find(|(at, _)| *at == position)
        else {
            self.broken(|| format!("{i} writes a checkpoint of position {}", position.0));
            return;
        };
        let own = process
            .own
            .iter()
            .filter_map(|(at, content)| match content {
                Content::Record(record) if *at < from.position => Some(1 << record),
                _ => None,
            });
        let replayed = process
            .replayed
            .iter()
            .filter(|(at, _)| *at < from.position);
        let replayed = replayed.map(|(_, record)| 1 << record);
        let saved = Saved {
            head: CheckpointHead {
                position,
                version: *version,
                replay_from: *from,
            },
            covered: own
                .chain(replayed)
                .fold(process.covered, |all, bit| all | bit),
        };
        self.saving
            .push((process.core.writer, through_bytes(saved)));
    }

    /// Replaces a process whose core is done by one that follows. Its creates may be late.
    pub fn restart(&mut self, i: usize, options: &Arc<LogCoreOptions>) {
        self.processes[i] = Rc::new(Process::new(options));
    }

    pub fn is_done(&self, i: usize) -> bool {
        matches!(self.processes[i].core.state, CoreState::Fenced)
    }
}

/// Passes the head of a checkpoint through the bytes of one.
fn through_bytes(saved: Saved) -> Saved {
    let checkpoint = Checkpoint {
        cluster: Default::default(),
        partition: PartitionId(0),
        epoch: saved.head.replay_from.epoch,
        position: saved.head.position,
        state: BlockState {
            version: saved.head.version,
            replay_from: saved.head.replay_from,
            ..BlockState::default()
        },
        catalogue: vec![saved.covered],
    };
    let read = Checkpoint::decode(&checkpoint.encode()).expect("an intact checkpoint");
    Saved {
        head: CheckpointHead {
            position: read.position,
            version: read.state.version,
            replay_from: read.state.replay_from,
        },
        covered: read.catalogue[0],
    }
}
