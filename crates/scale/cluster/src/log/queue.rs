//! Records that wait for their segment: the group commit of the log.
//!
//! A segment is created when enough bytes wait, when the oldest record has waited long enough, or
//! when a record begins a unit, since a unit begins with a segment. Invariants: records leave in
//! the order in which they came, with consecutive positions; the queue is bounded by
//! [`LogCoreOptions::queue_bytes`] and one record, and appends beyond that are rejected.

use super::options::LogCoreOptions;
use crate::commit::BlockChange;
use crate::ids::LogTicket;
use crate::segment::SegmentFrameKind;
use firn_model::log::LogPosition;
use std::collections::VecDeque;
use std::time::Duration;

/// Records that wait for their segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Queue {
    items: VecDeque<Queued>,
    bytes: usize,
    /// The time at which the first item came.
    since: Duration,
    /// The position of the next item.
    next: LogPosition,
}

/// A record, a BARRIER or a COMMIT that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Queued {
    pub(super) ticket: LogTicket,
    pub(super) content: QueuedContent,
    pub(super) begins_unit: bool,
}

/// The content of an item. The bytes of a COMMIT follow from the place of its segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum QueuedContent {
    SegmentFrame(SegmentFrameKind, Vec<u8>),
    Commit {
        change: BlockChange,
        covered: LogPosition,
    },
}

impl Queued {
    fn bytes(&self) -> usize {
        match &self.content {
            QueuedContent::SegmentFrame(_, payload) => payload.len(),
            QueuedContent::Commit { .. } => 0,
        }
    }
}

/// The items of one segment.
#[derive(Debug)]
pub(super) struct QueuedGroup {
    /// The position of the first item.
    pub(super) first: LogPosition,
    /// At least one item; only the first one may begin a unit.
    pub(super) items: Vec<Queued>,
}

impl Queue {
    pub(super) fn begin(next: LogPosition) -> Self {
        Self {
            items: VecDeque::new(),
            bytes: 0,
            since: Duration::ZERO,
            next,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn is_full(&self, options: &LogCoreOptions) -> bool {
        self.bytes >= options.queue_bytes
    }

    pub(super) fn push(&mut self, now: Duration, item: Queued) {
        if self.items.is_empty() {
            self.since = now;
        }
        self.bytes += item.bytes();
        self.next = self.next.next();
        self.items.push_back(item);
    }

    /// Returns whether a segment must be created now.
    pub(super) fn is_due(&self, options: &LogCoreOptions, now: Duration) -> bool {
        let waited = now.saturating_sub(self.since);
        let has_group = self.items.iter().skip(1).any(|item| item.begins_unit);
        let is_large = self.bytes >= options.segment_bytes;
        !self.is_empty() && (is_large || has_group || waited >= options.flush_interval)
    }

    /// Removes the items of the next segment.
    pub(super) fn take_group(&mut self, options: &LogCoreOptions) -> Option<QueuedGroup> {
        let first = LogPosition(self.next.0 - self.items.len() as u64);
        let (mut items, mut bytes) = (Vec::new(), 0);
        while let Some(item) = self.items.front() {
            let is_full = bytes >= options.segment_bytes || item.begins_unit;
            if is_full && !items.is_empty() {
                break;
            }
            bytes += item.bytes();
            items.extend(self.items.pop_front());
        }
        self.bytes -= bytes;
        if self.items.is_empty() {
            self.since = Duration::ZERO;
        }
        (!items.is_empty()).then_some(QueuedGroup { first, items })
    }

    /// Returns all items that wait.
    pub(super) fn into_tickets(self) -> impl Iterator<Item = LogTicket> {
        self.items.into_iter().map(|item| item.ticket)
    }

    /// Returns the instants, which a test moves.
    #[cfg(test)]
    pub(super) fn instants(&mut self) -> Vec<&mut Duration> {
        vec![&mut self.since]
    }
}
