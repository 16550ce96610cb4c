//! The loops in which page decoding spends its time, in the fastest form that the processor
//! supports.
//!
//! Each function detects the processor and calls one of three forms with identical results: for
//! AVX-512, for AVX2 with FMA, or the portable form, which runs on every processor and serves as
//! the reference in tests. docs/adr/0094 contains measurements of each.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use super::decimal::DecimalConversion;
#[cfg(target_arch = "x86_64")]
use super::lanes::NARROW;
#[cfg(target_arch = "x86_64")]
use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use avx512::Avx512;

/// Packed numbers of one width, in lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedLanes<'a> {
    /// The bytes of the numbers.
    pub(crate) bytes: &'a [u8],
    /// `bytes` with those that follow in memory. A loop may read the latter and ignores their
    /// values.
    pub(crate) rest: &'a [u8],
    /// Bits of each number, 1 to 64.
    pub(crate) width: usize,
}

/// Unpacks numbers, adds `low` to each, wrapping, and stores as many as `out` has places, which
/// must be a multiple of eight.
#[inline]
pub(crate) fn unpack(packed: PackedLanes<'_>, low: i64, out: &mut [i64]) {
    #[cfg(target_arch = "x86_64")]
    if packed.width <= NARROW
        && let Some(avx512) = Avx512::detect()
    {
        return avx512.unpack_narrow(packed.bytes, packed.width, low, out);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = Avx2::detect() {
        return avx2.unpack(packed, low, out);
    }
    portable::unpack(packed, low, out);
}

/// Replaces each difference by the sum of `before` and all differences up to it, wrapping. Returns
/// the last sum. The number of differences must be a multiple of four.
#[inline]
pub(crate) fn prefix_sum(before: i64, differences: &mut [i64]) -> i64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = Avx512::detect() {
        return avx512.prefix_sum(before, differences);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = Avx2::detect() {
        return avx2.prefix_sum(before, differences);
    }
    portable::prefix_sum(before, differences)
}

/// Converts integers to floats; both slices must have the same length.
#[inline]
pub(crate) fn convert_to_floats(scaling: DecimalConversion, ints: &[i64], floats: &mut [f64]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = Avx512::detect() {
        return avx512.convert_to_floats(scaling, ints, floats);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = Avx2::detect()
        && avx2.convert_to_floats(scaling, ints, floats)
    {
        return;
    }
    portable::convert_to_floats(scaling, ints, floats);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::decimal::DecimalScale;
    use crate::encoding::lanes::{VECTOR, pack};
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    /// Returns AVX2, which is not selected on processors with AVX-512.
    #[cfg(target_arch = "x86_64")]
    fn avx2() -> Option<Avx2> {
        Avx2::detect()
    }

    #[test]
    fn unpack_gives_the_numbers_of_the_portable_form() {
        for seed in 0..2_000 {
            let rng = SimRng::new(seed);
            let (width, count) = (
                1 + seed as usize % 64,
                1 + rng.next_below(VECTOR as u64) as usize,
            );
            let numbers: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
            let mut rest = Vec::new();
            pack(&mut rest, &numbers, width);
            let end = rest.len();
            // The bytes that follow must not affect the result.
            rest.extend((0..rng.next_below(3) * 9).map(|_| rng.next_u64() as u8));
            let packed = PackedLanes {
                bytes: &rest[..end],
                rest: &rest,
                width,
            };
            let low = rng.next_u64() as i64;
            let mut wanted = [0; VECTOR];
            portable::unpack(packed, low, &mut wanted);
            let check = |unpack: &dyn Fn(&mut [i64])| {
                let mut numbers = [0; VECTOR];
                unpack(&mut numbers);
                assert_eq!(numbers[..count], wanted[..count], "seed {seed}");
            };
            check(&|out| unpack(packed, low, out));
            #[cfg(target_arch = "x86_64")]
            avx2().inspect(|avx2| check(&|out| avx2.unpack(packed, low, out)));
        }
    }

    #[test]
    fn add_up_gives_the_sums_of_the_portable_form() {
        for seed in 0..200 {
            let rng = SimRng::new(seed);
            let numbers = [(); VECTOR].map(|()| rng.next_u64() as i64 >> (seed % 64));
            let mut wanted = numbers;
            let last = portable::prefix_sum(-3, &mut wanted);
            let check = |add_up: &dyn Fn(&mut [i64]) -> i64| {
                let mut sums = numbers;
                assert_eq!((add_up(&mut sums), sums), (last, wanted), "seed {seed}");
            };
            check(&|sums| prefix_sum(-3, sums));
            #[cfg(target_arch = "x86_64")]
            avx2().inspect(|avx2| check(&|sums| avx2.prefix_sum(-3, sums)));
        }
    }

    #[test]
    fn floats_gives_the_bits_of_the_portable_form() {
        let scales = (0..32)
            .filter_map(DecimalScale::from_code)
            .map(DecimalScale::to_conversion);
        let scalings: Vec<DecimalConversion> = scales.chain([DecimalConversion::Ordered]).collect();
        for seed in 0..400 {
            let rng = SimRng::new(seed);
            let width = rng.next_u64() % 62;
            let edge = [0, 1, -1, (1 << 51) - 1, -(1 << 51), 1 << 51, i64::MIN];
            let int = |i: usize| match rng.next_u64() % 40 {
                0 => edge[(i + seed as usize) % edge.len()],
                _ => rng.next_u64() as i64 >> (63 - width.min(50)),
            };
            let ints: Vec<i64> = (0..seed as usize % 300).map(int).collect();
            // Also without integers that are too large, so that the fast path runs to its end.
            let small: Vec<i64> = ints.iter().map(|int| int >> 12).collect();
            for (scaling, ints) in scalings.iter().flat_map(|s| [(*s, &ints), (*s, &small)]) {
                let bits = |convert: &dyn Fn(&mut [f64]) -> bool| {
                    let mut floats = vec![7.0; ints.len()];
                    let is_done = convert(&mut floats);
                    let bits = floats.into_iter().map(f64::to_bits);
                    is_done.then(|| bits.collect::<Vec<_>>())
                };
                let wanted = bits(&|out| {
                    portable::convert_to_floats(scaling, ints, out);
                    true
                });
                let best = bits(&|out| {
                    convert_to_floats(scaling, ints, out);
                    true
                });
                assert_eq!(best, wanted, "seed {seed}, {scaling:?}, {ints:?}");
                #[cfg(target_arch = "x86_64")]
                if let Some(bits) =
                    avx2().and_then(|avx2| bits(&|out| avx2.convert_to_floats(scaling, ints, out)))
                {
                    assert_eq!(Some(bits), wanted, "seed {seed}, {scaling:?}, {ints:?}");
                }
            }
        }
    }
}
