//! Float functions where Go's answer is not the standard library's, and order among floats.

use crate::powers::ln;
use std::f64::consts::LN_2;

/// Go's `math.Max`: an infinity wins over NaN, and zero over negative zero.
pub(crate) fn max(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == 0.0 && a == b {
        if a.is_sign_negative() { b } else { a }
    } else if a > b {
        a
    } else {
        b
    }
}

/// Go's `math.Min`.
pub(crate) fn min(a: f64, b: f64) -> f64 {
    -max(-a, -b)
}

/// From here on the square in the formulas below is all that counts, and may overflow.
const LARGE: f64 = (1u64 << 28) as f64;

/// The inverse hyperbolic sine, also where the square of `x` overflows (FreeBSD `s_asinh.c`).
pub(crate) fn asinh(x: f64) -> f64 {
    let size = x.abs();
    let value = if size > LARGE {
        ln(size) + LN_2
    } else if size > 2.0 {
        ln(2.0 * size + 1.0 / ((size * size + 1.0).sqrt() + size))
    } else {
        (size + size * size / (1.0 + (1.0 + size * size).sqrt())).ln_1p()
    };
    value.copysign(x)
}

/// The inverse hyperbolic cosine, also where the square of `x` overflows (FreeBSD `e_acosh.c`).
pub(crate) fn acosh(x: f64) -> f64 {
    if x.is_nan() || x < 1.0 {
        f64::NAN
    } else if x >= LARGE {
        ln(x) + LN_2
    } else if x > 2.0 {
        ln(2.0 * x - 1.0 / (x + (x * x - 1.0).sqrt()))
    } else {
        let above = x - 1.0;
        (above + (2.0 * above + above * above).sqrt()).ln_1p()
    }
}

/// The quantile of values, between the two next to it by weight; NaN is below all. Changes their
/// order. O(n).
pub(crate) fn quantile(quantile: f64, ranks: &mut [Rank]) -> f64 {
    if ranks.is_empty() || quantile.is_nan() {
        return f64::NAN;
    }
    if quantile < 0.0 {
        return f64::NEG_INFINITY;
    }
    if quantile > 1.0 {
        return f64::INFINITY;
    }
    let last = (ranks.len() - 1) as f64;
    let rank = quantile * last;
    let lower = rank.floor().max(0.0);
    let upper = (lower + 1.0).min(last);
    let weight = rank - rank.floor();
    let (_, at_lower, above) = ranks.select_nth_unstable(lower as usize);
    let at_lower = *at_lower;
    let next = above.iter().min().copied();
    let at_upper = next.filter(|_| upper > lower).unwrap_or(at_lower);
    at_lower.value() * (1.0 - weight) + at_upper.value() * weight
}

/// A float as a number whose order is that of the floats, with NaN first, as in upstream's heap of
/// values: numbers are compared in one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(i64);

impl Rank {
    const NAN: Self = Self(i64::MIN);

    /// Of a value.
    #[inline(always)]
    pub(crate) fn of(value: f64) -> Self {
        match value.is_nan() {
            true => Self::NAN,
            false => Self(Self::turned(value.to_bits() as i64)),
        }
    }

    fn value(self) -> f64 {
        match self {
            Self::NAN => f64::NAN,
            Self(rank) => f64::from_bits(Self::turned(rank) as u64),
        }
    }

    /// Below zero the magnitude counts backwards.
    #[inline(always)]
    fn turned(bits: i64) -> i64 {
        bits ^ ((bits >> 63) as u64 >> 1) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_and_min_treat_nan_as_go() {
        assert_eq!(max(f64::NAN, f64::INFINITY), f64::INFINITY);
        assert_eq!(min(f64::NEG_INFINITY, f64::NAN), f64::NEG_INFINITY);
        assert!(max(f64::NAN, 1.0).is_nan() && min(1.0, f64::NAN).is_nan());
        assert!(max(-0.0, 0.0).is_sign_positive() && min(0.0, -0.0).is_sign_negative());
        assert_eq!((max(1.0, 2.0), min(1.0, 2.0)), (2.0, 1.0));
    }

    #[test]
    fn hyperbolic_inverses_of_large_values_are_finite() {
        for x in [1e300, 1e10, 3.0, 1.5] {
            assert!((acosh(x) - (x.ln() + (1.0 + (1.0 - x.powi(-2)).sqrt()).ln())).abs() < 1e-9);
            assert!((asinh(-x) + (x.ln() + (1.0 + (1.0 + x.powi(-2)).sqrt()).ln())).abs() < 1e-9);
        }
        assert!(acosh(0.5).is_nan() && asinh(f64::NAN).is_nan());
        assert_eq!(asinh(-0.0).to_bits(), (-0.0f64).to_bits());
    }

    #[test]
    fn quantile_interpolates_between_ranks() {
        let values = [4.0, 1.0, 3.0, 2.0];
        for (q, want) in [(0.0, 1.0), (0.5, 2.5), (1.0, 4.0), (2.0, f64::INFINITY)] {
            assert_eq!(quantile(q, &mut values.map(Rank::of)), want, "{q}");
        }
        assert!(quantile(f64::NAN, &mut values.map(Rank::of)).is_nan());
        let mixed = [2.0, f64::NEG_INFINITY, -0.0, f64::NAN, -1.5, 0.0];
        for (q, want) in [
            (0.2, f64::NEG_INFINITY),
            (0.4, -1.5),
            (0.6, 0.0),
            (1.0, 2.0),
        ] {
            let got = quantile(q, &mut mixed.map(Rank::of));
            assert_eq!(got.to_bits(), f64::to_bits(want), "{q}: {got}");
        }
        assert!(quantile(0.1, &mut mixed.map(Rank::of)).is_nan());
    }
}
