//! Numbers of one width in a row, each readable where it stands.
//!
//! ```text
//! packed = width u8 | n x width bits, least significant first, rounded up to bytes
//! ```
//!
//! The directory is made of them, so that it is as small on a heap as it is on a disk: a look-up
//! reads the few numbers that it needs.

use crate::encoding::cursor::Cursor;
use crate::encoding::{Malformed, push_bits};

/// Appends `numbers`.
pub(super) fn push(out: &mut Vec<u8>, numbers: &[u64]) {
    let all = numbers.iter().fold(0, |all, n| all | n);
    let width = 64 - all.leading_zeros();
    out.push(width as u8);
    push_bits(out, width as usize, numbers.iter().copied());
}

/// Where numbers stand in the bytes that they were read from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed {
    at: usize,
    width: usize,
    count: usize,
}

impl Packed {
    /// Finds `count` numbers at the cursor, which reads `bytes` to their end.
    pub(super) fn read(
        bytes: &[u8],
        cursor: &mut Cursor<'_>,
        count: usize,
    ) -> Result<Self, Malformed> {
        let width = usize::from(cursor.byte()?);
        if width > 64 {
            return Err(Malformed("packed numbers wider than 64 bits"));
        }
        let at = bytes.len() - cursor.len();
        let bits = count.checked_mul(width);
        let len = bits
            .ok_or(Malformed("too many packed numbers"))?
            .div_ceil(8);
        cursor.bytes(len)?;
        Ok(Self { at, width, count })
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The number with this index, of the bytes in which the numbers were found.
    #[inline]
    pub(super) fn get(&self, bytes: &[u8], index: usize) -> Result<u64, Malformed> {
        if index >= self.count {
            return Err(Malformed("number beyond the last one"));
        }
        if self.width == 0 {
            return Ok(0);
        }
        let bit = index * self.width;
        let at = self.at + bit / 8;
        let word = match bytes.get(at..).and_then(<[u8]>::first_chunk::<16>) {
            Some(word) => u128::from_le_bytes(*word),
            None => near_end(bytes, at),
        };
        Ok((word >> (bit % 8)) as u64 & (u64::MAX >> (64 - self.width)))
    }
}

#[cold]
fn near_end(bytes: &[u8], at: usize) -> u128 {
    let mut word = [0; 16];
    for (to, from) in word.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    u128::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_of_every_width_return() {
        for width in 0..=64u32 {
            let top = u64::MAX.checked_shr(64 - width).unwrap_or(0);
            let numbers: Vec<u64> = (0..77).map(|i| top - (i % 5).min(top)).collect();
            let mut bytes = vec![9];
            push(&mut bytes, &numbers);
            let mut cursor = Cursor::new(&bytes[1..]);
            let packed = Packed::read(&bytes, &mut cursor, numbers.len()).unwrap();
            assert!(cursor.is_empty());
            for (i, n) in numbers.iter().enumerate() {
                assert_eq!(packed.get(&bytes, i), Ok(*n), "{width} bits, number {i}");
            }
            assert!(packed.get(&bytes, numbers.len()).is_err());
        }
    }
}
