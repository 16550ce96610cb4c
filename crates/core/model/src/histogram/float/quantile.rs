//! Quantiles, and fractions of observations between two values (`promql/quantile.go` of
//! Prometheus).
//!
//! Observations are assumed to be distributed evenly within a custom bucket and within the zero
//! bucket, and evenly on a logarithmic scale within an exponential bucket. Observations of NaN are
//! counted but are in no bucket; they are considered larger than all others.

use super::buckets::HistogramBucket;
use super::form::FloatHistogram;
use crate::log_exp::{exp2, log2};

/// The effect of NaN observations on a result, which an annotation reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NanEffect {
    /// The quantile is one of the NaN observations, so the result is NaN.
    ResultIsNan,
    /// The NaN observations increase the quantile, because they count as the largest.
    SkewedHigher,
    /// The NaN observations are not part of any fraction.
    Excluded,
}

impl FloatHistogram {
    /// Returns the value below which the fraction `quantile` of the observations is, and the effect
    /// of NaN observations, if there are any.
    pub fn quantile(&self, quantile: f64) -> (f64, Option<NanEffect>) {
        if quantile < 0.0 {
            return (f64::NEG_INFINITY, None);
        }
        if quantile > 1.0 {
            return (f64::INFINITY, None);
        }
        if self.count == 0.0 || quantile.is_nan() {
            return (f64::NAN, None);
        }
        let may_hold_nan = self.sum.is_nan();
        if may_hold_nan || quantile < 0.5 {
            let rank = quantile * self.count;
            let mut buckets = self.buckets();
            let reached = RankBucket::find(&mut buckets, rank);
            self.quantile_in_bucket(reached, rank, true, &mut buckets)
        } else {
            let rank = (1.0 - quantile) * self.count;
            let mut buckets = self.buckets().rev();
            let reached = RankBucket::find(&mut buckets, rank);
            self.quantile_in_bucket(reached, rank, false, &mut buckets)
        }
    }

    /// Returns the quantile within the reached bucket. The search was upwards or downwards, and
    /// `rest` contains the remaining buckets.
    fn quantile_in_bucket(
        &self,
        reached: RankBucket,
        rank: f64,
        upwards: bool,
        rest: &mut dyn Iterator<Item = HistogramBucket>,
    ) -> (f64, Option<NanEffect>) {
        let RankBucket { mut bucket, count } = reached;
        if !self.is_custom() && bucket.lower < 0.0 && bucket.upper > 0.0 {
            bucket = self.one_sided(bucket);
        } else if self.is_custom() && bucket.lower == f64::NEG_INFINITY {
            if bucket.upper <= 0.0 {
                return (bucket.upper, None);
            }
            bucket.lower = 0.0;
        } else if self.is_custom() && bucket.upper == f64::INFINITY {
            return (bucket.lower, None);
        }
        // Because of rounding, the sum of the buckets may exceed the total count.
        let mut count = if count > self.count {
            self.count
        } else {
            count
        };
        if count < rank {
            return if self.sum.is_nan() {
                (f64::NAN, Some(NanEffect::ResultIsNan))
            } else {
                (bucket.upper, None)
            };
        }
        let rank = if upwards {
            rank - (count - bucket.count)
        } else {
            count - rank
        };
        let mut remark = None;
        if self.sum.is_nan() {
            // From here on, Prometheus continues with the last bucket, and so does this function.
            for later in rest {
                bucket = later;
                count += later.count;
            }
            remark = (count < self.count).then_some(NanEffect::SkewedHigher);
        }
        (self.interpolate(bucket, rank / bucket.count), remark)
    }

    /// Returns the value at a fraction of a bucket's observations.
    fn interpolate(&self, bucket: HistogramBucket, fraction: f64) -> f64 {
        let HistogramBucket { lower, upper, .. } = bucket;
        if self.is_custom() || (lower <= 0.0 && upper >= 0.0) {
            return lower + (upper - lower) * fraction;
        }
        let (log_lower, log_upper) = (log2(lower.abs()), log2(upper.abs()));
        if lower > 0.0 {
            return exp2(log_lower + (log_upper - log_lower) * fraction);
        }
        -exp2(log_upper + (log_lower - log_upper) * (1.0 - fraction))
    }

    /// Returns the fraction of observations between two values, and the effect of NaN observations,
    /// if there are any.
    pub fn fraction(&self, lower: f64, upper: f64) -> (f64, Option<NanEffect>) {
        if self.count == 0.0 || lower.is_nan() || upper.is_nan() {
            return (f64::NAN, None);
        }
        if lower >= upper {
            return (0.0, None);
        }
        let (mut lower_rank, mut upper_rank) = (None, None);
        let (mut seen, mut rank) = (0.0, 0.0);
        let mut buckets = self.buckets();
        for bucket in buckets.by_ref() {
            seen += bucket.count;
            let around_zero = bucket.lower <= 0.0 && bucket.upper >= 0.0;
            let bucket = if around_zero {
                self.one_sided(bucket)
            } else {
                bucket
            };
            let linear = self.is_custom() || around_zero;
            lower_rank = lower_rank.or_else(|| rank_of_value(&bucket, lower, rank, linear));
            upper_rank = upper_rank.or_else(|| rank_of_value(&bucket, upper, rank, linear));
            if lower_rank.is_some() && upper_rank.is_some() {
                break;
            }
            rank += bucket.count;
        }
        let (mut count, mut remark) = (self.count, None);
        if self.sum.is_nan() {
            count = buckets.fold(seen, |seen, bucket| seen + bucket.count);
            remark = (count < self.count).then_some(NanEffect::Excluded);
        }
        let capped = |rank: Option<f64>| match rank {
            Some(rank) if rank > count => count,
            Some(rank) => rank,
            None => count,
        };
        let between = capped(upper_rank) - capped(lower_rank);
        (between / self.count, remark)
    }
}

/// The bucket that contains a rank, or else the last one, and the number of observations up to its
/// end.
struct RankBucket {
    bucket: HistogramBucket,
    count: f64,
}

impl RankBucket {
    fn find(buckets: &mut impl Iterator<Item = HistogramBucket>, rank: f64) -> Self {
        let mut reached = RankBucket {
            bucket: HistogramBucket::default(),
            count: 0.0,
        };
        for bucket in buckets {
            reached.bucket = bucket;
            if bucket.count == 0.0 {
                continue;
            }
            reached.count += bucket.count;
            if reached.count >= rank {
                break;
            }
        }
        reached
    }
}

/// Returns the number of observations up to `value`, or `None` if it is after the bucket. `rank` is
/// the number of observations before the bucket.
fn rank_of_value(bucket: &HistogramBucket, value: f64, rank: f64, linear: bool) -> Option<f64> {
    if bucket.lower >= value {
        return Some(rank);
    }
    if bucket.upper > value {
        // The position in a bucket without a lower bound cannot be determined.
        if linear && bucket.lower == f64::NEG_INFINITY {
            return Some(bucket.count);
        }
        return Some(rank + bucket.count * bucket.fraction_below(value, linear));
    }
    None
}
