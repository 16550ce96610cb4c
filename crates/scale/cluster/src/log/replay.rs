//! The second part of a takeover: the records before its FENCE, in order (rules R3, R8 and R9).
//!
//! Up to [`READS_MAX`] segments are read at once and delivered in order. Invariants: delivered
//! frames have ascending positions; keys that a walk passes over are not delivered; the replay ends
//! at the FENCE and never looks behind it. A segment that is missing, or that an earlier writer has
//! created again, shows that a later leader has trimmed the log: the checkpoint is read again. A
//! replay that ends before the COMMIT of its checkpoint shows that segments were deleted.

use super::action::{DeliveredFrame, LogAction, LogLoss, LogRequest, Outbox, StepDownReason};
use super::event::{CheckpointHead, LogReply, Lookup};
use super::fencing::{DoubtedFence, ReplayBegin, StoredFence};
use super::flaw::LogFlaw;
use super::horizon::Horizon;
use super::options::LogCoreOptions;
use super::walk::Walk;
use crate::commit::{CommitRecord, ReplayFrom};
use crate::ids::SegmentSequence;
use crate::segment::{
    HEADER_BYTES, Segment, SegmentError, SegmentFrame, SegmentFrameKind, SegmentKind,
};
use firn_model::log::LogPosition;
use std::collections::BTreeMap;

/// Maximum number of segments that are read or wait for one before them.
const READS_MAX: u64 = 64;

/// A takeover whose FENCE is confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Replaying {
    fence: StoredFence,
    start: CheckpointHead,
    walk: Walk,
    /// The position of the next frame.
    next: LogPosition,
    /// The key from which on no segment is requested.
    requested: SegmentSequence,
    /// Segments that arrived before their turn.
    arrived: BTreeMap<SegmentSequence, Lookup<Segment>>,
    horizon: Horizon,
    /// True if the last segment is a HANDOFF.
    is_handed_off: bool,
    /// True if the records of a segment were lost, so that their positions are unknown.
    has_lost_segment: bool,
}

/// The input of a leadership.
#[derive(Debug)]
pub(super) struct LeadBegin {
    pub(super) fence: StoredFence,
    pub(super) is_handed_off: bool,
    pub(super) next: LogPosition,
    pub(super) horizon: Horizon,
}

/// The consequence of a reply.
#[derive(Debug)]
pub(super) enum ReplayStep {
    Wait,
    Lead(Box<LeadBegin>),
    ReadStateAgain(DoubtedFence),
    StepDown(StepDownReason),
}

/// The reason for which a segment ends a replay.
enum Stop {
    /// The log was trimmed, or contradicts itself.
    Doubt,
    StepDown(StepDownReason),
}

impl From<StepDownReason> for Stop {
    fn from(reason: StepDownReason) -> Self {
        Self::StepDown(reason)
    }
}

impl Replaying {
    pub(super) fn begin(
        options: &LogCoreOptions,
        begin: ReplayBegin,
        out: &mut Outbox,
    ) -> (Self, ReplayStep) {
        let from = begin.start.replay_from;
        out.push(LogAction::BeginReplay {
            checkpoint: begin.start.position,
        });
        let mut replaying = Self {
            fence: begin.fence,
            start: begin.start,
            walk: Walk::begin(&from),
            next: from.position,
            requested: from.sequence,
            arrived: BTreeMap::new(),
            horizon: Horizon::begin(&begin.start),
            is_handed_off: false,
            has_lost_segment: false,
        };
        let step = replaying.advance(options, out);
        (replaying, step)
    }

    pub(super) fn on_reply(
        &mut self,
        options: &LogCoreOptions,
        reply: LogReply,
        out: &mut Outbox,
    ) -> ReplayStep {
        let LogReply::SegmentRead { sequence, found } = reply else {
            return ReplayStep::Wait;
        };
        let is_expected = self.walk.next <= sequence && sequence < self.requested;
        if !is_expected {
            return ReplayStep::Wait;
        }
        if matches!(found, Lookup::Failed) {
            out.request(LogRequest::ReadSegment(sequence));
            return ReplayStep::Wait;
        }
        self.arrived.insert(sequence, found);
        self.advance(options, out)
    }

    /// Handles the segments that arrived in order, and requests further ones.
    fn advance(&mut self, options: &LogCoreOptions, out: &mut Outbox) -> ReplayStep {
        loop {
            self.arrived = self.arrived.split_off(&self.walk.next);
            if self.walk.next == self.fence.header.sequence && options.has(LogFlaw::ProbesEndAgain)
            {
                let fence = self.fence.header;
                self.walk.pass_fence_alone(options, &fence);
            }
            if self.is_at_end(options) {
                // A stale FENCE in a trimmed part of the log may pass over the last segments.
                let is_next = self.walk.is_next_epoch(&self.fence.header)
                    || options.has(LogFlaw::ProbesEndAgain)
                    || options.has(LogFlaw::OmitsEpoch);
                if !is_next || !self.reaches_checkpoint(options) {
                    return self.doubt();
                }
                return ReplayStep::Lead(Box::new(self.lead()));
            }
            if self.walk.next > self.fence.header.sequence && !self.walk.is_in_void() {
                return self.doubt();
            }
            let Some(found) = self.arrived.remove(&self.walk.next) else {
                break;
            };
            match self.handle(options, found, out) {
                Ok(()) => {}
                Err(Stop::Doubt) => return self.doubt(),
                Err(Stop::StepDown(reason)) => return ReplayStep::StepDown(reason),
            }
        }
        self.request(options, out);
        ReplayStep::Wait
    }

    fn is_at_end(&self, options: &LogCoreOptions) -> bool {
        let end = self.fence.header.sequence;
        if options.has(LogFlaw::ProbesEndAgain) {
            return self.walk.next >= end.plus(options.window());
        }
        self.walk.next == end || self.walk.next > end && options.has(LogFlaw::KeepsStaleFence)
    }

    /// Returns whether the replay read the COMMIT of the checkpoint. Without it, new records would
    /// get positions that blocks contain.
    fn reaches_checkpoint(&mut self, options: &LogCoreOptions) -> bool {
        let is_behind = self.next > self.start.position || options.has(LogFlaw::KeepsStaleFence);
        if !is_behind && self.has_lost_segment {
            // It may be among the lost records.
            self.next = self.start.position.next();
            return true;
        }
        is_behind || self.start.position == LogPosition(0)
    }

    fn request(&mut self, options: &LogCoreOptions, out: &mut Outbox) {
        let mut end = self.fence.header.sequence;
        if options.has(LogFlaw::ProbesEndAgain) {
            end = end.plus(options.window());
        }
        let end = end.min(self.walk.next.plus(READS_MAX));
        self.requested = self.requested.max(self.walk.next);
        while self.requested < end {
            out.request(LogRequest::ReadSegment(self.requested));
            self.requested = self.requested.next();
        }
    }

    fn lead(&mut self) -> LeadBegin {
        LeadBegin {
            fence: self.fence,
            is_handed_off: self.is_handed_off,
            next: self.next,
            horizon: self.horizon.clone(),
        }
    }

    fn doubt(&self) -> ReplayStep {
        ReplayStep::ReadStateAgain(DoubtedFence {
            fence: self.fence,
            start: self.start,
            sequence: self.walk.next,
        })
    }

    /// Handles the segment at which the walk is.
    fn handle(
        &mut self,
        options: &LogCoreOptions,
        found: Lookup<Segment>,
        out: &mut Outbox,
    ) -> Result<(), Stop> {
        let sequence = self.walk.next;
        let segment = match found {
            Lookup::Present(segment) => segment,
            Lookup::Unreadable(SegmentError::Damaged { bytes }) if bytes > HEADER_BYTES => {
                // DATA, since all other kinds are bare.
                out.push(LogAction::ReportLoss(LogLoss::Segment { sequence, bytes }));
                self.has_lost_segment = true;
                self.walk.pass();
                return Ok(());
            }
            Lookup::Unreadable(error) => {
                return Err(StepDownReason::UnreadableSegment { sequence, error }.into());
            }
            Lookup::Absent | Lookup::Failed
                if self.walk.is_in_void() || options.has(LogFlaw::ReplaysFromFirstRead) =>
            {
                self.walk.pass();
                return Ok(());
            }
            Lookup::Absent | Lookup::Failed => return Err(Stop::Doubt),
        };
        let header = segment.header;
        match header.kind {
            SegmentKind::Fence if self.walk.is_next_epoch(&header) => {
                self.walk.pass_replayed_fence(options, &header);
                self.is_handed_off &= options.has(LogFlaw::TrustsOldHandOff);
            }
            SegmentKind::Fence => return Err(Stop::Doubt),
            _ if !self.walk.is_of_epoch(&header) && !self.walk.is_in_void() => {
                return Err(Stop::Doubt);
            }
            SegmentKind::HandOff => {
                self.walk.pass();
                self.is_handed_off = true;
            }
            SegmentKind::Data => {
                self.deliver(&segment, out)?;
                self.walk.pass();
                self.is_handed_off = false;
            }
        }
        Ok(())
    }

    fn deliver(&mut self, segment: &Segment, out: &mut Outbox) -> Result<(), Stop> {
        let header = &segment.header;
        if header.first < self.next && !self.walk.is_in_void() {
            return Err(Stop::Doubt);
        }
        if header.unit == header.sequence {
            self.horizon.begin_unit(ReplayFrom {
                position: header.first,
                sequence: header.sequence,
                epoch: header.epoch,
                writer: header.writer,
            });
        }
        for frame in segment.frames() {
            match frame.map_err(StepDownReason::UnknownFrame)? {
                Ok(frame) => self.deliver_frame(segment, &frame, out)?,
                Err(damage) => {
                    let sequence = header.sequence;
                    out.push(LogAction::ReportLoss(LogLoss::Frames { sequence, damage }));
                }
            }
        }
        self.next = self.next.max(header.end());
        Ok(())
    }

    fn deliver_frame(
        &mut self,
        segment: &Segment,
        frame: &SegmentFrame<'_>,
        out: &mut Outbox,
    ) -> Result<(), Stop> {
        let position = frame.position;
        if frame.kind == SegmentFrameKind::Commit {
            let commit = CommitRecord::decode(frame.payload);
            let unreadable = |error| StepDownReason::UnreadableCommit { position, error };
            let commit = commit.map_err(unreadable)?;
            // COMMITs up to that of the checkpoint are part of it.
            if position > self.start.position && !self.horizon.replayed(&commit) {
                return Err(Stop::Doubt);
            }
        }
        out.push(LogAction::Deliver(DeliveredFrame {
            position,
            kind: frame.kind,
            epoch: segment.header.epoch,
            sequence: segment.header.sequence,
            unit: segment.header.unit,
            body: segment.body.clone(),
            range: frame.start..frame.start + frame.payload.len(),
        }));
        Ok(())
    }

    /// Returns the instants, which a test moves.
    #[cfg(test)]
    pub(super) fn instants(&mut self) -> Vec<&mut std::time::Duration> {
        vec![&mut self.fence.fenced_at]
    }
}
