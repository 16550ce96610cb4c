//! Sums and means whose bits do not depend on the order of the values.
//!
//! A compensated sum consists of the rounded sum and of the accumulated rounding errors, which are
//! exact one by one but rounded when they are added up. Its value therefore differs from the exact
//! sum by a tiny amount that depends on the order of the values and on the division into parts. The
//! result, which is rounded once more, has the same bits for every order unless the exact sum is so
//! near to the middle between two floats that this amount decides. [`Magnitudes`] bounds the
//! amount, and [`round_sum`] detects these cases. Sums of few values are often exactly in the
//! middle. They are also certain: all sums are multiples of the lowest bit of the smallest value,
//! so an error below that bit is zero.
//!
//! Bounds, with the unit of rounding u = 2^-53, for at most N additions: each rounding error is at
//! most u times a partial sum, the sum of all of them at most N u times the largest partial sum P,
//! and the errors of adding them up at most N² u² P. P is at most the sum of the magnitudes: N
//! times the largest magnitude, or the sum itself if no value is negative.

use firn_model::kahan::KahanSum;

/// Half the distance from 1 to the next float.
const UNIT: f64 = f64::EPSILON / 2.0;

/// The magnitudes of all values that were added, of all groups and steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Magnitudes {
    /// The largest finite magnitude.
    greatest: f64,
    /// The smallest magnitude except zero.
    least: f64,
    is_any_negative: bool,
}

/// The error of compensated sums in any order, for a number of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumErrorBounds {
    /// Maximum difference between two orders, relative to the largest partial sum.
    relative: f64,
    /// Maximum of a partial sum, unless it is at most the sum.
    partial_max: Option<f64>,
    /// All sums are multiples of this number.
    multiple: f64,
    /// True if a partial sum of finite values may be infinite.
    may_overflow: bool,
}

impl Default for Magnitudes {
    fn default() -> Self {
        Self {
            greatest: 0.0,
            least: f64::INFINITY,
            is_any_negative: false,
        }
    }
}

impl Magnitudes {
    /// Adds the values of a row. NaN is ignored, so absent values are, too.
    pub(crate) fn add_row(&mut self, row: &[f64]) {
        // There is no branch per value, so that the compiler vectorizes the loop.
        let (mut greatest, mut least, mut lowest) = (self.greatest, self.least, 0.0);
        for value in row {
            let magnitude = value.abs();
            let finite = if magnitude <= f64::MAX {
                magnitude
            } else {
                0.0
            };
            greatest = if finite > greatest { finite } else { greatest };
            let nonzero = if finite > 0.0 { finite } else { f64::INFINITY };
            least = if nonzero < least { nonzero } else { least };
            lowest = if *value < lowest { *value } else { lowest };
        }
        self.greatest = greatest;
        self.least = least;
        self.is_any_negative |= lowest < 0.0;
    }

    /// Adds the magnitudes of other values.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.greatest = self.greatest.max(other.greatest);
        self.least = self.least.min(other.least);
        self.is_any_negative |= other.is_any_negative;
    }

    /// Returns the bounds of sums of at most `rows` values.
    pub(crate) fn bounds(&self, rows: u32) -> SumErrorBounds {
        // A merge of two parts adds a sum and a compensation.
        let additions = 3.0 * f64::from(rows) + 16.0;
        let partial_max = additions * self.greatest;
        // The lowest bit of the smallest value; of subnormal numbers that of all floats.
        let multiple = self.least * f64::EPSILON / 2.0;
        SumErrorBounds {
            relative: 4.0 * additions * additions * UNIT * UNIT,
            partial_max: self.is_any_negative.then_some(partial_max),
            multiple: multiple.max(f64::from_bits(1)),
            may_overflow: partial_max > f64::MAX / 8.0,
        }
    }
}

impl SumErrorBounds {
    /// Returns the maximum difference between the compensated sums `sum` of two orders.
    fn difference(&self, sum: f64) -> f64 {
        let partial_max = self.partial_max.unwrap_or(2.0 * sum.abs());
        self.relative * partial_max
    }

    /// Returns whether the compensated sum `sum` equals the exact sum in every order: both are
    /// multiples of the same number, and differ by less.
    fn is_exact(&self, sum: f64) -> bool {
        self.difference(sum) < self.multiple
    }
}

/// Returns the sum, rounded once. Clears `is_certain` if another order might have other bits.
pub(crate) fn round_sum(
    sum: KahanSum,
    bounds: Option<&SumErrorBounds>,
    is_certain: &mut bool,
) -> f64 {
    let total = sum.total();
    if let Some(bounds) = bounds {
        *is_certain &= is_sum_certain(sum, total, bounds);
    }
    total
}

/// Returns the mean of `count` values with this sum. Clears `is_certain` if another order might
/// have other bits.
///
/// The two parts of the sum are divided separately, as in Prometheus, but only after they are
/// normalized, because the parts themselves depend on the order.
pub(crate) fn round_mean(
    sum: KahanSum,
    count: f64,
    bounds: Option<&SumErrorBounds>,
    is_certain: &mut bool,
) -> f64 {
    let total = sum.total();
    if !total.is_finite() {
        return total / count;
    }
    let (quotient, rest) = (
        total / count,
        rounding_error(sum.sum, sum.lost, total) / count,
    );
    let mean = quotient + rest;
    if let Some(bounds) = bounds {
        let error = bounds.difference(total) / count + 4.0 * UNIT * rest.abs();
        let behind = rounding_error(quotient, rest, mean);
        *is_certain &= is_sum_certain(sum, total, bounds)
            && (bounds.is_exact(total) || is_far_from_middle(mean, behind, error));
    }
    mean
}

fn is_sum_certain(sum: KahanSum, total: f64, bounds: &SumErrorBounds) -> bool {
    if bounds.may_overflow {
        return false;
    }
    if !total.is_finite() {
        // Infinite or NaN because of such values, in any order.
        return true;
    }
    let error = bounds.difference(total);
    let behind = rounding_error(sum.sum, sum.lost, total);
    bounds.is_exact(total) || total != 0.0 && is_far_from_middle(total, behind, error)
}

/// Returns the difference between the exact sum of two numbers and `total`, their rounded sum
/// (Knuth).
fn rounding_error(a: f64, b: f64, total: f64) -> f64 {
    let of_b = total - a;
    let of_a = total - of_b;
    (a - of_a) + (b - of_b)
}

/// Returns whether every number that differs by at most `error` from `rounded + behind` is rounded
/// to `rounded`.
fn is_far_from_middle(rounded: f64, behind: f64, error: f64) -> bool {
    let above = (rounded.next_up() - rounded) / 2.0;
    let below = (rounded - rounded.next_down()) / 2.0;
    behind + error < above && error - behind < below
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    /// Folds values in parts of `part` values, which are merged in order.
    fn fold(values: &[f64], part: usize) -> KahanSum {
        let parts = values.chunks(part).map(|values| {
            let mut sum = KahanSum::new(values[0], 0.0);
            for value in &values[1..] {
                sum = sum.plus(*value);
            }
            sum
        });
        parts.reduce(KahanSum::merge).unwrap_or_default()
    }

    fn shuffled(values: &[f64], rng: &SimRng) -> Vec<f64> {
        let mut values = values.to_vec();
        for at in (1..values.len()).rev() {
            values.swap(at, rng.next_below(at as u64 + 1) as usize);
        }
        values
    }

    /// Returns values of one kind: integers, tenths, random digits, or values that cancel out.
    fn random_values(rng: &SimRng) -> Vec<f64> {
        let kind = rng.next_below(5);
        let count = 2 + rng.next_below(60) as usize;
        let value = |_| {
            let digits = rng.next_below(1 << 53) as f64;
            let sign = if rng.one_in(2) { 1.0 } else { -1.0 };
            match kind {
                0 => rng.next_below(1000) as f64,
                1 => rng.next_below(1000) as f64 / 10.0,
                2 => digits * 2f64.powi(rng.next_below(40) as i32 - 60),
                3 => sign * digits * 2f64.powi(rng.next_below(40) as i32 - 60),
                _ => sign * 2f64.powi(rng.next_below(120) as i32),
            }
        };
        let mut values: Vec<f64> = (0..count).map(value).collect();
        if rng.one_in(4) {
            values.extend(values.clone().iter().map(|value| -value));
        }
        values
    }

    #[test]
    fn certain_sums_and_means_have_the_same_bits_in_every_order_and_division() {
        let (mut certain, mut uncertain) = (0, 0);
        for seed in 0..3_000 {
            let rng = SimRng::new(seed);
            let values = random_values(&rng);
            let mut magnitudes = Magnitudes::default();
            magnitudes.add_row(&values);
            let bounds = magnitudes.bounds(values.len() as u32);
            let count = values.len() as f64;
            let results = |values: &[f64], is_certain: &mut bool| {
                let sum = fold(values, 1 + rng.next_below(20) as usize);
                let mean = round_mean(sum, count, Some(&bounds), is_certain);
                let sum = round_sum(sum, Some(&bounds), is_certain);
                [sum.to_bits(), mean.to_bits()]
            };
            let mut is_certain = true;
            let known = results(&values, &mut is_certain);
            if !is_certain {
                uncertain += 1;
                continue;
            }
            certain += 1;
            for _ in 0..30 {
                let other = results(&shuffled(&values, &rng), &mut is_certain);
                assert_eq!(known, other, "seed {seed}: {values:?}");
            }
        }
        assert!(certain > 2_000 && uncertain > 10, "{certain}, {uncertain}");
    }

    #[test]
    fn sums_that_may_overflow_or_are_near_the_middle_are_not_certain() {
        let check = |values: &[f64], expected: bool| {
            let mut magnitudes = Magnitudes::default();
            magnitudes.add_row(values);
            let bounds = magnitudes.bounds(values.len() as u32);
            let mut is_certain = true;
            round_sum(fold(values, 1), Some(&bounds), &mut is_certain);
            assert_eq!(is_certain, expected, "{values:?}");
        };
        check(&[0.0, 0.0, -0.0], true);
        check(&[1.5, -1.5], true);
        check(&[f64::NAN, 1.0], true);
        check(&[f64::INFINITY, 1.0], true);
        check(&[1e308, 1e308, -1e308], false);
        check(&[1.0, UNIT], false);
        // In the middle, but exact.
        check(&[1.0, 1.0 + f64::EPSILON], true);
        check(&[1.0, UNIT / 2.0], true);
        check(&[1e100, 1.0, -1e100], false);
    }
}
