//! Numbers of one width in a row, each readable where it stands.
//!
//! ```text
//! packed = width u8 | n x width bits, least significant first, rounded up to bytes
//! ```
//!
//! The directory is made of them, so that it is as small on a heap as it is on a disk: a look-up
//! reads the few numbers that it needs.

use crate::encoding::Malformed;
use crate::encoding::bits::{BitReader, push_bits};
use crate::encoding::cursor::Cursor;
use crate::encoding::varint::bit_len;

/// Appends `numbers`.
pub(crate) fn push(out: &mut Vec<u8>, numbers: &[u64]) {
    let all = numbers.iter().fold(0, |all, n| all | n);
    let width = bit_len(all);
    out.push(width as u8);
    push_bits(out, width, numbers.iter().copied());
}

/// Where numbers stand in the bytes that they were read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    at: usize,
    width: usize,
    count: usize,
}

impl Packed {
    /// Finds `count` numbers at the cursor, which reads `bytes` to their end.
    pub(crate) fn read(
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
    pub(crate) fn get(&self, bytes: &[u8], index: usize) -> Result<u64, Malformed> {
        if index >= self.count {
            return Err(Malformed("number beyond the last one"));
        }
        let mut reader = BitReader::new(bytes);
        reader.skip(8 * self.at + index * self.width);
        Ok(reader.take_long(self.width as u32))
    }
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
