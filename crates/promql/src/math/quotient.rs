//! Quotients of many numbers by one, to the bit of the division.

/// What much is divided by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    divisor: f64,
    /// The nearest to it.
    inverse: f64,
}

impl Divisor {
    /// One that takes a division.
    pub(crate) const fn new(divisor: f64) -> Self {
        Self {
            divisor,
            inverse: 1.0 / divisor,
        }
    }
}

/// The quotient.
#[inline(always)]
pub(crate) fn plainly(dividend: f64, by: Divisor) -> f64 {
    dividend / by.divisor
}

/// The quotient in a third of the time of a division where the processor has fused multiply-add.
/// By Markstein; `page/avx2.rs` of the storage proves that the bits are those of the division. The
/// caller must pass times, shares of them, counts or integers: their exponents are far from the
/// ends of their range.
#[inline(always)]
pub(crate) fn by_inverse(dividend: f64, by: Divisor) -> f64 {
    let closer = |quotient: f64| {
        let remainder = (-quotient).mul_add(by.divisor, dividend);
        remainder.mul_add(by.inverse, quotient)
    };
    closer(closer(dividend * by.inverse))
}
