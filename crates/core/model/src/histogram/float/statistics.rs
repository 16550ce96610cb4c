//! The variance of a histogram's observations.

use super::form::FloatHistogram;
use crate::kahan::KahanSum;

impl FloatHistogram {
    /// Returns the variance. Every observation is assumed to have the middle of its bucket as
    /// value: the arithmetic mean of the bounds for custom buckets, the geometric mean for
    /// exponential buckets, and zero for the zero bucket.
    pub fn variance(&self) -> f64 {
        let mean = self.sum / self.count;
        let mut squares = KahanSum::default();
        for bucket in self.buckets().filter(|bucket| bucket.count != 0.0) {
            let middle = if self.is_custom() {
                (bucket.upper + bucket.lower) / 2.0
            } else if bucket.lower <= 0.0 && bucket.upper >= 0.0 {
                0.0
            } else {
                let middle = (bucket.upper * bucket.lower).sqrt();
                if bucket.upper < 0.0 { -middle } else { middle }
            };
            let delta = middle - mean;
            squares = squares.plus(bucket.count * delta * delta);
        }
        squares.total() / self.count
    }
}
