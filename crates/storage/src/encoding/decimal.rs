//! Floats as integers times a power of ten, wherever that gives back the same bits.
//!
//! Most values were printed as short decimals: `0.25` is `25 / 10^2`. Exporters also multiply by
//! `1e-9` and the like, which rounds differently from a division, so a scale is either a divisor or
//! a factor. Invariant: [`Scale::float`] of what [`Scale::int`] returns has the same bits as the
//! input.

/// Powers of ten, exact.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// The nearest to their inverses.
const INVERSES: [f64; 16] = [
    1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14,
    1e-15,
];

/// What the integer of each scale is divided by; 1 for scales that multiply.
const DIVISORS: [f64; 32] = two_halves(POWERS, [1.0; 16]);

/// What the quotient is multiplied by; 1 for scales that divide.
const FACTORS: [f64; 32] = two_halves([1.0; 16], INVERSES);

const fn two_halves(low: [f64; 16], high: [f64; 16]) -> [f64; 32] {
    let mut all = [0.0; 32];
    let mut code = 0;
    while code < 16 {
        all[code] = low[code];
        all[16 + code] = high[code];
        code += 1;
    }
    all
}

/// Integers up to here convert to a float without rounding, and so do all between.
const INT_MAX: u64 = 1 << 53;

/// Integers of a magnitude below this are in the fraction of [`OFFSET`]: converting them takes no
/// instruction of its own, and their quotients are exact after two steps of Newton's.
pub(crate) const SMALL: i64 = 1 << 51;

/// A float whose unit in the last place, and that of its neighbours, is one: adding a small integer
/// to its bits adds it to its value.
pub(crate) const OFFSET: f64 = (3 * SMALL) as f64;

/// In the place of a scale's code: the integer is the bits of the float, or, in a float column of a
/// page, their order ([`ordered`]).
pub(crate) const BITS: u8 = 16;

/// Maps the bits of a float to an integer, so that integers are ordered as floats are, and back.
#[inline]
pub(crate) fn ordered(bits: u64) -> i64 {
    (bits ^ ((bits as i64 >> 63) as u64 >> 1)) as i64
}

/// A power of ten: codes 0 to 15 divide by `10^code`, codes 17 to 31 multiply by `10^-(code - 16)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scale(u8);

impl Scale {
    /// The scale with this code, if there is one.
    #[inline]
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        (code < 32 && code != BITS).then_some(Self(code))
    }

    /// The code.
    #[inline]
    pub(crate) fn code(self) -> u8 {
        self.0
    }

    fn exponent(self) -> usize {
        usize::from(self.0 & 15)
    }

    /// The float that `int` stands for.
    #[inline]
    pub(crate) fn float(self, int: i64) -> f64 {
        // One of the two changes nothing: which one differs from value to value, and a branch on it
        // would be mispredicted.
        let code = usize::from(self.0 % 32);
        int as f64 / DIVISORS[code] * FACTORS[code]
    }

    /// How integers of this scale become floats.
    #[inline]
    pub(crate) fn scaling(self) -> Scaling {
        let power = self.exponent();
        match self.0 {
            0 => Scaling::One,
            1..16 => Scaling::Divisor(Divisor {
                power: POWERS[power],
                inverse: INVERSES[power],
            }),
            _ => Scaling::Factor(INVERSES[power]),
        }
    }

    /// The integer that stands for `value`, if one does to the bit.
    #[inline]
    pub(crate) fn int(self, value: f64) -> Option<i64> {
        let scaled = value * POWERS[self.exponent()];
        // To the nearest by truncation: `round` is a library call on the oldest x86-64.
        let int = (scaled + 0.5f64.copysign(scaled)) as i64;
        let exact = int.unsigned_abs() <= INT_MAX && self.float(int).to_bits() == value.to_bits();
        exact.then_some(int)
    }

    /// Sets `ints` to the integers that stand for `values`. Returns false, and leaves `ints` of no
    /// use, unless all are small and exact: then a caller takes [`Scale::int`] one by one.
    pub(crate) fn small_ints(self, values: &[f64], ints: &mut Vec<i64>) -> bool {
        let power = POWERS[self.exponent()];
        let code = usize::from(self.0 % 32);
        let (divisor, factor) = (DIVISORS[code], FACTORS[code]);
        ints.clear();
        let mut off = 0;
        ints.extend(values.iter().map(|value| {
            // Rounded to the nearest, as there are only integers beyond 2^52.
            let biased = value * power + OFFSET;
            let int = biased.to_bits().wrapping_sub(OFFSET.to_bits()) as i64;
            let back = (biased - OFFSET) / divisor * factor;
            off |= back.to_bits() ^ value.to_bits() | int.wrapping_add(SMALL) as u64 >> 52;
            int
        }));
        off == 0
    }

    /// The coarsest scale for `value`, divisors first, and its integer.
    pub(crate) fn find(value: f64) -> Option<(Scale, i64)> {
        if !value.is_finite() {
            return None;
        }
        (0..32)
            .filter_map(Scale::from_code)
            .find_map(|scale| Some((scale, scale.int(value)?)))
    }
}

/// How many integers of one scale become floats.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scaling {
    /// They are the order of the floats' bits.
    Ordered,
    /// They are the floats.
    One,
    /// They are divided by a power of ten.
    Divisor(Divisor),
    /// They are multiplied by the inverse of one.
    Factor(f64),
}

/// A power of ten to divide by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    pub(crate) power: f64,
    /// The nearest to its inverse. It is kept with the power so that no loop divides for it:
    /// compilers move that division before the choice between scalings, where a denormal that
    /// another scaling left makes it take 50 ns.
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
            let found = Scale::find(value).map(|(s, i)| (s.code(), i));
            assert_eq!(found, expected, "{value}");
        }
    }
}
