//! The buckets of a histogram with their bounds, ordered by value.

use super::form::FloatHistogram;
use super::side::HistogramSide;
use crate::log_exp::log2;

/// A bucket with its bounds and count, as in query results.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HistogramBucket {
    /// The lower bound of the bucket, exclusive.
    pub lower: f64,
    /// The upper bound of the bucket, inclusive.
    pub upper: f64,
    /// Number of observations in the bucket, which may be fractional.
    pub count: f64,
}

impl HistogramBucket {
    /// Returns the fraction of the bucket's width up to `value`, which must be between finite
    /// bounds. Exponential buckets are measured on a logarithmic scale.
    pub(super) fn fraction_below(&self, value: f64, linear: bool) -> f64 {
        if linear {
            return (value - self.lower) / (self.upper - self.lower);
        }
        let [lower, upper, at] = [self.lower, self.upper, value].map(|v| log2(v.abs()));
        if value > 0.0 {
            (at - lower) / (upper - lower)
        } else {
            1.0 - ((at - upper) / (lower - upper))
        }
    }
}

impl FloatHistogram {
    /// Returns all buckets from lowest to highest, including the zero bucket if it is not empty.
    /// Buckets that overlap with the zero bucket are limited to the part outside of it.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = HistogramBucket> + '_ {
        let zero = (self.zero_count > 0.0).then_some(self.zero_bucket());
        let negative = self.negative_buckets().rev().map(|b| self.trimmed(b));
        let positive = self.positive_buckets().map(|b| self.trimmed(b));
        negative.chain(zero).chain(positive)
    }

    /// Returns the zero bucket with its bounds. It may be empty.
    pub fn zero_bucket(&self) -> HistogramBucket {
        HistogramBucket {
            lower: -self.zero_threshold,
            upper: self.zero_threshold,
            count: self.zero_count,
        }
    }

    /// Returns the buckets of the positive side, or the custom buckets, in ascending order.
    pub fn positive_buckets(&self) -> impl DoubleEndedIterator<Item = HistogramBucket> + '_ {
        self.positive.cells().map(|(index, cell)| HistogramBucket {
            lower: self.bound(index.wrapping_sub(1)),
            upper: self.bound(index),
            count: cell.sum,
        })
    }

    /// Returns the buckets of the negative side, in descending order.
    pub fn negative_buckets(&self) -> impl DoubleEndedIterator<Item = HistogramBucket> + '_ {
        self.negative.cells().map(|(index, cell)| HistogramBucket {
            lower: -self.bound(index),
            upper: -self.bound(index.wrapping_sub(1)),
            count: cell.sum,
        })
    }

    /// Returns a bucket around zero. If the histogram has buckets on one side only, the bucket ends
    /// at zero.
    pub(super) fn one_sided(&self, bucket: HistogramBucket) -> HistogramBucket {
        let has = |side: &HistogramSide| !side.is_empty();
        match (has(&self.negative), has(&self.positive)) {
            (false, true) => HistogramBucket {
                lower: 0.0,
                ..bucket
            },
            (true, false) => HistogramBucket {
                upper: 0.0,
                ..bucket
            },
            _ => bucket,
        }
    }

    fn trimmed(&self, mut bucket: HistogramBucket) -> HistogramBucket {
        let zero = self.zero_threshold;
        if bucket.upper < 0.0 && bucket.upper > -zero {
            bucket.upper = -zero;
        } else if bucket.lower > 0.0 && bucket.lower < zero {
            bucket.lower = zero;
        }
        bucket
    }
}
