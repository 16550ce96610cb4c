//! A sum that keeps what rounding loses (Neumaier 1974).
//!
//! A total that grows for years by small steps stays exact to the last bit but one, so that
//! differences of it are those of its sources.

/// A compensated sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) high: f64,
    pub(super) low: f64,
}

impl Sum {
    /// Adds a number.
    #[inline]
    pub(super) fn add(&mut self, number: f64) {
        let sum = self.high + number;
        if sum.is_finite() {
            self.low += match self.high.abs() >= number.abs() {
                true => (self.high - sum) + number,
                false => (number - sum) + self.high,
            };
        }
        self.high = sum;
    }

    /// Adds another sum.
    pub(super) fn join(&mut self, other: Sum) {
        self.add(other.high);
        self.low += other.low;
    }

    /// The sum.
    pub(super) fn value(self) -> f64 {
        match self.high.is_finite() {
            true => self.high + self.low,
            false => self.high,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_numbers_that_cancel_is_exact() {
        let mut sum = Sum::default();
        for number in [1e100, 1.0, -1e100, 0.5] {
            sum.add(number);
        }
        assert_eq!(sum.value(), 1.5);
        let mut tenths = Sum::default();
        for _ in 0..1_000_000 {
            tenths.add(0.1);
        }
        assert_eq!(tenths.value(), 100_000.0);
        sum.add(f64::INFINITY);
        assert_eq!(sum.value(), f64::INFINITY);
    }
}
