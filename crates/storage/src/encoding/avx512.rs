//! Eight integers or floats at a time, for processors with AVX-512 and its permutations of bytes.
//!
//! A value of [`Avx512`] is the proof that the processor has all that: only [`Avx512::detect`]
//! makes one. What is made of eights here, each room puts together to loops of its own, which have
//! twins for every other processor.

#![allow(unsafe_code)]

use super::decimal::{Divisor, SMALL, Scaling};
use std::arch::x86_64::*;

/// Numbers of a vector.
pub(crate) const EACH: usize = 8;

/// Bytes of a vector.
const BYTES: usize = 64;

/// A processor with AVX-512 and its permutations of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The proof, if the processor and the system have it.
    #[inline]
    pub(crate) fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vbmi");
        has_all.then_some(Self(()))
    }
}

/// The first bytes; what lacks is zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
pub(crate) fn load(bytes: &[u8]) -> __m512i {
    let there = match bytes.len() {
        len @ ..BYTES => (1 << len) - 1,
        _ => u64::MAX,
    };
    // SAFETY: only the bytes of the mask are read, and those are of `bytes`.
    unsafe { _mm512_maskz_loadu_epi8(there, bytes.as_ptr().cast()) }
}

/// The first integers, at most eight; what lacks is zero. Not a copy into eight zeros: a vector
/// that is loaded from what was stored in pieces waits for all of them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
pub(crate) fn load_first(ints: &[i64]) -> __m512i {
    // SAFETY: only the integers of the mask are read, and those are of `ints`.
    unsafe { _mm512_maskz_loadu_epi64(first(ints.len()), ints.as_ptr()) }
}

/// Puts the first floats of a vector into these places, at most eight.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
pub(crate) fn store_first(floats: &mut [f64], vector: __m512d) {
    // SAFETY: only the places of the mask are written, and those are of `floats`.
    unsafe { _mm512_mask_storeu_pd(floats.as_mut_ptr(), first(floats.len()), vector) }
}

/// A mask of so many lanes, at most eight.
#[inline]
fn first(lanes: usize) -> __mmask8 {
    ((1u32 << lanes.min(EACH)) - 1) as __mmask8
}

/// A vector as floats.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
pub(crate) fn floats_of(vector: __m512d) -> [f64; EACH] {
    // SAFETY: both are eight floats, and every pattern of bits is one.
    unsafe { std::mem::transmute::<__m512d, [f64; EACH]>(vector) }
}

/// A vector as integers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
pub(crate) fn ints_of(vector: __m512i) -> [i64; EACH] {
    // SAFETY: both are eight integers.
    unsafe { std::mem::transmute::<__m512i, [i64; EACH]>(vector) }
}

/// As [`super::unzigzag`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
pub(crate) fn unzigzag(numbers: __m512i) -> __m512i {
    let is_odd = _mm512_and_si512(numbers, _mm512_set1_epi64(1));
    let sign = _mm512_sub_epi64(_mm512_setzero_si512(), is_odd);
    _mm512_xor_si512(_mm512_srli_epi64::<1>(numbers), sign)
}

/// Makes each number the sum of all up to it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
pub(crate) fn add_up(numbers: __m512i) -> __m512i {
    let none = _mm512_setzero_si512();
    // Of two, of four and of eight.
    let sums = _mm512_add_epi64(numbers, _mm512_alignr_epi64::<7>(numbers, none));
    let sums = _mm512_add_epi64(sums, _mm512_alignr_epi64::<6>(sums, none));
    _mm512_add_epi64(sums, _mm512_alignr_epi64::<4>(sums, none))
}

/// As [`super::ordered`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn unorder(ints: __m512i) -> __m512d {
    let is_negative = _mm512_srai_epi64::<63>(ints);
    let turned = _mm512_and_si512(is_negative, _mm512_set1_epi64(i64::MAX));
    _mm512_castsi512_pd(_mm512_xor_si512(ints, turned))
}

/// The floats that integers stand for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
pub(crate) fn to_floats(scaling: Scaling, ints: __m512i) -> __m512d {
    match scaling {
        Scaling::Ordered => unorder(ints),
        Scaling::One => _mm512_cvtepi64_pd(ints),
        Scaling::Divisor(by) => divide(ints, by),
        Scaling::Factor(factor) => _mm512_mul_pd(_mm512_cvtepi64_pd(ints), _mm512_set1_pd(factor)),
    }
}

/// The quotients, rounded as a division rounds them: of small integers by Markstein's way, of which
/// `page/avx2.rs` says why it gives the same bits, in a third of the time.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn divide(ints: __m512i, by: Divisor) -> __m512d {
    let (dividend, inverse) = (_mm512_cvtepi64_pd(ints), _mm512_set1_pd(by.inverse));
    let divisor = _mm512_set1_pd(by.power);
    let above = _mm512_add_epi64(ints, _mm512_set1_epi64(SMALL));
    if _mm512_cmpge_epu64_mask(above, _mm512_set1_epi64(2 * SMALL)) != 0 {
        return _mm512_div_pd(dividend, divisor);
    }
    let mut quotient = _mm512_mul_pd(dividend, inverse);
    for _ in 0..2 {
        let remainder = _mm512_fnmadd_pd(quotient, divisor, dividend);
        quotient = _mm512_fmadd_pd(remainder, inverse, quotient);
    }
    quotient
}

/// Eight integers as a vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
pub(crate) fn vector_of(ints: [i64; EACH]) -> __m512i {
    // SAFETY: both are eight integers.
    unsafe { std::mem::transmute::<[i64; EACH], __m512i>(ints) }
}

/// A vector whose lanes are all the last of these.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
pub(crate) fn last_of(ints: __m512i) -> __m512i {
    _mm512_permutexvar_epi64(_mm512_set1_epi64(EACH as i64 - 1), ints)
}

/// The first lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
pub(crate) fn first_lane(ints: __m512i) -> i64 {
    _mm_cvtsi128_si64(_mm512_castsi512_si128(ints))
}
