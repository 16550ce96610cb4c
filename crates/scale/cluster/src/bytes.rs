//! Reading and writing of little-endian integers and varints, shared by all formats of the crate.
//!
//! Invariant: [`ByteReader`] never reads beyond its bytes, and a counted list is checked against
//! the remaining bytes before anything is allocated for it.

/// A cursor over untrusted bytes. Each method returns `None` at the end of the bytes or for an
/// invalid encoding.
#[derive(Clone, Debug)]
pub(crate) struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// Reads an identifier: 16 bytes, big endian, as its text shows them.
    pub(crate) fn id(&mut self) -> Option<u128> {
        self.array().map(u128::from_be_bytes)
    }

    /// Reads a varint of up to 64 bits in its shortest form.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                let is_shortest = byte != 0 || shift == 0;
                return is_shortest.then_some(value);
            }
        }
        None
    }

    /// Reads the number of items of a list, each of which takes at least `bytes_min` bytes.
    pub(crate) fn count(&mut self, bytes_min: usize) -> Option<usize> {
        let count = usize::try_from(self.varint()?).ok()?;
        let needed = count.checked_mul(bytes_min)?;
        (needed <= self.rest.len()).then_some(count)
    }

    /// Reads bytes that follow their length.
    pub(crate) fn prefixed(&mut self) -> Option<&'a [u8]> {
        let count = self.count(1)?;
        self.bytes(count)
    }

    /// Reads a text that follows its length.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.prefixed()?).ok()
    }
}

/// Appends a varint.
pub(crate) fn push_varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Appends bytes after their length.
pub(crate) fn push_prefixed(bytes: &[u8], into: &mut Vec<u8>) {
    push_varint(bytes.len() as u64, into);
    into.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_written_is_read() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            push_varint(value, &mut bytes);
            let mut reader = ByteReader::new(&bytes);
            assert_eq!(reader.varint(), Some(value));
            assert!(reader.is_at_end());
        }
    }

    #[test]
    fn varint_that_is_long_or_cut_is_rejected() {
        let check = |bytes: &[u8]| assert_eq!(ByteReader::new(bytes).varint(), None, "{bytes:?}");
        check(&[]);
        check(&[0x80]);
        check(&[0x80, 0]);
        check(&[0xff; 11]);
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]);
    }

    #[test]
    fn count_beyond_the_bytes_is_rejected() {
        assert_eq!(ByteReader::new(&[3, 0, 0, 0]).count(1), Some(3));
        assert_eq!(ByteReader::new(&[3, 0, 0, 0]).count(2), None);
        assert_eq!(ByteReader::new(&[4, 0, 0, 0]).prefixed(), None);
    }
}
