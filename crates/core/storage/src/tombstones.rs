//! Tombstones: which stored samples were deleted and must not be read.
//!
//! ```text
//! delete -> a tombstone for each source that holds a matching sample -> manifest of blocks
//! read, cut, merge: sample of a source -> its tombstones -> skipped
//! ```
//!
//! A tombstone belongs to one source and never hides a sample that was stored later:
//!
//! - Pages and head share the tombstones of their slots. A series appends in-order samples in the
//!   order of their times, so a range that ends at the newest sample at the time of the delete
//!   contains no later one.
//! - Late samples in the head are removed by the delete. Their tombstones only apply to their log
//!   records, and consist of a batch number and a log position in addition to slots and times.
//! - A block never changes, so its tombstones are ranges of times of its series.
//!
//! Therefore no tombstone depends on an order between records, and a replay applies them in any
//! order. The set is immutable and part of the list of blocks: one commit publishes both.
//! `docs/format/tombstones.md` describes the file.

mod file;
mod runs;

pub(crate) use file::{decode, encode};
pub(crate) use runs::{DeletedRuns, hide_deleted, is_covered};

use crate::block::BlockId;
use crate::ids::SeriesSlot;
use firn_model::log::LogPosition;
use firn_model::sample::{TimeRange, TimestampMs};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How precisely a selection omits series without a sample in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleCheck {
    /// By the times of whole sources: a few series may have no sample.
    BySource,
    /// Series with deleted samples by their other samples, all others by source.
    Deleted,
    /// Each series by its samples.
    All,
}

/// Tombstones of late samples in log records that are in no block yet, from one delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LateTombstones {
    /// Only batches up to this number contain deleted samples.
    pub(crate) sequence: u64,
    /// Only records up to this position contain deleted samples. Batch numbers begin again at a
    /// start, positions do not.
    pub(crate) position: LogPosition,
    /// The deleted times, by slot.
    pub(crate) runs: DeletedRuns,
}

/// All tombstones of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreTombstones {
    /// Deleted in-order samples of pages and head, by slot.
    pub(crate) in_order: DeletedRuns,
    /// Deleted late samples that the log still contains.
    pub(crate) late: Vec<LateTombstones>,
    /// Deleted samples of each block, by ordinal. No entry is empty.
    pub(crate) blocks: BTreeMap<BlockId, Arc<DeletedRuns>>,
}

impl StoreTombstones {
    /// Returns whether nothing is deleted.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.late.is_empty() && self.blocks.is_empty()
    }

    /// Returns the tombstones of a block, if it has any.
    pub(crate) fn of_block(&self, id: BlockId) -> Option<&Arc<DeletedRuns>> {
        self.blocks.get(&id)
    }

    /// Returns whether a sample in `range` may be deleted in pages, head or blocks.
    pub(crate) fn overlaps(&self, range: TimeRange) -> bool {
        self.in_order.overlaps(range) || self.blocks.values().any(|runs| runs.overlaps(range))
    }

    /// Returns the set with the tombstones of one more delete.
    pub(crate) fn with(
        &self,
        in_order: &DeletedRuns,
        late: Option<LateTombstones>,
        blocks: &[(BlockId, DeletedRuns)],
    ) -> Self {
        let mut all = Self {
            in_order: self.in_order.join(in_order),
            late: self.late.iter().cloned().chain(late).collect(),
            blocks: self.blocks.clone(),
        };
        for (id, runs) in blocks {
            let of_block = all.blocks.entry(*id).or_default();
            *of_block = Arc::new(of_block.join(runs));
        }
        all
    }

    /// Returns whether a record may contain deleted late samples.
    pub(crate) fn may_have_late(&self, position: LogPosition, sequence: u64) -> bool {
        let mut late = self.late.iter();
        late.any(|late| position <= late.position && sequence <= late.sequence)
    }

    /// Returns whether the late sample in a log record is deleted.
    pub(crate) fn has_late(
        &self,
        position: LogPosition,
        sequence: u64,
        slot: SeriesSlot,
        time: TimestampMs,
    ) -> bool {
        let is_before =
            |late: &&LateTombstones| position <= late.position && sequence <= late.sequence;
        let mut before = self.late.iter().filter(is_before);
        before.any(|late| late.runs.has(slot.0, time))
    }

    /// Returns the set without tombstones that hide nothing any more, or `None` if all are needed:
    /// blocks own the in-order samples before `cut`, contain the late samples of records up to
    /// `late_through`, and are those for which `is_listed` is true.
    pub(crate) fn pruned(
        &self,
        cut: TimestampMs,
        late_through: LogPosition,
        is_listed: impl Fn(BlockId) -> bool,
    ) -> Option<Self> {
        let is_late_needed = |late: &LateTombstones| late_through < late.position;
        let is_needed = |range: &TimeRange| range.max >= cut;
        if self.late.iter().all(is_late_needed)
            && self.blocks.keys().all(|id| is_listed(*id))
            && self.in_order.all_times(is_needed)
        {
            return None;
        }
        let mut left = self.clone();
        left.late.retain(is_late_needed);
        left.blocks.retain(|id, _| is_listed(*id));
        left.in_order.retain_times(is_needed);
        Some(left)
    }
}
