//! The buckets on one side of a histogram: ascending indexes, and a count for each.
//!
//! A compensated side has a third column with the compensation of each count. In all other sides it
//! is empty.

use crate::histogram::BucketSpan;
use crate::kahan::KahanSum;

/// The buckets on one side of a histogram, in columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramSide {
    indexes: Vec<i32>,
    counts: Vec<f64>,
    lost: Vec<f64>,
}

impl HistogramSide {
    /// Creates a side from spans and one count per bucket. Counts that no span covers are dropped.
    pub(super) fn from_counts(spans: &[BucketSpan], mut counts: Vec<f64>) -> Self {
        let indexes = indexes(spans, counts.len());
        counts.truncate(indexes.len());
        Self {
            indexes,
            counts,
            lost: Vec::new(),
        }
    }

    /// Creates a side from buckets, which must be ordered by index.
    pub(super) fn from_cells(
        cells: impl Iterator<Item = (i32, KahanSum)>,
        compensated: bool,
    ) -> Self {
        let mut side = Self::default();
        for (index, cell) in cells {
            side.push(index, cell, compensated);
        }
        side
    }

    fn push(&mut self, index: i32, cell: KahanSum, compensated: bool) {
        self.indexes.push(index);
        self.counts.push(cell.sum);
        if compensated {
            self.lost.push(cell.lost);
        }
    }

    /// Returns the stored form: runs of buckets, and their counts.
    pub(super) fn into_spans(self) -> (Vec<BucketSpan>, Vec<f64>) {
        let mut spans: Vec<BucketSpan> = Vec::new();
        let mut next = 0;
        for index in &self.indexes {
            match spans.last_mut() {
                Some(span) if *index == next => span.length += 1,
                _ => spans.push(BucketSpan {
                    offset: index.wrapping_sub(next),
                    length: 1,
                }),
            }
            next = index.wrapping_add(1);
        }
        (spans, self.counts)
    }

    /// Returns whether the side has no buckets, not even empty ones.
    pub(super) fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// Returns the indexes of the buckets in ascending order.
    pub fn indexes(&self) -> &[i32] {
        &self.indexes
    }

    /// Returns the counts of the buckets; one for each index.
    pub(super) fn counts(&self) -> &[f64] {
        &self.counts
    }

    /// Returns the counts of the buckets for modification; indexes cannot change.
    pub(super) fn counts_mut(&mut self) -> &mut [f64] {
        &mut self.counts
    }

    /// Returns the index, the count and the compensation of each bucket.
    pub(super) fn cells(&self) -> impl DoubleEndedIterator<Item = (i32, KahanSum)> + '_ {
        (0..self.indexes.len()).map(|at| (self.indexes[at], self.cell(at)))
    }

    fn cell(&self, at: usize) -> KahanSum {
        let lost = self.lost.get(at).copied().unwrap_or(0.0);
        KahanSum::new(self.counts[at], lost)
    }

    /// Returns the size of the columns on the heap in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&self.indexes[..]) + size_of_val(&self.counts[..]) + size_of_val(&self.lost[..])
    }

    /// Applies `f` to every count and to its compensation.
    pub(super) fn map_numbers(&mut self, f: impl Fn(f64) -> f64) {
        for number in self.counts.iter_mut().chain(&mut self.lost) {
            *number = f(*number);
        }
    }

    /// Enables compensation by adding a column of zeros.
    pub(super) fn compensate(&mut self) {
        self.lost.resize(self.counts.len(), 0.0);
    }

    /// Adds the compensations to the counts and disables compensation.
    pub(super) fn apply_compensations(&mut self) {
        for (count, lost) in self.counts.iter_mut().zip(std::mem::take(&mut self.lost)) {
            *count += lost;
        }
    }

    /// Returns whether indexes and counts are equal, bit by bit.
    pub(super) fn is_equal(&self, other: &Self) -> bool {
        let pairs = self.counts.iter().zip(&other.counts);
        self.indexes == other.indexes && pairs.into_iter().all(|(a, b)| a.to_bits() == b.to_bits())
    }

    /// Removes the buckets whose count and compensation are zero.
    pub(super) fn compact(&mut self) {
        if self.counts.iter().all(|count| *count != 0.0) {
            return;
        }
        let compensated = !self.lost.is_empty();
        let kept = self.cells();
        let kept = kept.filter(|(_, cell)| cell.sum != 0.0 || cell.lost != 0.0);
        *self = Self::from_cells(kept, compensated);
    }

    /// Removes the buckets for whose index `keeps` returns false.
    pub(super) fn retain(&mut self, keeps: impl Fn(i32) -> bool) {
        let compensated = !self.lost.is_empty();
        *self = Self::from_cells(self.cells().filter(|(i, _)| keeps(*i)), compensated);
    }

    /// Merges the buckets that belong to the same bucket in a schema that is lower by `by`.
    pub(super) fn coarsen(&mut self, by: u32, compensated: bool) {
        if by == 0 {
            return;
        }
        let mut out = Self::default();
        for (index, cell) in self.cells() {
            let target = coarser_index(index, by);
            match out.indexes.last() {
                Some(last) if *last == target && compensated => {
                    let at = out.counts.len() - 1;
                    out.set(at, out.cell(at).plus(cell.sum).plus(cell.lost));
                }
                Some(last) if *last == target => {
                    let at = out.counts.len() - 1;
                    out.counts[at] += cell.sum;
                }
                _ => out.push(target, cell, compensated),
            }
        }
        *self = out;
    }

    fn set(&mut self, at: usize, cell: KahanSum) {
        self.counts[at] = cell.sum;
        self.lost[at] = cell.lost;
    }

    /// Adds the buckets of `other` from position `from` on. They are subtracted if `sign` is -1.
    pub(super) fn add(&mut self, other: &HistogramSide, from: usize, sign: f64, compensated: bool) {
        let indexes = &other.indexes[from..];
        let signed = |cell: KahanSum| cell.map(|number| sign * number);
        if *indexes == *self.indexes && compensated {
            for at in 0..indexes.len() {
                let sum = self.cell(at).add_sum(signed(other.cell(from + at)));
                self.set(at, sum);
            }
            return;
        }
        if *indexes == *self.indexes {
            for (count, more) in self.counts.iter_mut().zip(&other.counts[from..]) {
                *count += sign * more;
            }
            return;
        }
        self.add_other_buckets(other, from, sign, compensated);
    }

    fn add_other_buckets(
        &mut self,
        other: &HistogramSide,
        from: usize,
        sign: f64,
        compensated: bool,
    ) {
        let mut out = Self::default();
        let signed = |cell: KahanSum| cell.map(|number| sign * number);
        let (mut mine, mut theirs) = (0, from);
        loop {
            let index = match (self.indexes.get(mine), other.indexes.get(theirs)) {
                (None, None) => break,
                (Some(a), Some(b)) => *a.min(b),
                (Some(index), None) | (None, Some(index)) => *index,
            };
            let own = self.indexes.get(mine) == Some(&index);
            let more =
                (other.indexes.get(theirs) == Some(&index)).then(|| signed(other.cell(theirs)));
            let cell = match (own.then(|| self.cell(mine)), more) {
                (Some(cell), Some(more)) if compensated => cell.add_sum(more),
                (Some(cell), Some(more)) => KahanSum::new(cell.sum + more.sum, 0.0),
                (cell, more) => cell.or(more).unwrap_or_default(),
            };
            mine += usize::from(own);
            theirs += usize::from(more.is_some());
            out.push(index, cell, compensated);
        }
        *self = out;
    }
}

/// Returns the index of the bucket that contains bucket `index` in a schema that is lower by `by`.
fn coarser_index(index: i32, by: u32) -> i32 {
    (index.wrapping_sub(1) >> by.min(31)).wrapping_add(1)
}

/// Returns the index of each of `buckets` buckets. Buckets that no span covers are dropped.
fn indexes(spans: &[BucketSpan], buckets: usize) -> Vec<i32> {
    let mut indexes = Vec::with_capacity(buckets);
    let mut next = 0i32;
    for span in spans {
        next = next.wrapping_add(span.offset);
        let room = (buckets - indexes.len()).min(span.length as usize);
        indexes.extend((0..room as i32).map(|i| next.wrapping_add(i)));
        next = next.wrapping_add(span.length as i32);
    }
    indexes
}
