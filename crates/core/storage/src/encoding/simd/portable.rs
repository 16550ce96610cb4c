//! The loops of [`super`] for every processor, written so that a compiler can process several
//! numbers at a time.

use super::PackedLanes;
use crate::encoding::cursor::decode_little_endian;
use crate::encoding::decimal::{DecimalConversion, OFFSET, SMALL, order_bits};
use crate::encoding::lanes::{NARROW, VECTOR};

/// Bytes of a row, which contains one word of each lane.
const ROW_BYTES: usize = 16;

/// Maximum number of rows of a vector plus one: the last number of a lane may read it, and masks it
/// out.
const ROWS: usize = VECTOR * 64 / 8 / ROW_BYTES + 1;
const NARROW_ROWS: usize = VECTOR * NARROW / 8 / ROW_BYTES + 1;

/// Unpacks numbers; see [`super::unpack`].
pub(super) fn unpack(packed: PackedLanes<'_>, low: i64, out: &mut [i64]) {
    match packed.width {
        ..=NARROW => unpack_narrow(packed.bytes, packed.width, low, out),
        width => unpack_wide(packed.bytes, width, low, out),
    }
}

fn unpack_narrow(bytes: &[u8], width: usize, low: i64, out: &mut [i64]) {
    const LANES: usize = 4;
    let mut rows = [[0u32; LANES]; NARROW_ROWS];
    for_each_word::<LANES, 4>(bytes, |row, lane, word| rows[row][lane] = word as u32);
    let mask = u32::MAX >> (NARROW - width);
    for (i, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let bit = i * width;
        let (at, shift) = (bit / NARROW, (bit % NARROW) as u32);
        let (these, next) = (rows[at], rows[at + 1]);
        for lane in 0..LANES {
            // Two shifts, because a shift by 32 is not possible.
            let word = these[lane] >> shift | next[lane] << 1 << (31 - shift);
            out[lane] = low.wrapping_add(i64::from(word & mask));
        }
    }
}

fn unpack_wide(bytes: &[u8], width: usize, low: i64, out: &mut [i64]) {
    const LANES: usize = 2;
    let mut rows = [[0u64; LANES]; ROWS];
    for_each_word::<LANES, 8>(bytes, |row, lane, word| rows[row][lane] = word);
    let mask = u64::MAX >> (64 - width);
    for (i, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let bit = i * width;
        let (at, shift) = (bit / 64, (bit % 64) as u32);
        let (these, next) = (rows[at], rows[at + 1]);
        for lane in 0..LANES {
            let word = these[lane] >> shift | next[lane] << 1 << (63 - shift);
            out[lane] = low.wrapping_add((word & mask) as i64);
        }
    }
}

/// Calls `each` with row, lane and value of every word. The words of the last row may be
/// incomplete.
#[inline]
fn for_each_word<const LANES: usize, const WORD: usize>(
    bytes: &[u8],
    mut each: impl FnMut(usize, usize, u64),
) {
    let (full, last) = bytes.as_chunks::<ROW_BYTES>();
    for (row, bytes) in full.iter().enumerate() {
        for (lane, word) in bytes.as_chunks::<WORD>().0.iter().enumerate() {
            each(row, lane, decode_little_endian(word));
        }
    }
    if !last.is_empty() {
        for (lane, word) in last.chunks(last.len() / LANES).enumerate() {
            each(full.len(), lane, decode_little_endian(word));
        }
    }
}

/// Computes running sums; see [`super::prefix_sum`].
pub(super) fn prefix_sum(before: i64, out: &mut [i64]) -> i64 {
    let mut sum = before;
    // Four at once, so that only one of four additions depends on the previous ones.
    for four in out.as_chunks_mut::<4>().0 {
        let [a, b, c, d] = *four;
        let ab = a.wrapping_add(b);
        let abc = ab.wrapping_add(c);
        let abcd = ab.wrapping_add(c.wrapping_add(d));
        *four = [a, ab, abc, abcd].map(|n| n.wrapping_add(sum));
        sum = sum.wrapping_add(abcd);
    }
    sum
}

/// Converts integers to floats; see [`super::convert_to_floats`].
pub(super) fn convert_to_floats(scaling: DecimalConversion, ints: &[i64], floats: &mut [f64]) {
    match scaling {
        DecimalConversion::Ordered => convert_each(ints, floats, |int| {
            f64::from_bits(order_bits(int as u64) as u64)
        }),
        DecimalConversion::One => convert_scaled(ints, floats, |float| float),
        DecimalConversion::Divisor(by) => convert_scaled(ints, floats, |float| float / by.power),
        DecimalConversion::Factor(factor) => convert_scaled(ints, floats, |float| float * factor),
    }
}

/// Converts integers to floats and applies `scale`; several at a time if all are small.
#[inline]
fn convert_scaled(ints: &[i64], floats: &mut [f64], scale: impl Fn(f64) -> f64) {
    let above = |int: &i64| int.wrapping_add(SMALL) as u64 >> 52;
    if ints.iter().fold(0, |any, int| any | above(int)) == 0 {
        convert_each(ints, floats, |int| {
            let biased = (int as u64).wrapping_add(OFFSET.to_bits());
            scale(f64::from_bits(biased) - OFFSET)
        });
    } else {
        convert_each(ints, floats, |int| scale(int as f64));
    }
}

#[inline]
fn convert_each(ints: &[i64], floats: &mut [f64], make: impl Fn(i64) -> f64) {
    for (float, int) in floats.iter_mut().zip(ints) {
        *float = make(*int);
    }
}
