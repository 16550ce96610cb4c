//! Floats as integers times a power of ten, wherever that reproduces the same bits.
//!
//! Most values were printed as short decimals: `0.25` is `25 / 10^2`. Exporters also multiply by
//! `1e-9` and similar factors, which rounds differently from a division, so a scale is either a
//! divisor or a factor. Invariant: [`DecimalScale::to_float`] of the result of
//! [`DecimalScale::to_int`] has the same bits as the input.

/// The powers of ten up to 1e15, all of which a float represents exactly.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// The floats nearest to the inverses of these powers; all except the first are inexact.
const INVERSES: [f64; 16] = [
    1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14,
    1e-15,
];

/// Divisor of each scale; 1 for scales that multiply.
const DIVISORS: [f64; 32] = join_halves(POWERS, [1.0; 16]);

/// Factor of each scale; 1 for scales that divide.
const FACTORS: [f64; 32] = join_halves([1.0; 16], INVERSES);

const fn join_halves(low: [f64; 16], high: [f64; 16]) -> [f64; 32] {
    let mut all = [0.0; 32];
    let mut code = 0;
    while code < 16 {
        all[code] = low[code];
        all[16 + code] = high[code];
        code += 1;
    }
    all
}

/// All integers up to this one convert to a float without rounding.
const INT_MAX: u64 = 1 << 53;

/// Integers below this magnitude fit into the fraction of [`OFFSET`]: their conversion takes no
/// instruction of its own, and their quotients are exact after two Newton steps.
pub(crate) const SMALL: i64 = 1 << 51;

/// A float whose unit in the last place is one, like that of its neighbours: adding a small integer
/// to its bits adds it to its value.
pub(crate) const OFFSET: f64 = (3 * SMALL) as f64;

/// Code in place of a scale: the integer contains the bits of the float, or, in a float column of a
/// page, their order ([`order_bits`]).
pub(crate) const BITS: u8 = 16;

/// Maps the bits of a float to an integer, so that integers have the same order as the floats. It
/// is its own inverse.
#[inline]
pub(crate) fn order_bits(bits: u64) -> i64 {
    (bits ^ ((bits as i64 >> 63) as u64 >> 1)) as i64
}

/// A power of ten: codes 0 to 15 divide by `10^code`, codes 17 to 31 multiply by `10^-(code - 16)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DecimalScale(u8);

impl DecimalScale {
    /// Returns the scale with this code, if there is one.
    #[inline]
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        (code < 32 && code != BITS).then_some(Self(code))
    }

    /// Returns the code.
    #[inline]
    pub(crate) fn code(self) -> u8 {
        self.0
    }

    fn exponent(self) -> usize {
        usize::from(self.0 & 15)
    }

    /// Returns the float for `int` in this scale.
    #[inline]
    pub(crate) fn to_float(self, int: i64) -> f64 {
        // One of the two operations has no effect. Which one differs between values, and a branch
        // would be mispredicted.
        let code = usize::from(self.0 % 32);
        int as f64 / DIVISORS[code] * FACTORS[code]
    }

    /// Returns the conversion of integers of this scale to floats.
    #[inline]
    pub(crate) fn to_conversion(self) -> DecimalConversion {
        let power = self.exponent();
        match self.0 {
            0 => DecimalConversion::One,
            1..16 => DecimalConversion::Divisor(DecimalDivisor {
                power: POWERS[power],
                inverse: INVERSES[power],
            }),
            _ => DecimalConversion::Factor(INVERSES[power]),
        }
    }

    /// Returns the integer for `value`, if there is one that reproduces it bit for bit.
    #[inline]
    pub(crate) fn to_int(self, value: f64) -> Option<i64> {
        let scaled = value * POWERS[self.exponent()];
        // Rounds to the nearest by truncation: `round` is a library call on the oldest x86-64.
        let int = (scaled + 0.5f64.copysign(scaled)) as i64;
        let exact =
            int.unsigned_abs() <= INT_MAX && self.to_float(int).to_bits() == value.to_bits();
        exact.then_some(int)
    }

    /// Sets `ints` to the integers for `values`. Returns false, with arbitrary contents of `ints`,
    /// unless all are small and exact: then the caller uses [`DecimalScale::to_int`] one by one.
    pub(crate) fn convert_small_ints(self, values: &[f64], ints: &mut Vec<i64>) -> bool {
        let power = POWERS[self.exponent()];
        let code = usize::from(self.0 % 32);
        let (divisor, factor) = (DIVISORS[code], FACTORS[code]);
        ints.clear();
        let mut off = 0;
        ints.extend(values.iter().map(|value| {
            // Rounds to the nearest, because there are only integers beyond 2^52.
            let biased = value * power + OFFSET;
            let int = biased.to_bits().wrapping_sub(OFFSET.to_bits()) as i64;
            let back = (biased - OFFSET) / divisor * factor;
            off |= back.to_bits() ^ value.to_bits() | int.wrapping_add(SMALL) as u64 >> 52;
            int
        }));
        off == 0
    }

    /// Returns the coarsest scale for `value`, divisors first, with its integer.
    pub(crate) fn find_for_value(value: f64) -> Option<(DecimalScale, i64)> {
        if !value.is_finite() {
            return None;
        }
        (0..32)
            .filter_map(DecimalScale::from_code)
            .find_map(|scale| Some((scale, scale.to_int(value)?)))
    }
}

/// Conversion of integers of one scale to floats.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DecimalConversion {
    /// The integer is the order of the bits of the float.
    Ordered,
    /// The float has the value of the integer.
    One,
    /// The integer is divided by a power of ten.
    Divisor(DecimalDivisor),
    /// The integer is multiplied by the inverse of a power of ten.
    Factor(f64),
}

/// A power of ten to divide by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecimalDivisor {
    pub(crate) power: f64,
    /// The float nearest to its inverse. It is stored so that no loop computes it: compilers move
    /// that division before the choice between scalings, where a denormal left by another scaling
    /// makes it take 50 ns.
    pub(crate) inverse: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_find_of_decimals_is_coarsest_and_exact() {
        let cases = [
            (0.0, Some((0, 0))),
            (1e15, Some((0, 1_000_000_000_000_000))),
            (0.25, Some((2, 25))),
            (-17.125, Some((3, -17_125))),
            (3.0 * 1e-9, Some((25, 3))),
            (-0.0, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
            (f64::MIN_POSITIVE, None),
            (1e300, None),
        ];
        for (value, expected) in cases {
            let found = DecimalScale::find_for_value(value).map(|(s, i)| (s.code(), i));
            assert_eq!(found, expected, "{value}");
        }
    }
}
