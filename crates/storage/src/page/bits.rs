//! Numbers of at most 64 bits packed into as many bits as the widest needs.
//!
//! A full vector of 128 numbers is packed in lanes, so that neighbouring numbers lie in
//! neighbouring words and a compiler unpacks them side by side: number `i` of a narrow vector (up
//! to 32 bits) is the `i / 4`th of lane `i % 4`, and the words of the four lanes alternate; a wide
//! one has two lanes of 64-bit words. A shorter vector is packed plainly, least significant bit
//! first. Either takes no more bytes than its bits.
//!
//! Source of the lanes: Lemire and Boytsov, "Decoding billions of integers per second through
//! vectorization".

use crate::codec::Malformed;
use crate::codec::cursor::Cursor;

/// Numbers in a full vector.
pub(super) const VECTOR: usize = 128;

/// Widths up to here have four lanes of 32-bit words.
const NARROW: usize = 32;

/// Bytes of `count` numbers of `width` bits.
pub(super) fn packed_bytes(count: usize, width: usize) -> usize {
    (count * width).div_ceil(8)
}

/// Appends at most [`VECTOR`] numbers, of which the low `width` bits count.
pub(super) fn pack(out: &mut Vec<u8>, numbers: &[u64], width: usize) {
    if width == 0 {
        return;
    }
    let mask = u64::MAX >> (64 - width);
    match numbers.first_chunk::<VECTOR>() {
        Some(numbers) if width <= NARROW => pack_lanes::<4, 32>(out, numbers, width, mask),
        Some(numbers) => pack_lanes::<2, 64>(out, numbers, width, mask),
        None => pack_plain(out, numbers, width, mask),
    }
}

fn pack_lanes<const LANES: usize, const WORD: usize>(
    out: &mut Vec<u8>,
    numbers: &[u64; VECTOR],
    width: usize,
    mask: u64,
) {
    let base = out.len();
    out.resize(base + packed_bytes(VECTOR, width), 0);
    for lane in 0..LANES {
        let (mut pending, mut bits, mut word) = (0u128, 0, 0);
        for n in numbers.iter().skip(lane).step_by(LANES) {
            pending |= u128::from(n & mask) << bits;
            bits += width;
            while bits >= WORD {
                let at = base + (word * LANES + lane) * WORD / 8;
                let bytes = pending.to_le_bytes();
                out[at..at + WORD / 8].copy_from_slice(&bytes[..WORD / 8]);
                pending >>= WORD;
                bits -= WORD;
                word += 1;
            }
        }
    }
}

fn pack_plain(out: &mut Vec<u8>, numbers: &[u64], width: usize, mask: u64) {
    let (mut pending, mut bits) = (0u128, 0);
    for n in numbers {
        pending |= u128::from(n & mask) << bits;
        bits += width;
        while bits >= 8 {
            out.push(pending as u8);
            pending >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(pending as u8);
    }
}

/// Reads `count` numbers of `width` bits, at most [`VECTOR`] and 64, into the front of `out`; what
/// lies behind them there may change.
#[inline]
pub(super) fn unpack(
    cursor: &mut Cursor<'_>,
    count: usize,
    width: usize,
    out: &mut [u64; VECTOR],
) -> Result<(), Malformed> {
    let bytes = cursor.bytes(packed_bytes(count, width))?;
    if width == 0 {
        out.fill(0);
    } else if count < VECTOR {
        unpack_plain(bytes, count, width, out);
    } else if width <= NARROW {
        unpack_narrow(bytes, width, out);
    } else {
        unpack_wide(bytes, width, out);
    }
    Ok(())
}

fn unpack_narrow(bytes: &[u8], width: usize, out: &mut [u64; VECTOR]) {
    const LANES: usize = 4;
    // One word more than there is: the last number of a lane may look at it, and masks it out.
    let mut words = [[0u32; LANES]; NARROW + 1];
    for (words, bytes) in words.iter_mut().zip(bytes.as_chunks::<16>().0) {
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
    }
    let mask = u32::MAX >> (NARROW - width);
    for (row, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let bit = row * width;
        let (at, shift) = (bit / NARROW, (bit % NARROW) as u32);
        let (low, high) = (words[at], words[at + 1]);
        for lane in 0..LANES {
            // Two shifts, as one by 32 is none.
            let word = low[lane] >> shift | high[lane] << 1 << (31 - shift);
            out[lane] = u64::from(word & mask);
        }
    }
}

fn unpack_wide(bytes: &[u8], width: usize, out: &mut [u64; VECTOR]) {
    const LANES: usize = 2;
    let mut words = [[0u64; LANES]; 65];
    for (words, bytes) in words.iter_mut().zip(bytes.as_chunks::<16>().0) {
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    }
    let mask = u64::MAX >> (64 - width);
    for (row, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let bit = row * width;
        let (at, shift) = (bit / 64, (bit % 64) as u32);
        let (low, high) = (words[at], words[at + 1]);
        for lane in 0..LANES {
            out[lane] = (low[lane] >> shift | high[lane] << 1 << (63 - shift)) & mask;
        }
    }
}

fn unpack_plain(bytes: &[u8], count: usize, width: usize, out: &mut [u64; VECTOR]) {
    // Behind a vector that is not full there is room for a word of any width.
    let mut words = [0u8; VECTOR * 8 + 16];
    words[..bytes.len()].copy_from_slice(bytes);
    let mask = u64::MAX >> (64 - width);
    // With the bits below its first one, a number of so many bits still fits a word.
    if width <= 57 {
        for (i, out) in out.iter_mut().enumerate().take(count) {
            let (at, shift) = (i * width / 8, i * width % 8);
            let word = words[at..]
                .first_chunk()
                .map_or(0, |w| u64::from_le_bytes(*w));
            *out = word >> shift & mask;
        }
        return;
    }
    for (i, out) in out.iter_mut().enumerate().take(count) {
        let (at, shift) = (i * width / 8, i * width % 8);
        let word = words[at..]
            .first_chunk()
            .map_or(0, |w| u128::from_le_bytes(*w));
        *out = (word >> shift) as u64 & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    #[test]
    fn bits_of_every_width_and_count_return() {
        let rng = SimRng::new(1);
        for width in 0..=64usize {
            for count in [0, 1, 3, 64, 127, VECTOR] {
                let mask = u64::MAX.checked_shr(64 - width as u32).unwrap_or(0);
                let mut numbers: Vec<u64> = (0..count).map(|_| rng.next_u64() & mask).collect();
                if let Some(last) = numbers.last_mut() {
                    *last = mask;
                }
                let mut bytes = vec![7];
                pack(&mut bytes, &numbers, width);
                assert_eq!(bytes.len(), 1 + packed_bytes(count, width));
                let mut cursor = Cursor::new(&bytes[1..]);
                let mut out = [u64::MAX; VECTOR];
                unpack(&mut cursor, count, width, &mut out).unwrap();
                assert_eq!(out[..count], numbers, "{count} of {width} bits");
                assert!(cursor.is_empty());
            }
        }
    }
}
