//! Quantiles and fractions of one classic histogram: cumulative counts with ascending bounds.
//!
//! Observations are assumed to be distributed evenly within a bucket.

use crate::eval::annotations::BucketRepairs;

/// Relative difference up to which a decrease of counts is considered a rounding error.
const SMALL_DIFFERENCE: f64 = 1e-12;

/// A bucket: the number of observations up to a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ClassicBucket {
    /// The upper bound of the bucket, inclusive.
    pub(super) bound: f64,
    /// Number of observations up to the bound, including those of lower buckets.
    pub(super) count: f64,
}

/// Returns a quantile of a histogram with at least one bucket. Buckets must be sorted by bounds.
/// Also returns the corrections that were necessary because counts decreased.
pub(super) fn quantile(
    quantile: f64,
    buckets: &mut Vec<ClassicBucket>,
) -> (f64, Option<BucketRepairs>) {
    if quantile.is_nan() {
        return (f64::NAN, None);
    }
    if quantile < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if quantile > 1.0 {
        return (f64::INFINITY, None);
    }
    if !is_complete(buckets) {
        return (f64::NAN, None);
    }
    join_equal_bounds(buckets);
    let repairs = ensure_monotonic(buckets);
    (quantile_of_monotonic(quantile, buckets), repairs)
}

fn quantile_of_monotonic(quantile: f64, buckets: &[ClassicBucket]) -> f64 {
    let [below @ .., last] = buckets else {
        return f64::NAN;
    };
    let Some(highest) = below.last() else {
        return f64::NAN;
    };
    if last.count == 0.0 {
        return f64::NAN;
    }
    let rank = quantile * last.count;
    let at = below.partition_point(|b| b.count < rank || b.count.is_nan());
    let Some(bucket) = below.get(at) else {
        return highest.bound;
    };
    if at == 0 {
        if bucket.bound <= 0.0 {
            return bucket.bound;
        }
        return 0.0 + (bucket.bound - 0.0) * (rank / bucket.count);
    }
    let before = below[at - 1];
    let width = bucket.bound - before.bound;
    before.bound + width * ((rank - before.count) / (bucket.count - before.count))
}

/// Returns the estimated fraction of observations between two values, NaN if the buckets are
/// incomplete.
pub(super) fn fraction(lower: f64, upper: f64, buckets: &mut Vec<ClassicBucket>) -> f64 {
    if !is_complete(buckets) {
        return f64::NAN;
    }
    join_equal_bounds(buckets);
    let total = buckets.last().map_or(0.0, |b| b.count);
    if total == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    (estimate_rank(upper, buckets, total) - estimate_rank(lower, buckets, total)) / total
}

/// Returns the estimated number of observations up to `value`.
fn estimate_rank(value: f64, buckets: &[ClassicBucket], total: f64) -> f64 {
    let mut rank = 0.0;
    let mut start = match buckets.first() {
        Some(first) if first.bound > 0.0 => 0.0,
        _ => f64::NEG_INFINITY,
    };
    for bucket in buckets {
        let inside = start < value && bucket.bound > value;
        let found = if start >= value {
            Some(rank)
        } else if inside && start == f64::NEG_INFINITY {
            Some(bucket.count)
        } else if inside {
            let share = (bucket.count - rank) * (value - start) / (bucket.bound - start);
            Some(rank + share)
        } else {
            None
        };
        if let Some(found) = found {
            return if found > total { total } else { found };
        }
        rank = bucket.count;
        start = bucket.bound;
    }
    total
}

/// Returns whether there is a bucket with the bound `+Inf`.
fn is_complete(buckets: &[ClassicBucket]) -> bool {
    buckets.last().is_some_and(|b| b.bound == f64::INFINITY)
}

/// Merges buckets with equal bounds by adding their counts.
fn join_equal_bounds(buckets: &mut Vec<ClassicBucket>) {
    buckets.dedup_by(|next, kept| {
        let equal = next.bound == kept.bound;
        if equal {
            kept.count += next.count;
        }
        equal
    });
}

/// Corrects counts that decrease. Small differences are corrected silently, larger ones are
/// returned.
fn ensure_monotonic(buckets: &mut [ClassicBucket]) -> Option<BucketRepairs> {
    let mut repairs: Option<BucketRepairs> = None;
    let mut before = buckets.first()?.count;
    for bucket in &mut buckets[1..] {
        if bucket.count == before {
            continue;
        }
        if almost_equal(before, bucket.count) {
            bucket.count = before;
            continue;
        }
        if bucket.count < before {
            let known = repairs.get_or_insert(BucketRepairs {
                times: (0, 0),
                bounds: (f64::INFINITY, f64::NEG_INFINITY),
                difference_max: 0.0,
                count: 1,
            });
            known.bounds.0 = known.bounds.0.min(bucket.bound);
            known.bounds.1 = known.bounds.1.max(bucket.bound);
            known.difference_max = known.difference_max.max(before - bucket.count);
            bucket.count = before;
            continue;
        }
        before = bucket.count;
    }
    repairs
}

fn almost_equal(a: f64, b: f64) -> bool {
    if a.is_nan() && b.is_nan() {
        return true;
    }
    let sum = a.abs() + b.abs();
    let difference = (a - b).abs();
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < SMALL_DIFFERENCE * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < SMALL_DIFFERENCE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(of: &[(f64, f64)]) -> Vec<ClassicBucket> {
        let bucket = |(bound, count): &(f64, f64)| ClassicBucket {
            bound: *bound,
            count: *count,
        };
        of.iter().map(bucket).collect()
    }

    fn check(q: f64, of: &[(f64, f64)], want: f64) {
        let got = quantile(q, &mut buckets(of)).0;
        assert!(
            got == want || (got.is_nan() && want.is_nan()),
            "{q} {of:?}: {got}"
        );
    }

    #[test]
    fn quantile_of_buckets_interpolates() {
        const INF: f64 = f64::INFINITY;
        let plain = [(1.0, 2.0), (2.0, 6.0), (INF, 8.0)];
        check(0.5, &plain, 1.5);
        check(0.125, &plain, 0.5);
        check(0.99, &plain, 2.0);
        check(-1.0, &plain, f64::NEG_INFINITY);
        check(1.5, &plain, INF);
        check(0.5, &plain[..2], f64::NAN);
        check(0.5, &[(INF, 8.0)], f64::NAN);
        check(0.5, &[(1.0, 0.0), (INF, 0.0)], f64::NAN);
        check(0.1, &[(-1.0, 4.0), (INF, 8.0)], -1.0);
        check(0.5, &[(1.0, 1.0), (1.0, 3.0), (INF, 8.0)], 1.0);
    }

    #[test]
    fn quantile_of_falling_counts_reports_the_repair() {
        let mut falling = buckets(&[(1.0, 5.0), (2.0, 3.0), (3.0, 4.0), (f64::INFINITY, 8.0)]);
        let repairs = quantile(0.5, &mut falling).1.unwrap();
        assert_eq!(repairs.bounds, (2.0, 3.0));
        assert_eq!(repairs.difference_max, 2.0);
        let mut rounded = buckets(&[(1.0, 1.0), (2.0, 1.0 - 1e-15), (f64::INFINITY, 2.0)]);
        assert_eq!(quantile(0.5, &mut rounded).1, None);
    }

    #[test]
    fn fraction_of_buckets_interpolates() {
        let plain = [(1.0, 2.0), (2.0, 6.0), (f64::INFINITY, 8.0)];
        for (lower, upper, want) in [
            (0.0, 1.0, 0.25),
            (1.0, 1.5, 0.25),
            (f64::NEG_INFINITY, f64::INFINITY, 1.0),
            (2.0, 1.0, 0.0),
        ] {
            assert_eq!(fraction(lower, upper, &mut buckets(&plain)), want);
        }
    }
}
