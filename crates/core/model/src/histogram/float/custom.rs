//! Operations on histograms with different custom bounds. Both are mapped to the common bounds.

use super::form::FloatHistogram;
use super::side::HistogramSide;
use crate::kahan::KahanSum;

impl FloatHistogram {
    /// Adds the buckets of `other` multiplied by `sign`, on the bounds that both histograms have.
    pub(super) fn add_custom_buckets(&mut self, other: &Self, sign: f64) {
        let shared = intersection(&self.custom_values, &other.custom_values);
        let mut cells = vec![KahanSum::default(); shared.len() + 1];
        map_into(
            &mut cells,
            &self.positive,
            &self.custom_values,
            &shared,
            1.0,
        );
        map_into(
            &mut cells,
            &other.positive,
            &other.custom_values,
            &shared,
            sign,
        );
        let filled = |cell: &KahanSum| cell.sum != 0.0 || cell.lost != 0.0;
        let buckets = cells.into_iter().enumerate();
        let buckets = buckets.filter(|(_, cell)| filled(cell));
        self.positive = HistogramSide::from_cells(
            buckets.map(|(index, cell)| (index as i32, cell)),
            self.lost.is_some(),
        );
        self.custom_values = shared;
    }

    /// Returns whether the count between any two common bounds is less than in `previous`.
    pub(super) fn falls_between_shared_bounds(&self, previous: &Self) -> bool {
        let shared = intersection(&self.custom_values, &previous.custom_values);
        let counts = |histogram: &Self| {
            let mut cells = vec![0.0; shared.len() + 1];
            let (side, bounds) = (&histogram.positive, &histogram.custom_values);
            for (at, (_, cell)) in target_indexes(side, bounds, &shared).zip(side.cells()) {
                cells[at] += cell.sum;
            }
            cells
        };
        let pairs = counts(self).into_iter().zip(counts(previous));
        pairs.into_iter().any(|(now, before)| now < before)
    }
}

/// Returns the bounds that are in both lists, in ascending order.
fn intersection(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut rest = b;
    let mut shared = Vec::new();
    for bound in a {
        rest = &rest[rest.partition_point(|other| other < bound)..];
        if rest.first() == Some(bound) {
            shared.push(*bound);
        }
    }
    shared
}

/// Returns, for each bucket of a side, the index of the bucket between the `shared` bounds that
/// contains it.
fn target_indexes<'a>(
    side: &'a HistogramSide,
    bounds: &'a [f64],
    shared: &'a [f64],
) -> impl Iterator<Item = usize> + 'a {
    side.indexes().iter().map(move |index| {
        let bound = usize::try_from(*index).ok().and_then(|i| bounds.get(i));
        bound.map_or(shared.len(), |bound| shared.partition_point(|s| s < bound))
    })
}

fn map_into(
    cells: &mut [KahanSum],
    side: &HistogramSide,
    bounds: &[f64],
    shared: &[f64],
    sign: f64,
) {
    for (at, (_, cell)) in target_indexes(side, bounds, shared).zip(side.cells()) {
        cells[at] = cells[at].add_sum(cell.map(|number| sign * number));
    }
}
