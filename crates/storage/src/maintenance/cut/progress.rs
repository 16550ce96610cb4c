//! Where the cut under way stands. Data alone: what is done with it stands in [`super`].

use super::order::SeriesOrder;
use crate::block::{BlockId, BlockWriter};
use crate::sealed::directory::PageLists;
use firn_model::sample::{TimeRange, TimestampMs};
use std::time::Duration;

/// How far before the samples of a block its exemplars begin. Those that are in two blocks for it
/// are found once.
const EXEMPLARS_BEFORE_MS: i64 = 5 * 60_000;

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
    /// Series that were come to.
    pub(super) series_done: u64,
}

impl Writing {
    /// The times of the exemplars that go into it. An exemplar comes before the sample that it is
    /// attached to, by a scrape interval at most: that sample may be the first one of its series, and
    /// in the block behind.
    pub(super) fn exemplar_range(&self) -> TimeRange {
        let first = self.range.min.saturating_sub(EXEMPLARS_BEFORE_MS);
        TimeRange::new(first, self.range.max)
    }
}

impl Cut {
    /// Whether pages are read, or about to be.
    pub(in crate::maintenance) fn is_under_way(&self) -> bool {
        !matches!(self.step, Step::Idle)
    }
}
