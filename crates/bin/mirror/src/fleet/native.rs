//! Native histograms of a pod's request durations, derived from its classic histograms.
//!
//! The observations of a classic bucket are assigned to the native bucket that contains its middle.
//! Count and sum therefore equal those of the classic histogram, and quantiles are close to it.
//!
//! Invariant: the counts of a bucket never decrease from scrape to scrape during the life of a pod.

use super::traffic::BOUNDS;
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};

/// Schema with eight buckets per power of two, the usual default of instrumentation libraries.
const SCHEMA: i32 = 3;

/// Index of the native bucket for each classic one: that of the geometric mean of its bounds in
/// seconds. The first classic bucket uses half its bound, and the last one uses 120 seconds.
const INDICES: [i32; BOUNDS.len()] = [-69, -57, -47, -38, -30, -21, -11, -3, 6, 15, 23, 33, 44, 56];

/// Converts a classic histogram, given as its cumulative buckets followed by sum and count.
pub(super) fn from_classic(classic: &[f64]) -> Histogram {
    let (buckets, totals) = classic.split_at(BOUNDS.len());
    let mut below = 0;
    let counts = buckets.iter().map(|cumulative| {
        let count = *cumulative as i64 - below;
        below = *cumulative as i64;
        count
    });
    let mut before = 0;
    let deltas = counts.map(|count| {
        let delta = count - before;
        before = count;
        delta
    });
    Histogram {
        reset_hint: ResetHint::Unknown,
        schema: SCHEMA,
        zero_threshold: 2.0_f64.powi(-128),
        sum: totals[0],
        counts: HistogramCounts::Integer {
            count: totals[1] as u64,
            zero_count: 0,
            positive: deltas.collect(),
            negative: Vec::new(),
        },
        positive_spans: spans(),
        negative_spans: Vec::new(),
        custom_values: Vec::new(),
    }
}

/// Returns one span per bucket, because no two of [`INDICES`] are adjacent.
fn spans() -> Vec<BucketSpan> {
    let mut next = 0;
    let span = INDICES.iter().map(|index| {
        let offset = index - next;
        next = index + 1;
        BucketSpan { offset, length: 1 }
    });
    span.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::histogram::bounds::upper_bound;

    #[test]
    fn native_bucket_holds_the_middle_of_its_classic_one() {
        let bounds: Vec<f64> = BOUNDS.iter().map(|b| b.parse().unwrap_or(480.0)).collect();
        for (place, index) in INDICES.iter().enumerate() {
            let low = if place == 0 {
                bounds[0] / 4.0
            } else {
                bounds[place - 1]
            };
            let middle = if place + 1 == BOUNDS.len() {
                120.0
            } else {
                (low * bounds[place]).sqrt()
            };
            let bound = |index: i32| upper_bound(i64::from(index), SCHEMA, &[]);
            assert!(
                bound(index - 1) < middle && middle <= bound(*index),
                "{place}"
            );
        }
        assert!(INDICES.windows(2).all(|pair| pair[0] + 1 < pair[1]));
    }

    #[test]
    fn native_histogram_counts_what_the_classic_one_counts() {
        let mut classic: Vec<f64> = (1..=BOUNDS.len()).map(|i| (i * i) as f64).collect();
        let count = classic[BOUNDS.len() - 1];
        classic.extend([12.5, count]);
        let native = from_classic(&classic);
        assert_eq!(native.sum, 12.5);
        let HistogramCounts::Integer {
            count: all,
            positive,
            ..
        } = &native.counts
        else {
            panic!("integers")
        };
        let mut total = 0;
        let absolute: Vec<i64> = positive
            .iter()
            .scan(0, |at, delta| {
                *at += delta;
                Some(*at)
            })
            .inspect(|count| total += count)
            .collect();
        assert_eq!(absolute[..3], [1, 3, 5]);
        assert_eq!((total as f64, *all as f64), (count, count));
        assert_eq!(native.positive_spans[0].offset, INDICES[0]);
    }
}
