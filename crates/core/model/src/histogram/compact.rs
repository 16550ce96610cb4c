//! Removal of empty buckets.

use super::{BucketSpan, Histogram, HistogramCounts, bucket_indexes};

impl Histogram {
    /// Removes runs of more than `empty_max` empty buckets, and all empty buckets at both ends.
    /// Shorter runs are stored explicitly. Spans that are invalid or out of order remain unchanged,
    /// so that [`Histogram::validate`] can reject them. O(buckets); allocates.
    pub fn compact(&mut self, empty_max: u32) {
        let sides = (&mut self.positive_spans, &mut self.negative_spans);
        match &mut self.counts {
            HistogramCounts::Integer {
                positive, negative, ..
            } => {
                compact_deltas(sides.0, positive, empty_max);
                compact_deltas(sides.1, negative, empty_max);
            }
            HistogramCounts::Float {
                positive, negative, ..
            } => {
                compact_counts(sides.0, positive, empty_max);
                compact_counts(sides.1, negative, empty_max);
            }
        }
    }
}

fn compact_deltas(spans: &mut Vec<BucketSpan>, deltas: &mut Vec<i64>, empty_max: u32) {
    let mut count = 0i64;
    for delta in deltas.iter_mut() {
        count = count.wrapping_add(*delta);
        *delta = count;
    }
    compact_counts(spans, deltas, empty_max);
    let mut before = 0i64;
    for count in deltas {
        (*count, before) = (count.wrapping_sub(before), *count);
    }
}

fn compact_counts<T: Copy + Default + PartialEq>(
    spans: &mut Vec<BucketSpan>,
    counts: &mut Vec<T>,
    empty_max: u32,
) {
    let Some(indexes) = indexes(spans, counts.len()) else {
        return;
    };
    let empty = T::default();
    let (mut new_spans, mut new_counts) =
        (Vec::<BucketSpan>::new(), Vec::with_capacity(counts.len()));
    // The index after the last bucket that was kept.
    let mut end = 0i64;
    for (index, count) in indexes
        .zip(counts.iter())
        .filter(|(_, count)| **count != empty)
    {
        let gap = index - end;
        match new_spans.last_mut() {
            Some(span) if gap <= i64::from(empty_max) => {
                span.length += gap as u32 + 1;
                new_counts.extend((0..gap).map(|_| empty));
            }
            _ => match i32::try_from(gap) {
                Ok(offset) => new_spans.push(BucketSpan { offset, length: 1 }),
                Err(_) => return,
            },
        }
        new_counts.push(*count);
        end = index + 1;
    }
    (*spans, *counts) = (new_spans, new_counts);
}

/// Returns the index of each bucket, or `None` if the spans are out of order or their length
/// differs from the number of buckets.
fn indexes(spans: &[BucketSpan], buckets: usize) -> Option<impl Iterator<Item = i64> + use<'_>> {
    let covered: u64 = spans.iter().map(|span| u64::from(span.length)).sum();
    if covered != buckets as u64 || spans.iter().skip(1).any(|span| span.offset < 0) {
        return None;
    }
    Some(bucket_indexes(spans))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Layout<'a, T> = (&'a [(i32, u32)], &'a [T]);

    fn spans(layout: &[(i32, u32)]) -> Vec<BucketSpan> {
        let span = |(offset, length): &(i32, u32)| BucketSpan {
            offset: *offset,
            length: *length,
        };
        layout.iter().map(span).collect()
    }

    fn check(layout: Layout<'_, i64>, empty_max: u32, wanted: Layout<'_, i64>) {
        let (mut found_spans, mut counts) = (spans(layout.0), layout.1.to_vec());
        compact_counts(&mut found_spans, &mut counts, empty_max);
        assert_eq!(
            (found_spans, &*counts),
            (spans(wanted.0), wanted.1),
            "{layout:?}"
        );
        let deltas = |counts: &[i64]| -> Vec<i64> {
            let before = [0].iter().chain(counts);
            counts
                .iter()
                .zip(before)
                .map(|(count, before)| count - before)
                .collect()
        };
        let (mut found_spans, mut found) = (spans(layout.0), deltas(layout.1));
        compact_deltas(&mut found_spans, &mut found, empty_max);
        assert_eq!(
            (found_spans, found),
            (spans(wanted.0), deltas(wanted.1)),
            "{layout:?}"
        );
    }

    #[test]
    fn histogram_compact_leaves_out_what_is_empty() {
        check((&[], &[]), 0, (&[], &[]));
        check(
            (&[(-2, 1), (1, 2)], &[1, 2, 3]),
            0,
            (&[(-2, 1), (1, 2)], &[1, 2, 3]),
        );
        check((&[(0, 4)], &[0, 1, 0, 2]), 0, (&[(1, 1), (1, 1)], &[1, 2]));
        check((&[(0, 4)], &[0, 1, 0, 2]), 1, (&[(1, 3)], &[1, 0, 2]));
        check(
            (&[(0, 6)], &[1, 0, 0, 0, 2, 0]),
            2,
            (&[(0, 1), (3, 1)], &[1, 2]),
        );
        check(
            (&[(0, 1), (0, 1), (2, 1)], &[1, 2, 3]),
            0,
            (&[(0, 2), (2, 1)], &[1, 2, 3]),
        );
        check((&[(0, 1), (2, 1)], &[1, 3]), 2, (&[(0, 4)], &[1, 0, 0, 3]));
        check(
            (&[(0, 2), (3, 0), (1, 1)], &[0, 0, 5]),
            0,
            (&[(6, 1)], &[5]),
        );
        check((&[(5, 2)], &[0, 0]), 0, (&[], &[]));
        check((&[(0, 0)], &[]), 0, (&[], &[]));
        // Invalid spans remain unchanged.
        check((&[(0, 2)], &[0]), 0, (&[(0, 2)], &[0]));
        check(
            (&[(0, 1), (-1, 1)], &[0, 1]),
            0,
            (&[(0, 1), (-1, 1)], &[0, 1]),
        );
    }
}
