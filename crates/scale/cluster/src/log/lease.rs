//! The read lease: whether a strong read may be answered without a quorum (rule R6).
//!
//! A *confirmation* is an instant after which this process was still the leader: the start of the
//! first attempt of a create that completed the prefix, or the start of a HEAD that found the next
//! key absent. Until the duration of a lease after it no other process can have become a leader
//! that acknowledges or answers, because that waits for longer after its FENCE. The *end* of a
//! create proves nothing: its segment may have been stored long before. A repeat of a create proves
//! nothing either, because a trimmed key can be created again.
//!
//! Invariants: a read is granted only if a lease is valid, or if a confirmation is later than its
//! arrival. Reads that wait are bounded by the admission of queries.

use super::action::{LogAction, LogRequest, Outbox};
use super::event::HeadOutcome;
use super::flaw::LogFlaw;
use super::options::LogCoreOptions;
use crate::ids::{LogTicket, SegmentSequence};
use std::collections::VecDeque;
use std::time::Duration;

/// The lease of a leader, and the reads that wait for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    confirmed: Option<Duration>,
    waiting: VecDeque<WaitingRead>,
    head: Option<HeadCheck>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WaitingRead {
    ticket: LogTicket,
    arrived: Duration,
}

/// A HEAD of the next key that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HeadCheck {
    sequence: SegmentSequence,
    started: Duration,
    /// The number of waiting reads that arrived before it started.
    reads: usize,
}

impl Lease {
    /// Adds a read, which waits until [`Lease::serve`] grants it.
    pub(super) fn add(&mut self, now: Duration, ticket: LogTicket) {
        let arrived = now;
        self.waiting.push_back(WaitingRead { ticket, arrived });
    }

    /// Returns whether the lease is valid.
    pub(super) fn is_held(&self, options: &LogCoreOptions, now: Duration) -> bool {
        let is_valid = |confirmed| now < confirmed + options.lease;
        self.confirmed.is_some_and(is_valid)
    }

    /// Adds a confirmation.
    pub(super) fn confirm(&mut self, at: Duration) {
        self.confirmed = self.confirmed.max(Some(at));
    }

    /// Handles the outcome of a HEAD of `sequence`. Returns whether the key has another writer;
    /// `next` is the next key of the leader now.
    pub(super) fn on_head(
        &mut self,
        options: &LogCoreOptions,
        now: Duration,
        head: (SegmentSequence, HeadOutcome),
        next: SegmentSequence,
        out: &mut Outbox,
    ) -> bool {
        let (sequence, outcome) = head;
        let Some(check) = self.head.take_if(|check| check.sequence == sequence) else {
            return false;
        };
        match outcome {
            // A create of this leader may have followed the HEAD. Then that resolves the key.
            HeadOutcome::Present => return next == sequence,
            HeadOutcome::Failed => return false,
            HeadOutcome::Absent => {}
        }
        let is_end = options.has(LogFlaw::LeasesFromEnd);
        self.confirm(if is_end { now } else { check.started });
        let covers_all = options.has(LogFlaw::HeadCoversLaterReads);
        let count = if covers_all {
            self.waiting.len()
        } else {
            check.reads.min(self.waiting.len())
        };
        grant(self.waiting.drain(..count).collect(), out);
        false
    }

    /// Grants the reads that a confirmation covers, and sends a HEAD of `idle_key` for the others,
    /// which is the next key if no create is in flight.
    pub(super) fn serve(
        &mut self,
        options: &LogCoreOptions,
        now: Duration,
        idle_key: Option<SegmentSequence>,
        out: &mut Outbox,
    ) {
        let is_held = self.is_held(options, now);
        let confirmed = self.confirmed;
        let is_covered = |read: &WaitingRead| is_held || confirmed > Some(read.arrived);
        let covered = self.waiting.iter().take_while(|read| is_covered(read));
        let covered = covered.count();
        grant(self.waiting.drain(..covered).collect(), out);
        if let Some(head) = &mut self.head
            && !options.has(LogFlaw::HeadCountsGrantedReads)
        {
            head.reads = head.reads.saturating_sub(covered);
        }
        if !is_held {
            // Only its value matters, which is in the past for all reads to come.
            self.confirmed = None;
        }
        if let Some(sequence) = idle_key
            && !self.waiting.is_empty()
            && self.head.is_none()
        {
            self.head = Some(HeadCheck {
                sequence,
                started: now,
                reads: self.waiting.len(),
            });
            out.request(LogRequest::Head(sequence));
        }
    }

    /// Refuses all reads that wait.
    pub(super) fn refuse(&mut self, out: &mut Outbox) {
        self.head = None;
        let tickets: Vec<LogTicket> = self.waiting.drain(..).map(|read| read.ticket).collect();
        if !tickets.is_empty() {
            out.push(LogAction::RefuseReads { tickets });
        }
    }

    /// Returns the instants, which a test moves.
    #[cfg(test)]
    pub(super) fn instants(&mut self) -> Vec<&mut Duration> {
        // An expired confirmation is like none.
        self.confirmed = self.confirmed.filter(|at| !at.is_zero());
        let waiting = self.waiting.iter_mut().map(|read| &mut read.arrived);
        let head = self.head.iter_mut().map(|head| &mut head.started);
        waiting.chain(head).chain(&mut self.confirmed).collect()
    }
}

fn grant(reads: Vec<WaitingRead>, out: &mut Outbox) {
    if !reads.is_empty() {
        let tickets = reads.into_iter().map(|read| read.ticket).collect();
        out.push(LogAction::GrantReads { tickets });
    }
}
