//! Reconciliation of zero buckets with different widths: the narrower one is widened and includes
//! the buckets that it then covers.

use super::form::{FloatHistogram, HistogramCompensations};
use super::side::HistogramSide;
use crate::kahan::KahanSum;

impl FloatHistogram {
    /// Returns the count of the zero bucket with its compensation.
    fn compensated_zero_count(&self) -> KahanSum {
        let lost = self.lost.map_or(0.0, |lost| lost.zero_count);
        KahanSum::new(self.zero_count, lost)
    }

    /// Returns the count of a zero bucket that extends to `threshold`, which must not be less than
    /// the current threshold. Also returns the resulting threshold: the end of the non-empty bucket
    /// that contains `threshold`.
    pub(super) fn zero_count_within(&self, threshold: f64) -> (KahanSum, f64) {
        let own = self.compensated_zero_count();
        let mut threshold = threshold;
        if threshold == self.zero_threshold {
            return (own, threshold);
        }
        loop {
            let mut zero = own;
            threshold = self.add_covered_buckets(&self.positive, &mut zero, threshold);
            let wider = self.add_covered_buckets(&self.negative, &mut zero, threshold);
            if wider == threshold {
                return (zero, threshold);
            }
            // The count of the positive side was computed with a threshold that is too small.
            threshold = wider;
        }
    }

    /// Adds the buckets below `threshold` to `zero`. Returns the end of the last non-empty one.
    fn add_covered_buckets(
        &self,
        side: &HistogramSide,
        zero: &mut KahanSum,
        threshold: f64,
    ) -> f64 {
        for (index, cell) in side.cells() {
            if self.bound(index - 1) >= threshold {
                break;
            }
            *zero = zero.plus(cell.sum);
            if self.lost.is_some() {
                *zero = zero.plus(cell.lost);
            }
            let upper = self.bound(index);
            if upper > threshold {
                return if cell.sum != 0.0 { upper } else { threshold };
            }
        }
        threshold
    }

    /// Widens this zero bucket until it can be added to that of `other`. Returns the count of the
    /// latter at the same width.
    pub(super) fn reconcile_zero(&mut self, other: &Self) -> KahanSum {
        let mut theirs = (other.compensated_zero_count(), other.zero_threshold);
        while theirs.1 != self.zero_threshold {
            if self.zero_threshold > theirs.1 {
                theirs = other.zero_count_within(self.zero_threshold);
            }
            if theirs.1 > self.zero_threshold {
                self.widen_zero(theirs.1);
            }
            // Thresholds that are NaN would never become equal.
            if theirs.1.is_nan() || self.zero_threshold.is_nan() {
                break;
            }
        }
        theirs.0
    }

    fn widen_zero(&mut self, threshold: f64) {
        let (zero, threshold) = self.zero_count_within(threshold);
        self.zero_count = zero.sum;
        if let Some(HistogramCompensations { zero_count, .. }) = &mut self.lost {
            *zero_count = zero.lost;
        }
        self.zero_threshold = threshold;
        let (schema, custom) = (self.schema, &self.custom_values);
        let outside = |index: i32| {
            let lower = i64::from(index) - 1;
            crate::histogram::bounds::upper_bound(lower, schema, custom) >= threshold
        };
        self.positive.retain(outside);
        self.negative.retain(outside);
        self.compact();
    }
}
