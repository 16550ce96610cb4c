//! Approximate equality of numbers in scripts.

use firn_model::sample::is_stale;

/// The relative difference below which two numbers are considered equal.
const EPSILON: f64 = 1e-6;

/// Returns whether two numbers are equal or nearly equal: both are staleness markers, both are
/// other NaN, or their difference is less than a millionth of their sum.
pub(super) fn almost_equal(a: f64, b: f64) -> bool {
    if is_stale(a) || is_stale(b) {
        return is_stale(a) && is_stale(b);
    }
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let sum = a.abs() + b.abs();
    let difference = (a - b).abs();
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < EPSILON * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < EPSILON
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::sample::stale_nan;

    #[test]
    fn almost_equal_tells_numbers_and_markers_apart() {
        let equal = [
            (1.0, 1.0),
            (1.0, 1.0 + 1e-7),
            (1e300, 1.000_000_1e300),
            (f64::MAX, f64::MAX * (1.0 - 1e-9)),
            (f64::INFINITY, f64::INFINITY),
            (f64::NAN, -f64::NAN),
            (stale_nan(), stale_nan()),
            (0.0, -0.0),
        ];
        let different = [
            (1.0, 1.000_01),
            (0.0, 1e-300),
            (1.0, -1.0),
            (f64::INFINITY, f64::NEG_INFINITY),
            (f64::INFINITY, f64::MAX),
            (f64::NAN, 1.0),
            (f64::NAN, stale_nan()),
            (stale_nan(), 1.0),
        ];
        for (a, b) in equal {
            assert!(almost_equal(a, b) && almost_equal(b, a), "{a} {b}");
        }
        for (a, b) in different {
            assert!(!almost_equal(a, b) && !almost_equal(b, a), "{a} {b}");
        }
    }
}
