//! Compensated sums and means of many histograms.
//!
//! A mean is a sum that is divided at the end, until a number of the sum would overflow; then it
//! continues as an incremental mean. Accumulators of consecutive parts are merged in order.

use super::add::{HistogramAdjustments, IncompatibleBuckets};
use super::form::FloatHistogram;
use crate::histogram::ResetHint;

/// The aggregate of the histograms that an accumulator computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistogramAggregate {
    /// The sum of the histograms, for `sum` and `sum_over_time`.
    Sum,
    /// The arithmetic mean of the histograms, for `avg` and `avg_over_time`.
    Mean,
}

/// The state of a sum or a mean of histograms.
#[derive(Clone, Debug)]
pub struct HistogramAccumulator {
    of: HistogramAggregate,
    /// The sum so far. After an overflow: the mean so far.
    value: FloatHistogram,
    count: f64,
    is_mean: bool,
    saw_reset: bool,
    saw_no_reset: bool,
}

impl HistogramAccumulator {
    /// Creates an accumulator that contains one histogram, whose hint it records.
    pub fn new(of: HistogramAggregate, first: FloatHistogram) -> Self {
        let mut out = Self {
            of,
            value: first,
            count: 1.0,
            is_mean: false,
            saw_reset: false,
            saw_no_reset: false,
        };
        out.record_hint(out.value.hint);
        out
    }

    fn record_hint(&mut self, hint: ResetHint) {
        self.saw_reset |= hint == ResetHint::Reset;
        self.saw_no_reset |= hint == ResetHint::NotReset;
    }

    /// Adds a histogram. Fails if its buckets are incompatible.
    pub fn add(
        &mut self,
        histogram: &FloatHistogram,
    ) -> Result<HistogramAdjustments, IncompatibleBuckets> {
        self.record_hint(histogram.hint);
        self.count += 1.0;
        if self.of == HistogramAggregate::Mean && !self.is_mean {
            if !self.would_overflow(histogram)? {
                self.value.compensate();
                return self.value.add(histogram);
            }
            self.value.divide(self.count - 1.0);
            self.is_mean = true;
        }
        self.value.compensate();
        if self.of == HistogramAggregate::Sum {
            return self.value.add(histogram);
        }
        self.value.multiply((self.count - 1.0) / self.count);
        let mut part = histogram.clone();
        part.divide(self.count);
        self.value.add(&part)
    }

    /// Returns whether a number of the sum would be infinite. Sums that are far from an overflow
    /// are not computed.
    fn would_overflow(&self, histogram: &FloatHistogram) -> Result<bool, IncompatibleBuckets> {
        let most = self.value.numbers_total() + histogram.numbers_total();
        if most.is_finite() {
            return Ok(false);
        }
        let mut attempt = self.value.clone();
        attempt.compensate();
        attempt.add(histogram)?;
        Ok(attempt.has_overflow())
    }

    /// Merges the accumulator of the following histograms into this one.
    pub fn merge(&mut self, mut other: Self) -> Result<HistogramAdjustments, IncompatibleBuckets> {
        self.saw_reset |= other.saw_reset;
        self.saw_no_reset |= other.saw_no_reset;
        self.value.compensate();
        other.value.compensate();
        let count = self.count + other.count;
        let sums = !self.is_mean && !other.is_mean;
        let as_sums = match self.of {
            HistogramAggregate::Sum => true,
            HistogramAggregate::Mean => sums && !self.would_overflow(&other.value)?,
        };
        if !as_sums {
            self.weigh(count);
            other.weigh(count);
        }
        self.count = count;
        self.value.add(&other.value)
    }

    /// Converts the value to this part's contribution to the mean of `all` histograms.
    fn weigh(&mut self, all: f64) {
        if self.is_mean {
            self.value.multiply(self.count / all);
        } else {
            self.value.divide(all);
        }
        self.is_mean = true;
    }

    /// Returns whether the hints of the histograms contradict each other: one is a reset, and
    /// another is not.
    pub fn hints_conflict(&self) -> bool {
        self.saw_reset && self.saw_no_reset
    }

    /// Returns the size of the histogram on the heap in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.value.heap_bytes()
    }

    /// Returns the sum or the mean, with the compensations added.
    pub fn finish(mut self) -> FloatHistogram {
        if self.of == HistogramAggregate::Mean && !self.is_mean {
            self.value.divide(self.count);
        }
        self.value.apply_compensations();
        self.value
    }
}

impl FloatHistogram {
    /// Returns an upper limit of the amount by which any number of a sum with this histogram grows.
    /// Not finite if this cannot be determined.
    fn numbers_total(&self) -> f64 {
        let buckets = self.positive.counts().iter().chain(self.negative.counts());
        let totals = [self.zero_count, self.count, self.sum];
        totals
            .iter()
            .chain(buckets)
            .map(|number| number.abs())
            .sum()
    }
}
