//! Where the cut under way stands. Data alone: what is done with it stands in [`super`].

use super::order::SeriesOrder;
use crate::block::{BlockId, BlockWriter};
use crate::sealed::directory::PageLists;
use firn_model::sample::{TimeRange, TimestampMs};
use std::time::Duration;

/// The cut under way, and when the next one may begin.
#[derive(Default)]
pub(crate) struct Cut {
    pub(super) step: Step,
    /// On the monotonic clock.
    pub(super) not_before: Duration,
}

#[derive(Default)]
pub(super) enum Step {
    /// None is under way.
    #[default]
    Idle,
    /// In-order samples before `end` are refused; batches up to `sequence` may have some.
    Closing { end: TimestampMs, sequence: u64 },
    /// The block is written.
    Writing(Box<Writing>),
}

/// A block in the making.
pub(super) struct Writing {
    pub(super) end: TimestampMs,
    /// What of the pages goes into it.
    pub(super) range: TimeRange,
    pub(super) id: BlockId,
    pub(super) writer: BlockWriter,
    pub(super) order: SeriesOrder,
    /// The pages with samples in `range`.
    pub(super) pages: PageLists,
    /// Samples of a series, about.
    pub(super) samples_each: usize,
    /// Samples decoded at a time.
    pub(super) samples_at_once: usize,
}

impl Cut {
    /// Whether pages are read, or about to be.
    pub(in crate::maintenance) fn is_under_way(&self) -> bool {
        !matches!(self.step, Step::Idle)
    }
}
