//! Inverse trigonometric functions with the same bits as Go's `math`, which follows `atan.c` of
//! Cephes.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

/// The difference between half of pi and its nearest float.
const FRAC_PI_2_REST: f64 = 6.123_233_995_736_766e-17;

/// The tangent of three eighths of pi. Above it the series is evaluated at the reciprocal.
const TAN_3_PI_8: f64 = 2.414_213_562_373_095;

/// The largest argument for which the series converges well enough.
const SERIES_MAX: f64 = 0.66;

/// Coefficients of the numerator and the denominator of the series, in squares, highest power
/// first. The highest coefficient of the denominator is 1.
const NUMERATOR: [f64; 5] = [
    -8.750_608_600_031_904e-1,
    -1.615_753_718_733_365e1,
    -7.500_855_792_314_705e1,
    -1.228_866_684_490_136_2e2,
    -6.485_021_904_942_025e1,
];
const DENOMINATOR: [f64; 5] = [
    2.485_846_490_142_306_2e1,
    1.650_270_098_316_988_5e2,
    4.328_810_604_912_902_7e2,
    4.853_903_996_359_137e2,
    1.945_506_571_482_614e2,
];

/// Returns the arc tangent in radians, between -pi/2 and pi/2.
pub(crate) fn atan(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() {
        x
    } else {
        atan_positive(x.abs()).copysign(x)
    }
}

fn atan_positive(x: f64) -> f64 {
    if x <= SERIES_MAX {
        atan_series(x)
    } else if x > TAN_3_PI_8 {
        FRAC_PI_2 - atan_series(1.0 / x) + FRAC_PI_2_REST
    } else {
        FRAC_PI_4 + atan_series((x - 1.0) / (x + 1.0)) + 0.5 * FRAC_PI_2_REST
    }
}

fn atan_series(x: f64) -> f64 {
    let square = x * x;
    let [first, rest @ ..] = NUMERATOR;
    let above = rest.iter().fold(first, |sum, factor| sum * square + factor);
    let below = DENOMINATOR
        .iter()
        .fold(1.0, |sum, factor| sum * square + factor);
    x * (square * above / below) + x
}

/// Returns the arc sine in radians; NaN if the magnitude of `x` exceeds one.
pub(crate) fn asin(x: f64) -> f64 {
    let size = x.abs();
    if x == 0.0 || x.is_nan() || size > 1.0 {
        return x.asin();
    }
    let other = (1.0 - size * size).sqrt();
    let arc = if size > 0.7 {
        FRAC_PI_2 - atan_positive(other / size)
    } else {
        atan_positive(size / other)
    };
    arc.copysign(x)
}

/// Returns the arc cosine in radians; NaN if the magnitude of `x` exceeds one.
pub(crate) fn acos(x: f64) -> f64 {
    FRAC_PI_2 - asin(x)
}

/// Returns the angle of the point (`x`, `y`) in radians, from -pi to pi.
pub(crate) fn atan2(y: f64, x: f64) -> f64 {
    let is_plain = x.is_finite() && y.is_finite() && x != 0.0 && y != 0.0;
    if !is_plain {
        return y.atan2(x);
    }
    let angle = atan(y / x);
    if x >= 0.0 || x.is_nan() {
        angle
    } else if angle <= 0.0 {
        angle + PI
    } else {
        angle - PI
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments, and the results of Go's `Atan2`.
    const ATAN2_OF_GO: [[u64; 3]; 8] = [
        [
            0x4022_3b32_c5ef_f3bd,
            0x3fe9_5fc8_44bc_6e78,
            0x3ff7_be93_b060_79b6,
        ],
        [
            0x40f5_0580_0000_0000,
            0x400c_0000_0000_0000,
            0x3ff9_21d0_b4c3_4926,
        ],
        [
            0x4021_b59a_4f1a_7bbf,
            0x401c_0000_0000_0000,
            0x3fec_dbf3_a944_d7ea,
        ],
        [
            0x4023_3471_25be_5319,
            0xbff1_002c_512a_8d92,
            0x3ffa_e561_d99b_c400,
        ],
        [
            0x4087_4f0c_9d41_765b,
            0xbfd2_a603_18b1_c548,
            0x3ff9_2394_f60c_1305,
        ],
        [
            0x3ff9_401f_f193_cce2,
            0x400c_0000_0000_0000,
            0x3fdb_1c51_7c59_7e23,
        ],
        [
            0x4022_d73c_c04f_8189,
            0x4018_0000_0000_0000,
            0x3ff0_0f0c_1053_bee0,
        ],
        [
            0x3f66_6700_24ce_3ec6,
            0x3fe7_d9ff_417a_66cc,
            0x3f6e_0e39_878b_dfaa,
        ],
    ];

    #[test]
    fn angles_have_the_bits_of_go() {
        for [y, x, want] in ATAN2_OF_GO {
            let [y, x] = [y, x].map(f64::from_bits);
            assert_eq!(atan2(y, x).to_bits(), want, "{y}, {x}");
        }
    }

    #[test]
    fn arcs_are_close_to_those_of_the_standard_library() {
        let edges = [
            0.0,
            5e-324,
            1e-9,
            0.3,
            0.66,
            0.67,
            0.7,
            0.71,
            1.0,
            1.5,
            2.5,
            1e9,
            1e300,
            f64::MAX,
            f64::INFINITY,
            f64::NAN,
        ];
        let equal = |got: f64, want: f64| {
            let close = (got - want).abs() <= want.abs() * 1e-14 + 1e-16;
            got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan() || close
        };
        for x in edges.iter().flat_map(|x| [*x, -x]) {
            let arcs = [
                (atan(x), x.atan()),
                (asin(x), x.asin()),
                (acos(x), x.acos()),
            ];
            for (got, want) in arcs {
                assert!(equal(got, want), "{x}: {got}, expected {want}");
            }
            for y in edges.iter().flat_map(|y| [*y, -y]) {
                let (got, want) = (atan2(y, x), y.atan2(x));
                // Go loses the sign of a quotient that underflows to zero.
                let is_lost = y / x == 0.0 && y != 0.0 && got == PI;
                let want = if is_lost { want.abs() } else { want };
                assert!(equal(got, want), "{y}, {x}: {got}, expected {want}");
            }
        }
    }
}
