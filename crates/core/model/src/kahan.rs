//! Compensated sums in Neumaier's form. The operations equal those of Prometheus, so that the bits
//! are equal.

/// A running sum, and the compensation for its rounding errors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KahanSum {
    /// The sum of the rounded additions, without compensation.
    pub sum: f64,
    /// The compensation, which is the accumulated rounding error.
    pub lost: f64,
}

impl KahanSum {
    /// Creates a sum with a compensation from its two parts.
    #[inline(always)]
    pub const fn new(sum: f64, lost: f64) -> Self {
        Self { sum, lost }
    }

    /// Applies `f` to the sum and to the compensation.
    #[inline(always)]
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self::new(f(self.sum), f(self.lost))
    }

    /// Returns the sum after adding `value`, and updates the compensation.
    #[inline(always)]
    pub fn plus(self, value: f64) -> Self {
        let total = self.sum + value;
        let rest = if self.sum.abs() >= value.abs() {
            (self.sum - total) + value
        } else {
            (value - total) + self.sum
        };
        let overflow = total.abs() > f64::MAX;
        Self {
            sum: total,
            lost: if overflow { 0.0 } else { self.lost + rest },
        }
    }

    /// Returns the sum after adding another sum. The compensations are added to each other.
    #[inline(always)]
    pub fn merge(self, other: Self) -> Self {
        let joined = self.plus(other.sum);
        let lost = if joined.sum.abs() > f64::MAX {
            0.0
        } else {
            joined.lost + other.lost
        };
        Self { lost, ..joined }
    }

    /// Returns the sum after adding another sum, and then its compensation as one more value.
    pub fn add_sum(self, other: Self) -> Self {
        let sum = self.plus(other.sum);
        if other.lost == 0.0 {
            sum
        } else {
            sum.plus(other.lost)
        }
    }

    /// Returns the sum including its compensation, rounded once.
    #[inline(always)]
    pub fn total(self) -> f64 {
        self.sum + self.lost
    }
}

/// The mean of a sequence: a compensated sum until it would overflow, and an incremental mean from
/// there on.
#[derive(Clone, Copy, Debug)]
pub struct RunningMean {
    sum: KahanSum,
    mean: KahanSum,
    count: f64,
    incremental: bool,
}

impl RunningMean {
    /// Creates the mean of a sequence with one value.
    pub fn new(first: f64) -> Self {
        Self {
            sum: KahanSum::new(first, 0.0),
            mean: KahanSum::default(),
            count: 1.0,
            incremental: false,
        }
    }

    /// Adds a value to the sequence. Switches to an incremental mean if the sum would overflow.
    pub fn add(&mut self, value: f64) {
        self.count += 1.0;
        if !self.incremental {
            let next = self.sum.plus(value);
            if !next.sum.is_infinite() {
                self.sum = next;
                return;
            }
            self.incremental = true;
            self.mean = self.sum.map(|number| number / (self.count - 1.0));
        }
        let weight = (self.count - 1.0) / self.count;
        let weighed = self.mean.map(|number| weight * number);
        self.mean = weighed.plus(value / self.count);
    }

    /// Returns the mean of all values that were added so far.
    pub fn value(&self) -> f64 {
        if self.incremental {
            self.mean.total()
        } else {
            self.sum.sum / self.count + self.sum.lost / self.count
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kahan_add_large_and_small_keeps_the_small() {
        let total = [1e100, 1.0, -1e100]
            .into_iter()
            .fold(KahanSum::default(), KahanSum::plus)
            .total();
        assert_eq!(total, 1.0);
    }

    #[test]
    fn kahan_of_a_million_tenths_is_exact_and_infinity_stays() {
        let tenths = (0..1_000_000).fold(KahanSum::default(), |sum, _| sum.plus(0.1));
        assert_eq!(tenths.total(), 100_000.0);
        let joined = tenths
            .merge(KahanSum::new(1e100, 0.0))
            .merge(KahanSum::new(-1e100, 0.0));
        assert_eq!(joined.total(), 100_000.0);
        assert_eq!(tenths.plus(f64::INFINITY).total(), f64::INFINITY);
    }

    #[test]
    fn mean_of_sum_that_overflows_is_finite() {
        let mut mean = RunningMean::new(f64::MAX);
        mean.add(f64::MAX);
        assert_eq!(mean.value(), f64::MAX);
    }
}
