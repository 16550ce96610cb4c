//! Progress of the current cut. Contains only data; the logic is in [`super`].

use super::order::SeriesOrder;
use crate::block::{BlockId, BlockWriter};
use crate::sealed::directory::PageLists;
use crate::tombstones::StoreTombstones;
use firn_model::sample::{TimeRange, TimestampMs};
use std::sync::Arc;
use std::time::Duration;

/// Time before the samples of a block at which its exemplars begin, in milliseconds. Exemplars that
/// are in two blocks for this reason are returned once.
const EXEMPLARS_BEFORE_MS: i64 = 5 * 60_000;

/// The current cut, and the earliest time of the next one.
#[derive(Default)]
pub(crate) struct BlockCutState {
    pub(super) step: BlockCutStep,
    /// Time of the next attempt after a failure, on the monotonic clock.
    pub(super) not_before: Duration,
}

/// The step that a cut has reached.
#[derive(Default)]
pub(super) enum BlockCutStep {
    /// No cut is in progress.
    #[default]
    Idle,
    /// In-order samples before `end` are rejected; batches up to `sequence` may contain some.
    Closing { end: TimestampMs, sequence: u64 },
    /// The block is being written.
    Writing(Box<BlockCutProgress>),
}

/// A block that is being written by a cut, and the progress of the work on it.
pub(super) struct BlockCutProgress {
    pub(super) end: TimestampMs,
    /// Time range of the samples that go into the block.
    pub(super) range: TimeRange,
    pub(super) id: BlockId,
    pub(super) writer: BlockWriter,
    pub(super) order: SeriesOrder,
    /// The pages with samples in `range`.
    pub(super) pages: PageLists,
    /// The tombstones at the start. A delete in `range` ends the cut, which then begins again.
    pub(super) tombstones: Arc<StoreTombstones>,
    /// Estimated number of samples per series.
    pub(super) samples_each: usize,
    /// Number of samples to decode at a time.
    pub(super) samples_at_once: usize,
    /// Number of series written so far.
    pub(super) series_done: u64,
}

impl BlockCutProgress {
    /// Returns the times of the exemplars that go into the block. An exemplar precedes its sample
    /// by at most a scrape interval; that sample may be the first one of its series, and may be in
    /// the next block.
    pub(super) fn exemplar_range(&self) -> TimeRange {
        let first = self.range.min.saturating_sub(EXEMPLARS_BEFORE_MS);
        TimeRange::new(first, self.range.max)
    }
}

impl BlockCutState {
    /// Returns whether a block is being written.
    #[cfg(test)]
    pub(crate) fn is_writing(&self) -> bool {
        matches!(self.step, BlockCutStep::Writing(_))
    }

    /// Returns whether pages are being read, or are about to be.
    pub(in crate::maintenance) fn is_under_way(&self) -> bool {
        !matches!(self.step, BlockCutStep::Idle)
    }
}
