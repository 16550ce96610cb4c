//! A leadership: appends, acknowledgements, COMMITs, strong reads and the HANDOFF.
//!
//! ```text
//! append -> queue -> window -> stored in order -> ready -> acknowledged
//! ```
//!
//! The leader is *ready* when no lease of its predecessor can be valid any more: after a wait from
//! its FENCE on, or at once if its predecessor handed off. Invariants: nothing is acknowledged and
//! no strong read is granted before the leader is ready; a HANDOFF is created only by a leader that
//! is ready, because its successor does not wait for the leases of earlier ones; after the request
//! to hand off nothing is granted.

use super::action::{LogAction, Outbox, RejectReason, StepDownReason};
use super::creation::Verdict;
use super::event::{LogEvent, LogReply};
use super::flaw::LogFlaw;
use super::horizon::{Horizon, StoredCommit};
use super::lease::Lease;
use super::options::LogCoreOptions;
use super::queue::{Queue, Queued, QueuedContent, QueuedGroup};
use super::replay::LeadBegin;
use super::window::{Outgoing, SegmentWindow, Slot};
use super::{LogState, reject};
use crate::commit::ReplayFrom;
use crate::ids::{Epoch, LogTicket, SegmentSequence};
use crate::segment::{
    Segment, SegmentBody, SegmentBuilder, SegmentFrameKind, SegmentHeader, SegmentKind,
};
use firn_model::log::LogPosition;
use std::time::Duration;

/// A leadership of the partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Leading {
    epoch: Epoch,
    /// The time from which on the leader is ready.
    ready_at: Duration,
    is_ready: bool,
    hand_off: HandOffPhase,
    queue: Queue,
    window: SegmentWindow,
    lease: Lease,
    horizon: Horizon,
    /// The first segment of the current unit; `None` before the first segment of the epoch.
    unit: Option<SegmentSequence>,
    /// Appends that are stored and not acknowledged, because the leader is not ready.
    stored: Vec<(LogTicket, LogPosition)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum HandOffPhase {
    No,
    Requested,
    Sent,
}

/// The consequence of an event.
#[derive(Debug)]
pub(super) enum LeadingStep {
    Go,
    StepDown(StepDownReason),
}

impl Leading {
    pub(super) fn begin(
        options: &LogCoreOptions,
        now: Duration,
        begin: LeadBegin,
        out: &mut Outbox,
    ) -> Self {
        let waits = !begin.is_handed_off && !options.has(LogFlaw::OmitsWait);
        let wait = if waits {
            options.wait()
        } else {
            Duration::ZERO
        };
        let voids = if options.has(LogFlaw::ReusesVoid) {
            1
        } else {
            options.window()
        };
        let epoch = begin.fence.header.epoch;
        let next = begin.next;
        out.push(LogAction::Lead { epoch, next });
        let mut leading = Self {
            epoch,
            ready_at: begin.fence.fenced_at + wait,
            is_ready: false,
            hand_off: HandOffPhase::No,
            queue: Queue::begin(next),
            window: SegmentWindow::begin(begin.fence.header.sequence.plus(voids)),
            lease: Lease::default(),
            horizon: begin.horizon,
            unit: None,
            stored: Vec::new(),
        };
        leading.become_ready(now);
        leading
    }

    pub(super) fn state(&self) -> LogState {
        match self.hand_off {
            HandOffPhase::No => LogState::Leading {
                is_ready: self.is_ready,
            },
            HandOffPhase::Requested | HandOffPhase::Sent => LogState::HandingOff,
        }
    }

    pub(super) fn is_leased(&self, options: &LogCoreOptions, now: Duration) -> bool {
        self.grants(options) && self.lease.is_held(options, now)
    }

    /// Returns whether strong reads may be granted, if there is a lease.
    fn grants(&self, options: &LogCoreOptions) -> bool {
        let is_ready = self.is_ready || options.has(LogFlaw::ReadsBeforeWait);
        let is_staying =
            self.hand_off == HandOffPhase::No || options.has(LogFlaw::ReadsWhileHandingOff);
        is_ready && is_staying
    }

    fn become_ready(&mut self, now: Duration) {
        self.is_ready |= now >= self.ready_at;
    }

    pub(super) fn on_call(
        &mut self,
        options: &LogCoreOptions,
        now: Duration,
        event: LogEvent,
        out: &mut Outbox,
    ) -> LeadingStep {
        match event {
            LogEvent::HandOff if self.hand_off == HandOffPhase::No => {
                self.hand_off = HandOffPhase::Requested;
                if !options.has(LogFlaw::ReadsWhileHandingOff) {
                    self.lease.refuse(out);
                }
            }
            LogEvent::CheckpointStored { position } => self.horizon.checkpointed(position, out),
            LogEvent::Read { ticket } if self.hand_off == HandOffPhase::No => {
                self.lease.add(now, ticket);
            }
            LogEvent::Append(append) if self.queue.is_full(options) => {
                let tickets = vec![append.ticket];
                let reason = RejectReason::QueueFull;
                out.push(LogAction::Reject { tickets, reason });
            }
            event if self.hand_off != HandOffPhase::No => reject(event, out),
            LogEvent::Append(append) => {
                let content = QueuedContent::SegmentFrame(append.kind, append.payload);
                self.enqueue(now, append.ticket, content, append.begins_unit);
            }
            LogEvent::Barrier { ticket } => {
                let content = QueuedContent::SegmentFrame(SegmentFrameKind::Barrier, Vec::new());
                self.enqueue(now, ticket, content, false);
            }
            LogEvent::Commit(commit) => {
                let (change, covered) = (commit.change, commit.covered);
                let content = QueuedContent::Commit { change, covered };
                self.enqueue(now, commit.ticket, content, commit.begins_unit);
            }
            _ => {}
        }
        self.advance(options, now, out)
    }

    fn enqueue(&mut self, now: Duration, ticket: LogTicket, content: QueuedContent, begins: bool) {
        let item = Queued {
            ticket,
            content,
            begins_unit: begins,
        };
        self.queue.push(now, item);
    }

    pub(super) fn on_reply(
        &mut self,
        options: &LogCoreOptions,
        now: Duration,
        reply: LogReply,
        out: &mut Outbox,
    ) -> LeadingStep {
        let (sequence, verdict) = match reply {
            LogReply::Created { sequence, outcome } => {
                let created = (sequence, outcome);
                (sequence, self.window.on_created(options, now, created, out))
            }
            LogReply::HeaderRead { sequence, found } => {
                let read = (sequence, found);
                (sequence, self.window.on_header(options, now, read, out))
            }
            LogReply::Headed { sequence, outcome } => {
                let head = (sequence, outcome);
                let next = self.window.next();
                let is_taken = self.lease.on_head(options, now, head, next, out);
                let verdict = if is_taken {
                    Verdict::Taken(None)
                } else {
                    Verdict::Pending
                };
                (sequence, verdict)
            }
            LogReply::LogListed { segments } => {
                self.horizon.on_listed(options, segments, out);
                return LeadingStep::Go;
            }
            LogReply::SegmentRead { .. } | LogReply::StateRead { .. } => return LeadingStep::Go,
        };
        if let Verdict::Taken(header) = verdict {
            return LeadingStep::StepDown(StepDownReason::Fenced { sequence, header });
        }
        self.advance(options, now, out)
    }

    /// Completes stored segments, creates new ones and grants reads.
    fn advance(
        &mut self,
        options: &LogCoreOptions,
        now: Duration,
        out: &mut Outbox,
    ) -> LeadingStep {
        self.become_ready(now);
        self.break_prefix(options, out);
        while let Some(slot) = self.window.pop_stored() {
            if slot.is_hand_off() {
                return LeadingStep::StepDown(StepDownReason::HandedOff);
            }
            self.complete(options, slot, out);
        }
        if self.is_ready && !self.stored.is_empty() {
            let appends = std::mem::take(&mut self.stored);
            out.push(LogAction::Acknowledge { appends });
        }
        self.create_due(options, now, out);
        if self.grants(options) {
            let is_idle = self.window.is_empty();
            let idle_key = is_idle.then(|| self.window.next());
            self.lease.serve(options, now, idle_key, out);
        }
        LeadingStep::Go
    }

    fn complete(&mut self, options: &LogCoreOptions, slot: Slot, out: &mut Outbox) {
        self.lease.confirm(slot.started);
        self.stored.extend(slot.appends);
        for commit in slot.commits {
            self.horizon.committed(options, commit, out);
        }
    }

    /// The effect of planted flaws: stored segments count before the prefix is complete.
    fn break_prefix(&mut self, options: &LogCoreOptions, out: &mut Outbox) {
        let acks = options.has(LogFlaw::AcksBeforePrefix) && self.is_ready;
        let leases = options.has(LogFlaw::LeasesBeforePrefix);
        if !acks && !leases {
            return;
        }
        if let Some(slot) = self.window.any_stored() {
            if leases {
                self.lease.confirm(slot.started);
            }
            if acks && !slot.appends.is_empty() {
                let appends = std::mem::take(&mut slot.appends);
                out.push(LogAction::Acknowledge { appends });
            }
        }
    }

    fn create_due(&mut self, options: &LogCoreOptions, now: Duration, out: &mut Outbox) {
        let is_leaving = self.hand_off == HandOffPhase::Requested;
        while self.window.has_room(options) && (is_leaving || self.queue.is_due(options, now)) {
            let Some(group) = self.queue.take_group(options) else {
                break;
            };
            let mut outgoing = self.segment(options, group, out);
            if options.has(LogFlaw::AcksBeforeCreate) && self.is_ready {
                let appends = std::mem::take(&mut outgoing.appends);
                out.push(LogAction::Acknowledge { appends });
            }
            let commits = outgoing.commits.clone();
            self.window.push(now, outgoing, out);
            for commit in commits
                .iter()
                .filter(|_| options.has(LogFlaw::ChecksInBeforePrefix))
            {
                out.push(commit.write_checkpoint());
            }
        }
        let is_ready = self.is_ready || options.has(LogFlaw::HandsOffBeforeWait);
        if is_leaving && is_ready && self.queue.is_empty() && self.window.has_room(options) {
            self.hand_off = HandOffPhase::Sent;
            let header = self.header(options, SegmentKind::HandOff, out);
            let body = SegmentBody::default();
            let outgoing = Outgoing {
                segment: Segment { header, body },
                appends: Vec::new(),
                commits: Vec::new(),
            };
            self.window.push(now, outgoing, out);
        }
    }

    fn header(&self, options: &LogCoreOptions, kind: SegmentKind, out: &Outbox) -> SegmentHeader {
        SegmentHeader {
            cluster: options.cluster,
            partition: options.partition,
            sequence: self.window.next(),
            kind,
            epoch: self.epoch,
            writer: out.writer(),
            first: LogPosition(0),
            frames: 0,
            unit: SegmentSequence(0),
            body_crc: 0,
        }
    }

    /// Builds the segment of a group, which is the next one.
    fn segment(&mut self, options: &LogCoreOptions, group: QueuedGroup, out: &Outbox) -> Outgoing {
        let mut header = self.header(options, SegmentKind::Data, out);
        header.first = group.first;
        let begins_unit = group.items.iter().any(|item| item.begins_unit);
        if begins_unit || self.unit.is_none() {
            self.unit = Some(header.sequence);
            self.horizon.begin_unit(ReplayFrom {
                position: header.first,
                sequence: header.sequence,
                epoch: header.epoch,
                writer: header.writer,
            });
        }
        header.unit = self.unit.unwrap_or(header.sequence);
        let mut builder = SegmentBuilder::new(header.sequence, header.first);
        let (mut appends, mut commits) = (Vec::new(), Vec::new());
        for item in group.items {
            let position = match item.content {
                QueuedContent::SegmentFrame(kind, payload) => builder.push(kind, &payload),
                QueuedContent::Commit { change, covered } => {
                    let commit = self.horizon.commit(options, change, covered);
                    let position = builder.push(SegmentFrameKind::Commit, &commit.encode());
                    commits.push(StoredCommit {
                        position,
                        version: commit.version,
                        replay_from: commit.replay_from,
                    });
                    position
                }
            };
            appends.push((item.ticket, position));
        }
        header.frames = builder.count();
        let (body, body_crc) = builder.finish();
        header.body_crc = body_crc;
        Outgoing {
            segment: Segment { header, body },
            appends,
            commits,
        }
    }

    /// Rejects all appends and reads whose outcome is open.
    pub(super) fn abandon(mut self, out: &mut Outbox) {
        self.lease.refuse(out);
        let unsent: Vec<LogTicket> = self.queue.into_tickets().collect();
        let stored = self.stored.into_iter().map(|append| append.0);
        let sent: Vec<LogTicket> = stored.chain(self.window.into_tickets()).collect();
        for (tickets, reason) in [
            (sent, RejectReason::Unknown),
            (unsent, RejectReason::NotLeading),
        ] {
            if !tickets.is_empty() {
                out.push(LogAction::Reject { tickets, reason });
            }
        }
    }

    /// Returns the next key, and whether a segment may be created there now.
    #[cfg(test)]
    pub(super) fn room(&self, options: &LogCoreOptions) -> Option<SegmentSequence> {
        let has_room = self.hand_off == HandOffPhase::No && self.window.has_room(options);
        has_room.then(|| self.window.next())
    }

    #[cfg(test)]
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns whether the next event makes the leader ready.
    #[cfg(test)]
    pub(super) fn awaits_tick(&self, now: Duration) -> bool {
        !self.is_ready && now >= self.ready_at
    }

    /// Returns the instants, which a test moves.
    #[cfg(test)]
    pub(super) fn instants(&mut self) -> Vec<&mut Duration> {
        let mut instants = vec![&mut self.ready_at];
        instants.extend(self.queue.instants());
        instants.extend(self.window.instants());
        instants.extend(self.lease.instants());
        instants
    }
}
