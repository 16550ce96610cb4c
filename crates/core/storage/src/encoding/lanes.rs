//! Vectors of numbers of one width, packed in lanes.
//!
//! Neighbouring numbers are in neighbouring words, so that a compiler can unpack them in parallel.
//! Up to 32 bits there are four lanes of 32-bit words, above that two lanes of 64-bit words. Number
//! `i` of four lanes is the `i / 4`th of lane `i % 4`. A lane is packed least significant bit
//! first, and the words of the lanes alternate. Of the last word of each lane only the used bytes
//! are stored.
//!
//! Source of the lanes: Lemire and Boytsov, "Decoding billions of integers per second through
//! vectorization".

use super::DecodeError;
use super::bits::push_bits;
use super::cursor::DecodeCursor;
use super::simd::{self, PackedLanes};

/// Number of numbers in a full vector.
pub(crate) const VECTOR: usize = 128;

/// Maximum width with four lanes of 32-bit words.
pub(super) const NARROW: usize = 32;

/// Returns the size in bytes of `count` packed numbers of `width` bits.
#[inline]
pub(crate) fn packed_bytes(count: usize, width: usize) -> usize {
    let lanes = if width <= NARROW { 4 } else { 2 };
    lanes * (count.div_ceil(lanes) * width).div_ceil(8)
}

/// Packs at most [`VECTOR`] numbers, the low `width` bits of each, and appends them to `out`.
pub(crate) fn pack(out: &mut Vec<u8>, numbers: &[u64], width: usize) {
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
    let mut lane_bytes = Vec::with_capacity(packed.len() / LANES + size_of::<u64>());
    for lane in 0..LANES {
        lane_bytes.clear();
        let of_lane = numbers.iter().skip(lane).step_by(LANES);
        push_bits(&mut lane_bytes, width, of_lane.map(|n| n & mask));
        // A lane with one number less may have fewer bytes.
        lane_bytes.resize(packed.len() / LANES, 0);
        for (row, word) in lane_bytes.chunks(WORD).enumerate() {
            let at = row * LANES * WORD + lane * word.len();
            packed[at..at + word.len()].copy_from_slice(word);
        }
    }
}

/// Unpacks `count` numbers of `width` bits, at most [`VECTOR`] and 64, and adds `low` to each,
/// wrapping. Stores as many as `out` has places, which must be a multiple of eight; the places
/// after the last number may change.
#[inline]
pub(crate) fn unpack(
    cursor: &mut DecodeCursor<'_>,
    count: usize,
    width: usize,
    low: i64,
    out: &mut [i64],
) -> Result<(), DecodeError> {
    let rest = cursor.rest();
    let bytes = cursor.read_bytes(packed_bytes(count, width))?;
    match width {
        0 => out.fill(low),
        _ => simd::unpack(PackedLanes { bytes, rest, width }, low, out),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    #[test]
    fn lanes_of_every_width_and_count_return() {
        let rng = SimRng::new(1);
        for width in 0..=64usize {
            for count in [0, 1, 3, 64, 96, 127, VECTOR] {
                let mask = u64::MAX.checked_shr(64 - width as u32).unwrap_or(0);
                let mut numbers: Vec<u64> = (0..count).map(|_| rng.next_u64() & mask).collect();
                if let Some(last) = numbers.last_mut() {
                    *last = mask;
                }
                let mut bytes = vec![7];
                pack(&mut bytes, &numbers, width);
                assert_eq!(bytes.len(), 1 + packed_bytes(count, width));
                let mut cursor = DecodeCursor::new(&bytes[1..]);
                let mut out = [-1; VECTOR];
                unpack(&mut cursor, count, width, -5, &mut out).unwrap();
                let out = out.map(|n| n.wrapping_add(5) as u64);
                assert_eq!(out[..count], numbers, "{count} of {width} bits");
                assert!(cursor.is_empty());
            }
        }
    }
}
