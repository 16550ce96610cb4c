//! Floats as integers times a power of ten, wherever that gives back the same bits.
//!
//! Most values were printed as short decimals: `0.25` is `25 / 10^2`. Exporters also multiply by
//! `1e-9` and the like, which rounds differently from a division, so a scale is either a divisor or
//! a factor. Invariant: [`Scale::float`] of what [`Scale::int`] returns has the same bits as the
//! input.

use super::ordered;

/// Powers of ten, exact.
pub(crate) const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// The nearest to their inverses.
pub(crate) const INVERSES: [f64; 16] = [
    1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14,
    1e-15,
];

/// Integers up to here convert to a float without rounding, and so do all between.
const INT_MAX: u64 = 1 << 53;

/// A power of ten: codes 0 to 15 divide by `10^code`, codes 17 to 31 multiply by `10^-(code - 16)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scale(u8);

impl Scale {
    /// The scale with this code, if there is one.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        (code < 32 && code != 16).then_some(Self(code))
    }

    /// The code.
    pub(crate) fn code(self) -> u8 {
        self.0
    }

    fn exponent(self) -> usize {
        usize::from(self.0 & 15)
    }

    /// The float that `int` stands for.
    #[inline]
    pub(crate) fn float(self, int: i64) -> f64 {
        match self.0 {
            0 => int as f64,
            1..16 => int as f64 / POWERS[self.exponent()],
            _ => int as f64 * INVERSES[self.exponent()],
        }
    }

    /// How integers become floats.
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

/// Half of the integers that become floats, or quotients of them, by ways that are right for small
/// ones alone.
pub(crate) const SMALL: i64 = 1 << 51;

/// Its unit in the last place is one, and so are those of its neighbours: small integers that are
/// added to it are its last bits.
pub(crate) const OFFSET: f64 = (3 * SMALL) as f64;

/// How integers become floats.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scaling {
    /// They are the order of the floats' bits.
    Ordered,
    /// They are the floats.
    One,
    /// Divided by a power of ten.
    Divisor(Divisor),
    /// Multiplied by one.
    Factor(f64),
}

/// A power of ten to divide by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    pub(crate) power: f64,
    /// The nearest to its inverse. It is kept with the power so that no loop divides for it:
    /// compilers move that division before the choice between scalings, where it has whatever lies
    /// there for the others, and of a denormal it takes 50 ns.
    pub(crate) inverse: f64,
}

impl Scaling {
    /// The floats that as many integers stand for.
    #[inline]
    pub(crate) fn floats(self, ints: &[i64], floats: &mut [f64]) {
        match self {
            Self::Ordered => each(ints, floats, |int| {
                f64::from_bits(ordered(int as u64) as u64)
            }),
            Self::One => each(ints, floats, |int| int as f64),
            Self::Divisor(by) => each(ints, floats, |int| int as f64 / by.power),
            Self::Factor(factor) => each(ints, floats, |int| int as f64 * factor),
        }
    }
}

#[inline]
fn each(ints: &[i64], floats: &mut [f64], make: impl Fn(i64) -> f64) {
    for (float, int) in floats.iter_mut().zip(ints) {
        *float = make(*int);
    }
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
