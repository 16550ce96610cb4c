//! Conversion between small integers and floats by additions alone. AVX2 performs four additions at
//! a time but has no instruction for this conversion, and converting one number at a time would
//! take longer than the computation itself.
//!
//! Invariant: from `-SMALL` to [`SMALL`] every result is exact. The caller must not pass larger
//! integers.

/// The largest integer that is converted exactly. Larger ones give unspecified results.
pub(crate) const SMALL: i64 = 1 << 51;

/// A float whose unit in the last place is one, like that of its neighbours. Adding it rounds a
/// small float to the nearest integer, which the lowest bits of the sum then contain.
const ROUNDING: f64 = (3 * SMALL) as f64;

/// Returns the integer nearest to a float; halves round to the even integer.
#[inline(always)]
pub(crate) fn round_to_integer(float: f64) -> i64 {
    (float + ROUNDING)
        .to_bits()
        .wrapping_sub(ROUNDING.to_bits()) as i64
}

/// Returns the integer nearest to a float, as a float. The result is unspecified beyond [`SMALL`].
#[inline(always)]
pub(crate) fn round_to_float(float: f64) -> f64 {
    (float + ROUNDING) - ROUNDING
}

/// Converts an integer to a float, which is exact up to [`SMALL`].
#[inline(always)]
pub(crate) fn to_float(integer: i64) -> f64 {
    f64::from_bits(ROUNDING.to_bits().wrapping_add(integer as u64)) - ROUNDING
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    #[test]
    fn small_integers_become_their_floats_and_come_back() {
        let rng = SimRng::new(1);
        let edges = [0, 1, 2, SMALL - 1, SMALL];
        let some = (0..10_000).map(|bits| (rng.next_u64() >> (13 + bits % 51)) as i64);
        for int in edges.into_iter().chain(some).flat_map(|n| [n, -n]) {
            assert_eq!(to_float(int).to_bits(), (int as f64).to_bits(), "{int}");
            assert_eq!(round_to_integer(int as f64), int);
            assert_eq!(round_to_float(int as f64), int as f64);
        }
    }

    #[test]
    fn fractions_become_the_nearest_integer_and_halves_the_even_one() {
        let cases = [
            (0.3, 0),
            (0.5, 0),
            (1.5, 2),
            (2.5, 2),
            (-0.7, -1),
            (1e15 + 0.25, 1_000_000_000_000_000),
        ];
        for (float, int) in cases {
            assert_eq!(round_to_integer(float), int, "{float}");
            assert_eq!(round_to_float(float), int as f64, "{float}");
        }
    }
}
