//! The loops of [`super`], eight numbers at a time, for processors with AVX-512 and its byte
//! permutations.
//!
//! A value of [`Avx512`] proves that the processor has the instructions, because only
//! [`Avx512::detect`] creates one. The words of lanes are arranged so that one permutation gives
//! each of eight numbers the word in which it begins together with the next one, as a word of twice
//! as many bits. One shift then extracts the number.

#![allow(unsafe_code)]

use crate::encoding::decimal::{DecimalConversion, DecimalDivisor, SMALL};
use std::arch::x86_64::*;

/// Number of 64-bit integers or floats in one vector register.
const EACH: usize = 8;

/// Number of bytes in one vector register.
const BYTES: usize = 64;

/// Bytes of a row, which contains one word of each lane.
const ROW: usize = 16;

/// Rows of a vector. The numbers of two rows are in at most three consecutive rows, wherever they
/// begin.
const ROWS: usize = 4;

/// For each byte of a row, its index in contiguous words of 0 to 3 bytes. The index of an absent
/// byte is arbitrary.
const PLACES: [[i64; 2]; 4] = [
    [0, 0],
    [0x0101_0101_0000_0000, 0x0303_0303_0202_0202],
    [0x0303_0302_0101_0100, 0x0707_0706_0505_0504],
    [0x0505_0403_0202_0100, 0x0b0b_0a09_0808_0706],
];

/// Proof that the processor has AVX-512 and its byte permutations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

impl Avx512 {
    /// Returns the proof, if the processor and the operating system support all of them.
    #[inline]
    pub(super) fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vbmi");
        has_all.then_some(Self(()))
    }

    /// Unpacks numbers of at most 32 bits; see [`super::unpack`].
    #[inline]
    pub(super) fn unpack_narrow(self, bytes: &[u8], width: usize, low: i64, out: &mut [i64]) {
        // SAFETY: `self` exists, so the processor has all instructions that the function is
        // compiled for.
        unsafe { unpack_narrow(bytes, width, low, out) }
    }

    /// Computes running sums; see [`super::add_up`].
    #[inline]
    pub(super) fn prefix_sum(self, before: i64, out: &mut [i64]) -> i64 {
        // SAFETY: `self` exists, so the processor has all instructions that the function is
        // compiled for.
        unsafe { prefix_sum_all(before, out) }
    }

    /// Converts integers to floats; see [`super::convert_to_floats`].
    #[inline]
    pub(super) fn convert_to_floats(
        self,
        scaling: DecimalConversion,
        ints: &[i64],
        floats: &mut [f64],
    ) {
        // SAFETY: `self` exists, so the processor has all instructions that the function is
        // compiled for.
        unsafe { convert(scaling, ints, floats) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn unpack_narrow(bytes: &[u8], width: usize, low: i64, out: &mut [i64]) {
    let whole = bytes.as_chunks::<ROW>().0;
    // The rows for which a full vector load would exceed the whole rows.
    let last_from = whole.len().saturating_sub(ROWS - 1);
    let last = last_rows(&bytes[last_from * ROW..]);
    // For two rows of numbers: of each lane, the word of a row and the next one.
    let words = _mm512_set_epi32(7, 3, 6, 2, 5, 1, 4, 0, 7, 3, 6, 2, 5, 1, 4, 0);
    let mask = _mm512_set1_epi64((u32::MAX >> (32 - width)).into());
    let low = _mm512_set1_epi64(low);
    let mut bit = 0;
    for eight in out.as_chunks_mut::<EACH>().0 {
        let (row, second) = (bit / 32, bit + width);
        let (rows, at) = match whole.get(row..row + ROWS) {
            Some(rows) => (load(rows.as_flattened()), 0),
            None => (last, row - last_from),
        };
        let words = _mm512_add_epi32(words, _mm512_set1_epi32(4 * at as i32));
        // The second row of numbers may begin a word later.
        let later = if second / 32 == row { 0 } else { 0xff00 };
        let words = _mm512_mask_add_epi32(words, later, words, _mm512_set1_epi32(4));
        let shift = _mm512_set1_epi64((bit % 32) as i64);
        let shift = _mm512_mask_set1_epi64(shift, 0xf0, (second % 32) as i64);
        let numbers = _mm512_srlv_epi64(_mm512_permutexvar_epi32(words, rows), shift);
        *eight = to_int_array(_mm512_add_epi64(_mm512_and_si512(numbers, mask), low));
        bit = second + width;
    }
}

/// Loads fewer than four whole rows, and after them a row of which only the first bytes of each
/// word are stored. Bytes that belong to no number are arbitrary.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn last_rows(bytes: &[u8]) -> __m512i {
    let rows = load(bytes);
    let (row, word_bytes) = (bytes.len() / ROW, bytes.len() % ROW / 4);
    let places = _mm_set_epi64x(PLACES[word_bytes][1], PLACES[word_bytes][0]);
    let places = _mm512_add_epi8(
        _mm512_broadcast_i32x4(places),
        _mm512_set1_epi8((row * ROW) as i8),
    );
    let wide = _mm512_permutexvar_epi8(places, rows);
    _mm512_mask_blend_epi8(0xffff << (row * ROW), rows, wide)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn prefix_sum_all(before: i64, out: &mut [i64]) -> i64 {
    let mut last = _mm512_set1_epi64(before);
    for eight in out.as_chunks_mut::<EACH>().0 {
        let sums = _mm512_add_epi64(prefix_sum_vector(from_int_array(*eight)), last);
        last = broadcast_last(sums);
        *eight = to_int_array(sums);
    }
    first_lane(last)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn convert(scaling: DecimalConversion, ints: &[i64], floats: &mut [f64]) {
    let (ints, last_ints) = ints.as_chunks::<EACH>();
    let (floats, last_floats) = floats.as_chunks_mut::<EACH>();
    for (ints, floats) in ints.iter().zip(floats) {
        *floats = to_float_array(to_floats(scaling, from_int_array(*ints)));
    }
    store_first(last_floats, to_floats(scaling, load_first(last_ints)));
}

/// Loads the first bytes of a vector; missing ones are zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn load(bytes: &[u8]) -> __m512i {
    let there = match bytes.len() {
        len @ ..BYTES => (1 << len) - 1,
        _ => u64::MAX,
    };
    // SAFETY: only the bytes of the mask are read, and those are in `bytes`.
    unsafe { _mm512_maskz_loadu_epi8(there, bytes.as_ptr().cast()) }
}

/// Loads the first integers, at most eight; missing ones are zero. This avoids a copy into eight
/// zeros, because a vector load from memory that was stored in pieces has to wait for all of them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn load_first(ints: &[i64]) -> __m512i {
    // SAFETY: only the integers of the mask are read, and those are in `ints`.
    unsafe { _mm512_maskz_loadu_epi64(mask_first_lanes(ints.len()), ints.as_ptr()) }
}

/// Stores the first floats of a vector in `floats`, at most eight.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn store_first(floats: &mut [f64], vector: __m512d) {
    // SAFETY: only the places of the mask are written, and those are in `floats`.
    unsafe { _mm512_mask_storeu_pd(floats.as_mut_ptr(), mask_first_lanes(floats.len()), vector) }
}

/// Returns a mask of the first `lanes` lanes, at most eight.
#[inline]
fn mask_first_lanes(lanes: usize) -> __mmask8 {
    ((1u32 << lanes.min(EACH)) - 1) as __mmask8
}

/// Returns the lanes of a vector as floats.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn to_float_array(vector: __m512d) -> [f64; EACH] {
    // SAFETY: both are eight floats, and every pattern of bits is one.
    unsafe { std::mem::transmute::<__m512d, [f64; EACH]>(vector) }
}

/// Returns the lanes of a vector as integers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn to_int_array(vector: __m512i) -> [i64; EACH] {
    // SAFETY: both are eight integers.
    unsafe { std::mem::transmute::<__m512i, [i64; EACH]>(vector) }
}

/// Replaces each number by the sum of all numbers up to it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn prefix_sum_vector(numbers: __m512i) -> __m512i {
    let none = _mm512_setzero_si512();
    // Sums of two, of four and of eight.
    let sums = _mm512_add_epi64(numbers, _mm512_alignr_epi64::<7>(numbers, none));
    let sums = _mm512_add_epi64(sums, _mm512_alignr_epi64::<6>(sums, none));
    _mm512_add_epi64(sums, _mm512_alignr_epi64::<4>(sums, none))
}

/// Inverts [`crate::encoding::format_decimal::ordered`] for eight integers at once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn unorder(ints: __m512i) -> __m512d {
    let is_negative = _mm512_srai_epi64::<63>(ints);
    let turned = _mm512_and_si512(is_negative, _mm512_set1_epi64(i64::MAX));
    _mm512_castsi512_pd(_mm512_xor_si512(ints, turned))
}

/// Converts eight integers to floats.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn to_floats(scaling: DecimalConversion, ints: __m512i) -> __m512d {
    match scaling {
        DecimalConversion::Ordered => unorder(ints),
        DecimalConversion::One => _mm512_cvtepi64_pd(ints),
        DecimalConversion::Divisor(by) => divide(ints, by),
        DecimalConversion::Factor(factor) => {
            _mm512_mul_pd(_mm512_cvtepi64_pd(ints), _mm512_set1_pd(factor))
        }
    }
}

/// Returns the quotients, correctly rounded like a division. For small integers it uses the method
/// that `super::avx2::divide` proves correct.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn divide(ints: __m512i, by: DecimalDivisor) -> __m512d {
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

/// Returns a vector of eight integers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn from_int_array(ints: [i64; EACH]) -> __m512i {
    // SAFETY: both are eight integers.
    unsafe { std::mem::transmute::<[i64; EACH], __m512i>(ints) }
}

/// Returns a vector in which all lanes are the last one of `ints`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn broadcast_last(ints: __m512i) -> __m512i {
    _mm512_permutexvar_epi64(_mm512_set1_epi64(EACH as i64 - 1), ints)
}

/// Returns the first lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn first_lane(ints: __m512i) -> i64 {
    _mm_cvtsi128_si64(_mm512_castsi512_si128(ints))
}
