//! Maximum difference between two numbers that count as equal.

/// A tolerance for comparing numbers. Two numbers are equal if any of its limits accepts them. If
/// all limits are zero, they must have the same bits, and any NaN equals any other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// Maximum difference relative to the larger absolute value; 0 disables it.
    pub relative: f64,
    /// Maximum absolute difference of two values; 0 disables it.
    pub absolute: f64,
    /// Maximum distance in units in the last place; 0 disables it.
    pub ulps: u64,
}

impl Tolerance {
    /// Returns whether two numbers count as equal. An infinity equals only itself, and NaN only
    /// NaN.
    pub fn accepts(&self, a: f64, b: f64) -> bool {
        if a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan() {
            return true;
        }
        if !a.is_finite() || !b.is_finite() {
            return false;
        }
        let apart = (a - b).abs();
        let share = self.relative * a.abs().max(b.abs());
        self.ulps > 0 && ulps_between(a, b) <= self.ulps
            || self.relative > 0.0 && apart <= share
            || self.absolute > 0.0 && apart <= self.absolute
    }

    /// Returns whether two numbers given as texts count as equal. Texts that are not numbers must
    /// be identical.
    pub fn accepts_texts(&self, a: &str, b: &str) -> bool {
        if a == b {
            return true;
        }
        match (a.parse(), b.parse()) {
            (Ok(a), Ok(b)) => self.accepts(a, b),
            _ => false,
        }
    }
}

/// Returns the number of representable floats between two numbers. Both zeros count as one.
fn ulps_between(a: f64, b: f64) -> u64 {
    let place = |x: f64| {
        let bits = x.to_bits() as i64;
        if bits < 0 { i64::MIN - bits } else { bits }
    };
    place(a).abs_diff(place(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerance_accepts_what_it_says() {
        let exact = Tolerance::default();
        let ulps = Tolerance { ulps: 1, ..exact };
        let relative = Tolerance {
            relative: 1e-3,
            ..exact
        };
        let absolute = Tolerance {
            absolute: 0.5,
            ..exact
        };
        let cases = [
            (exact, "1", "1.0", true),
            (exact, "1", "1.0000000000000002", false),
            (exact, "NaN", "NaN", true),
            (exact, "+Inf", "-Inf", false),
            (exact, "0", "-0", false),
            (exact, "1e+06", "1000000", true),
            (ulps, "1", "1.0000000000000002", true),
            (ulps, "1", "1.0000000000000004", false),
            (ulps, "0", "-0", true),
            (ulps, "-5e-324", "5e-324", false),
            (ulps, "1.7976931348623157e308", "+Inf", false),
            (relative, "1000", "1001", true),
            (relative, "1000", "1002", false),
            (relative, "0", "1e-300", false),
            (relative, "NaN", "1", false),
            (absolute, "1", "1.5", true),
            (absolute, "1", "1.6", false),
            (absolute, "-1.7e308", "1.7e308", false),
            (absolute, "a", "b", false),
        ];
        for (tolerance, a, b, expected) in cases {
            assert_eq!(tolerance.accepts_texts(a, b), expected, "{a} {b}");
            assert_eq!(tolerance.accepts_texts(b, a), expected, "{b} {a}");
        }
    }
}
