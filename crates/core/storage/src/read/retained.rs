//! Reads of a range that begins before the retention time of some series.
//!
//! The rules are divided by the time from which their series are kept. Each group is selected in
//! its own range, and the selections are concatenated, so a sample before the cutoff of its series
//! is never read. Invariants: all groups see the samples of the same batches; a range that begins
//! after all cutoffs is selected as a whole.

use super::{HeadSelection, StoreReader};
use crate::blocks::BlocksView;
use crate::head::copies::SeriesCopy;
use crate::head::watermark::WatermarkReadGuard;
use crate::parts::retention_rules::{RetentionCutoffs, RetentionGroup};
use crate::tombstones::SampleCheck;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::concatenation::ConcatenatedSelection;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{ReadCosts, SelectRequest, Selection};
use std::ops::Range;
use std::sync::Arc;

/// Rules with the groups into which they divide a range.
pub(super) struct GroupedRetention {
    cutoffs: RetentionCutoffs,
    groups: Vec<RetentionGroup>,
}

impl StoreReader {
    /// Returns the groups of rules in the range of a request, or `None` if all of it is kept.
    pub(super) fn group_by_retention(
        &self,
        request: SelectRequest<'_>,
    ) -> Option<GroupedRetention> {
        let cutoffs = self.parts.retention_policy().cutoffs()?;
        let groups = cutoffs.group_by_start(request.range)?;
        Some(GroupedRetention { cutoffs, groups })
    }

    /// Selects the series of each group in its part of the range.
    pub(super) fn select_retained(
        &self,
        request: SelectRequest<'_>,
        check: SampleCheck,
        grouped: &GroupedRetention,
        early: &Arc<BlocksView>,
        reading: WatermarkReadGuard<'_>,
    ) -> Result<Arc<dyn Selection>, Error> {
        // The first group has the longest range, which contains all series of the others.
        let uncounted = SeriesLimit::unlimited();
        let limits = [request.series]
            .into_iter()
            .chain(std::iter::repeat(&uncounted));
        let check = match check {
            SampleCheck::BySource => SampleCheck::BySource,
            SampleCheck::Deleted | SampleCheck::All => SampleCheck::All,
        };
        let mut sources = Vec::with_capacity(grouped.groups.len());
        for (group, series) in grouped.groups.iter().zip(limits) {
            let range = TimeRange::new(group.start, request.range.max);
            let request = SelectRequest {
                range,
                series,
                ..request
            };
            let found = self.select_sources(request, check, early, &reading)?;
            sources.push((group, request, found));
        }
        drop(reading);
        let mut parts = Vec::with_capacity(sources.len());
        for (group, request, found) in sources {
            let joined = self.join_sources(found, request, check)?;
            parts.push(retain_members(joined, group, &grouped.cutoffs, request)?);
        }
        Ok(Arc::new(ConcatenatedSelection::new(parts)))
    }
}

/// Returns the series of `selection` that belong to `group`.
fn retain_members(
    selection: Arc<dyn Selection>,
    group: &RetentionGroup,
    cutoffs: &RetentionCutoffs,
    request: SelectRequest<'_>,
) -> Result<Arc<dyn Selection>, Error> {
    let mut memory = request.budget.create_reservation();
    let members = cutoffs.find_members(group, &*selection, request.cancel, &mut memory)?;
    if members.len() == selection.len() {
        return Ok(selection);
    }
    memory.shrink_to(members.len() * size_of::<u32>());
    Ok(Arc::new(MemberSelection {
        selection,
        members,
        _memory: memory,
    }))
}

/// Some series of a selection.
struct MemberSelection {
    selection: Arc<dyn Selection>,
    /// Indexes of the series in ascending order.
    members: Vec<u32>,
    _memory: Reservation,
}

impl Selection for MemberSelection {
    fn len(&self) -> usize {
        self.members.len()
    }

    fn labels(&self, series: usize) -> Labels {
        self.selection.labels(self.members[series] as usize)
    }

    fn label_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        let all = self.selection.label_column(name, cancel, memory)?;
        let members = self.members.iter();
        let ids: Vec<u32> = members.map(|series| all.ids[*series as usize]).collect();
        memory.shrink_to(memory.bytes() - (all.ids.len() - ids.len()) * size_of::<u32>());
        Ok(LabelColumn {
            ids,
            values: all.values,
        })
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        for run in self.members[series].chunk_by(|a, b| a + 1 == *b) {
            let first = run[0] as usize;
            self.selection.read(first..first + run.len(), into)?;
        }
        Ok(())
    }

    fn loss_warnings(&self) -> DataLossWarnings {
        self.selection.loss_warnings()
    }

    fn read_costs(&self) -> ReadCosts {
        self.selection.read_costs()
    }
}

impl HeadSelection {
    /// Keeps the series with a sample in the range, which may begin within a page.
    pub(super) fn retain_series_with_samples(&mut self) -> Result<(), Error> {
        let mut kept = Vec::with_capacity(self.slots.len());
        for series in 0..self.slots.len() {
            if self.has_sample_in_range(series)? {
                kept.push(series);
            }
        }
        self.retain_series(&kept);
        Ok(())
    }

    fn has_sample_in_range(&self, series: usize) -> Result<bool, Error> {
        let newest = self.head_copy(series).and_then(SeriesCopy::range);
        let has_newest = newest.is_some_and(|copied| self.range.contains(copied.max));
        if has_newest && self.deleted_times(series).is_empty() {
            return Ok(true);
        }
        self.has_readable_sample(series)
    }
}
