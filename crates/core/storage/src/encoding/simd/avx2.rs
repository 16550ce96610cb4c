//! The loops of [`super`] for processors with AVX2 and FMA.
//!
//! A value of [`Avx2`] proves that the processor has both, because only [`Avx2::detect`] creates
//! one. Each loop gives the same bits as [`super::portable`]. Nothing here reads or writes through
//! a pointer: the only unsafe operation is to call a function whose instructions the processor may
//! lack.

#![allow(unsafe_code)]

use super::PackedLanes;
use crate::encoding::decimal::{DecimalConversion, OFFSET, SMALL};
use std::arch::x86_64::*;

/// Bytes of a row, which contains one word of each lane.
const ROW: usize = 16;

/// Proof that the processor has AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Returns the proof, if the processor and the operating system support both.
    #[inline]
    pub(super) fn detect() -> Option<Self> {
        let has_both = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        has_both.then_some(Self(()))
    }

    /// Unpacks numbers; see [`super::unpack`].
    #[inline]
    pub(super) fn unpack(self, packed: PackedLanes<'_>, low: i64, out: &mut [i64]) {
        let PackedLanes { bytes, rest, width } = packed;
        let rows = rest.as_chunks().0;
        if bytes.len().is_multiple_of(ROW) && rows.len() > bytes.len() / ROW {
            return self.unpack_rows(rows, width, low, out);
        }
        // One case per range of widths, so that no more memory than necessary is cleared.
        match width {
            0..=8 => self.unpack_rows(&copy_whole_words::<4, 9>(bytes), width, low, out),
            9..=16 => self.unpack_rows(&copy_whole_words::<4, 17>(bytes), width, low, out),
            17..=32 => self.unpack_rows(&copy_whole_words::<4, 33>(bytes), width, low, out),
            _ => self.unpack_rows(&copy_whole_words::<8, 65>(bytes), width, low, out),
        }
    }

    /// Unpacks numbers from rows. After the rows of the numbers there must be one more row, with
    /// any content.
    #[inline]
    fn unpack_rows(self, rows: &[[u8; ROW]], width: usize, low: i64, out: &mut [i64]) {
        // SAFETY: `self` exists, so the processor has AVX2 and FMA.
        unsafe {
            match width {
                ..=32 => unpack_narrow(rows, width, low, out),
                _ => unpack_wide(rows, width, low, out),
            }
        }
    }

    /// Computes running sums; see [`super::prefix_sum`].
    #[inline]
    pub(super) fn prefix_sum(self, before: i64, out: &mut [i64]) -> i64 {
        // SAFETY: `self` exists, so the processor has AVX2 and FMA.
        unsafe { prefix_sum(before, out) }
    }

    /// Converts integers to floats; see [`super::convert_to_floats`]. Returns false if an integer
    /// is too large: then the contents of `floats` are arbitrary.
    #[inline]
    pub(super) fn convert_to_floats(
        self,
        scaling: DecimalConversion,
        ints: &[i64],
        floats: &mut [f64],
    ) -> bool {
        // SAFETY: `self` exists, so the processor has AVX2 and FMA.
        unsafe { convert(scaling, ints, floats) }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn load(row: &[u8; ROW]) -> __m128i {
    let row = u128::from_le_bytes(*row);
    _mm_set_epi64x((row >> 64) as i64, row as i64)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_four(four: &[i64; 4]) -> __m256i {
    _mm256_set_epi64x(four[3], four[2], four[1], four[0])
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn store(numbers: __m256i, four: &mut [i64; 4]) {
    *four = [
        _mm256_extract_epi64::<0>(numbers),
        _mm256_extract_epi64::<1>(numbers),
        _mm256_extract_epi64::<2>(numbers),
        _mm256_extract_epi64::<3>(numbers),
    ];
}

/// Loads the rows in which the numbers of two rows begin, and the rows after them.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_rows(rows: &[[u8; ROW]], first: usize, second: usize) -> (__m256i, __m256i) {
    let pair = |at: usize| match rows.get(at..at + 2) {
        Some([these, next]) => (load(these), load(next)),
        _ => (_mm_setzero_si128(), _mm_setzero_si128()),
    };
    let (a, b) = (pair(first), pair(second));
    (_mm256_set_m128i(b.0, a.0), _mm256_set_m128i(b.1, a.1))
}

/// Unpacks eight numbers at a time.
#[target_feature(enable = "avx2,fma")]
fn unpack_narrow(rows: &[[u8; ROW]], width: usize, low: i64, out: &mut [i64]) {
    let mask = _mm256_set1_epi32((u32::MAX >> (32 - width)) as i32);
    let low = _mm256_set1_epi64x(low);
    let mut bit = 0;
    for eight in out.as_chunks_mut::<8>().0 {
        let (first, second) = (bit, bit + width);
        bit = second + width;
        let (these, next) = load_rows(rows, first / 32, second / 32);
        let shifts = (first % 32, second % 32);
        let (first, second) = (
            _mm_set1_epi32(shifts.0 as i32),
            _mm_set1_epi32(shifts.1 as i32),
        );
        let shift = _mm256_set_m128i(second, first);
        let back = _mm256_sub_epi32(_mm256_set1_epi32(32), shift);
        // A shift by 32 leaves zero.
        let these = _mm256_srlv_epi32(these, shift);
        let next = _mm256_sllv_epi32(next, back);
        let numbers = _mm256_and_si256(_mm256_or_si256(these, next), mask);
        let (a, b) = eight.split_at_mut(4);
        for (half, out) in [
            _mm256_castsi256_si128(numbers),
            _mm256_extracti128_si256::<1>(numbers),
        ]
        .into_iter()
        .zip([a, b])
        {
            if let Some(four) = out.first_chunk_mut() {
                store(_mm256_add_epi64(_mm256_cvtepu32_epi64(half), low), four);
            }
        }
    }
}

/// Unpacks four numbers at a time.
#[target_feature(enable = "avx2,fma")]
fn unpack_wide(rows: &[[u8; ROW]], width: usize, low: i64, out: &mut [i64]) {
    let mask = _mm256_set1_epi64x((u64::MAX >> (64 - width)) as i64);
    let low = _mm256_set1_epi64x(low);
    let mut bit = 0;
    for four in out.as_chunks_mut::<4>().0 {
        let (first, second) = (bit, bit + width);
        bit = second + width;
        let (these, next) = load_rows(rows, first / 64, second / 64);
        let (first, second) = ((first % 64) as i64, (second % 64) as i64);
        let shift = _mm256_set_epi64x(second, second, first, first);
        let back = _mm256_sub_epi64(_mm256_set1_epi64x(64), shift);
        let these = _mm256_srlv_epi64(these, shift);
        let next = _mm256_sllv_epi64(next, back);
        let numbers = _mm256_and_si256(_mm256_or_si256(these, next), mask);
        store(_mm256_add_epi64(numbers, low), four);
    }
}

#[target_feature(enable = "avx2,fma")]
fn prefix_sum(before: i64, out: &mut [i64]) -> i64 {
    let mut sums = _mm256_set1_epi64x(before);
    for four in out.as_chunks_mut::<4>().0 {
        let n = load_four(four);
        // First within each half, then the sum of the first half is added to the second.
        let pairs = _mm256_add_epi64(n, _mm256_slli_si256::<8>(n));
        let first = _mm256_permute4x64_epi64::<0b01_01_01_01>(pairs);
        let first = _mm256_blend_epi32::<0b1111_0000>(_mm256_setzero_si256(), first);
        let n = _mm256_add_epi64(pairs, first);
        store(_mm256_add_epi64(n, sums), four);
        // Computed so that only one addition depends on the previous four.
        sums = _mm256_add_epi64(sums, _mm256_permute4x64_epi64::<0b11_11_11_11>(n));
    }
    _mm256_extract_epi64::<0>(sums)
}

#[target_feature(enable = "avx2,fma")]
fn convert(scaling: DecimalConversion, ints: &[i64], floats: &mut [f64]) -> bool {
    match scaling {
        DecimalConversion::Ordered => convert_by_four(ints, floats, |ints| unorder(ints)),
        DecimalConversion::One => return convert_small(ints, floats, |float| float),
        DecimalConversion::Factor(factor) => {
            let factor = _mm256_set1_pd(factor);
            return convert_small(ints, floats, |float| _mm256_mul_pd(float, factor));
        }
        DecimalConversion::Divisor(by) => {
            let (inverse, divisor) = (_mm256_set1_pd(by.inverse), _mm256_set1_pd(by.power));
            return convert_small(ints, floats, |float| divide(float, divisor, inverse));
        }
    }
    true
}

/// Returns the quotient, correctly rounded like a division, in a third of its time.
///
/// The inverse is rounded to the nearest, so the product is off by less than two units in the last
/// place, and one Newton step leaves less than one. From there a second step gives the correctly
/// rounded quotient, because the remainder of such an approximation is exact (Markstein,
/// "Computation of elementary functions on the IBM RISC System/6000 processor", theorem 8.2 in
/// Cornea, Harrison and Tang). Dividends are integers below 2^51 and divisors powers of ten up to
/// 10^15, far from the limits of the exponents; a dividend of zero stays zero.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn divide(dividend: __m256d, divisor: __m256d, inverse: __m256d) -> __m256d {
    let mut quotient = _mm256_mul_pd(dividend, inverse);
    for _ in 0..2 {
        let remainder = _mm256_fnmadd_pd(quotient, divisor, dividend);
        quotient = _mm256_fmadd_pd(remainder, inverse, quotient);
    }
    quotient
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn unorder(ints: __m256i) -> __m256d {
    let is_negative = _mm256_cmpgt_epi64(_mm256_setzero_si256(), ints);
    let turned = _mm256_and_si256(is_negative, _mm256_set1_epi64x(i64::MAX));
    _mm256_castsi256_pd(_mm256_xor_si256(ints, turned))
}

/// Converts integers within 2^51 of zero to floats and applies `scale`. Returns false if an integer
/// is larger.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn convert_small(ints: &[i64], floats: &mut [f64], scale: impl Fn(__m256d) -> __m256d) -> bool {
    let bias = _mm256_set1_epi64x(OFFSET.to_bits() as i64);
    let offset = _mm256_set1_pd(OFFSET);
    let small = _mm256_set1_epi64x(SMALL);
    let mut above = _mm256_setzero_si256();
    convert_by_four(ints, floats, |ints| {
        let top = _mm256_srli_epi64::<52>(_mm256_add_epi64(ints, small));
        above = _mm256_or_si256(above, top);
        let biased = _mm256_castsi256_pd(_mm256_add_epi64(ints, bias));
        scale(_mm256_sub_pd(biased, offset))
    });
    _mm256_testz_si256(above, above) == 1
}

/// Applies `make` to all integers, four at a time.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn convert_by_four(ints: &[i64], floats: &mut [f64], mut make: impl FnMut(__m256i) -> __m256d) {
    let mut make_four = |four: &[i64; 4]| {
        let mut bits = [0; 4];
        store(_mm256_castpd_si256(make(load_four(four))), &mut bits);
        bits.map(|bits| f64::from_bits(bits as u64))
    };
    let ((ints, last_ints), (floats, last_floats)) = (ints.as_chunks(), floats.as_chunks_mut());
    for (ints, floats) in ints.iter().zip(floats) {
        *floats = make_four(ints);
    }
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(last_ints) {
        *to = *from;
    }
    for (to, from) in last_floats.iter_mut().zip(make_four(&last)) {
        *to = from;
    }
}

/// Returns the rows of `bytes`, of which the last words may be incomplete, followed by a row of
/// zeros.
#[inline]
fn copy_whole_words<const WORD: usize, const ROWS: usize>(bytes: &[u8]) -> [[u8; ROW]; ROWS] {
    let mut rows = [[0; ROW]; ROWS];
    let (full, partial) = bytes.as_chunks();
    for (row, bytes) in rows.iter_mut().zip(full) {
        *row = *bytes;
    }
    if let Some(row) = rows.get_mut(full.len())
        && !partial.is_empty()
    {
        let lane_bytes = partial.len() / (ROW / WORD);
        let words = row.as_chunks_mut::<WORD>().0.iter_mut();
        for (word, bytes) in words.zip(partial.chunks(lane_bytes)) {
            // Byte by byte, because a copy of a variable number of bytes would be a call.
            for (to, from) in word.iter_mut().zip(bytes) {
                *to = *from;
            }
        }
    }
    rows
}
