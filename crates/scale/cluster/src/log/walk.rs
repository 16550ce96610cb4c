//! The walk along the keys of a log: which key follows, and who may write there.
//!
//! ```text
//! FENCE e, writer a | void keys: window - 1 | DATA of a | DATA of a | FENCE e + 1, writer b | ...
//! ```
//!
//! Invariant: keys that a walk passes over are void: behind a FENCE, segments of earlier writers
//! may exist there or may be created later, and no reader counts them.

use super::flaw::LogFlaw;
use super::options::LogCoreOptions;
use crate::commit::ReplayFrom;
use crate::ids::{Epoch, SegmentSequence, WriterId};
use crate::segment::{SegmentHeader, SegmentKind};

/// A place in a log, and the newest FENCE before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Walk {
    /// The next key.
    pub(super) next: SegmentSequence,
    /// The epoch of the newest FENCE.
    pub(super) epoch: Epoch,
    /// The writer of the newest FENCE.
    pub(super) writer: WriterId,
    /// The end of the void keys that a planted flaw reads; zero otherwise.
    void_end: SegmentSequence,
}

impl Walk {
    pub(super) fn begin(from: &ReplayFrom) -> Self {
        Self {
            next: from.sequence,
            epoch: from.epoch,
            writer: from.writer,
            void_end: SegmentSequence(0),
        }
    }

    /// Passes a segment that is no FENCE.
    pub(super) fn pass(&mut self) {
        self.next = self.next.next();
    }

    /// Passes a FENCE and the void keys behind it.
    pub(super) fn pass_fence(&mut self, options: &LogCoreOptions, fence: &SegmentHeader) {
        self.next = fence.sequence.plus(options.window());
        self.epoch = fence.epoch;
        self.writer = fence.writer;
    }

    /// Passes a FENCE, but not the void keys behind it: the effect of a planted flaw.
    pub(super) fn pass_fence_alone(&mut self, options: &LogCoreOptions, fence: &SegmentHeader) {
        self.pass_fence(options, fence);
        self.void_end = self.next;
        self.next = fence.sequence.next();
    }

    /// Returns whether a planted flaw reads the next key although it is void.
    pub(super) fn is_in_void(&self) -> bool {
        self.next < self.void_end
    }

    /// Returns whether a segment that is no FENCE belongs to the newest FENCE.
    pub(super) fn is_of_epoch(&self, header: &SegmentHeader) -> bool {
        debug_assert!(header.kind != SegmentKind::Fence);
        (header.epoch, header.writer) == (self.epoch, self.writer)
    }

    /// Returns whether a FENCE may follow the newest one.
    pub(super) fn is_next_epoch(&self, fence: &SegmentHeader) -> bool {
        fence.epoch > self.epoch
    }

    /// Passes a FENCE of a replay.
    pub(super) fn pass_replayed_fence(&mut self, options: &LogCoreOptions, fence: &SegmentHeader) {
        if options.has(LogFlaw::ReplaysVoid) {
            self.pass_fence_alone(options, fence);
        } else {
            self.pass_fence(options, fence);
        }
    }
}
