//! Division of many numbers by the same divisor, with the same bits as individual divisions.

/// A divisor that is used for many divisions, with its precomputed inverse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreparedDivisor {
    divisor: f64,
    /// The float nearest to the inverse of the divisor.
    inverse: f64,
}

impl PreparedDivisor {
    /// Creates a divisor and computes its inverse, which takes one division.
    pub(crate) const fn new(divisor: f64) -> Self {
        Self {
            divisor,
            inverse: 1.0 / divisor,
        }
    }
}

/// Returns the quotient by an ordinary division, for processors without fused multiply-add.
#[inline(always)]
pub(crate) fn divide_plainly(dividend: f64, by: PreparedDivisor) -> f64 {
    dividend / by.divisor
}

/// Returns the quotient in a third of the time of a division, on processors with fused
/// multiply-add.
///
/// The algorithm is Markstein's; `crates/core/storage/src/encoding/simd/avx2.rs` proves that the
/// bits equal those of the division. The caller must pass times, fractions of them, counts or
/// integers, whose exponents are far from both limits.
#[inline(always)]
pub(crate) fn divide_by_inverse(dividend: f64, by: PreparedDivisor) -> f64 {
    let closer = |quotient: f64| {
        let remainder = (-quotient).mul_add(by.divisor, dividend);
        remainder.mul_add(by.inverse, quotient)
    };
    closer(closer(dividend * by.inverse))
}
