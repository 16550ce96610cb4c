//! Deleted samples in a selection: which of its series have a sample left.
//!
//! Reads skip deleted samples of each source before they merge it. A selection omits a series of a
//! source if one tombstone covers all times at which the source may have samples of it in the
//! range. If the caller lists series and reads no samples, the samples of the remaining series with
//! tombstones are read and checked.

use super::{HeadSelection, StoreReader};
use crate::blocks::OpenBlock;
use crate::chunk::SampleColumns;
use crate::head::copies::SeriesCopy;
use crate::tombstones::{DeletedRuns, SampleCheck, StoreTombstones, hide_deleted, is_covered};
use firn_model::budget::Reservation;
use firn_model::columns::SeriesBatch;
use firn_model::error::Error;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{SelectRequest, Selection};
use std::collections::BTreeSet;
use std::sync::Arc;

impl HeadSelection {
    /// Applies the tombstones of the view of the selection, and omits series whose in-order samples
    /// they delete. `early` are the tombstones from before the head was copied: a cut may have
    /// removed some of them together with the samples.
    pub(super) fn apply_tombstones(
        &mut self,
        early: &StoreTombstones,
        tombstones: Arc<StoreTombstones>,
        check: SampleCheck,
    ) -> Result<(), Error> {
        self.tombstones = tombstones;
        let (early, current) = (&early.in_order, self.tombstones.clone());
        if early.is_empty() && current.in_order.is_empty() {
            return Ok(());
        }
        let mut kept = Vec::with_capacity(self.slots.len());
        for series in 0..self.slots.len() {
            let slot = self.numbers.slot(self.slots[series]).0;
            let has_none = early.find(slot).is_empty() && current.in_order.find(slot).is_empty();
            if has_none || self.has_sample(series, check)? {
                kept.push(series);
            }
        }
        self.retain_series(&kept);
        Ok(())
    }

    /// Keeps the series with these indexes, which ascend.
    pub(super) fn retain_series(&mut self, kept: &[usize]) {
        if kept.len() < self.slots.len() {
            let asked = kept.iter().map(|series| self.number(*series) as u32);
            self.asked = Some(asked.collect());
            self.slots = kept.iter().map(|series| self.slots[*series]).collect();
        }
    }

    /// Returns whether a series with tombstones may have a sample that is not deleted.
    fn has_sample(&self, series: usize, check: SampleCheck) -> Result<bool, Error> {
        if self.late_copy(series).is_some() {
            return Ok(true);
        }
        let deleted = self.deleted_times(series);
        let is_left = |source: TimeRange| {
            let range = &self.range;
            let wanted = TimeRange::new(source.min.max(range.min), source.max.min(range.max));
            !is_covered(deleted, wanted)
        };
        let stored = self.numbers.slot(self.slots[series]);
        let pages = self.group_pages(self.slots[series]).iter();
        let mut pages = pages.filter(|page| page.has_series(stored));
        let copied = self.head_copy(series).and_then(SeriesCopy::range);
        if !copied.is_some_and(is_left) && !pages.any(|page| is_left(page.range)) {
            return Ok(false);
        }
        if check == SampleCheck::BySource {
            return Ok(true);
        }
        self.has_readable_sample(series)
    }

    /// Reads a series and returns whether it has a sample in the range.
    pub(super) fn has_readable_sample(&self, series: usize) -> Result<bool, Error> {
        let mut batch = SeriesBatch::default();
        self.read(series..series + 1, &mut batch)?;
        Ok(!batch.series(0).times.is_empty())
    }

    /// Returns the deleted times of the in-order samples of a series, usually none.
    #[inline]
    pub(super) fn deleted_times(&self, series: usize) -> &[TimeRange] {
        if self.tombstones.in_order.is_empty() {
            return &[];
        }
        let slot = self.numbers.slot(self.slots[series]);
        self.tombstones.in_order.find(slot.0)
    }
}

/// Removes from `ordinals` the series of a block whose samples in `range` are all deleted, or that
/// have none there.
pub(super) fn retain_left_series(
    open: &OpenBlock,
    deleted: &DeletedRuns,
    range: TimeRange,
    check: SampleCheck,
    ordinals: &mut Vec<u32>,
) {
    let own = open.entry.range;
    let wanted = TimeRange::new(own.min.max(range.min), own.max.min(range.max));
    let mut reader = open.block.reader();
    let mut columns = SampleColumns::default();
    let is_partial = check == SampleCheck::All && own.min < range.min;
    ordinals.retain(|ordinal| {
        let times = deleted.find(u64::from(*ordinal));
        if times.is_empty() && !is_partial || check == SampleCheck::BySource {
            return times.is_empty() || !is_covered(times, wanted);
        }
        if is_covered(times, wanted) {
            return false;
        }
        columns.clear();
        if reader.read(*ordinal, range, &mut columns).is_err() {
            // A read of the samples reports the damage.
            return true;
        }
        hide_deleted(&mut columns, 0, times);
        let left = range.indexes(&columns.times);
        !left.is_empty()
    });
}

impl StoreReader {
    /// Returns the series of the request, each with a sample that is kept. Returns `None` if no
    /// sample in its range may be deleted or expired; then the indexes contain the result.
    fn select_if_partly_kept(
        &self,
        request: SelectRequest<'_>,
    ) -> Result<Option<Arc<dyn Selection>>, Error> {
        let tombstones = &self.parts.blocks.view().tombstones;
        if !tombstones.overlaps(request.range) && self.group_by_retention(request).is_none() {
            return Ok(None);
        }
        self.select_labels(SelectRequest {
            series: &SeriesLimit::unlimited(),
            newest_only: true,
            ..request
        })
        .map(Some)
    }

    /// Returns the sorted label names of the request if a sample in its range may be deleted or
    /// expired.
    pub(super) fn label_names_of_left(
        &self,
        request: SelectRequest<'_>,
    ) -> Result<Option<Vec<String>>, Error> {
        let Some(selection) = self.select_if_partly_kept(request)? else {
            return Ok(None);
        };
        let mut names: BTreeSet<String> = BTreeSet::new();
        for series in 0..selection.len() {
            request.cancel.check()?;
            for (name, _) in selection.labels(series).as_ref().pairs() {
                let name = String::from_utf8_lossy(name);
                if !names.contains(&*name) {
                    names.insert(name.into_owned());
                }
            }
        }
        Ok(Some(names.into_iter().collect()))
    }

    /// Returns the sorted values of a label if a sample in the range of the request may be deleted
    /// or expired.
    pub(super) fn label_values_of_left(
        &self,
        name: &str,
        request: SelectRequest<'_>,
    ) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let Some(selection) = self.select_if_partly_kept(request)? else {
            return Ok(None);
        };
        let mut memory: Reservation = request.budget.create_reservation();
        let column = selection.label_column(name, request.cancel, &mut memory)?;
        let used: BTreeSet<u32> = column.ids.iter().copied().collect();
        let values = used
            .into_iter()
            .map(|id| column.values[id as usize].to_vec());
        let values: BTreeSet<Vec<u8>> = values.filter(|value| !value.is_empty()).collect();
        Ok(Some(values.into_iter().collect()))
    }
}
