//! Sums and means of histograms in groups. They are stored next to the dense cells of floats.
//!
//! A group that contains floats and histograms at a step has no value there; neither has a group
//! whose histograms are incompatible. All further histograms of such a group are skipped.

use firn_model::histogram::Histogram;
use firn_model::histogram::float::{
    FloatHistogram, HistogramAccumulator, HistogramAdjustments, HistogramAggregate,
};
use std::collections::BTreeMap;

/// Memory of a cell in bytes, in addition to its histogram.
const CELL_BYTES: usize = size_of::<(u32, HistogramCell)>() + size_of::<HistogramAccumulator>();

/// The histograms of a group at a step, while they are accumulated.
#[derive(Clone, Debug)]
enum HistogramCell {
    /// The accumulated histogram, and the index of the first series that has one.
    Total(Box<HistogramAccumulator>, u32),
    /// A float occurred first, so no histograms are accumulated.
    AfterFloat,
    /// The group contains both exponential and custom buckets, which cannot be added.
    Incompatible {
        /// True if a float occurred before, so that the reason is the mix of types.
        has_float: bool,
    },
}

/// The result of a group's histograms at a step.
#[derive(Debug)]
pub(crate) enum GroupHistogramResult {
    /// The accumulated histogram, which is valid if there are no floats.
    Total(Box<HistogramAccumulator>),
    /// The group has no value at this step, although it contains histograms.
    Nothing {
        /// True if the reason is that there are floats, too.
        is_mix: bool,
    },
}

/// The reasons for annotations about histograms that were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupHistogramRemarks {
    /// True if the bounds of custom buckets differed and were reconciled.
    pub(crate) reconciled: bool,
    /// The series whose buckets are incompatible with those before.
    pub(crate) incompatible: Vec<u32>,
}

/// The histograms of all groups that have been added.
#[derive(Clone, Debug)]
pub(crate) struct HistogramCells {
    of: HistogramAggregate,
    /// The cells of each slot, by step, without steps that have no histogram.
    cells: Vec<BTreeMap<u32, HistogramCell>>,
    bytes: usize,
    remarks: GroupHistogramRemarks,
}

impl Default for HistogramCells {
    fn default() -> Self {
        Self::new(HistogramAggregate::Sum)
    }
}

impl HistogramCells {
    /// Creates an empty set of histograms, which accumulates sums or means.
    pub(crate) fn new(of: HistogramAggregate) -> Self {
        Self {
            of,
            cells: Vec::new(),
            bytes: 0,
            remarks: GroupHistogramRemarks::default(),
        }
    }

    /// Returns the memory in use, in bytes, including that of the histograms.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the histogram of a series. `has_float` is true if the group has a float at this step.
    pub(crate) fn add(
        &mut self,
        slot: u32,
        step: u32,
        series: u32,
        histogram: &Histogram,
        has_float: bool,
    ) {
        let of = self.of;
        let cells = self.slot_cells(slot);
        let Some(cell) = cells.get_mut(&step) else {
            let cell = if has_float {
                HistogramCell::AfterFloat
            } else {
                let total = HistogramAccumulator::new(of, histogram.into());
                HistogramCell::Total(Box::new(total), series)
            };
            let bytes = cell.bytes();
            cells.insert(step, cell);
            self.bytes += bytes;
            return;
        };
        let before = cell.bytes();
        let HistogramCell::Total(total, _) = cell else {
            return;
        };
        let added = total.add(&FloatHistogram::from(histogram));
        if added.is_err() {
            *cell = HistogramCell::Incompatible { has_float };
        }
        let after = cell.bytes();
        self.bytes = self.bytes - before + after;
        match added {
            Ok(joined) => self.remarks.reconciled |= joined.bounds_reconciled,
            Err(_) => self.remarks.incompatible.push(series),
        }
    }

    fn slot_cells(&mut self, slot: u32) -> &mut BTreeMap<u32, HistogramCell> {
        let slot = slot as usize;
        if self.cells.len() <= slot {
            self.cells.resize_with(slot + 1, BTreeMap::new);
        }
        &mut self.cells[slot]
    }

    /// Moves a slot of the following series' cells into this set. `has_float` returns whether this
    /// slot has a float at a step.
    pub(crate) fn merge_slot(
        &mut self,
        slot: u32,
        other: &mut HistogramCells,
        from: u32,
        has_float: impl Fn(u32) -> bool,
    ) {
        for (step, later) in other.take_cells(from) {
            let has_float = has_float(step);
            let own = self.slot_cells(slot).remove(&step);
            self.bytes -= own.as_ref().map_or(0, HistogramCell::bytes);
            let cell = match (own, later) {
                (None, _) if has_float => HistogramCell::AfterFloat,
                (None, later) => later,
                (Some(HistogramCell::Total(total, first)), HistogramCell::Total(later, series)) => {
                    self.merge_totals(total, first, later, series, has_float)
                }
                (
                    Some(HistogramCell::Total(..)),
                    HistogramCell::Incompatible {
                        has_float: before, ..
                    },
                ) => HistogramCell::Incompatible {
                    has_float: has_float || before,
                },
                (Some(cell), _) => cell,
            };
            self.bytes += cell.bytes();
            self.slot_cells(slot).insert(step, cell);
        }
    }

    fn merge_totals(
        &mut self,
        mut total: Box<HistogramAccumulator>,
        first: u32,
        later: Box<HistogramAccumulator>,
        series: u32,
        has_float: bool,
    ) -> HistogramCell {
        match total.merge(*later) {
            Ok(HistogramAdjustments {
                bounds_reconciled, ..
            }) => {
                self.remarks.reconciled |= bounds_reconciled;
                HistogramCell::Total(total, first)
            }
            Err(_) => {
                self.remarks.incompatible.push(series);
                HistogramCell::Incompatible { has_float }
            }
        }
    }

    /// Merges the reasons for annotations of later series into this set.
    pub(crate) fn merge_remarks(&mut self, other: HistogramCells) {
        self.remarks.reconciled |= other.remarks.reconciled;
        self.remarks.incompatible.extend(other.remarks.incompatible);
    }

    fn take_cells(&mut self, slot: u32) -> BTreeMap<u32, HistogramCell> {
        let cells = self.cells.get_mut(slot as usize);
        cells.map(std::mem::take).unwrap_or_default()
    }

    /// Returns the results of a slot's histograms by step, and removes them.
    pub(crate) fn take(&mut self, slot: u32) -> Vec<(usize, GroupHistogramResult)> {
        let outcome = |cell| match cell {
            HistogramCell::Total(total, _) => GroupHistogramResult::Total(total),
            HistogramCell::AfterFloat => GroupHistogramResult::Nothing { is_mix: true },
            HistogramCell::Incompatible { has_float } => {
                GroupHistogramResult::Nothing { is_mix: has_float }
            }
        };
        let cells = self.take_cells(slot).into_iter();
        cells
            .map(|(step, cell)| (step as usize, outcome(cell)))
            .collect()
    }

    /// Returns the reasons for annotations so far, and removes them.
    pub(crate) fn take_remarks(&mut self) -> GroupHistogramRemarks {
        std::mem::take(&mut self.remarks)
    }
}

impl HistogramCell {
    fn bytes(&self) -> usize {
        CELL_BYTES
            + match self {
                HistogramCell::Total(total, _) => total.heap_bytes(),
                HistogramCell::AfterFloat | HistogramCell::Incompatible { .. } => 0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, HistogramCounts, ResetHint};

    fn histogram(schema: i32, count: f64) -> Histogram {
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema,
            zero_threshold: 0.0,
            sum: count,
            counts: HistogramCounts::Float {
                count,
                zero_count: 0.0,
                positive: vec![count],
                negative: Vec::new(),
            },
            positive_spans: vec![BucketSpan {
                offset: 0,
                length: 1,
            }],
            negative_spans: Vec::new(),
            custom_values: Vec::new(),
        }
    }

    /// Checks the result of a group in one part and in every division into two parts. Series
    /// without a histogram have a float. The result is the count, or whether there are floats, too.
    fn check(of: HistogramAggregate, series: &[Option<Histogram>], want: Result<f64, bool>) {
        for split in 0..=series.len() {
            let mut floats = [false; 2];
            let mut cells = [HistogramCells::new(of), HistogramCells::new(of)];
            for (number, histogram) in series.iter().enumerate() {
                let part = usize::from(number >= split);
                match histogram {
                    None => floats[part] = true,
                    Some(h) => cells[part].add(0, 7, number as u32, h, floats[part]),
                }
            }
            let [mut cells, mut later] = cells;
            cells.merge_slot(0, &mut later, 0, |_| floats[0]);
            let found = match cells.take(0).pop() {
                Some((7, GroupHistogramResult::Total(total))) => Ok(total.finish().count),
                Some((7, GroupHistogramResult::Nothing { is_mix })) => Err(is_mix),
                _ => panic!("nothing at the step, split at {split}"),
            };
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
            let alike = match (found, want) {
                (Ok(found), Ok(want)) => near(found, want),
                (found, want) => found == want,
            };
            assert!(alike, "{found:?} instead of {want:?}, split at {split}");
        }
    }

    #[test]
    fn histogram_cells_of_parts_are_those_of_the_whole() {
        let exponential = |count| Some(histogram(0, count));
        let custom = |count| Some(histogram(CUSTOM_BUCKETS_SCHEMA, count));
        let counts = [1e100, 3.0, -1e100, 4.0].map(exponential);
        check(HistogramAggregate::Sum, &counts, Ok(7.0));
        check(HistogramAggregate::Mean, &counts, Ok(1.75));
        check(
            HistogramAggregate::Mean,
            &[f64::MAX; 3].map(exponential),
            Ok(f64::MAX),
        );
        check(
            HistogramAggregate::Sum,
            &[custom(1.0), exponential(1.0)],
            Err(false),
        );
        check(
            HistogramAggregate::Sum,
            &[None, custom(1.0), exponential(1.0)],
            Err(true),
        );
    }
}
