//! A bucket with one log core, driven by a script: commands and the actions that follow.
//!
//! ```text
//! take W          a new process takes over as writer W
//! append T        T is the ticket; `unit T` begins a unit, `large T` fills a segment
//! commit T C      blocks contain the records before position C; `barrier T`; `off` hands off
//! saved P         the checkpoint of the COMMIT at P is stored
//! read T
//! at MS           the time, in milliseconds, and a tick
//! hold, go        replies wait, and arrive
//! created N X     a reply to a create that waits: stored, exists, ambiguous or refused
//! drop N, damage N, header N, version N    segment N vanishes or is changed
//! ```

use crate::commit::{BlockChange, ReplayFrom};
use crate::ids::{ClusterId, LogTicket, PartitionId, SegmentSequence, WriterId};
use crate::log::{
    CheckpointHead, CommitRequest, CreateOutcome, HeadOutcome, ListedSegment, LogAction, LogCore,
    LogCoreOptions, LogEvent, LogReply, LogRequest, Lookup, RecordAppend, StateLookup,
};
use crate::segment::{HEADER_BYTES, Segment, SegmentFrameKind, SegmentHeader};
use firn_model::log::LogPosition;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A bucket with one core, and the diary of its actions.
pub struct Diary {
    pub options: Arc<LogCoreOptions>,
    core: LogCore,
    now: Duration,
    pub objects: BTreeMap<SegmentSequence, Vec<u8>>,
    state: CheckpointHead,
    /// The COMMITs in the bucket, which checkpoints repeat.
    commits: Vec<(LogPosition, u64, ReplayFrom)>,
    pub requests: VecDeque<LogRequest>,
    is_holding: bool,
    text: Vec<String>,
}

fn options(lease_ms: u64) -> Arc<LogCoreOptions> {
    Arc::new(LogCoreOptions {
        cluster: ClusterId(9),
        partition: PartitionId(3),
        window: 2,
        lease: Duration::from_millis(lease_ms),
        flush_interval: Duration::from_millis(10),
        segment_bytes: 100,
        queue_bytes: 300,
        flaw: None,
    })
}

impl Diary {
    pub fn new(lease_ms: u64) -> Self {
        let options = options(lease_ms);
        Self {
            core: LogCore::new(options.clone()),
            options,
            now: Duration::ZERO,
            objects: BTreeMap::new(),
            state: CheckpointHead::default(),
            commits: Vec::new(),
            requests: VecDeque::new(),
            is_holding: false,
            text: Vec::new(),
        }
    }

    pub fn run(&mut self, script: &str) -> String {
        for command in script.split(" | ") {
            self.command(command);
        }
        std::mem::take(&mut self.text).join(" | ")
    }

    fn command(&mut self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let sequence = |at: usize| SegmentSequence(number(at));
        match words[0] {
            "take" => {
                self.core = LogCore::new(self.options.clone());
                self.requests.clear();
                let writer = WriterId(number(1).into());
                self.event(LogEvent::TakeOver { writer });
            }
            "append" => self.append(number(1), 1, false),
            "unit" => self.append(number(1), 1, true),
            "large" => self.append(number(1), 100, false),
            "commit" => self.event(LogEvent::Commit(CommitRequest {
                ticket: LogTicket(number(1)),
                change: BlockChange::default(),
                covered: LogPosition(number(2)),
                begins_unit: false,
            })),
            "barrier" => self.event(LogEvent::Barrier {
                ticket: LogTicket(number(1)),
            }),
            "off" => self.event(LogEvent::HandOff),
            "saved" => self.save(LogPosition(number(1))),
            "read" => self.event(LogEvent::Read {
                ticket: LogTicket(number(1)),
            }),
            "at" => {
                self.now = Duration::from_millis(number(1));
                self.event(LogEvent::Tick);
            }
            "hold" => self.is_holding = true,
            "go" => {
                self.is_holding = false;
                self.answer_all();
            }
            "created" => {
                let outcome = match words[2] {
                    "stored" => CreateOutcome::Stored,
                    "exists" => CreateOutcome::Exists,
                    "ambiguous" => CreateOutcome::Ambiguous,
                    _ => CreateOutcome::Refused,
                };
                let at = sequence(1);
                self.requests.retain(
                    |request| !matches!(request, LogRequest::Create(s) if s.header.sequence == at),
                );
                self.reply(LogReply::Created {
                    sequence: at,
                    outcome,
                });
            }
            "drop" => {
                self.objects.remove(&sequence(1));
            }
            "damage" => self.change(sequence(1), |bytes| *bytes.last_mut().expect("bytes") ^= 1),
            "header" => self.change(sequence(1), |bytes| bytes[50] ^= 1),
            "version" => self.change(sequence(1), |bytes| {
                bytes[8] = 7;
                let crc = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
                bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
            }),
            _ => panic!("unknown command {command:?}"),
        }
    }

    fn append(&mut self, ticket: u64, bytes: usize, begins_unit: bool) {
        self.event(LogEvent::Append(RecordAppend {
            ticket: LogTicket(ticket),
            kind: SegmentFrameKind::Record,
            payload: vec![ticket as u8; bytes],
            begins_unit,
        }));
    }

    fn change(&mut self, sequence: SegmentSequence, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.objects.get_mut(&sequence).expect("the segment exists"));
    }

    fn save(&mut self, position: LogPosition) {
        let mut commits = self.commits.iter();
        let commit = commits.find(|commit| commit.0 == position);
        let (position, version, replay_from) = *commit.expect("a commit");
        self.state = CheckpointHead {
            position,
            version,
            replay_from,
        };
        self.event(LogEvent::CheckpointStored { position });
    }

    fn event(&mut self, event: LogEvent) {
        for action in self.core.step(self.now, event) {
            if let LogAction::Request { request, .. } = action {
                self.requests.push_back(request);
            } else {
                self.note(action);
            }
        }
        if !self.is_holding {
            self.answer_all();
        }
    }

    pub fn reply(&mut self, reply: LogReply) {
        let writer = self.core.writer;
        self.event(LogEvent::Reply { writer, reply });
    }

    fn answer_all(&mut self) {
        while let Some(request) = self.requests.pop_front() {
            let reply = self.answer(request);
            self.reply(reply);
        }
    }

    pub fn answer(&mut self, request: LogRequest) -> LogReply {
        match request {
            LogRequest::Create(segment) => self.create(&segment),
            LogRequest::Head(sequence) => LogReply::Headed {
                sequence,
                outcome: match self.objects.get(&sequence) {
                    Some(_) => HeadOutcome::Present,
                    None => HeadOutcome::Absent,
                },
            },
            LogRequest::ReadHeader(sequence) => LogReply::HeaderRead {
                sequence,
                found: match self.objects.get(&sequence) {
                    None => Lookup::Absent,
                    Some(bytes) => match SegmentHeader::decode(self.options.place(sequence), bytes)
                    {
                        Ok(header) => Lookup::Present(header),
                        Err(error) => Lookup::Unreadable(error),
                    },
                },
            },
            LogRequest::ReadSegment(sequence) => LogReply::SegmentRead {
                sequence,
                found: match self.objects.get(&sequence) {
                    None => Lookup::Absent,
                    Some(bytes) => match Segment::decode(self.options.place(sequence), bytes) {
                        Ok(segment) => Lookup::Present(segment),
                        Err(error) => Lookup::Unreadable(error),
                    },
                },
            },
            LogRequest::ListLog(from) => {
                let listed = self.objects.range(from..).map(|(sequence, bytes)| {
                    let (sequence, bytes) = (*sequence, bytes.len() as u64);
                    ListedSegment { sequence, bytes }
                });
                LogReply::LogListed {
                    segments: Some(listed.collect()),
                }
            }
            LogRequest::ReadState => LogReply::StateRead {
                found: StateLookup::Newest(self.state),
            },
        }
    }

    fn create(&mut self, segment: &Segment) -> LogReply {
        let header = &segment.header;
        let sequence = header.sequence;
        let exists = self.objects.contains_key(&sequence);
        if !exists {
            self.objects.insert(sequence, segment.encode());
            let name = format!("{:?}", header.kind).to_lowercase();
            let frames = header.frames;
            self.text.push(format!("{name} {sequence}:{frames}"));
        }
        for frame in segment.frames().flatten().flatten() {
            if frame.kind == SegmentFrameKind::Commit {
                let commit = crate::commit::CommitRecord::decode(frame.payload);
                let commit = commit.expect("an intact commit");
                let place = (frame.position, commit.version, commit.replay_from);
                self.commits.push(place);
            }
        }
        let outcome = if exists {
            CreateOutcome::Exists
        } else {
            CreateOutcome::Stored
        };
        LogReply::Created { sequence, outcome }
    }

    fn note(&mut self, action: LogAction) {
        let list = |tickets: &[LogTicket]| {
            let tickets: Vec<String> = tickets.iter().map(|t| t.0.to_string()).collect();
            tickets.join(",")
        };
        self.text.push(match action {
            LogAction::BeginReplay { checkpoint } => format!("replay {}", checkpoint.0),
            LogAction::Deliver(frame) => {
                let payload = frame.payload().first().copied().unwrap_or_default();
                format!("{}={payload}", frame.position.0)
            }
            LogAction::ReportLoss(loss) => format!("{loss:?}").to_lowercase(),
            LogAction::Lead { epoch, next } => format!("lead {epoch} from {}", next.0),
            LogAction::StepDown { reason } => format!("down: {reason}"),
            LogAction::Acknowledge { appends } => {
                let appends: Vec<String> = appends
                    .iter()
                    .map(|(t, p)| format!("{}@{}", t.0, p.0))
                    .collect();
                format!("ack {}", appends.join(","))
            }
            LogAction::Reject { tickets, reason } => format!("{reason:?} {}", list(&tickets)),
            LogAction::GrantReads { tickets } => format!("grant {}", list(&tickets)),
            LogAction::RefuseReads { tickets } => format!("refuse {}", list(&tickets)),
            LogAction::WriteCheckpoint { position, .. } => format!("checkpoint {}", position.0),
            LogAction::Delete { sequences } => {
                let keys: Vec<String> = sequences.iter().map(|s| s.0.to_string()).collect();
                format!("delete {}", keys.join(","))
            }
            LogAction::Request { .. } => return,
        });
    }
}
