//! The late samples of a selection, which it shares with the head.
//!
//! A reader holds the leaves that overlap its range, and of their rows it returns those of batches
//! up to its watermark. They are merged after all in-order samples (see [`super::merge`]).

use crate::chunk::DuplicatePolicy;
use crate::failpoints::{self, StoreFlaw};
use crate::head::late::{LateRow, LateSeries};
use crate::head::shard::HeadShard;
use crate::ids::ShardLocalId;
use firn_model::sample::{TimeRange, TimestampMs};

/// The late samples of the candidate series of a part.
#[derive(Default)]
pub(super) struct LateCopies {
    /// With the index of the series in the part.
    series: Vec<(u32, LateSeries)>,
    bytes: usize,
}

impl LateCopies {
    /// Adds the late samples of a series that are visible. Returns whether there are any.
    pub(super) fn add(
        &mut self,
        place: u32,
        shard: &HeadShard,
        local: ShardLocalId,
        range: TimeRange,
        watermark: u64,
    ) -> bool {
        let rows = shard.late.get(local);
        let Some(shared) = rows.and_then(|rows| rows.share(range, visible_through(watermark)))
        else {
            return false;
        };
        self.bytes += size_of::<(u32, LateSeries)>() + shared.memory_bytes();
        self.series.push((place, shared));
        true
    }

    /// Returns whether there are no late samples.
    pub(super) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Sorts the series, after all of them were added.
    pub(super) fn settle(&mut self) {
        self.series.sort_unstable_by_key(|(place, _)| *place);
    }

    /// Returns the late samples of a series. Valid only after [`LateCopies::settle`].
    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<&LateSeries> {
        let found = self
            .series
            .binary_search_by_key(&(place as u32), |(place, _)| *place);
        found.ok().map(|at| &self.series[at].1)
    }

    /// Returns the memory in bytes, including memory shared with the head, which may release it
    /// first.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

/// The rules of a selection for late samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LateReadRule {
    /// Rows of later batches are hidden.
    watermark: u64,
    pub(super) duplicates: DuplicatePolicy,
}

impl LateReadRule {
    /// Returns the rules for a reader at `watermark`.
    pub(super) fn new(watermark: u64, duplicates: DuplicatePolicy) -> Self {
        Self {
            watermark: visible_through(watermark),
            duplicates,
        }
    }

    /// Returns the visible rows with their start timestamps.
    pub(super) fn rows(
        self,
        late: &LateSeries,
        range: TimeRange,
    ) -> impl Iterator<Item = (&LateRow, TimestampMs)> {
        let rows = late.rows(range);
        rows.filter(move |(row, _)| row.sequence <= self.watermark)
    }
}

/// Returns the last batch whose late rows are visible at `watermark`.
fn visible_through(watermark: u64) -> u64 {
    if failpoints::has(StoreFlaw::ShowsLateEarly) {
        u64::MAX
    } else {
        watermark
    }
}
