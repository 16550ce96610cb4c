//! The first part of a takeover: a FENCE at the end of the log (rules R3 and R4).
//!
//! ```text
//! ReadingState --> Listing <--> ReadingFence          state/, log/ from the begin of replays on
//!                     |  ^
//!                     v  | key taken: the end is further
//!                  Creating                           FENCE at the first absent key
//!                     |
//!                     v
//!                  Confirming --> replay              state/ again
//!                     |
//!                     +--> Listing                    replays begin behind the FENCE: it is stale
//! ```
//!
//! Any time may pass between two steps, in which others take over, trim the log and create keys
//! again. Invariant: a takeover that replays has read a checkpoint that began after its FENCE was
//! stored and that begins replays before the FENCE. A key before the FENCE was then not deleted
//! when the FENCE was created, so the FENCE is behind the last segment of its predecessor.

use super::action::{LogRequest, Outbox, StepDownReason};
use super::creation::{SegmentCreation, Verdict};
use super::event::{CheckpointHead, ListedSegment, LogReply, Lookup, StateLookup};
use super::flaw::LogFlaw;
use super::options::LogCoreOptions;
use super::walk::Walk;
use crate::ids::SegmentSequence;
use crate::segment::{Segment, SegmentBody, SegmentHeader, SegmentKind};
use firn_model::log::LogPosition;
use std::collections::VecDeque;
use std::time::Duration;

/// A takeover until its FENCE is confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fencing {
    /// The checkpoint from which the log is listed.
    start: CheckpointHead,
    /// The key that made this takeover read the checkpoint again.
    doubted: Option<SegmentSequence>,
    /// The key that did so before in a list, with the same checkpoint. Pages of a list are of
    /// different times, so only the second time shows that the log contradicts itself.
    retried: Option<SegmentSequence>,
    phase: FencingPhase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FencingPhase {
    ReadingState,
    Listing(Walk),
    /// Reads the header of a bare segment, at which the walk is.
    ReadingFence(Walk, VecDeque<ListedSegment>),
    Creating(Walk, SegmentCreation),
    Confirming(StoredFence),
}

/// The FENCE of a takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoredFence {
    pub(super) header: SegmentHeader,
    /// The time at which it was certain to be stored.
    pub(super) fenced_at: Duration,
    /// The position of the checkpoint from which the log was listed.
    listed_from: LogPosition,
}

/// A FENCE whose replay found that the log was trimmed meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoubtedFence {
    pub(super) fence: StoredFence,
    pub(super) start: CheckpointHead,
    pub(super) sequence: SegmentSequence,
}

/// The input of a replay.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayBegin {
    pub(super) fence: StoredFence,
    pub(super) start: CheckpointHead,
}

/// The consequence of a reply.
#[derive(Debug)]
pub(super) enum FencingStep {
    Wait,
    Replay(ReplayBegin),
    StepDown(StepDownReason),
}

impl Fencing {
    pub(super) fn begin(out: &mut Outbox) -> Self {
        out.request(LogRequest::ReadState);
        Self {
            start: CheckpointHead::default(),
            doubted: None,
            retried: None,
            phase: FencingPhase::ReadingState,
        }
    }

    /// Reads the checkpoint again for a FENCE that is stored.
    pub(super) fn confirm_again(doubted: DoubtedFence, out: &mut Outbox) -> Self {
        out.request(LogRequest::ReadState);
        Self {
            start: doubted.start,
            doubted: Some(doubted.sequence),
            retried: None,
            phase: FencingPhase::Confirming(doubted.fence),
        }
    }

    /// Returns the instants, which a test moves.
    #[cfg(test)]
    pub(super) fn instants(&mut self) -> Vec<&mut Duration> {
        match &mut self.phase {
            FencingPhase::Confirming(fence) => vec![&mut fence.fenced_at],
            _ => Vec::new(),
        }
    }

    pub(super) fn on_reply(
        &mut self,
        options: &LogCoreOptions,
        now: Duration,
        reply: LogReply,
        out: &mut Outbox,
    ) -> FencingStep {
        match (&mut self.phase, reply) {
            (_, LogReply::StateRead { found }) => self.on_state(options, found, out),
            (FencingPhase::Listing(walk), LogReply::LogListed { segments }) => {
                let walk = *walk;
                match segments {
                    Some(segments) => self.follow(options, walk, segments.into(), out),
                    None => out.request(LogRequest::ListLog(walk.next)),
                }
                FencingStep::Wait
            }
            (FencingPhase::ReadingFence(walk, _), LogReply::HeaderRead { sequence, found }) => {
                if sequence == walk.next {
                    self.on_bare_segment(options, found, out)
                } else {
                    FencingStep::Wait
                }
            }
            (FencingPhase::Creating(_, creation), LogReply::Created { sequence, outcome })
                if sequence == creation.header().sequence =>
            {
                let verdict = creation.on_created(options, outcome, out);
                self.after_fence(options, now, verdict, out)
            }
            (FencingPhase::Creating(_, creation), LogReply::HeaderRead { sequence, found })
                if sequence == creation.header().sequence =>
            {
                let verdict = creation.on_header(options, found, out);
                self.after_fence(options, now, verdict, out)
            }
            _ => FencingStep::Wait,
        }
    }

    fn on_state(
        &mut self,
        options: &LogCoreOptions,
        found: StateLookup,
        out: &mut Outbox,
    ) -> FencingStep {
        let fence = match &self.phase {
            FencingPhase::ReadingState => None,
            FencingPhase::Confirming(fence) => Some(*fence),
            _ => return FencingStep::Wait,
        };
        let head = match found {
            StateLookup::Newest(head) => head,
            StateLookup::Unreadable(error) => {
                return FencingStep::StepDown(StepDownReason::UnreadableCheckpoint(error));
            }
            StateLookup::Failed => {
                out.request(LogRequest::ReadState);
                return FencingStep::Wait;
            }
        };
        let doubted = self.doubted.take();
        let is_same = head == self.start;
        if let Some(sequence) = doubted.filter(|_| is_same) {
            let is_listed = fence.is_some_and(|fence| fence.listed_from == head.position);
            if is_listed || self.retried == doubted {
                let reason = StepDownReason::Inconsistent { sequence };
                return FencingStep::StepDown(reason);
            }
        }
        self.retried = doubted.filter(|_| is_same && fence.is_none());
        let first = std::mem::replace(&mut self.start, head);
        // A FENCE that was listed from an older checkpoint may be behind the end of the log. If the
        // replay fails for that reason, the core searches for the end again.
        if let Some(fence) = fence.filter(|_| doubted.is_none() || !is_same) {
            let is_stale = head.replay_from.sequence > fence.header.sequence;
            if !is_stale || options.has(LogFlaw::KeepsStaleFence) {
                let is_first_kept = options.has(LogFlaw::ReplaysFromFirstRead);
                let start = if is_first_kept { first } else { head };
                return FencingStep::Replay(ReplayBegin { fence, start });
            }
        }
        self.list(Walk::begin(&head.replay_from), out);
        FencingStep::Wait
    }

    fn list(&mut self, walk: Walk, out: &mut Outbox) {
        out.request(LogRequest::ListLog(walk.next));
        self.phase = FencingPhase::Listing(walk);
    }

    /// Reads the checkpoint again because of the segment at `sequence`, which a newer checkpoint
    /// explains: the log was trimmed.
    fn doubt(&mut self, sequence: SegmentSequence, out: &mut Outbox) {
        self.doubted = Some(sequence);
        self.phase = FencingPhase::ReadingState;
        out.request(LogRequest::ReadState);
    }

    /// Follows the walk along listed keys to the first absent one, and creates the FENCE there.
    /// Bare segments are read, because those that are FENCEs have void keys behind them.
    fn follow(
        &mut self,
        options: &LogCoreOptions,
        mut walk: Walk,
        mut listed: VecDeque<ListedSegment>,
        out: &mut Outbox,
    ) {
        while let Some(entry) = listed.front().copied() {
            if entry.sequence > walk.next {
                break;
            }
            if entry.sequence == walk.next && entry.is_bare() {
                out.request(LogRequest::ReadHeader(walk.next));
                self.phase = FencingPhase::ReadingFence(walk, listed);
                return;
            }
            if entry.sequence == walk.next {
                walk.pass();
            }
            listed.pop_front();
        }
        // A writer has no segment there while one before it is missing.
        let end = walk.next.plus(options.window());
        let is_hole = listed.back().is_some_and(|entry| entry.sequence >= end);
        // The COMMIT of a checkpoint is not before the segment at which replays begin.
        let from = self.start.replay_from.sequence;
        let is_emptied = walk.next == from && self.start.position > LogPosition(0);
        if is_hole || is_emptied {
            self.doubt(walk.next, out);
            return;
        }
        let header = SegmentHeader {
            cluster: options.cluster,
            partition: options.partition,
            sequence: walk.next,
            kind: SegmentKind::Fence,
            epoch: walk.epoch.next(),
            writer: out.writer(),
            first: LogPosition(0),
            frames: 0,
            unit: SegmentSequence(0),
            body_crc: 0,
        };
        let body = SegmentBody::default();
        let creation = SegmentCreation::begin(Segment { header, body }, out);
        self.phase = FencingPhase::Creating(walk, creation);
    }

    fn on_bare_segment(
        &mut self,
        options: &LogCoreOptions,
        found: Lookup<SegmentHeader>,
        out: &mut Outbox,
    ) -> FencingStep {
        let FencingPhase::ReadingFence(walk, listed) = &mut self.phase else {
            return FencingStep::Wait;
        };
        let (mut walk, listed) = (*walk, std::mem::take(listed));
        match found {
            Lookup::Present(header) if header.kind != SegmentKind::Fence => walk.pass(),
            Lookup::Present(fence) if walk.is_next_epoch(&fence) => {
                walk.pass_fence(options, &fence);
            }
            Lookup::Present(_) | Lookup::Absent => {
                // A stale FENCE in a trimmed part of the log.
                self.doubt(walk.next, out);
                return FencingStep::Wait;
            }
            Lookup::Unreadable(error) => {
                let sequence = walk.next;
                let reason = StepDownReason::UnreadableSegment { sequence, error };
                return FencingStep::StepDown(reason);
            }
            Lookup::Failed => {
                out.request(LogRequest::ReadHeader(walk.next));
                self.phase = FencingPhase::ReadingFence(walk, listed);
                return FencingStep::Wait;
            }
        }
        self.follow(options, walk, listed, out);
        FencingStep::Wait
    }

    fn after_fence(
        &mut self,
        options: &LogCoreOptions,
        now: Duration,
        verdict: Verdict,
        out: &mut Outbox,
    ) -> FencingStep {
        let FencingPhase::Creating(walk, creation) = &self.phase else {
            return FencingStep::Wait;
        };
        match verdict {
            Verdict::Pending | Verdict::Repeated => FencingStep::Wait,
            Verdict::Taken(_) => {
                self.list(*walk, out);
                FencingStep::Wait
            }
            Verdict::Stored => {
                let fence = StoredFence {
                    header: *creation.header(),
                    fenced_at: now,
                    listed_from: self.start.position,
                };
                self.confirm(options, fence, out)
            }
        }
    }

    fn confirm(
        &mut self,
        options: &LogCoreOptions,
        fence: StoredFence,
        out: &mut Outbox,
    ) -> FencingStep {
        if options.has(LogFlaw::OmitsSecondRead) {
            let start = self.start;
            return FencingStep::Replay(ReplayBegin { fence, start });
        }
        out.request(LogRequest::ReadState);
        self.phase = FencingPhase::Confirming(fence);
        FencingStep::Wait
    }
}
