//! A reader of untrusted bytes from front to back; every step checks the remaining length.

use super::DecodeError;

const TRUNCATED: DecodeError = DecodeError("truncated");

/// The bytes that remain to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodeCursor<'a> {
    rest: &'a [u8],
}

impl<'a> DecodeCursor<'a> {
    /// Returns a cursor at the start of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the remaining bytes without consuming them.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the remaining bytes, for a reader that consumes some of them.
    pub(crate) fn rest_mut(&mut self) -> &mut &'a [u8] {
        &mut self.rest
    }

    /// Returns the number of remaining bytes.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    /// Returns whether no bytes remain.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next byte.
    #[inline]
    pub(crate) fn read_byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*first)
    }

    /// Reads the next `len` bytes.
    #[inline]
    pub(crate) fn read_bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads a little-endian number of `len` bytes, 1 to 8.
    #[inline]
    pub(crate) fn read_number(&mut self, len: usize) -> Result<u64, DecodeError> {
        // One load if eight bytes remain, which is nearly always the case.
        if let Some(word) = self.rest.first_chunk::<8>() {
            let shift = 64 - 8 * len as u32;
            self.rest = &self.rest[len..];
            return Ok(u64::from_le_bytes(*word) << shift >> shift);
        }
        let bytes = self.read_bytes(len)?;
        // The halves of the number overlap; a copy of a variable number of bytes would be a call.
        let (low, high) = match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(low), Some(high)) => (u32::from_le_bytes(*low), u32::from_le_bytes(*high)),
            _ => return Ok(decode_little_endian(bytes)),
        };
        Ok(u64::from(low) | u64::from(high) << (8 * (len - 4)))
    }

    /// Reads eight bytes, little endian.
    pub(crate) fn read_u64(&mut self) -> Result<u64, DecodeError> {
        self.read_number(8)
    }

    /// Reads a varint: seven bits per byte, at most ten bytes.
    #[inline]
    pub(crate) fn read_uvarint(&mut self) -> Result<u64, DecodeError> {
        let mut n = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.read_byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            n |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(DecodeError("varint too long"))
    }

    /// Reads a number of items that take at least `bytes_each` bytes each. Returns an error if the
    /// remaining bytes cannot contain that many, so that the result is safe to allocate.
    pub(crate) fn read_count(&mut self, bytes_each: usize) -> Result<usize, DecodeError> {
        let n = usize::try_from(self.read_uvarint()?).map_err(|_| TRUNCATED)?;
        match n.checked_mul(bytes_each) {
            Some(bytes) if bytes <= self.len() => Ok(n),
            _ => Err(DecodeError("length exceeds the remaining bytes")),
        }
    }

    /// Reads a length as a varint, then that many bytes.
    pub(crate) fn read_prefixed(&mut self) -> Result<&'a [u8], DecodeError> {
        let n = self.read_count(1)?;
        self.read_bytes(n)
    }
}

/// Decodes a little-endian number of fewer than eight bytes byte by byte, because a copy of a
/// variable number of bytes would be a call.
#[inline]
pub(crate) fn decode_little_endian(bytes: &[u8]) -> u64 {
    let byte = |(i, byte): (usize, &u8)| u64::from(*byte) << (8 * i);
    bytes
        .iter()
        .enumerate()
        .map(byte)
        .fold(0, |n, byte| n | byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_number_near_the_end_equals_number_with_bytes_behind() {
        let bytes = [0xff, 0xfe, 0xfd, 4, 5, 6, 7, 8, 9, 10];
        for len in 1..=8 {
            let far = DecodeCursor::new(&bytes).read_number(len);
            let near = DecodeCursor::new(&bytes[..len]).read_number(len);
            assert_eq!(far, near, "{len} bytes");
        }
        assert_eq!(
            DecodeCursor::new(&bytes[..2]).read_number(3),
            Err(TRUNCATED)
        );
    }

    #[test]
    fn cursor_uvarint_refuses_more_than_64_bits() {
        let mut most = Vec::new();
        crate::encoding::push_uvarint(&mut most, u64::MAX);
        assert_eq!(DecodeCursor::new(&most).read_uvarint(), Ok(u64::MAX));
        *most.last_mut().unwrap() = 2;
        assert!(DecodeCursor::new(&most).read_uvarint().is_err());
        assert!(DecodeCursor::new(&[0x80; 11]).read_uvarint().is_err());
    }

    #[test]
    fn cursor_count_refuses_more_than_is_left() {
        assert_eq!(DecodeCursor::new(&[2, 0, 0]).read_count(1), Ok(2));
        assert!(DecodeCursor::new(&[2, 0, 0]).read_count(2).is_err());
        assert!(
            DecodeCursor::new(&[0xff, 0xff, 0xff, 0xff, 0x0f])
                .read_count(1)
                .is_err()
        );
    }
}
