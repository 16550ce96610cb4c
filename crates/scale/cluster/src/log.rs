//! The log core of a partition: a pure state machine between a store and an engine.
//!
//! ```text
//!            TakeOver          FENCE stored         replayed up to the FENCE
//! Following ----------> Fencing ----------> Replaying ----------> Leading --> HandingOff
//!     ^                    |                    |                    |            |
//!     +---- TakeOver ------+------ Fenced <-----+--------------------+------------+
//! ```
//!
//! An engine sends each [`LogRequest`] to the bucket and passes the reply back as an event; the
//! core decides. It has no clock: each event carries the time since a fixed moment, which must not
//! decrease, must count suspends (`CLOCK_BOOTTIME`), and may differ between processes, except that
//! its rate differs by less than 1 %.
//!
//! Rules (`docs/adr/0250-the-log-of-a-partition-is-a-list-of-created-objects.md` has the reasons):
//!
//! - R1: a key is created if it is absent, and never overwritten.
//! - R2: at most [`LogCoreOptions::window`] creates are in flight. An append is acknowledged when
//!   all keys of the epoch up to its own are stored ([`window`]).
//! - R3: a takeover reads the newest checkpoint, creates a FENCE at the first absent key, and reads
//!   the newest checkpoint again. If that begins replays behind the FENCE, the FENCE is stale and
//!   the takeover begins again ([`fencing`]).
//! - R4: segments of kind FENCE and HANDOFF are never deleted ([`horizon`]).
//! - R5: a create with an uncertain outcome is resolved by the header at its key: an equal header
//!   is the own segment, another one is that of a new leader, and an absent key is created again
//!   ([`creation`]).
//! - R6: strong reads need a lease from the start of the first attempt of the last create that
//!   completed the prefix, or of a HEAD of the next key that found nothing ([`lease`]). A new
//!   leader neither acknowledges nor answers before a lease of its predecessor has ended.
//! - R7: after a HANDOFF there is no lease of a predecessor.
//! - R8: replays begin at a unit, and trims end at one ([`horizon`]).
//! - R9: a segment of unknown kind or version ends a takeover; damaged DATA costs the frames that
//!   it hit and is reported ([`replay`]).
//! - R10: a BARRIER that is acknowledged proves that its writer led when it was created.
//!
//! **A second engine.** The store above and the replay, lease and checkpoint below do not depend on
//! objects with numbered keys; [`creation`] and [`window`] do, and the walk along keys ([`walk`]).
//! For Kafka they map as follows:
//!
//! | bucket | Kafka: topic partition, offset |
//! |---|---|
//! | create key n | produce to the end, with a window of one |
//! | stored | the returned offset is the last own offset + 1 |
//! | exists | any other offset: read the gap, from the last own offset on |
//! | header is the own one | the own segment again, by writer and number: a retry, skipped by all |
//! | header is another one | a FENCE of a higher epoch in the gap, or "offset out of range" |
//! | ambiguous, then a GET | read to the end, until the own segment or a FENCE occurs |
//! | void keys behind a FENCE | segments of an epoch below that of the newest FENCE before them |
//! | LIST, first absent key | the end offset; of two FENCEs of one epoch the first one counts |
//! | second read of `state/` | not needed, because a FENCE is behind all records that exist |
//! | HEAD finds nothing | the end offset is the last own offset + 1 |
//! | delete keys | delete records before the offset |

mod action;
mod creation;
mod event;
mod fencing;
mod flaw;
mod horizon;
mod leading;
mod lease;
mod options;
mod queue;
mod replay;
#[cfg(test)]
mod tests;
mod walk;
mod window;

pub use action::{DeliveredFrame, LogAction, LogLoss, LogRequest, RejectReason, StepDownReason};
pub use event::{
    CheckpointHead, CommitRequest, CreateOutcome, HeadOutcome, ListedSegment, LogEvent, LogReply,
    Lookup, RecordAppend, StateLookup,
};
#[cfg(any(test, feature = "flaws"))]
pub use flaw::LogFlaw;
pub use options::LogCoreOptions;

use crate::ids::{LogTicket, WriterId};
use action::Outbox;
use fencing::{Fencing, FencingStep};
use leading::{Leading, LeadingStep};
use replay::{ReplayStep, Replaying};
use std::sync::Arc;
use std::time::Duration;

/// The log core of one partition in one process. An engine creates it and owns it.
#[derive(Clone, Debug)]
pub struct LogCore {
    options: Arc<LogCoreOptions>,
    /// The writer of the current or last takeover.
    writer: WriterId,
    state: CoreState,
}

/// The phase of a core with the data that it needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CoreState {
    Following,
    Fencing(Box<Fencing>),
    Replaying(Box<Replaying>),
    Leading(Box<Leading>),
    Fenced,
}

/// The phase of a core, for status pages and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogState {
    /// The process has not tried to lead the partition.
    Following,
    /// A takeover looks for the end of the log and creates its FENCE there.
    Fencing,
    /// A takeover reads the records before its FENCE.
    Replaying,
    /// The process appends records. It acknowledges them once it is ready.
    Leading {
        /// True if no lease of a predecessor can be valid any more.
        is_ready: bool,
    },
    /// The process writes its last segments.
    HandingOff,
    /// A takeover or a leadership ended.
    Fenced,
}

impl LogCore {
    /// Creates a core that follows.
    pub fn new(options: Arc<LogCoreOptions>) -> Self {
        Self {
            options,
            writer: WriterId(0),
            state: CoreState::Following,
        }
    }

    /// Returns the phase of the core.
    pub fn state(&self) -> LogState {
        match &self.state {
            CoreState::Following => LogState::Following,
            CoreState::Fencing(_) => LogState::Fencing,
            CoreState::Replaying(_) => LogState::Replaying,
            CoreState::Leading(leading) => leading.state(),
            CoreState::Fenced => LogState::Fenced,
        }
    }

    /// Returns whether a strong read may be answered at time `now` without a request to the
    /// bucket.
    pub fn is_leased(&self, now: Duration) -> bool {
        match &self.state {
            CoreState::Leading(leading) => leading.is_leased(&self.options, now),
            _ => false,
        }
    }

    /// Handles `event` at time `now` and returns the consequences, in order.
    pub fn step(&mut self, now: Duration, event: LogEvent) -> Vec<LogAction> {
        let mut out = Outbox::new(self.writer);
        match event {
            LogEvent::TakeOver { writer } => self.take_over(writer, &mut out),
            LogEvent::Reply { writer, reply } => {
                if writer == self.writer {
                    self.on_reply(now, reply, &mut out);
                }
            }
            event => self.on_call(now, event, &mut out),
        }
        out.into_actions()
    }

    fn take_over(&mut self, writer: WriterId, out: &mut Outbox) {
        assert!(writer != WriterId(0), "zero is no writer");
        if !matches!(self.state, CoreState::Following | CoreState::Fenced) {
            return;
        }
        self.writer = writer;
        *out = Outbox::new(writer);
        self.state = CoreState::Fencing(Box::new(Fencing::begin(out)));
    }

    /// Handles an event of the store or the engine.
    fn on_call(&mut self, now: Duration, event: LogEvent, out: &mut Outbox) {
        match &mut self.state {
            CoreState::Leading(leading) => {
                let step = leading.on_call(&self.options, now, event, out);
                self.after_leading(step, out);
            }
            _ => reject(event, out),
        }
    }

    fn on_reply(&mut self, now: Duration, reply: LogReply, out: &mut Outbox) {
        match &mut self.state {
            CoreState::Fencing(fencing) => {
                let step = fencing.on_reply(&self.options, now, reply, out);
                self.after_fencing(step, out);
            }
            CoreState::Replaying(replaying) => {
                let step = replaying.on_reply(&self.options, reply, out);
                self.after_replay(now, step, out);
            }
            CoreState::Leading(leading) => {
                let step = leading.on_reply(&self.options, now, reply, out);
                self.after_leading(step, out);
            }
            CoreState::Following | CoreState::Fenced => {}
        }
    }

    fn after_fencing(&mut self, step: FencingStep, out: &mut Outbox) {
        match step {
            FencingStep::Wait => {}
            FencingStep::Replay(begin) => {
                let (replaying, step) = Replaying::begin(&self.options, begin, out);
                self.state = CoreState::Replaying(Box::new(replaying));
                // The log before the FENCE may be empty. No time passed, so no lease ended.
                self.after_replay(begin.fence.fenced_at, step, out);
            }
            FencingStep::StepDown(reason) => self.step_down(reason, out),
        }
    }

    fn after_replay(&mut self, now: Duration, step: ReplayStep, out: &mut Outbox) {
        match step {
            ReplayStep::Wait => {}
            ReplayStep::Lead(begin) => {
                let leading = Leading::begin(&self.options, now, *begin, out);
                self.state = CoreState::Leading(Box::new(leading));
            }
            ReplayStep::ReadStateAgain(fence) => {
                self.state = CoreState::Fencing(Box::new(Fencing::confirm_again(fence, out)));
            }
            ReplayStep::StepDown(reason) => self.step_down(reason, out),
        }
    }

    fn after_leading(&mut self, step: LeadingStep, out: &mut Outbox) {
        if let LeadingStep::StepDown(reason) = step {
            self.step_down(reason, out);
        }
    }

    fn step_down(&mut self, reason: StepDownReason, out: &mut Outbox) {
        if let CoreState::Leading(leading) = std::mem::replace(&mut self.state, CoreState::Fenced) {
            leading.abandon(out);
        }
        out.push(LogAction::StepDown { reason });
    }
}

/// Rejects a call to a core that does not lead. Nothing of it is in the log.
fn reject(event: LogEvent, out: &mut Outbox) {
    let (tickets, is_read): (Vec<LogTicket>, bool) = match event {
        LogEvent::Append(append) => (vec![append.ticket], false),
        LogEvent::Barrier { ticket } => (vec![ticket], false),
        LogEvent::Commit(commit) => (vec![commit.ticket], false),
        LogEvent::Read { ticket } => (vec![ticket], true),
        _ => return,
    };
    out.push(if is_read {
        LogAction::RefuseReads { tickets }
    } else {
        let reason = RejectReason::NotLeading;
        LogAction::Reject { tickets, reason }
    });
}
