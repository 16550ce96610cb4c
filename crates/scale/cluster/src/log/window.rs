//! The segments in flight: at most a window of them, completed in order (rule R2).
//!
//! ```text
//! stored, completed | in flight, stored, in flight | next
//!                     <------ at most a window -->
//! ```
//!
//! Invariants: a segment is completed only after all before it are; a fenced writer has no segment
//! behind the window of its last completed one, so the keys that a FENCE makes void contain all of
//! them.

use super::action::Outbox;
use super::creation::{SegmentCreation, Verdict};
use super::event::{CreateOutcome, Lookup};
use super::flaw::LogFlaw;
use super::horizon::StoredCommit;
use super::options::LogCoreOptions;
use crate::ids::{LogTicket, SegmentSequence};
use crate::segment::{Segment, SegmentHeader, SegmentKind};
use firn_model::log::LogPosition;
use std::collections::VecDeque;
use std::time::Duration;

/// The segments in flight of a leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SegmentWindow {
    /// The key of the next segment.
    next: SegmentSequence,
    slots: VecDeque<Slot>,
}

/// A segment in flight, and what depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    creation: SegmentCreation,
    /// The start of the first attempt.
    pub(super) started: Duration,
    /// The appends in the segment.
    pub(super) appends: Vec<(LogTicket, LogPosition)>,
    /// The COMMITs in the segment.
    pub(super) commits: Vec<StoredCommit>,
}

impl Slot {
    pub(super) fn is_hand_off(&self) -> bool {
        self.creation.header().kind == SegmentKind::HandOff
    }
}

/// A segment to create.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) segment: Segment,
    pub(super) appends: Vec<(LogTicket, LogPosition)>,
    pub(super) commits: Vec<StoredCommit>,
}

impl SegmentWindow {
    pub(super) fn begin(next: SegmentSequence) -> Self {
        Self {
            next,
            slots: VecDeque::new(),
        }
    }

    /// Returns the key of the next segment.
    pub(super) fn next(&self) -> SegmentSequence {
        self.next
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn has_room(&self, options: &LogCoreOptions) -> bool {
        (self.slots.len() as u64) < options.window()
    }

    /// Creates a segment at the next key.
    pub(super) fn push(&mut self, now: Duration, outgoing: Outgoing, out: &mut Outbox) {
        assert!(outgoing.segment.header.sequence == self.next);
        self.next = self.next.next();
        self.slots.push_back(Slot {
            creation: SegmentCreation::begin(outgoing.segment, out),
            started: now,
            appends: outgoing.appends,
            commits: outgoing.commits,
        });
    }

    /// Handles the outcome of a create.
    pub(super) fn on_created(
        &mut self,
        options: &LogCoreOptions,
        now: Duration,
        created: (SegmentSequence, CreateOutcome),
        out: &mut Outbox,
    ) -> Verdict {
        let Some(slot) = self.slot(created.0) else {
            return Verdict::Pending;
        };
        let verdict = slot.creation.on_created(options, created.1, out);
        slot.restart(options, now, &verdict);
        verdict
    }

    /// Handles the header at a key whose create had an uncertain outcome.
    pub(super) fn on_header(
        &mut self,
        options: &LogCoreOptions,
        now: Duration,
        read: (SegmentSequence, Lookup<SegmentHeader>),
        out: &mut Outbox,
    ) -> Verdict {
        let Some(slot) = self.slot(read.0) else {
            return Verdict::Pending;
        };
        let verdict = slot.creation.on_header(options, read.1, out);
        slot.restart(options, now, &verdict);
        verdict
    }

    fn slot(&mut self, sequence: SegmentSequence) -> Option<&mut Slot> {
        let mut slots = self.slots.iter_mut();
        slots.find(|slot| slot.creation.header().sequence == sequence)
    }

    /// Removes the first segment, if it is stored: all before it were removed.
    pub(super) fn pop_stored(&mut self) -> Option<Slot> {
        let is_stored = self.slots.front()?.creation.is_stored();
        is_stored.then(|| self.slots.pop_front())?
    }

    /// Returns the first stored segment: the effect of planted flaws.
    pub(super) fn any_stored(&mut self) -> Option<&mut Slot> {
        let mut slots = self.slots.iter_mut();
        slots.find(|slot| slot.creation.is_stored())
    }

    /// Returns all appends in flight.
    pub(super) fn into_tickets(self) -> impl Iterator<Item = LogTicket> {
        let appends = self.slots.into_iter().flat_map(|slot| slot.appends);
        appends.map(|append| append.0)
    }

    /// Returns the instants, which a test moves.
    #[cfg(test)]
    pub(super) fn instants(&mut self) -> Vec<&mut Duration> {
        self.slots
            .iter_mut()
            .map(|slot| &mut slot.started)
            .collect()
    }
}

impl Slot {
    /// Moves the start of the first attempt: the effect of planted flaws.
    fn restart(&mut self, options: &LogCoreOptions, now: Duration, verdict: &Verdict) {
        let is_end = *verdict == Verdict::Stored && options.has(LogFlaw::LeasesFromEnd);
        let is_repeat = *verdict == Verdict::Repeated && options.has(LogFlaw::LeasesFromRepeat);
        if is_end || is_repeat {
            self.started = now;
        }
    }
}
