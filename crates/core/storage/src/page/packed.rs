//! Arrays of numbers of equal width, with random access to the encoded form.
//!
//! ```text
//! packed = width u8 | n x width bits, least significant first, rounded up to bytes
//! ```
//!
//! The directory consists of such arrays, so it is as small in memory as on disk: a lookup reads
//! only the few numbers that it needs.

use crate::encoding::DecodeError;
use crate::encoding::bits::{LsbBitReader, push_bits};
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::varint::bit_len;

/// Encodes `numbers` at the width of the largest one, and appends them to `out`.
pub(crate) fn push_array(out: &mut Vec<u8>, numbers: &[u64]) {
    let all = numbers.iter().fold(0, |all, n| all | n);
    let width = bit_len(all);
    out.push(width as u8);
    push_bits(out, width, numbers.iter().copied());
}

/// Position of an array in the bytes that it was read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedArray {
    at: usize,
    width: usize,
    count: usize,
}

impl PackedArray {
    /// Locates an array of `count` numbers at the cursor, which must be a cursor of `bytes`.
    pub(crate) fn read(
        bytes: &[u8],
        cursor: &mut DecodeCursor<'_>,
        count: usize,
    ) -> Result<Self, DecodeError> {
        let width = usize::from(cursor.read_byte()?);
        if width > 64 {
            return Err(DecodeError("packed numbers wider than 64 bits"));
        }
        let at = bytes.len() - cursor.len();
        let bits = count.checked_mul(width);
        let len = bits
            .ok_or(DecodeError("too many packed numbers"))?
            .div_ceil(8);
        cursor.read_bytes(len)?;
        Ok(Self { at, width, count })
    }

    /// Returns the number of numbers.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the number at this index. `read_bytes` must be those passed to
    /// [`PackedArray::read`].
    #[inline]
    pub(crate) fn get(&self, bytes: &[u8], index: usize) -> Result<u64, DecodeError> {
        if index >= self.count {
            return Err(DecodeError("number beyond the last one"));
        }
        let mut reader = LsbBitReader::new(bytes);
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
            push_array(&mut bytes, &numbers);
            let mut cursor = DecodeCursor::new(&bytes[1..]);
            let packed = PackedArray::read(&bytes, &mut cursor, numbers.len()).unwrap();
            assert!(cursor.is_empty());
            for (i, n) in numbers.iter().enumerate() {
                assert_eq!(packed.get(&bytes, i), Ok(*n), "{width} bits, number {i}");
            }
            assert!(packed.get(&bytes, numbers.len()).is_err());
        }
    }
}
