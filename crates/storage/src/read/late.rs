//! The late samples of a selection: those of the head, shared with it.
//!
//! A reader holds the leaves that overlap its range, and of their rows it sees those of batches up
//! to its watermark. They are merged behind everything that was taken in order (see
//! [`super::merge`]).

use crate::chunk::Duplicates;
use crate::failpoints::{self, Flaw};
use crate::head::late::{LateRow, LateSeries};
use crate::head::shard::Shard;
use crate::ids::Local;
use firn_model::sample::{TimeRange, TimestampMs};

/// The late samples of a part of the series that were asked for.
#[derive(Default)]
pub(super) struct LateCopies {
    /// By the place of the series in the part.
    series: Vec<(u32, LateSeries)>,
    bytes: usize,
}

impl LateCopies {
    /// Takes what a reader may see of a series; whether that is anything.
    pub(super) fn add(
        &mut self,
        place: u32,
        (shard, local): (&Shard, Local),
        range: TimeRange,
        watermark: u64,
    ) -> bool {
        let rows = shard.late.get(local);
        let Some(shared) = rows.and_then(|rows| rows.share(range, seen_to(watermark))) else {
            return false;
        };
        self.bytes += size_of::<(u32, LateSeries)>() + shared.memory_bytes();
        self.series.push((place, shared));
        true
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// All series were added.
    pub(super) fn settle(&mut self) {
        self.series.sort_unstable_by_key(|(place, _)| *place);
    }

    /// The late samples of a series; only once all were added.
    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<&LateSeries> {
        let found = self
            .series
            .binary_search_by_key(&(place as u32), |(place, _)| *place);
        found.ok().map(|at| &self.series[at].1)
    }

    /// Bytes of memory, those that the head has too included: it may drop them first.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

/// What a selection does with late samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LateRule {
    /// Rows of batches behind this one are not seen.
    watermark: u64,
    pub(super) duplicates: Duplicates,
}

impl LateRule {
    /// That of a reader at `watermark`.
    pub(super) fn new(watermark: u64, duplicates: Duplicates) -> Self {
        Self {
            watermark: seen_to(watermark),
            duplicates,
        }
    }

    /// The rows that are seen, with their start timestamps.
    pub(super) fn rows(
        self,
        late: &LateSeries,
        range: TimeRange,
    ) -> impl Iterator<Item = (&LateRow, TimestampMs)> {
        let rows = late.rows(range);
        rows.filter(move |(row, _)| row.sequence <= self.watermark)
    }
}

/// Up to which batch a reader at `watermark` sees late rows.
fn seen_to(watermark: u64) -> u64 {
    match failpoints::has(Flaw::ShowsLateEarly) {
        true => u64::MAX,
        false => watermark,
    }
}
