//! Float functions whose results differ between Go and the Rust standard library, and an order of
//! floats.

use firn_model::log_exp::ln;
use std::f64::consts::LN_2;

/// Returns the maximum like Go's `math.Max`: an infinity wins over NaN, and zero over negative
/// zero.
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

/// Returns the minimum like Go's `math.Min`: negative infinity wins over NaN, and negative zero
/// over zero.
pub(crate) fn min(a: f64, b: f64) -> f64 {
    -max(-a, -b)
}

/// From this value on, the square dominates the formulas below, and it may overflow.
const LARGE: f64 = (1u64 << 28) as f64;

/// The largest argument for which Go's `math.Exp` is finite. The power of two nearest to the result
/// must be representable as a float.
const EXPONENT_MAX: f64 = 709.436_139_303_103_9;

/// Returns the exponential like Go's `math.Exp` on x86-64, which differs in one respect: results
/// from 1.27e308 on are infinite.
pub(crate) fn exp(x: f64) -> f64 {
    if x > EXPONENT_MAX {
        f64::INFINITY
    } else {
        x.exp()
    }
}

/// From this value on, one of the two exponentials is too small to change the result.
const ONE_EXPONENTIAL: f64 = 21.0;

/// Up to this value, the difference of exponentials loses digits, so a series is used instead.
const SERIES_MAX: f64 = 0.5;

/// Coefficients of the numerator and the denominator of the series of the hyperbolic sine, in
/// squares, highest power first. The highest coefficient of the denominator is 1 (J. F. Hart,
/// Computer Approximations, number 2029).
const SINH_NUMERATOR: [f64; 4] = [
    -26.305_632_133_974_97,
    -2_894.211_355_989_564,
    -89_912.720_220_395_09,
    -630_767.364_049_771_7,
];
const SINH_DENOMINATOR: [f64; 3] = [
    -173.678_953_558_233_7,
    15_215.173_787_900_19,
    -630_767.364_049_771_7,
];

/// Returns the hyperbolic sine. It is infinite where the exponential is infinite, although half of
/// that would be finite.
pub(crate) fn sinh(x: f64) -> f64 {
    let size = x.abs();
    if size > ONE_EXPONENTIAL {
        return (exp(size) * 0.5).copysign(x);
    }
    if size > SERIES_MAX {
        let exponential = exp(size);
        return ((exponential - 1.0 / exponential) * 0.5).copysign(x);
    }
    let square = size * size;
    let [first, rest @ ..] = SINH_NUMERATOR;
    let above = rest.iter().fold(first, |sum, factor| sum * square + factor);
    let factors = SINH_DENOMINATOR.iter();
    let below = factors.fold(1.0, |sum, factor| sum * square + factor);
    (above * size / below).copysign(x)
}

/// Returns the hyperbolic cosine. It is infinite where the exponential is infinite.
pub(crate) fn cosh(x: f64) -> f64 {
    let size = x.abs();
    let exponential = exp(size);
    if size > ONE_EXPONENTIAL {
        exponential * 0.5
    } else {
        (exponential + 1.0 / exponential) * 0.5
    }
}

/// Returns the inverse hyperbolic sine, also where the square of `x` overflows (FreeBSD
/// `s_asinh.c`).
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

/// Returns the inverse hyperbolic cosine, also where the square of `x` overflows (FreeBSD
/// `e_acosh.c`).
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

/// Returns the quantile of values, interpolated between the two nearest ranks. NaN orders below all
/// other values. Reorders `ranks`; O(n).
pub(crate) fn quantile(quantile: f64, ranks: &mut [FloatRank]) -> f64 {
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
    at_lower.to_float() * (1.0 - weight) + at_upper.to_float() * weight
}

/// An integer that orders like its float. NaN is the lowest, as in Prometheus's heap of values, and
/// negative zero is below zero although the floats are equal. A comparison takes one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FloatRank(i64);

impl FloatRank {
    const NAN: Self = Self(i64::MIN);

    /// Returns the rank of a value. All NaN have the same rank, which is the lowest.
    #[inline(always)]
    pub(crate) fn from_float(value: f64) -> Self {
        if value.is_nan() {
            Self::NAN
        } else {
            Self(Self::flip_bits(value.to_bits() as i64))
        }
    }

    fn to_float(self) -> f64 {
        match self {
            Self::NAN => f64::NAN,
            Self(rank) => f64::from_bits(Self::flip_bits(rank) as u64),
        }
    }

    /// Converts between the bits of a float and its rank: the magnitude bits of negative numbers
    /// are inverted, because a larger magnitude orders lower.
    #[inline(always)]
    fn flip_bits(bits: i64) -> i64 {
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
            assert_eq!(
                quantile(q, &mut values.map(FloatRank::from_float)),
                want,
                "{q}"
            );
        }
        assert!(quantile(f64::NAN, &mut values.map(FloatRank::from_float)).is_nan());
        let mixed = [2.0, f64::NEG_INFINITY, -0.0, f64::NAN, -1.5, 0.0];
        for (q, want) in [
            (0.2, f64::NEG_INFINITY),
            (0.4, -1.5),
            (0.6, 0.0),
            (1.0, 2.0),
        ] {
            let got = quantile(q, &mut mixed.map(FloatRank::from_float));
            assert_eq!(got.to_bits(), f64::to_bits(want), "{q}: {got}");
        }
        assert!(quantile(0.1, &mut mixed.map(FloatRank::from_float)).is_nan());
    }

    /// Arguments, and the results of Go's `Sinh` and `Cosh` on x86-64.
    const HYPERBOLIC_OF_GO: [(f64, u64, u64); 12] = [
        (0.1, 0x3fb9_a487_337b_59b4, 0x3ff0_147f_4022_4b38),
        (0.3, 0x3fd3_7d42_af54_b926, 0x3ff0_b9b4_e0b6_ec4c),
        (0.5, 0x3fe0_acd0_0fe6_3b97, 0x3ff2_0ac1_862a_e8d0),
        (-0.25, 0xbfd0_2acc_d9d0_8102, 0x3ff0_80ab_05ca_6146),
        (1e-9, 0x3e11_2e0b_e826_d695, 0x3ff0_0000_0000_0000),
        (1.0, 0x3ff2_cd9f_c44e_b982, 0x3ff8_b075_51d9_f550),
        (5.0, 0x4052_8d01_66f0_7374, 0x4052_8d6f_cbef_f3aa),
        (21.5, 0x41d0_3343_0032_7298, 0x41d0_3343_0032_7298),
        (100.0, 0x48e3_494a_9b17_1bf5, 0x48e3_494a_9b17_1bf5),
        (709.0, 0x7fcd_422d_2be5_dc9b, 0x7fcd_422d_2be5_dc9b),
        (709.5, 0x7ff0_0000_0000_0000, 0x7ff0_0000_0000_0000),
        (-710.0, 0xfff0_0000_0000_0000, 0x7ff0_0000_0000_0000),
    ];

    #[test]
    fn hyperbolic_functions_are_those_of_go_and_overflow_where_they_do() {
        let close = |found: f64, wanted: u64, what: &str| {
            let wanted = f64::from_bits(wanted);
            let is_close = (found - wanted).abs() <= wanted.abs() * 1e-15;
            assert!(found == wanted || is_close, "{what}: {found}, {wanted}");
        };
        for (x, sine, cosine) in HYPERBOLIC_OF_GO {
            close(sinh(x), sine, &format!("sinh({x})"));
            close(cosh(x), cosine, &format!("cosh({x})"));
        }
        for (x, wanted) in [(0.0, 0.0f64), (-0.0, -0.0)] {
            assert_eq!(sinh(x).to_bits(), wanted.to_bits());
        }
        assert!(sinh(f64::NAN).is_nan() && cosh(f64::NAN).is_nan());
        assert_eq!(sinh(f64::NEG_INFINITY), f64::NEG_INFINITY);
        assert!(exp(EXPONENT_MAX).is_finite() && exp(EXPONENT_MAX.next_up()).is_infinite());
    }
}
