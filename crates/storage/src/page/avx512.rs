//! The three loops that decoding spends its time in, eight numbers at a time, for processors with
//! AVX-512.
//!
//! Each loop does what its twin in [`super::bits`], [`super::ints`] or [`super::floats`] does, to
//! the bit; the twins are what tests compare with. Words of lanes lie so that a permutation gives
//! each of eight numbers the word in which it begins and the one behind it, as a word of twice as
//! many bits: one shift is then enough.

#![allow(unsafe_code)]

use crate::encoding::avx512::{
    Avx512, EACH, add_up, first_lane, floats_of, ints_of, last_of, load, load_first, store_first,
    to_floats, vector_of,
};
use crate::encoding::decimal::Scaling;
use std::arch::x86_64::*;

/// Bytes of a word of each lane.
const ROW: usize = 16;

/// Rows of a vector: the numbers of two rows, wherever they begin, lie in three.
const ROWS: usize = 4;

/// For each byte of a row where it is in words of so many bytes, which lie behind each other; what
/// a word lacks is anything.
const PLACES: [[i64; 2]; 4] = [
    [0, 0],
    [0x0101_0101_0000_0000, 0x0303_0303_0202_0202],
    [0x0303_0302_0101_0100, 0x0707_0706_0505_0504],
    [0x0505_0403_0202_0100, 0x0b0b_0a09_0808_0706],
];

impl Avx512 {
    /// As [`super::bits::unpack`], of the 1 to 32 bits wide numbers in `bytes`.
    #[inline]
    pub(super) fn unpack_narrow(self, bytes: &[u8], width: usize, low: i64, out: &mut [i64]) {
        // SAFETY: `self` exists, so the processor has what the function is compiled for.
        unsafe { unpack_narrow(bytes, width, low, out) }
    }

    /// As [`super::ints::add_up`].
    #[inline]
    pub(super) fn add_up(self, before: i64, out: &mut [i64]) -> i64 {
        // SAFETY: `self` exists, so the processor has what the function is compiled for.
        unsafe { add_up_all(before, out) }
    }

    /// As [`super::floats::append_floats`], of as many floats as integers.
    #[inline]
    pub(super) fn convert(self, scaling: Scaling, ints: &[i64], floats: &mut [f64]) {
        // SAFETY: `self` exists, so the processor has what the function is compiled for.
        unsafe { convert(scaling, ints, floats) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn unpack_narrow(bytes: &[u8], width: usize, low: i64, out: &mut [i64]) {
    let whole = bytes.as_chunks::<ROW>().0;
    // What a vector would read beyond the whole rows.
    let last_from = whole.len().saturating_sub(ROWS - 1);
    let last = last_rows(&bytes[last_from * ROW..]);
    // Of each lane the word of a row and the one behind it, for two rows of numbers.
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
        *eight = ints_of(_mm512_add_epi64(_mm512_and_si512(numbers, mask), low));
        bit = second + width;
    }
}

/// Fewer than four rows, and behind the whole ones the one of whose words there are only the first
/// bytes. What no number reaches is anything.
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
fn add_up_all(before: i64, out: &mut [i64]) -> i64 {
    let mut last = _mm512_set1_epi64(before);
    for eight in out.as_chunks_mut::<EACH>().0 {
        let sums = _mm512_add_epi64(add_up(vector_of(*eight)), last);
        last = last_of(sums);
        *eight = ints_of(sums);
    }
    first_lane(last)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
fn convert(scaling: Scaling, ints: &[i64], floats: &mut [f64]) {
    let (ints, last_ints) = ints.as_chunks::<EACH>();
    let (floats, last_floats) = floats.as_chunks_mut::<EACH>();
    for (ints, floats) in ints.iter().zip(floats) {
        *floats = floats_of(to_floats(scaling, vector_of(*ints)));
    }
    store_first(last_floats, to_floats(scaling, load_first(last_ints)));
}
