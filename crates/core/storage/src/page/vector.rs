//! Vectors: up to 128 numbers, packed at a width that suffices for most of them, with exceptions
//! for the rest (PFOR).
//!
//! ```text
//! vector = width u8 (bit 7: exceptions) | [exceptions] | numbers, the low `width` bits of each
//! exceptions = n u8 | n x position u8 | n x (number >> width) varint
//! ```
//!
//! Source: Zukowski et al., "Super-Scalar RAM-CPU Cache Compression".

use crate::encoding::DecodeError;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::lanes::{self, VECTOR};
use crate::encoding::varint::{bit_len, push_uvarint};

const EXCEPTIONS: u8 = 0x80;

/// The best packing of a vector: its width, and the number of exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VectorLayout {
    width: u32,
    exceptions: usize,
    /// Size of the packed vector in bytes, header and exceptions included.
    pub(super) bytes: usize,
}

impl VectorLayout {
    /// Returns the smallest layout for `numbers`; of two equally small ones, the one with fewer
    /// exceptions.
    pub(super) fn choose_smallest(numbers: &[u64]) -> Self {
        let mut counts = [0usize; 65];
        // Neighbours often have the same width: two tables, so that their increments do not depend
        // on each other.
        let mut others = [0usize; 65];
        for pair in numbers.chunks(2) {
            counts[bit_len(pair[0])] += 1;
            if let Some(n) = pair.get(1) {
                others[bit_len(*n)] += 1;
            }
        }
        counts.iter_mut().zip(others).for_each(|(a, b)| *a += b);
        let widest = counts.iter().rposition(|c| *c > 0).unwrap_or(0);
        let plain = |width: usize| 1 + lanes::packed_bytes(numbers.len(), width);
        let mut best = Self {
            width: widest as u32,
            exceptions: 0,
            bytes: plain(widest),
        };
        let mut exceptions = counts[widest];
        for width in (0..widest).rev() {
            // Only widths that some number has, and zero: a width in between saves nothing.
            if counts[width] == 0 && width > 0 {
                continue;
            }
            let high_bytes: usize = (width + 1..=widest)
                .filter(|w| counts[*w] > 0)
                .map(|w| counts[w] * (w - width).div_ceil(7))
                .sum();
            let bytes = plain(width) + 1 + exceptions + high_bytes;
            if bytes < best.bytes {
                best = Self {
                    width: width as u32,
                    exceptions,
                    bytes,
                };
            }
            exceptions += counts[width];
            // The exceptions alone would take more space than the best layout.
            if 2 * exceptions > best.bytes {
                break;
            }
        }
        best
    }

    /// Packs `numbers`, for which this layout was created, and appends them to `out`.
    pub(super) fn push_vector(&self, out: &mut Vec<u8>, numbers: &[u64]) {
        if self.exceptions == 0 {
            out.push(self.width as u8);
            return lanes::pack(out, numbers, self.width as usize);
        }
        out.push(self.width as u8 | EXCEPTIONS);
        out.push(self.exceptions as u8);
        let wider = |n: &&u64| **n >> self.width != 0;
        for (i, n) in numbers.iter().enumerate() {
            if wider(&n) {
                out.push(i as u8);
            }
        }
        for n in numbers.iter().filter(wider) {
            push_uvarint(out, n >> self.width);
        }
        lanes::pack(out, numbers, self.width as usize);
    }
}

/// Reads `count` numbers, at most [`VECTOR`], and adds `low` to each, wrapping. Stores as many as
/// `out` has places, which must be a multiple of eight; the places after the last number may
/// change.
#[inline]
pub(super) fn read_vector(
    cursor: &mut DecodeCursor<'_>,
    count: usize,
    low: i64,
    out: &mut [i64],
) -> Result<(), DecodeError> {
    let (width, exceptions) = read_header(cursor)?;
    if exceptions == 0 {
        return lanes::unpack(cursor, count, width, low, out);
    }
    let positions = cursor.read_bytes(exceptions)?;
    let mut highs = *cursor;
    for _ in 0..exceptions {
        cursor.read_uvarint()?;
    }
    lanes::unpack(cursor, count, width, low, &mut *out)?;
    for position in positions {
        let high = highs.read_uvarint()?.checked_shl(width as u32).unwrap_or(0);
        if usize::from(*position) >= count {
            return Err(DecodeError("exception beyond its vector"));
        }
        if let Some(n) = out.get_mut(usize::from(*position)) {
            *n = n.wrapping_add(high as i64);
        }
    }
    Ok(())
}

/// Skips a vector of `count` numbers without unpacking it.
pub(super) fn skip_vector(cursor: &mut DecodeCursor<'_>, count: usize) -> Result<(), DecodeError> {
    let (width, exceptions) = read_header(cursor)?;
    cursor.read_bytes(exceptions)?;
    for _ in 0..exceptions {
        cursor.read_uvarint()?;
    }
    cursor
        .read_bytes(lanes::packed_bytes(count, width))
        .map(|_| ())
}

#[inline]
fn read_header(cursor: &mut DecodeCursor<'_>) -> Result<(usize, usize), DecodeError> {
    let header = cursor.read_byte()?;
    let width = usize::from(header & !EXCEPTIONS);
    if width > 64 {
        return Err(DecodeError("vector wider than 64 bits"));
    }
    let exceptions = match header & EXCEPTIONS {
        0 => 0,
        _ => usize::from(cursor.read_byte()?),
    };
    if exceptions > VECTOR {
        return Err(DecodeError("more exceptions than numbers"));
    }
    Ok((width, exceptions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    #[test]
    fn vector_of_random_numbers_returns_and_takes_the_bytes_of_its_layout() {
        for seed in 0..3_000 {
            let rng = SimRng::new(seed);
            let count = (rng.next_u64() % 129) as usize;
            let (usual, rare) = (rng.next_u64() % 65, rng.next_u64() % 65);
            let share = rng.next_u64() % 20 + 1;
            let number = |_| {
                let rarely = rng.next_u64().is_multiple_of(share);
                let width = if rarely { rare } else { usual } as u32;
                rng.next_u64().checked_shr(64 - width).unwrap_or(0)
            };
            let numbers: Vec<u64> = (0..count).map(number).collect();
            let layout = VectorLayout::choose_smallest(&numbers);
            let mut bytes = Vec::new();
            layout.push_vector(&mut bytes, &numbers);
            assert_eq!(bytes.len(), layout.bytes, "seed {seed}");
            let mut out = [0; VECTOR];
            let (mut read_at, mut skip_at) = (DecodeCursor::new(&bytes), DecodeCursor::new(&bytes));
            read_vector(&mut read_at, count, 7, &mut out).unwrap();
            let out = out.map(|n| n.wrapping_sub(7) as u64);
            skip_vector(&mut skip_at, count).unwrap();
            assert_eq!(out[..count], numbers, "seed {seed}");
            assert!(read_at.is_empty() && skip_at.is_empty(), "seed {seed}");
        }
    }
}
