//! The buckets on one side of a histogram: ascending indexes and a count for each.
//!
//! A compensated side keeps in a third column what rounding lost of each count; the column is empty
//! in any other side.

use crate::histogram::Span;
use crate::kahan::Kahan;

/// Buckets of one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    indexes: Vec<i32>,
    counts: Vec<f64>,
    lost: Vec<f64>,
}

impl Side {
    /// Buckets with a count each; those beyond the spans are left out.
    pub(super) fn of_counts(spans: &[Span], mut counts: Vec<f64>) -> Self {
        let indexes = indexes(spans, counts.len());
        counts.truncate(indexes.len());
        Self {
            indexes,
            counts,
            lost: Vec::new(),
        }
    }

    /// Buckets in the order of their indexes.
    pub(super) fn from_cells(cells: impl Iterator<Item = (i32, Kahan)>, compensated: bool) -> Self {
        let mut side = Self::default();
        for (index, cell) in cells {
            side.push(index, cell, compensated);
        }
        side
    }

    fn push(&mut self, index: i32, cell: Kahan, compensated: bool) {
        self.indexes.push(index);
        self.counts.push(cell.sum);
        if compensated {
            self.lost.push(cell.lost);
        }
    }

    /// The stored form: runs of buckets and their counts.
    pub(super) fn into_spans(self) -> (Vec<Span>, Vec<f64>) {
        let mut spans: Vec<Span> = Vec::new();
        let mut next = 0;
        for index in &self.indexes {
            match spans.last_mut() {
                Some(span) if *index == next => span.length += 1,
                _ => spans.push(Span {
                    offset: index.wrapping_sub(next),
                    length: 1,
                }),
            }
            next = index.wrapping_add(1);
        }
        (spans, self.counts)
    }

    /// Whether no bucket is spelled out.
    pub(super) fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// The indexes, ascending.
    pub fn indexes(&self) -> &[i32] {
        &self.indexes
    }

    /// A count for each index.
    pub(super) fn counts(&self) -> &[f64] {
        &self.counts
    }

    /// The counts, to be changed.
    pub(super) fn counts_mut(&mut self) -> &mut [f64] {
        &mut self.counts
    }

    /// The index of each bucket, its count, and what that lost.
    pub(super) fn cells(&self) -> impl DoubleEndedIterator<Item = (i32, Kahan)> + '_ {
        (0..self.indexes.len()).map(|at| (self.indexes[at], self.cell(at)))
    }

    fn cell(&self, at: usize) -> Kahan {
        let lost = self.lost.get(at).copied().unwrap_or(0.0);
        Kahan::new(self.counts[at], lost)
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&self.indexes[..]) + size_of_val(&self.counts[..]) + size_of_val(&self.lost[..])
    }

    /// Changes every count, and what was lost of it.
    pub(super) fn map_numbers(&mut self, f: impl Fn(f64) -> f64) {
        for number in self.counts.iter_mut().chain(&mut self.lost) {
            *number = f(*number);
        }
    }

    /// Starts to keep what rounding loses.
    pub(super) fn compensate(&mut self) {
        self.lost.resize(self.counts.len(), 0.0);
    }

    /// Adds what was lost, and keeps it no longer.
    pub(super) fn settle(&mut self) {
        for (count, lost) in self.counts.iter_mut().zip(std::mem::take(&mut self.lost)) {
            *count += lost;
        }
    }

    /// Whether buckets and counts are equal to the bit.
    pub(super) fn is_equal(&self, other: &Self) -> bool {
        let pairs = self.counts.iter().zip(&other.counts);
        self.indexes == other.indexes && pairs.into_iter().all(|(a, b)| a.to_bits() == b.to_bits())
    }

    /// Leaves out the buckets that are empty and of which nothing was lost.
    pub(super) fn compact(&mut self) {
        if self.counts.iter().all(|count| *count != 0.0) {
            return;
        }
        let compensated = !self.lost.is_empty();
        let kept = self.cells();
        let kept = kept.filter(|(_, cell)| cell.sum != 0.0 || cell.lost != 0.0);
        *self = Self::from_cells(kept, compensated);
    }

    /// Leaves out the buckets of which `keeps` denies the index.
    pub(super) fn retain(&mut self, keeps: impl Fn(i32) -> bool) {
        let compensated = !self.lost.is_empty();
        *self = Self::from_cells(self.cells().filter(|(i, _)| keeps(*i)), compensated);
    }

    /// Makes one bucket of those that fall together in a schema that is coarser by `by`.
    pub(super) fn coarsen(&mut self, by: u32, compensated: bool) {
        if by == 0 {
            return;
        }
        let mut out = Self::default();
        for (index, cell) in self.cells() {
            let target = coarser(index, by);
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

    fn set(&mut self, at: usize, cell: Kahan) {
        self.counts[at] = cell.sum;
        self.lost[at] = cell.lost;
    }

    /// Adds the buckets of `other` from place `from` on; with a `sign` of -1 they are subtracted.
    pub(super) fn add(&mut self, other: &Side, from: usize, sign: f64, compensated: bool) {
        let indexes = &other.indexes[from..];
        let signed = |cell: Kahan| cell.map(|number| sign * number);
        if *indexes == *self.indexes && compensated {
            for at in 0..indexes.len() {
                let sum = self.cell(at).join(signed(other.cell(from + at)));
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

    fn add_other_buckets(&mut self, other: &Side, from: usize, sign: f64, compensated: bool) {
        let mut out = Self::default();
        let signed = |cell: Kahan| cell.map(|number| sign * number);
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
                (Some(cell), Some(more)) if compensated => cell.join(more),
                (Some(cell), Some(more)) => Kahan::new(cell.sum + more.sum, 0.0),
                (cell, more) => cell.or(more).unwrap_or_default(),
            };
            mine += usize::from(own);
            theirs += usize::from(more.is_some());
            out.push(index, cell, compensated);
        }
        *self = out;
    }
}

/// The index of the bucket that holds bucket `index` in a schema that is coarser by `by`.
fn coarser(index: i32, by: u32) -> i32 {
    (index.wrapping_sub(1) >> by.min(31)).wrapping_add(1)
}

/// The index of each of `buckets` buckets; what spans do not cover is left out.
fn indexes(spans: &[Span], buckets: usize) -> Vec<i32> {
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
