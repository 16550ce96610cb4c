//! Numbers of at most 64 bits packed into as many bits as the widest needs.
//!
//! They are packed in lanes, so that neighbouring numbers lie in neighbouring words and a compiler
//! unpacks them side by side. Up to 32 bits there are four lanes of 32-bit words, above two lanes
//! of 64-bit words: number `i` of four lanes is the `i / 4`th of lane `i % 4`, a lane is packed
//! least significant bit first, and the words of the lanes alternate. Of the last word of each lane
//! there are only the bytes that hold something.
//!
//! Source of the lanes: Lemire and Boytsov, "Decoding billions of integers per second through
//! vectorization".

use super::instructions::Instructions;
use crate::encoding::cursor::Cursor;
use crate::encoding::{Malformed, few};

/// Numbers in a full vector.
pub(super) const VECTOR: usize = 128;

/// Widths up to here have four lanes of 32-bit words.
pub(super) const NARROW: usize = 32;

/// Bytes of `count` numbers of `width` bits.
#[inline]
pub(super) fn packed_bytes(count: usize, width: usize) -> usize {
    let lanes = if width <= NARROW { 4 } else { 2 };
    lanes * (count.div_ceil(lanes) * width).div_ceil(8)
}

/// Appends at most [`VECTOR`] numbers, of which the low `width` bits count.
pub(super) fn pack(out: &mut Vec<u8>, numbers: &[u64], width: usize) {
    match width {
        0 => (),
        1..=NARROW => pack_lanes::<4, 4>(out, numbers, width),
        _ => pack_lanes::<2, 8>(out, numbers, width),
    }
}

fn pack_lanes<const LANES: usize, const WORD: usize>(
    out: &mut Vec<u8>,
    numbers: &[u64],
    width: usize,
) {
    let mask = u64::MAX >> (64 - width);
    let base = out.len();
    out.resize(base + packed_bytes(numbers.len(), width), 0);
    let packed = &mut out[base..];
    let lane_bytes = packed.len() / LANES;
    for lane in 0..LANES {
        let (mut pending, mut bits, mut done) = (0u128, 0, 0);
        for n in numbers.iter().skip(lane).step_by(LANES) {
            pending |= u128::from(n & mask) << bits;
            bits += width;
            if bits >= 8 * WORD {
                put(packed, LANES, lane, done, &pending.to_le_bytes()[..WORD]);
                pending >>= 8 * WORD;
                bits -= 8 * WORD;
                done += WORD;
            }
        }
        // A lane may have a number less than others, but never a byte.
        while done < lane_bytes {
            let len = WORD.min(lane_bytes - done);
            put(packed, LANES, lane, done, &pending.to_le_bytes()[..len]);
            pending >>= 8 * len;
            done += len;
        }
    }
}

/// Puts the next bytes of a lane, which is `done` so far, to their place.
fn put(packed: &mut [u8], lanes: usize, lane: usize, done: usize, bytes: &[u8]) {
    let at = lanes * done + lane * bytes.len();
    packed[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Reads `count` numbers of `width` bits, at most [`VECTOR`] and 64, adds `low` to each, wrapping,
/// and puts those into `out` for which it has room, a multiple of eight; what lies behind them
/// there may change.
#[inline]
pub(super) fn unpack(
    cursor: &mut Cursor<'_>,
    count: usize,
    width: usize,
    low: i64,
    (with, out): (Instructions, &mut [i64]),
) -> Result<(), Malformed> {
    let rest = cursor.rest();
    let bytes = cursor.bytes(packed_bytes(count, width))?;
    match width {
        0 => out.fill(low),
        _ if with.unpack(rest, bytes, width, low, out) => (),
        1..=NARROW => unpack_narrow(bytes, width, low, out),
        _ => unpack_wide(bytes, width, low, out),
    }
    Ok(())
}

fn unpack_narrow(bytes: &[u8], width: usize, low: i64, out: &mut [i64]) {
    const LANES: usize = 4;
    // One word more than there is: the last number of a lane may look at it, and masks it out.
    let mut words = [[0u32; LANES]; NARROW + 1];
    let (full, rest) = bytes.as_chunks::<16>();
    for (words, bytes) in words.iter_mut().zip(full) {
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
    }
    if let (Some(words), false) = (words.get_mut(full.len()), rest.is_empty()) {
        for (word, bytes) in words.iter_mut().zip(rest.chunks(rest.len() / LANES)) {
            *word = few(bytes) as u32;
        }
    }
    let mask = u32::MAX >> (NARROW - width);
    for (row, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let bit = row * width;
        let (at, shift) = (bit / NARROW, (bit % NARROW) as u32);
        let (these, next) = (words[at], words[at + 1]);
        for lane in 0..LANES {
            // Two shifts, as one by 32 is none.
            let word = these[lane] >> shift | next[lane] << 1 << (31 - shift);
            out[lane] = low.wrapping_add(i64::from(word & mask));
        }
    }
}

fn unpack_wide(bytes: &[u8], width: usize, low: i64, out: &mut [i64]) {
    const LANES: usize = 2;
    let mut words = [[0u64; LANES]; 65];
    let (full, rest) = bytes.as_chunks::<16>();
    for (words, bytes) in words.iter_mut().zip(full) {
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    }
    if let (Some(words), false) = (words.get_mut(full.len()), rest.is_empty()) {
        for (word, bytes) in words.iter_mut().zip(rest.chunks(rest.len() / LANES)) {
            *word = few(bytes);
        }
    }
    let mask = u64::MAX >> (64 - width);
    for (row, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let bit = row * width;
        let (at, shift) = (bit / 64, (bit % 64) as u32);
        let (these, next) = (words[at], words[at + 1]);
        for lane in 0..LANES {
            let word = these[lane] >> shift | next[lane] << 1 << (63 - shift);
            out[lane] = low.wrapping_add((word & mask) as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    fn cases() -> impl Iterator<Item = (usize, Instructions)> {
        let counts = [0, 1, 3, 64, 96, 127, VECTOR];
        let of_count = |count| {
            Instructions::all()
                .into_iter()
                .map(move |with| (count, with))
        };
        counts.into_iter().flat_map(of_count)
    }

    #[test]
    fn bits_of_every_width_and_count_return() {
        let rng = SimRng::new(1);
        for width in 0..=64usize {
            for (count, with) in cases() {
                let mask = u64::MAX.checked_shr(64 - width as u32).unwrap_or(0);
                let mut numbers: Vec<u64> = (0..count).map(|_| rng.next_u64() & mask).collect();
                if let Some(last) = numbers.last_mut() {
                    *last = mask;
                }
                let mut bytes = vec![7];
                pack(&mut bytes, &numbers, width);
                assert_eq!(bytes.len(), 1 + packed_bytes(count, width));
                let mut cursor = Cursor::new(&bytes[1..]);
                let mut out = [-1; VECTOR];
                unpack(&mut cursor, count, width, -5, (with, &mut out)).unwrap();
                let out = out.map(|n| n.wrapping_add(5) as u64);
                assert_eq!(out[..count], numbers, "{count} of {width} bits");
                assert!(cursor.is_empty());
            }
        }
    }
}
