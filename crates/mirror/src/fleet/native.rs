//! Native histograms of a pod's durations, made of its classic ones.
//!
//! What a classic bucket counted lies in the native bucket that holds its middle, so count and sum
//! are those of the classic histogram, and quantiles are near to its.
//!
//! Invariant: counts of a bucket do not decrease from scrape to scrape while the pod lives.

use super::traffic::BOUNDS;
use firn_model::histogram::{Counts, Histogram, ResetHint, Span};

/// Eight buckets between two powers of two, as instrumented programs have them by default.
const SCHEMA: i32 = 3;

/// The native bucket of each classic one: that of the geometric middle of its bounds, in seconds;
/// of the first one that of half its bound, of the last one that of 120.
const INDICES: [i32; BOUNDS.len()] = [-69, -57, -47, -38, -30, -21, -11, -3, 6, 15, 23, 33, 44, 56];

/// The native form of the classic histogram with these cumulative buckets, sum and count.
pub(super) fn of(classic: &[f64]) -> Histogram {
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
        counts: Counts::Integer {
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

/// One bucket a span: no two of [`INDICES`] are neighbours.
fn spans() -> Vec<Span> {
    let mut next = 0;
    let span = INDICES.iter().map(|index| {
        let offset = index - next;
        next = index + 1;
        Span { offset, length: 1 }
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
            let middle = match place + 1 == BOUNDS.len() {
                true => 120.0,
                false => (low * bounds[place]).sqrt(),
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
        let native = of(&classic);
        assert_eq!(native.sum, 12.5);
        let Counts::Integer {
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
