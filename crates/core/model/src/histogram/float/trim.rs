//! The trim operators, which remove the observations above or below a value.
//!
//! A bucket that contains the value keeps a part of its observations. Count and sum are estimated
//! from the remaining buckets, but only if any bucket lost observations.

use super::buckets::HistogramBucket;
use super::form::FloatHistogram;

/// The observations that a trim operator keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimOperator {
    /// The operator `</`, which keeps the observations below the value.
    KeepBelow,
    /// The operator `>/`, which keeps the observations above the value.
    KeepAbove,
}

/// The remaining part of a bucket, and the assumed value of its observations.
#[derive(Clone, Copy, Debug)]
struct TrimmedBucket {
    count: f64,
    middle: f64,
    /// True if the whole bucket remains, so that nothing is estimated.
    whole: bool,
}

impl TrimmedBucket {
    /// Returns the remaining part of a bucket that was cut.
    fn partial(count: f64, middle: f64) -> Self {
        Self {
            count,
            middle,
            whole: false,
        }
    }
}

/// The sums over the remaining parts of all buckets.
#[derive(Clone, Copy, Debug, Default)]
struct TrimmedTotals {
    count: f64,
    sum: f64,
    changed: bool,
}

impl TrimmedTotals {
    fn add(&mut self, before: f64, kept: TrimmedBucket) -> f64 {
        self.count += kept.count;
        self.sum += kept.middle * kept.count;
        self.changed |= !kept.whole && kept.count != before;
        kept.count
    }
}

impl FloatHistogram {
    /// Removes the observations above or below `at`, and estimates count and sum again if
    /// necessary.
    pub fn trim(&mut self, at: f64, trim: TrimOperator) {
        let mut rest = TrimmedTotals::default();
        let custom = self.is_custom();
        let shape = |positive| BucketDistribution {
            positive,
            linear: custom,
        };
        let positive: Vec<HistogramBucket> = self.positive_buckets().collect();
        let negative: Vec<HistogramBucket> = self.negative_buckets().collect();
        let sides = [
            (self.positive.counts_mut(), &positive, shape(true)),
            (self.negative.counts_mut(), &negative, shape(false)),
        ];
        for (counts, buckets, shape) in sides {
            for (count, bucket) in counts.iter_mut().zip(buckets) {
                if bucket.count != 0.0 {
                    let before = *count;
                    *count = match trim.trim_bucket(bucket, at, shape) {
                        Some(kept) => rest.add(before, kept),
                        None => {
                            rest.changed = true;
                            0.0
                        }
                    };
                }
            }
        }
        if self.zero_count > 0.0 {
            let populated =
                |side: &[HistogramBucket]| side.iter().any(|bucket| bucket.count != 0.0);
            let mut zero = self.zero_bucket();
            match (populated(&negative), populated(&positive)) {
                (true, false) => zero.upper = 0.0,
                (false, true) => zero.lower = 0.0,
                _ => {}
            }
            self.zero_count = rest.add(self.zero_count, trim.trim_zero_bucket(&zero, at));
        }
        if rest.changed {
            self.count = rest.count;
            self.sum = rest.sum;
            self.compact();
        }
    }
}

/// The assumed distribution of observations within a bucket, by kind of bucket.
#[derive(Clone, Copy, Debug)]
struct BucketDistribution {
    positive: bool,
    linear: bool,
}

impl BucketDistribution {
    /// Returns the assumed value of the observations between two bounds.
    fn middle(self, lower: f64, upper: f64) -> f64 {
        match (lower.is_infinite(), upper.is_infinite()) {
            (true, true) => 0.0,
            (true, false) if upper > 0.0 => upper / 2.0,
            (true, false) => upper,
            (false, true) => lower,
            (false, false) if self.linear => (lower + upper) / 2.0,
            (false, false) => {
                let middle = (lower * upper).abs().sqrt();
                if self.positive { middle } else { -middle }
            }
        }
    }
}

impl TrimOperator {
    /// Returns the remaining part of a bucket, or `None` if all of it is removed.
    fn trim_bucket(
        self,
        bucket: &HistogramBucket,
        at: f64,
        shape: BucketDistribution,
    ) -> Option<TrimmedBucket> {
        let (inside, divided) = match self {
            TrimOperator::KeepBelow => (bucket.upper <= at, bucket.lower < at),
            TrimOperator::KeepAbove => (bucket.lower >= at, bucket.upper > at),
        };
        if inside {
            return Some(TrimmedBucket {
                count: bucket.count,
                middle: shape.middle(bucket.lower, bucket.upper),
                whole: true,
            });
        }
        if !divided {
            return None;
        }
        if bucket.lower == f64::NEG_INFINITY || bucket.upper == f64::INFINITY {
            return Some(self.trim_unbounded_bucket(bucket, at));
        }
        let below = match at {
            at if at <= bucket.lower => 0.0,
            at if at >= bucket.upper => bucket.count,
            at => bucket.count * bucket.fraction_below(at, shape.linear),
        };
        Some(match self {
            TrimOperator::KeepBelow => {
                TrimmedBucket::partial(below, shape.middle(bucket.lower, at))
            }
            TrimOperator::KeepAbove => {
                TrimmedBucket::partial(bucket.count - below, shape.middle(at, bucket.upper))
            }
        })
    }

    /// Returns the remaining part of the zero bucket, whose observations are assumed to be
    /// distributed evenly.
    fn trim_zero_bucket(self, zero: &HistogramBucket, at: f64) -> TrimmedBucket {
        let HistogramBucket {
            lower,
            upper,
            count,
        } = *zero;
        let (whole, nothing) = (
            TrimmedBucket::partial(count, (lower + upper) / 2.0),
            TrimmedBucket::partial(0.0, 0.0),
        );
        let part = |width: f64, middle: f64| {
            TrimmedBucket::partial(count * (width / (upper - lower)), middle)
        };
        match self {
            TrimOperator::KeepBelow if at <= lower => nothing,
            TrimOperator::KeepBelow if at >= upper => whole,
            TrimOperator::KeepBelow => part(at - lower, (lower + at) / 2.0),
            TrimOperator::KeepAbove if at <= lower => whole,
            TrimOperator::KeepAbove if at >= upper => nothing,
            TrimOperator::KeepAbove => part(upper - at, (at + upper) / 2.0),
        }
    }

    /// Returns the remaining part of a bucket without a lower or an upper bound. The distribution
    /// within it is unknown. However, a bucket without a lower bound and with a positive upper
    /// bound is assumed to start at zero.
    fn trim_unbounded_bucket(self, bucket: &HistogramBucket, at: f64) -> TrimmedBucket {
        let HistogramBucket {
            lower,
            upper,
            count,
        } = *bucket;
        let finite = |bound: f64| if bound.is_infinite() { 0.0 } else { bound };
        let from_zero = upper > 0.0 && upper != f64::INFINITY;
        match self {
            TrimOperator::KeepBelow if lower == f64::NEG_INFINITY => match at {
                at if at >= upper => TrimmedBucket::partial(count, 0.0),
                at if at > 0.0 && from_zero => TrimmedBucket::partial(count * at / upper, at / 2.0),
                at if upper <= 0.0 => TrimmedBucket::partial(count, at),
                _ => TrimmedBucket::partial(0.0, finite(upper)),
            },
            TrimOperator::KeepAbove if lower == f64::NEG_INFINITY => match at {
                at if at <= lower => TrimmedBucket::partial(count, 0.0),
                at if at >= 0.0 && upper > at && upper != f64::INFINITY => {
                    TrimmedBucket::partial(count * (1.0 - at / upper), (at + upper) / 2.0)
                }
                _ => TrimmedBucket::partial(0.0, finite(upper)),
            },
            TrimOperator::KeepBelow => TrimmedBucket::partial(0.0, finite(lower)),
            TrimOperator::KeepAbove if at >= lower => TrimmedBucket::partial(count, at),
            TrimOperator::KeepAbove => TrimmedBucket::partial(0.0, finite(lower)),
        }
    }
}
