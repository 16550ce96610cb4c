//! Tests of the arithmetic against a simple model: a histogram is a map from bounds to counts, and
//! a sum adds two maps.

use super::*;
use crate::env::sim::SimRng;
use crate::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint};
use std::collections::BTreeMap;

/// Creates a histogram of the given schema with positive buckets from `offset` on.
fn exponential(schema: i32, offset: i32, counts: &[f64]) -> FloatHistogram {
    stored(schema, (offset, counts), (0, &[]), (0.0, 0.0), &[])
}

fn custom(bounds: &[f64], counts: &[f64]) -> FloatHistogram {
    let schema = CUSTOM_BUCKETS_SCHEMA;
    stored(schema, (0, counts), (0, &[]), (0.0, 0.0), bounds)
}

fn with_zero(
    (threshold, zero): (f64, f64),
    positive: (i32, &[f64]),
    negative: (i32, &[f64]),
) -> FloatHistogram {
    stored(0, positive, negative, (threshold, zero), &[])
}

fn stored(
    schema: i32,
    positive: (i32, &[f64]),
    negative: (i32, &[f64]),
    (zero_threshold, zero_count): (f64, f64),
    bounds: &[f64],
) -> FloatHistogram {
    let span = |(offset, counts): (i32, &[f64])| BucketSpan {
        offset,
        length: counts.len() as u32,
    };
    let count = zero_count + positive.1.iter().chain(negative.1).sum::<f64>();
    FloatHistogram::from(&Histogram {
        reset_hint: ResetHint::Unknown,
        schema,
        zero_threshold,
        sum: count * 2.0,
        counts: HistogramCounts::Float {
            count,
            zero_count,
            positive: positive.1.to_vec(),
            negative: negative.1.to_vec(),
        },
        positive_spans: vec![span(positive)],
        negative_spans: vec![span(negative)],
        custom_values: bounds.to_vec(),
    })
}

/// Returns the non-empty buckets with their bounds, the count and the sum of a histogram.
fn meaning(histogram: &FloatHistogram) -> (Vec<(f64, f64, f64)>, f64, f64) {
    let populated = histogram.buckets().filter(|bucket| bucket.count != 0.0);
    let buckets = populated.map(|b| (b.lower, b.upper, b.count));
    (buckets.collect(), histogram.count, histogram.sum)
}

/// Checks a sum in both orders, and that subtraction restores the first operand.
fn check_sum(a: &FloatHistogram, b: &FloatHistogram, want: &FloatHistogram) {
    for (a, b) in [(a, b), (b, a)] {
        let mut sum = a.clone();
        sum.add(b).unwrap();
        assert_eq!(meaning(&sum), meaning(want), "{a:?} + {b:?}");
        let mut compensated = HistogramAccumulator::new(HistogramAggregate::Sum, a.clone());
        compensated.add(b).unwrap();
        assert_eq!(
            meaning(&compensated.finish()),
            meaning(want),
            "{a:?} + {b:?}"
        );
        sum.subtract(b).unwrap();
        assert_eq!(
            (sum.count, sum.sum),
            (a.count, a.sum),
            "{a:?} + {b:?} - {b:?}"
        );
    }
}

#[test]
fn histograms_add_up_whatever_their_layouts() {
    let add = |a: &FloatHistogram, b: &FloatHistogram, want: FloatHistogram| check_sum(a, b, &want);
    let low = exponential(0, 0, &[1.0, 2.0]);
    add(&low, &low, exponential(0, 0, &[2.0, 4.0]));
    let high = exponential(0, 3, &[4.0]);
    add(&low, &high, exponential(0, 0, &[1.0, 2.0, 0.0, 4.0]));
    // Buckets 1 and 2 of the higher schema are bucket 1 of the lower one.
    let fine = exponential(1, 1, &[1.0, 2.0, 3.0]);
    add(&low, &fine, exponential(0, 0, &[1.0, 5.0, 3.0]));
    // A wider zero bucket includes the buckets that it covers, and grows to the end of one that it
    // overlaps.
    let narrow = with_zero((0.25, 1.0), (0, &[2.0, 3.0]), (0, &[4.0]));
    let wide = with_zero((1.0, 5.0), (1, &[1.0]), (0, &[]));
    add(
        &narrow,
        &wide,
        with_zero((1.0, 12.0), (1, &[4.0]), (0, &[])),
    );
    let cutting = with_zero((0.75, 5.0), (1, &[1.0]), (0, &[]));
    add(
        &narrow,
        &cutting,
        with_zero((1.0, 12.0), (1, &[4.0]), (0, &[])),
    );
    // Custom bounds are reduced to the common ones.
    let a = custom(&[1.0, 2.0, 4.0], &[1.0, 2.0, 3.0, 4.0]);
    let b = custom(&[1.0, 3.0, 4.0], &[1.0, 1.0, 1.0, 1.0]);
    add(&a, &b, custom(&[1.0, 4.0], &[2.0, 7.0, 5.0]));
    add(&a, &custom(&[9.0], &[1.0]), custom(&[], &[11.0]));
    assert_eq!(low.clone().add(&a), Err(IncompatibleBuckets));
}

/// Creates a random histogram with few buckets, some of them empty.
fn random(rng: &mut SimRng, schema: i32, offset_max: u64) -> FloatHistogram {
    let side = || {
        let counts: Vec<f64> = (0..rng.next_below(6))
            .map(|_| rng.next_below(4) as f64)
            .collect();
        (
            rng.next_below(offset_max) as i32 - offset_max as i32 / 2,
            counts,
        )
    };
    let ((offset, positive), (low_offset, negative)) = (side(), side());
    let zero = (0.0, rng.next_below(3) as f64);
    stored(
        schema,
        (offset, &positive),
        (low_offset, &negative),
        zero,
        &[],
    )
}

/// Returns counts by upper bound, in the resolution of `schema`.
fn by_bound(histogram: &FloatHistogram, schema: i32) -> BTreeMap<i64, f64> {
    let mut coarse = histogram.clone();
    coarse.coarsen_to(schema);
    let mut counts = BTreeMap::new();
    for bucket in coarse.buckets() {
        // The bounds of these schemas differ by more than a thousandth of a power of two.
        let place = bucket.upper.abs().log2().max(-1000.0) * 1000.0;
        let key = (place.round() as i64 + 2_000_000) * bucket.upper.signum() as i64;
        *counts.entry(key).or_insert(0.0) += bucket.count;
    }
    counts.retain(|_, count| *count != 0.0);
    counts
}

#[test]
fn random_sums_equal_those_of_maps_from_bounds_to_counts() {
    for seed in 0..500 {
        let rng = &mut SimRng::new(seed);
        let schemas = (rng.next_below(4) as i32 - 1, rng.next_below(4) as i32 - 1);
        let (a, b) = (random(rng, schemas.0, 12), random(rng, schemas.1, 12));
        let schema = schemas.0.min(schemas.1);
        let mut want = by_bound(&a, schema);
        for (bound, count) in by_bound(&b, schema) {
            *want.entry(bound).or_insert(0.0) += count;
        }
        let mut sum = a.clone();
        sum.add(&b).unwrap();
        assert_eq!(sum.schema, schema, "seed {seed}");
        assert_eq!(by_bound(&sum, schema), want, "seed {seed}: {a:?} + {b:?}");
        assert!(!sum.is_reset_after(&a), "seed {seed}: {sum:?} after {a:?}");
        let grown = sum.count > a.count || a.schema > schema;
        assert_eq!(
            a.is_reset_after(&sum),
            grown,
            "seed {seed}: {a:?} after {sum:?}"
        );
    }
}

#[test]
fn random_quantiles_rise_and_are_undone_by_fractions() {
    for seed in 0..500 {
        let rng = &mut SimRng::new(seed);
        let schema = rng.next_below(6) as i32 - 1;
        let histogram = random(rng, schema, 30);
        if histogram.count == 0.0 {
            continue;
        }
        let mut before = f64::NEG_INFINITY;
        for step in 0..=20 {
            let (value, remark) = histogram.quantile(f64::from(step) / 20.0);
            assert!(
                value >= before - 1e-12,
                "seed {seed}: {value} after {before}"
            );
            assert_eq!(remark, None);
            before = value;
            let (fraction, _) = histogram.fraction(f64::NEG_INFINITY, value);
            let (with_rest, _) = histogram.fraction(value, f64::INFINITY);
            let whole = fraction + with_rest;
            // The zero bucket has no width, so a range around it need not contain its observations.
            if histogram.zero_count == 0.0 {
                assert!(
                    (whole - 1.0).abs() < 1e-9,
                    "seed {seed}: {whole} at {value}"
                );
            }
        }
    }
}

#[test]
fn random_histograms_mean_the_same_when_compacted_or_stored() {
    for seed in 0..200 {
        let histogram = random(&mut SimRng::new(seed), 3, 40);
        let mut compacted = histogram.clone();
        compacted.compact();
        assert_eq!(meaning(&compacted), meaning(&histogram), "seed {seed}");
        assert!(compacted.is_equivalent(&histogram), "seed {seed}");
        let again = FloatHistogram::from(&Histogram::from(histogram.clone()));
        assert_eq!(again, histogram, "seed {seed}");
    }
}

fn check_reset(previous: &FloatHistogram, now: &FloatHistogram, want: bool) {
    assert_eq!(
        now.is_reset_after(previous),
        want,
        "{now:?} after {previous:?}"
    );
}

#[test]
fn resets_are_falls_of_counts_and_changes_of_layout_that_only_a_reset_makes() {
    let low = exponential(0, 0, &[1.0, 2.0]);
    check_reset(&low, &low, false);
    check_reset(&low, &exponential(0, 0, &[2.0, 2.0, 1.0]), false);
    check_reset(&low, &exponential(0, 0, &[2.0, 1.0]), true);
    check_reset(&low, &exponential(0, 1, &[3.0]), true);
    check_reset(&low, &exponential(1, 0, &[1.0, 2.0]), true);
    check_reset(
        &exponential(1, 1, &[1.0, 1.0]),
        &exponential(0, 1, &[2.0]),
        false,
    );
    check_reset(
        &exponential(1, 1, &[1.0, 2.0]),
        &exponential(0, 0, &[1.0, 2.0]),
        true,
    );
    // Buckets after an empty bucket that follows the last one are ignored.
    let gap = exponential(0, 0, &[2.0, 0.0, 3.0]);
    check_reset(&gap, &exponential(0, 0, &[5.0]), false);
    check_reset(&gap, &exponential(0, 0, &[5.0, 0.0]), true);
    let narrow = with_zero((0.25, 1.0), (0, &[2.0]), (0, &[]));
    check_reset(&narrow, &with_zero((1.0, 3.0), (0, &[]), (0, &[])), false);
    check_reset(&narrow, &with_zero((0.75, 3.0), (0, &[]), (0, &[])), true);
    check_reset(&with_zero((1.0, 3.0), (0, &[]), (0, &[])), &narrow, true);
    let bounds = custom(&[1.0, 2.0], &[1.0, 1.0, 1.0]);
    check_reset(&bounds, &custom(&[2.0], &[2.0, 1.0]), false);
    check_reset(&bounds, &custom(&[2.0], &[1.0, 2.0]), true);
    check_reset(&low, &custom(&[1.0], &[9.0]), true);
    check_reset(&custom(&[1.0], &[3.0]), &low, true);
    let hinted = |hint, histogram: &FloatHistogram| FloatHistogram {
        hint,
        ..histogram.clone()
    };
    check_reset(&low, &hinted(ResetHint::Reset, &low), true);
    let fallen = exponential(0, 0, &[0.0, 1.0]);
    check_reset(&low, &hinted(ResetHint::NotReset, &fallen), false);
}

#[test]
fn means_of_numbers_near_overflow_are_finite() {
    let huge = exponential(0, 0, &[f64::MAX / 2.0]);
    let mut mean = HistogramAccumulator::new(HistogramAggregate::Mean, huge.clone());
    let mut parts = (mean.clone(), None::<HistogramAccumulator>);
    for _ in 0..5 {
        mean.add(&huge).unwrap();
        match &mut parts.1 {
            Some(part) => part.add(&huge).map(|_| ()).unwrap(),
            none => {
                *none = Some(HistogramAccumulator::new(
                    HistogramAggregate::Mean,
                    huge.clone(),
                ))
            }
        }
    }
    parts.0.merge(parts.1.unwrap()).unwrap();
    for mean in [mean.finish(), parts.0.finish()] {
        let relative = mean.count / (f64::MAX / 2.0);
        assert!((relative - 1.0).abs() < 1e-12, "{relative}");
    }
}

#[test]
fn sums_of_parts_are_compensated_like_sums_of_all() {
    let one = |count: f64| exponential(0, 0, &[count]);
    let counts = [1e100, 1.0, -1e100, 3.0];
    for split in 1..counts.len() {
        let accumulate = |counts: &[f64]| {
            let mut sum = HistogramAccumulator::new(HistogramAggregate::Sum, one(counts[0]));
            for count in &counts[1..] {
                sum.add(&one(*count)).unwrap();
            }
            sum
        };
        let mut sum = accumulate(&counts[..split]);
        sum.merge(accumulate(&counts[split..])).unwrap();
        let sum = sum.finish();
        assert_eq!((sum.count, sum.positive.counts()), (4.0, &[4.0][..]));
    }
}

/// Checks the result of a trim. `totals` are count and sum, and `want` contains the lower bound,
/// upper bound and count of each non-empty bucket.
fn check_trim(
    histogram: &FloatHistogram,
    (trim, at): (TrimOperator, f64),
    totals: (f64, f64),
    want: &[(f64, f64, f64)],
) {
    let mut trimmed = histogram.clone();
    trimmed.trim(at, trim);
    assert_eq!(
        (trimmed.count, trimmed.sum),
        totals,
        "{histogram:?} {trim:?} {at}"
    );
    let buckets = trimmed.buckets().filter(|bucket| bucket.count != 0.0);
    let buckets: Vec<_> = buckets.map(|b| (b.lower, b.upper, b.count)).collect();
    assert_eq!(buckets, want, "{histogram:?} {trim:?} {at}");
}

#[test]
fn trims_keep_what_lies_on_one_side() {
    use TrimOperator::{KeepAbove, KeepBelow};
    const INF: f64 = f64::INFINITY;
    let histogram = custom(&[2.0, 4.0], &[2.0, 4.0, 6.0]);
    let whole = [(-INF, 2.0, 2.0), (2.0, 4.0, 4.0), (4.0, INF, 6.0)];
    check_trim(&histogram, (KeepBelow, INF), (12.0, 24.0), &whole);
    check_trim(&histogram, (KeepAbove, -INF), (12.0, 24.0), &whole);
    let below = [(-INF, 2.0, 2.0), (2.0, 4.0, 2.0)];
    check_trim(&histogram, (KeepBelow, 3.0), (4.0, 7.0), &below);
    let above = [(2.0, 4.0, 2.0), (4.0, INF, 6.0)];
    check_trim(&histogram, (KeepAbove, 3.0), (8.0, 31.0), &above);
    check_trim(
        &histogram,
        (KeepBelow, 1.0),
        (1.0, 0.5),
        &[(-INF, 2.0, 1.0)],
    );
    check_trim(&histogram, (KeepBelow, f64::NAN), (0.0, 0.0), &[]);
    let signs = with_zero((0.5, 4.0), (1, &[2.0]), (1, &[2.0]));
    let above = [(-0.5, 0.5, 2.0), (1.0, 2.0, 2.0)];
    check_trim(
        &signs,
        (KeepAbove, 0.0),
        (4.0, 3.328_427_124_746_190_3),
        &above,
    );
}
