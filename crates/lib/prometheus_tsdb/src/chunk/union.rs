//! The union of the buckets of a chunk's histograms. Upstream rewrites a chunk when a histogram
//! adds buckets; this code collects the union before it writes the chunk.

use super::layout::{BUCKETS_MAX, bucket_count};
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, bucket_indexes};

/// Largest index of a bucket, so that the gap between any two fits the offset of a span. The finest
/// schema has no index above 2^18.
const INDEX_MAX: u64 = 1 << 30;

/// Returns the indexes of the buckets of one sign; `None` if the spans do not match the number of
/// buckets or are not ascending.
pub(super) fn indexes(spans: &[BucketSpan], buckets: usize) -> Option<Vec<i64>> {
    if bucket_count(spans).ok()? != buckets {
        return None;
    }
    let indexes: Vec<i64> = bucket_indexes(spans).collect();
    let is_near = |index: &i64| index.unsigned_abs() <= INDEX_MAX;
    let is_sound = indexes.is_sorted_by(|a, b| a < b) && indexes.iter().all(is_near);
    is_sound.then_some(indexes)
}

/// The indexes of the buckets of both signs, sorted; the common form for comparing layouts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketIndexes {
    pub positive: Vec<i64>,
    pub negative: Vec<i64>,
}

impl BucketIndexes {
    /// Returns the buckets of a histogram; `None` if its spans and buckets do not match.
    pub fn from_histogram(histogram: &Histogram) -> Option<Self> {
        let (positives, negatives) = match &histogram.counts {
            HistogramCounts::Integer {
                positive, negative, ..
            } => (positive.len(), negative.len()),
            HistogramCounts::Float {
                positive, negative, ..
            } => (positive.len(), negative.len()),
        };
        Some(Self {
            positive: indexes(&histogram.positive_spans, positives)?,
            negative: indexes(&histogram.negative_spans, negatives)?,
        })
    }

    /// Adds the buckets of another histogram; returns false, without changes, if there would be too
    /// many.
    pub fn unite(&mut self, other: &BucketIndexes) -> bool {
        let positive = unite_sorted(&self.positive, &other.positive);
        let negative = unite_sorted(&self.negative, &other.negative);
        let fits = |side: &Vec<i64>| side.len() as u64 <= BUCKETS_MAX;
        if !fits(&positive) || !fits(&negative) {
            return false;
        }
        (self.positive, self.negative) = (positive, negative);
        true
    }

    /// Returns the counts of a histogram with the buckets `own`, extended by a zero for each
    /// additional bucket.
    pub fn spread(&self, own: &BucketIndexes, counts: &HistogramCounts) -> HistogramCounts {
        match counts {
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => HistogramCounts::Integer {
                count: *count,
                zero_count: *zero_count,
                positive: spread_deltas(&self.positive, &own.positive, positive),
                negative: spread_deltas(&self.negative, &own.negative, negative),
            },
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => HistogramCounts::Float {
                count: *count,
                zero_count: *zero_count,
                positive: spread(&self.positive, &own.positive, positive.iter().copied()),
                negative: spread(&self.negative, &own.negative, negative.iter().copied()),
            },
        }
    }
}

fn unite_sorted(a: &[i64], b: &[i64]) -> Vec<i64> {
    if a == b {
        return a.to_vec();
    }
    let mut all = [a, b].concat();
    all.sort_unstable();
    all.dedup();
    all
}

fn spread<T: Copy + Default>(all: &[i64], own: &[i64], counts: impl Iterator<Item = T>) -> Vec<T> {
    let mut own = own.iter().zip(counts).peekable();
    let mut next = |index: &i64| {
        let found = own.next_if(|(i, _)| *i == index);
        found.map_or_else(T::default, |(_, count)| count)
    };
    all.iter().map(&mut next).collect()
}

fn spread_deltas(all: &[i64], own: &[i64], deltas: &[i64]) -> Vec<i64> {
    let mut counts = spread(all, own, decode_deltas(deltas));
    let mut before = 0i64;
    for count in &mut counts {
        (*count, before) = (count.wrapping_sub(before), *count);
    }
    counts
}

fn decode_deltas(deltas: &[i64]) -> impl Iterator<Item = i64> {
    deltas.iter().scan(0i64, |count, delta| {
        *count = count.wrapping_add(*delta);
        Some(*count)
    })
}

/// Returns whether any count in `new` is smaller than in `before`; a missing bucket counts as 0.
pub(super) fn has_decreased(
    before: (&BucketIndexes, &HistogramCounts),
    new: (&BucketIndexes, &HistogramCounts),
) -> bool {
    match (before.1, new.1) {
        (
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            },
            HistogramCounts::Integer {
                count: new_count,
                zero_count: new_zero_count,
                positive: new_positive,
                negative: new_negative,
            },
        ) => {
            let side = |old: (&[i64], &[i64]), new: (&[i64], &[i64])| {
                let old = old.0.iter().copied().zip(decode_deltas(old.1));
                has_side_decreased(old, new.0.iter().copied().zip(decode_deltas(new.1)))
            };
            new_count < count
                || new_zero_count < zero_count
                || side(
                    (&before.0.positive, positive),
                    (&new.0.positive, new_positive),
                )
                || side(
                    (&before.0.negative, negative),
                    (&new.0.negative, new_negative),
                )
        }
        (
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            },
            HistogramCounts::Float {
                count: new_count,
                zero_count: new_zero_count,
                positive: new_positive,
                negative: new_negative,
            },
        ) => {
            let side = |old: (&[i64], &[f64]), new: (&[i64], &[f64])| {
                let old = old.0.iter().copied().zip(old.1.iter().copied());
                has_side_decreased(old, new.0.iter().copied().zip(new.1.iter().copied()))
            };
            new_count < count
                || new_zero_count < zero_count
                || side(
                    (&before.0.positive, positive),
                    (&new.0.positive, new_positive),
                )
                || side(
                    (&before.0.negative, negative),
                    (&new.0.negative, new_negative),
                )
        }
        (HistogramCounts::Integer { .. }, HistogramCounts::Float { .. })
        | (HistogramCounts::Float { .. }, HistogramCounts::Integer { .. }) => true,
    }
}

fn has_side_decreased<T: Copy + Default + PartialOrd + PartialEq>(
    before: impl Iterator<Item = (i64, T)>,
    new: impl Iterator<Item = (i64, T)>,
) -> bool {
    let mut new = new.peekable();
    for (index, count) in before {
        while new.next_if(|(i, _)| *i < index).is_some() {}
        let is_missing = |count: T| count != T::default();
        match new.next_if(|(i, _)| *i == index) {
            Some((_, new)) if count > new => return true,
            Some(_) => {}
            None if is_missing(count) => return true,
            None => {}
        }
    }
    false
}
