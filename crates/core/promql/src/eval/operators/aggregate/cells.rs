//! The running values of an aggregation: a dense row of cells for each group.
//!
//! A cell without a value contains [`ABSENT`] in its first column. The cells of consecutive parts
//! are merged in order. The result therefore depends on the division into parts, but not on the
//! threads that compute them.

mod rows;

use super::bits::{Magnitudes, round_mean, round_sum};
use super::histograms::{GroupHistogramRemarks, GroupHistogramResult, HistogramCells};
use crate::eval::rows::parts::{SERIES_PER_PART, series_per_part};
use crate::eval::rows::row::{ABSENT, StepRow, is_absent};
use firn_model::histogram::float::HistogramAggregate;
use firn_model::kahan::KahanSum;
use rows::{add_row, count_row, fold_extreme, fold_variance, greatest, least};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// The function that folds the values of a group into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateFold {
    /// The sum of the values, with compensation, for `add_row`.
    Sum,
    /// The arithmetic mean, with compensation, for `avg`.
    Mean,
    /// The number of values, floats and histograms, for `count_row`.
    Count,
    /// The constant one, if there is any value, for `group`.
    Group,
    /// The smallest value, for `min`. Histograms are ignored.
    Min,
    /// The largest value, for `max`. Histograms are ignored.
    Max,
    /// The population variance or its square root, for `stdvar` and `stddev`.
    Variance {
        /// True if the result is the standard deviation instead of the variance.
        root: bool,
    },
}

impl AggregateFold {
    /// Returns whether histograms are ignored, which an annotation must report.
    pub(crate) fn ignores_histograms(self) -> bool {
        matches!(
            self,
            AggregateFold::Min | AggregateFold::Max | AggregateFold::Variance { .. }
        )
    }

    /// Returns whether the function is computed from a sum with compensation.
    pub(crate) fn is_sum(self) -> bool {
        matches!(self, AggregateFold::Sum | AggregateFold::Mean)
    }

    /// Returns the number of series in a part, which are folded one after another.
    pub(crate) fn series_per_part(self, series: usize, steps: usize) -> usize {
        match self {
            // Merging variances changes the last digits, and Prometheus computes them in a single
            // pass.
            AggregateFold::Variance { .. } => SERIES_PER_PART,
            _ => series_per_part(series, steps),
        }
    }

    /// Returns the number of columns in addition to the first.
    fn columns(self) -> usize {
        match self {
            AggregateFold::Sum => 1,
            AggregateFold::Mean | AggregateFold::Variance { .. } => 2,
            AggregateFold::Count
            | AggregateFold::Group
            | AggregateFold::Min
            | AggregateFold::Max => 0,
        }
    }
}

/// Capacity in cells when the first group is added: 8 kB to 256 kB. A part usually contains few of
/// many groups.
const CELLS_AT_FIRST: Range<usize> = 1 << 10..1 << 15;

/// Maximum capacity in cells that is reserved for the groups of other parts: one megabyte.
const CELLS_AHEAD: usize = 1 << 17;

/// The properties of a group that has cells in this part.
#[derive(Clone, Debug)]
struct GroupSlot {
    group: u32,
    /// The index of the first series with a value.
    first: u32,
    drops_name: bool,
    /// Number of rows that were folded.
    rows: u32,
    /// True if all steps certainly have a value, so that faster loops can be used.
    is_full: bool,
}

/// The cells of all groups that have been added.
#[derive(Clone, Debug)]
pub(crate) struct GroupCells {
    fold: AggregateFold,
    steps: usize,
    /// Maximum number of groups that this part can contain.
    groups: usize,
    /// The slots by index of the group. This is a map because a part usually contains few of all
    /// groups.
    slot_of: FxHashMap<u32, u32>,
    /// The group that was used last, and its slot.
    newest: Option<(u32, u32)>,
    slots: Vec<GroupSlot>,
    /// The sum, count or extreme; for a variance, the sum of squared deviations.
    first: Vec<f64>,
    /// The compensation of the sum; for a variance, the mean.
    second: Vec<f64>,
    /// The number of values, for means and variances. Empty for other functions.
    third: Vec<f64>,
    overflowed: bool,
    /// The magnitudes of the values of sums, if they are recorded.
    pub(crate) magnitudes: Option<Magnitudes>,
    /// The sums and means of the histograms, for functions that support them.
    histograms: HistogramCells,
}

impl GroupCells {
    /// Creates an empty set of cells for up to `groups` groups.
    pub(crate) fn new(fold: AggregateFold, steps: usize, groups: usize) -> Self {
        Self {
            fold,
            steps,
            groups,
            slot_of: FxHashMap::default(),
            newest: None,
            slots: Vec::new(),
            first: Vec::new(),
            second: Vec::new(),
            third: Vec::new(),
            overflowed: false,
            magnitudes: None,
            histograms: HistogramCells::new(match fold {
                AggregateFold::Mean => HistogramAggregate::Mean,
                _ => HistogramAggregate::Sum,
            }),
        }
    }

    /// Returns the memory in use, in bytes, which the caller reserves.
    pub(crate) fn bytes(&self) -> usize {
        let cells = self.first.len() + self.second.len() + self.third.len();
        let slot_bytes = size_of::<GroupSlot>() + size_of::<(u32, u32)>();
        cells * size_of::<f64>() + self.slots.len() * slot_bytes + self.histograms.bytes()
    }

    /// Returns the number of steps in each row of cells.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Returns whether the sum of a mean became infinite at any step.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.overflowed && self.fold == AggregateFold::Mean
    }

    /// Folds the row of a series into its group. Returns the number of samples in the row.
    pub(crate) fn add(
        &mut self,
        group: u32,
        series: u32,
        row: StepRow<'_>,
        drops_name: bool,
    ) -> u64 {
        let (width, steps) = (row.values.len(), self.steps);
        assert_eq!(width, steps, "values of a row, and steps of the cells");
        let floats = row.count_floats();
        if floats == 0 && row.histograms.is_empty() {
            return 0;
        }
        let counted = !self.fold.ignores_histograms();
        if floats > 0 || counted {
            let slot = self.find_or_add_slot(group, series, drops_name);
            self.fold_row(slot, row.values, floats == self.steps);
            if counted && !row.histograms.is_empty() {
                self.add_histograms(slot, series, row);
            }
        }
        (floats + row.histograms.len()) as u64
    }

    fn find_or_add_slot(&mut self, group: u32, series: u32, drops_name: bool) -> usize {
        let slot = self.slots.len();
        // Neighbouring series often belong to the same group.
        let known = match self.newest {
            Some((same, known)) if same == group => known as usize,
            _ => *self.slot_of.entry(group).or_insert(slot as u32) as usize,
        };
        self.newest = Some((group, known as u32));
        if let Some(known_slot) = self.slots.get_mut(known) {
            known_slot.first = known_slot.first.min(series);
            known_slot.drops_name |= drops_name;
            return known;
        }
        self.slots.push(GroupSlot {
            group,
            first: series,
            drops_name,
            rows: 0,
            is_full: false,
        });
        if self.first.capacity() == 0 {
            let cells = self.groups.saturating_mul(self.steps);
            let room = cells.clamp(CELLS_AT_FIRST.start, CELLS_AT_FIRST.end);
            self.make_room(room.max(self.steps));
        }
        self.first.resize(self.first.len() + self.steps, ABSENT);
        if self.fold.columns() > 0 {
            self.second.resize(self.first.len(), 0.0);
        }
        if self.fold.columns() > 1 {
            self.third.resize(self.first.len(), 0.0);
        }
        slot
    }

    /// Reserves capacity for the groups of other parts, given the total number of groups.
    pub(crate) fn reserve_groups(&mut self, groups: usize) {
        let more = groups.saturating_sub(self.slots.len());
        self.make_room(more.saturating_mul(self.steps).min(CELLS_AHEAD));
    }

    fn make_room(&mut self, cells: usize) {
        self.first.reserve(cells);
        if self.fold.columns() > 0 {
            self.second.reserve(cells);
        }
        if self.fold.columns() > 1 {
            self.third.reserve(cells);
        }
    }

    /// Folds a row into a slot. `is_full` must be true only if every step of the row has a value.
    fn fold_row(&mut self, slot: usize, row: &[f64], is_full: bool) {
        let range = slot * self.steps..(slot + 1) * self.steps;
        let first = &mut self.first[range.clone()];
        let slot = &mut self.slots[slot];
        let both = is_full && slot.is_full;
        slot.is_full |= is_full;
        slot.rows += 1;
        if let Some(magnitudes) = &mut self.magnitudes {
            magnitudes.add_row(row);
        }
        match self.fold {
            AggregateFold::Sum => add_row(first, &mut self.second[range], row, both),
            AggregateFold::Mean => {
                count_row(&mut self.third[range.clone()], row);
                add_row(first, &mut self.second[range], row, both);
                self.overflowed |= first.iter().any(|sum| sum.is_infinite());
            }
            AggregateFold::Count => fold_extreme(first, row, |known, _| known + 1.0, |_| 1.0),
            AggregateFold::Group => fold_extreme(first, row, |known, _| known, |_| 1.0),
            AggregateFold::Min => fold_extreme(first, row, least, |value| value),
            AggregateFold::Max => fold_extreme(first, row, greatest, |value| value),
            AggregateFold::Variance { .. } => {
                let (second, third) = (&mut self.second[range.clone()], &mut self.third[range]);
                fold_variance(first, second, third, row);
            }
        }
    }

    fn add_histograms(&mut self, slot: usize, series: u32, row: StepRow<'_>) {
        let cells = &mut self.first[slot * self.steps..];
        for (step, histogram) in row.histograms {
            let cell = &mut cells[*step as usize];
            match self.fold {
                AggregateFold::Group => *cell = 1.0,
                AggregateFold::Count if is_absent(*cell) => *cell = 1.0,
                AggregateFold::Count => *cell += 1.0,
                _ => {
                    let (slot, has_float) = (slot as u32, !is_absent(*cell));
                    self.histograms
                        .add(slot, *step, series, histogram, has_float);
                }
            }
        }
    }

    /// Merges the cells of the following series into this set.
    pub(crate) fn merge(&mut self, mut other: GroupCells) {
        assert_eq!(self.steps, other.steps, "steps of merged cells");
        assert_eq!(self.fold, other.fold, "functions of merged cells");
        self.overflowed |= other.overflowed;
        if let (Some(own), Some(other)) = (&mut self.magnitudes, &other.magnitudes) {
            own.merge(other);
        }
        let mut histograms = std::mem::take(&mut other.histograms);
        for (from, known) in other.slots.iter().enumerate() {
            let slot = self.find_or_add_slot(known.group, known.first, known.drops_name);
            let own = &self.first[slot * self.steps..];
            let has_float = |step: u32| !is_absent(own[step as usize]);
            self.histograms
                .merge_slot(slot as u32, &mut histograms, from as u32, has_float);
            for step in 0..self.steps {
                self.merge_cell(slot * self.steps + step, &other, from * self.steps + step);
            }
            self.slots[slot].is_full |= known.is_full;
            self.slots[slot].rows += known.rows;
        }
        self.histograms.merge_remarks(histograms);
    }

    fn merge_cell(&mut self, to: usize, other: &GroupCells, from: usize) {
        let value = other.first[from];
        if is_absent(value) {
            return;
        }
        if is_absent(self.first[to]) {
            self.first[to] = value;
            if self.fold.columns() > 0 {
                self.second[to] = other.second[from];
            }
            if self.fold.columns() > 1 {
                self.third[to] = other.third[from];
            }
            return;
        }
        match self.fold {
            AggregateFold::Sum | AggregateFold::Mean => {
                let of = |cells: &GroupCells, at: usize| KahanSum {
                    sum: cells.first[at],
                    lost: cells.second[at],
                };
                let sum = of(self, to).merge(of(other, from));
                self.first[to] = sum.sum;
                self.second[to] = sum.lost;
                if self.fold == AggregateFold::Mean {
                    self.third[to] += other.third[from];
                    self.overflowed |= sum.sum.is_infinite();
                }
            }
            AggregateFold::Count => self.first[to] += value,
            AggregateFold::Group => {}
            AggregateFold::Min => self.first[to] = least(self.first[to], value),
            AggregateFold::Max => self.first[to] = greatest(self.first[to], value),
            AggregateFold::Variance { .. } => self.merge_variance(to, other, from),
        }
    }

    /// Merges the variances of two parts (Chan, Golub, LeVeque 1979).
    fn merge_variance(&mut self, to: usize, other: &GroupCells, from: usize) {
        let (count, more) = (self.third[to], other.third[from]);
        let total = count + more;
        let delta = other.second[from] - self.second[to];
        self.first[to] += other.first[from] + delta * delta * count * more / total;
        self.second[to] += delta * more / total;
        self.third[to] = total;
    }

    /// Returns the slots in the order of the first series of their groups.
    pub(crate) fn slots_in_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_unstable_by_key(|slot| self.slots[*slot].first);
        order
    }

    /// Returns the index of the group that a slot belongs to.
    pub(crate) fn group(&self, slot: usize) -> u32 {
        self.slots[slot].group
    }

    /// Returns whether the metric name of the group is removed at the end of the evaluation.
    pub(crate) fn drops_name(&self, slot: usize) -> bool {
        self.slots[slot].drops_name
    }

    /// Returns the results of a group's histograms by step, and removes them.
    pub(crate) fn take_histograms(&mut self, slot: usize) -> Vec<(usize, GroupHistogramResult)> {
        self.histograms.take(slot as u32)
    }

    /// Returns the reasons for annotations about histograms, and removes them.
    pub(crate) fn take_remarks(&mut self) -> GroupHistogramRemarks {
        self.histograms.take_remarks()
    }

    /// Replaces the means whose sums are not finite by the results of `of` for their group and
    /// step.
    pub(crate) fn set_means(&mut self, of: impl Fn(u32, usize) -> Option<f64>) {
        for (slot, known) in self.slots.iter().enumerate() {
            for step in 0..self.steps {
                let at = slot * self.steps + step;
                if self.first[at].is_finite() || is_absent(self.first[at]) {
                    continue;
                }
                self.first[at] = of(known.group, step).unwrap_or(ABSENT);
                self.second[at] = 0.0;
                self.third[at] = 1.0;
            }
        }
    }

    /// Writes the results of a slot to `out`, absent where the group has no value. Returns false if
    /// magnitudes are recorded and a sum or mean might have other bits in another order.
    pub(crate) fn finish(&self, slot: usize, out: &mut Vec<f64>) -> bool {
        let slots = self.slots.len();
        assert!(slot < slots, "slot {slot} of {slots}");
        let range = slot * self.steps..(slot + 1) * self.steps;
        out.clear();
        out.extend_from_slice(&self.first[range.clone()]);
        let bounds = self.magnitudes.as_ref();
        let bounds = bounds.map(|magnitudes| magnitudes.bounds(self.slots[slot].rows));
        let mut is_certain = true;
        for (value, at) in out.iter_mut().zip(range) {
            if is_absent(*value) {
                continue;
            }
            *value = match self.fold {
                AggregateFold::Sum => {
                    let sum = KahanSum::new(*value, self.second[at]);
                    round_sum(sum, bounds.as_ref(), &mut is_certain)
                }
                AggregateFold::Mean => {
                    let sum = KahanSum::new(*value, self.second[at]);
                    round_mean(sum, self.third[at], bounds.as_ref(), &mut is_certain)
                }
                AggregateFold::Variance { root: false } => *value / self.third[at],
                AggregateFold::Variance { root: true } => (*value / self.third[at]).sqrt(),
                AggregateFold::Count
                | AggregateFold::Group
                | AggregateFold::Min
                | AggregateFold::Max => *value,
            };
        }
        is_certain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    const GAP: f64 = ABSENT;

    fn row(values: &[f64]) -> StepRow<'_> {
        StepRow::from_floats(values)
    }

    /// Folds rows of one group, in one part and in every division into two parts.
    fn check(fold: AggregateFold, rows: &[&[f64]], want: &[f64]) {
        for split in 0..=rows.len() {
            let (mut cells, mut rest) = (GroupCells::new(fold, 3, 2), GroupCells::new(fold, 3, 2));
            for (series, values) in rows.iter().enumerate() {
                let part = if series < split {
                    &mut cells
                } else {
                    &mut rest
                };
                part.add(0, series as u32, row(values), false);
            }
            cells.merge(rest);
            let mut got = Vec::new();
            cells.finish(0, &mut got);
            for (got, want) in got.iter().zip(want) {
                let equal = got == want || got.to_bits() == want.to_bits();
                assert!(equal, "{fold:?} split at {split}: {got}, expected {want}");
            }
        }
    }

    #[test]
    fn cells_fold_rows_with_gaps() {
        let rows: [&[f64]; 3] = [&[1.0, GAP, GAP], &[3.0, 5.0, GAP], &[8.0, 7.0, GAP]];
        check(AggregateFold::Sum, &rows, &[12.0, 12.0, GAP]);
        check(AggregateFold::Mean, &rows, &[4.0, 6.0, GAP]);
        check(AggregateFold::Count, &rows, &[3.0, 2.0, GAP]);
        check(AggregateFold::Group, &rows, &[1.0, 1.0, GAP]);
        check(AggregateFold::Min, &rows, &[1.0, 5.0, GAP]);
        check(AggregateFold::Max, &rows, &[8.0, 7.0, GAP]);
        let variance = AggregateFold::Variance { root: false };
        check(
            variance,
            &[&[2.0, 1.0, GAP], &[4.0, 1.0, GAP]],
            &[1.0, 0.0, GAP],
        );
        check(
            AggregateFold::Sum,
            &[&[1e100; 3], &[1.0; 3], &[-1e100; 3]],
            &[1.0; 3],
        );
        check(
            AggregateFold::Max,
            &[&[f64::NAN; 3], &[-1.0; 3]],
            &[-1.0; 3],
        );
    }

    #[test]
    fn cells_of_rows_known_as_full_equal_those_of_rows_that_are_looked_at() {
        const STEPS: usize = 5;
        for seed in 0..1_000 {
            let rng = SimRng::new(seed);
            let fold = [
                AggregateFold::Sum,
                AggregateFold::Mean,
                AggregateFold::Count,
                AggregateFold::Max,
            ][seed as usize % 4];
            let fresh = || GroupCells::new(fold, STEPS, 1);
            let (mut told, mut seen) = ([fresh(), fresh()], [fresh(), fresh()]);
            for series in 0..8 {
                let value: f64 = [0.0, -0.0, 0.1, -0.1][rng.next_below(4) as usize];
                let mut values = [value; STEPS];
                let mut row = row(&values);
                if rng.one_in(4) {
                    values[rng.next_below(STEPS as u64) as usize] = GAP;
                    row = StepRow::from_floats(&values);
                } else {
                    row.is_full = true;
                }
                let (part, group) = (series / 4, rng.next_below(2) as u32);
                told[part].add(group, series as u32, row, false);
                seen[part].add(
                    group,
                    series as u32,
                    StepRow::from_floats(row.values),
                    false,
                );
            }
            let merged = |[mut cells, rest]: [GroupCells; 2]| {
                cells.merge(rest);
                let columns = [cells.first, cells.second, cells.third]
                    .into_iter()
                    .flatten();
                columns.map(f64::to_bits).collect::<Vec<u64>>()
            };
            assert_eq!(merged(told), merged(seen), "seed {seed}");
        }
    }

    #[test]
    fn cells_of_means_note_an_infinite_sum() {
        let mut cells = GroupCells::new(AggregateFold::Mean, 1, 1);
        cells.add(0, 0, row(&[f64::MAX]), false);
        assert!(!cells.has_overflowed());
        cells.add(0, 1, row(&[f64::MAX]), false);
        assert!(cells.has_overflowed());
    }
}
