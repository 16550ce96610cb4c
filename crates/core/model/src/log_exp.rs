//! Logarithms and powers with the same bits as Go's `math`. Their last bits often differ from those
//! of the system library, which is visible in quantiles of native histograms and in `count_values`.
//!
//! Go follows `e_log.c` and `e_exp.c` of FreeBSD, and `libm` has the same logarithm. This module
//! does not contain `exp`, for which Go has separate code for each processor, so powers with a
//! fractional exponent may differ in their last bit.

use std::f64::consts::{LOG2_E, LOG10_E};

/// The natural logarithm of two, split into a high and a low part.
const LN_2_PARTS: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];

/// The Remez polynomial of `r * (e^r + 1) / (e^r - 1) - 2` in squares of `r`, highest power first.
const REMEZ: [f64; 5] = [
    4.138_136_797_057_238_5e-8,
    -1.653_390_220_546_525_2e-6,
    6.613_756_321_437_934e-5,
    -2.777_777_777_701_559_3e-3,
    1.666_666_666_666_666_6e-1,
];

/// For larger exponents the power of two is not a normal number, and the system library is used.
const EXPONENT_MAX: f64 = 1_000.0;

/// Returns the natural logarithm, with the same bits as Go's `math.Log`.
pub fn ln(x: f64) -> f64 {
    libm::log(x)
}

/// Returns the logarithm to base two, which is exact for powers of two.
pub fn log2(x: f64) -> f64 {
    let (fraction, exponent) = libm::frexp(x);
    if fraction == 0.5 {
        f64::from(exponent - 1)
    } else {
        ln(fraction) * LOG2_E + f64::from(exponent)
    }
}

/// Returns the logarithm to base ten, with the same bits as Go's `math.Log10`.
pub fn log10(x: f64) -> f64 {
    ln(x) * LOG10_E
}

/// Returns two to the power of `x`, with the same bits as Go's `math.Exp2`.
pub fn exp2(x: f64) -> f64 {
    if x.is_nan() || x.abs() > EXPONENT_MAX {
        return x.exp2();
    }
    let whole = (x + 0.5f64.copysign(x)).trunc();
    let rest = x - whole;
    let [high, low] = [rest * LN_2_PARTS[0], -rest * LN_2_PARTS[1]];
    let r = high - low;
    let square = r * r;
    let c = r - square * REMEZ.iter().fold(0.0, |sum, factor| factor + square * sum);
    let of_rest = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
    libm::ldexp(of_rest, whole as i32)
}

/// Returns `x` to the power of `y`, by squaring for the integer part of the exponent.
pub fn pow(x: f64, y: f64) -> f64 {
    const EXACT_MAX: f64 = (1u64 << 53) as f64;
    let is_plain = x.is_finite() && x != 0.0 && y.abs() < EXACT_MAX;
    if !is_plain || y == 0.0 || y == 1.0 || x == 1.0 || (x < 0.0 && y.fract() != 0.0) {
        return x.powf(y);
    }
    if y.abs() == 0.5 {
        return if y > 0.0 { x.sqrt() } else { 1.0 / x.sqrt() };
    }
    let (mut whole, mut broken) = (y.abs().trunc(), y.abs().fract());
    let mut power = 1.0;
    if broken != 0.0 {
        if broken > 0.5 {
            (whole, broken) = (whole + 1.0, broken - 1.0);
        }
        power = (broken * ln(x)).exp();
    }
    let (power, exponent) = multiply_power(x, whole as u64, power);
    if y < 0.0 {
        libm::ldexp(1.0 / power, -exponent)
    } else {
        libm::ldexp(power, exponent)
    }
}

/// Returns `power` times `x` to the power of `whole`, as a fraction and an exponent of two.
fn multiply_power(x: f64, mut whole: u64, mut power: f64) -> (f64, i32) {
    /// Beyond this exponent the result is zero or infinite in any case.
    const EXPONENT_LIMIT: i32 = 1 << 12;
    let mut exponent = 0;
    let (mut fraction, mut of_fraction) = libm::frexp(x);
    while whole != 0 {
        if of_fraction.abs() > EXPONENT_LIMIT {
            exponent += of_fraction;
            break;
        }
        if whole & 1 == 1 {
            power *= fraction;
            exponent += of_fraction;
        }
        fraction *= fraction;
        of_fraction *= 2;
        if fraction < 0.5 {
            fraction *= 2.0;
            of_fraction -= 1;
        }
        whole >>= 1;
    }
    (power, exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments and the results of Go 1.26: `Log`, `Log2` and `Log10` of the first, `Exp2` of the
    /// second, and the first to the power of the second.
    const OF_GO: [[u64; 7]; 5] = [
        [
            0x4001_0e66_41df_774c,
            0x4010_0000_0000_0000,
            0x3fe8_39f5_6d1b_df7e,
            0x3ff1_79c4_7cac_0cb0,
            0x3fd5_0af3_efc6_8414,
            0x4030_0000_0000_0000,
            0x4034_a97e_160e_5d5f,
        ],
        [
            0x4002_1e02_7bca_a9bd,
            0x4014_0000_0000_0000,
            0x3fea_2851_646e_495e,
            0x3ff2_de5f_51c0_9616,
            0x3fd6_b859_0d55_4417,
            0x4040_0000_0000_0000,
            0x404d_c89f_ec71_ddce,
        ],
        [
            0x4021_dcba_961b_f422,
            0x4018_0000_0000_0000,
            0x4001_842d_f80d_c30e,
            0x4009_454d_ba37_5c04,
            0x3fee_6dd1_591b_dbb2,
            0x4050_0000_0000_0000,
            0x411e_f9a1_7384_c84b,
        ],
        [
            0x411a_fa98_0000_0000,
            0x401c_0000_0000_0000,
            0x4029_ff8b_fe19_50b8,
            0x4032_c0f6_53b1_7a14,
            0x4016_94ef_3dea_b2d2,
            0x4060_0000_0000_0000,
            0x4823_60a3_d895_a86b,
        ],
        [
            0x412a_7968_0000_0000,
            0x3fe0_0000_0000_0000,
            0x402b_58c5_43d8_5510,
            0x4033_b9fd_0da3_0f7c,
            0x4017_c0ca_c3ee_a787,
            0x3ff6_a09e_667f_3bcc,
            0x408d_1b35_715c_62c5,
        ],
    ];

    /// Arguments, and the results of Go's `Exp2`.
    const EXP2_OF_GO: [[u64; 2]; 4] = [
        [0x4004_0000_0000_0000, 0x4016_a09e_667f_3bcc],
        [0x3ff7_e8b7_9704_9af4, 0x4006_89d7_27b4_523b],
        [0x400c_0000_0000_0000, 0x4026_a09e_667f_3bcc],
        [0x400c_0000_0000_0000, 0x4026_a09e_667f_3bcc],
    ];

    #[test]
    fn logarithms_and_powers_have_the_bits_of_go() {
        for case in OF_GO {
            let [x, y, want @ ..] = case.map(f64::from_bits);
            let got = [ln(x), log2(x), log10(x), exp2(y), pow(x, y)];
            assert_eq!(got.map(f64::to_bits), want.map(f64::to_bits), "{x}, {y}");
        }
        for [x, want] in EXP2_OF_GO {
            let x = f64::from_bits(x);
            assert_eq!(exp2(x).to_bits(), want, "{x}");
        }
    }

    #[test]
    fn powers_at_the_edges_are_those_of_the_standard_library() {
        let edges = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            2.0,
            -2.0,
            0.5,
            -0.5,
            3.0,
            -3.0,
            1e300,
            -1e300,
            1e-300,
            f64::MIN_POSITIVE,
            5e-324,
            f64::MAX,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        let equal = |got: f64, want: f64| {
            let close = (got - want).abs() <= want.abs() * 1e-13 || (got - want).abs() < 1e-320;
            got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan() || close
        };
        for x in edges {
            let logarithms = [(ln(x), x.ln()), (log2(x), x.log2()), (log10(x), x.log10())];
            for (got, want) in logarithms.into_iter().chain([(exp2(x), x.exp2())]) {
                assert!(equal(got, want), "{x}: {got}, expected {want}");
            }
            for y in edges {
                let (got, want) = (pow(x, y), x.powf(y));
                assert!(equal(got, want), "{x} ^ {y}: {got}, expected {want}");
            }
        }
    }
}
