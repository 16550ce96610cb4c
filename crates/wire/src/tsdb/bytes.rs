//! Numbers and strings in bytes, as Prometheus writes them (`tsdb/encoding`): integers big endian
//! or seven bits a byte, strings behind their length, checksums CRC-32C.

use super::error::Malformed;

/// Bytes of a checksum.
pub(super) const CHECKSUM_BYTES: u64 = 4;

/// The longest form of a 64-bit number in sevens.
pub(super) const UVARINT_BYTES_MAX: usize = 10;

type Read<T> = Result<T, Malformed>;

/// Reads from the front of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'b> {
    rest: &'b [u8],
}

impl<'b> Cursor<'b> {
    /// A cursor at the start of `bytes`.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'b [u8] {
        self.rest
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Read<&'b [u8]> {
        let split = self.rest.split_at_checked(count);
        let (head, rest) = split.ok_or(Malformed::CutShort)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let split = self.rest.split_first_chunk::<N>();
        let (head, rest) = split.ok_or(Malformed::CutShort)?;
        self.rest = rest;
        Ok(*head)
    }

    /// One byte.
    pub fn byte(&mut self) -> Read<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Four bytes.
    pub fn be32(&mut self) -> Read<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Eight bytes.
    pub fn be64(&mut self) -> Read<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Eight bytes as a float.
    pub fn float(&mut self) -> Read<f64> {
        self.be64().map(f64::from_bits)
    }

    /// A number in sevens.
    #[inline]
    pub fn uvarint(&mut self) -> Read<u64> {
        let mut value = 0u64;
        for (i, byte) in self.rest.iter().take(UVARINT_BYTES_MAX).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(i + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        match self.rest.len() {
            0..UVARINT_BYTES_MAX => Err(Malformed::CutShort),
            _ => Err(Malformed::Invalid("a number has more than 64 bits")),
        }
    }

    /// A number with a sign in sevens.
    pub fn varint(&mut self) -> Read<i64> {
        self.uvarint().map(from_zigzag)
    }

    /// The bytes behind their length.
    pub fn prefixed(&mut self) -> Read<&'b [u8]> {
        let count = self.uvarint()?;
        self.take(usize::try_from(count).map_err(|_| Malformed::CutShort)?)
    }

    /// A number of things that take `bytes_min` bytes each, at least: one that the bytes left
    /// cannot hold is refused before memory is spent.
    pub fn count(&mut self, bytes_min: usize) -> Read<usize> {
        let count = self.uvarint()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.rest.len() / bytes_min => Ok(count),
            _ => Err(Malformed::CutShort),
        }
    }
}

/// The number behind one whose sign is its lowest bit.
pub(super) const fn from_zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// The number with its sign in the lowest bit.
pub(super) const fn to_zigzag(number: i64) -> u64 {
    (number << 1) as u64 ^ (number >> 63) as u64
}

/// Appends a number in sevens.
pub(super) fn push_uvarint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a number with a sign in sevens.
pub(super) fn push_varint(out: &mut Vec<u8>, number: i64) {
    push_uvarint(out, to_zigzag(number));
}

/// Appends bytes behind their length.
pub(super) fn push_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    push_uvarint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends the checksum of what `out` holds from `start` on.
pub(super) fn push_checksum(out: &mut Vec<u8>, start: usize) {
    let sum = checksum(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_be_bytes());
}

/// CRC-32C.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of bytes behind those that have the checksum `sum`; that of none is 0.
pub(super) fn checksum_append(sum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(sum, bytes)
}

/// The bytes in front of a checksum, if it is theirs.
pub(super) fn checked(bytes: &[u8]) -> Read<&[u8]> {
    let split = bytes.split_last_chunk::<4>().ok_or(Malformed::CutShort)?;
    let (bytes, sum) = split;
    match u32::from_be_bytes(*sum) == checksum(bytes) {
        true => Ok(bytes),
        false => Err(Malformed::Invalid("the checksum differs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_written_reads_as_it_was() {
        for number in [0, 1, -1, 63, 64, -65, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            push_varint(&mut out, number);
            push_uvarint(&mut out, number as u64);
            let mut cursor = Cursor::new(&out);
            assert_eq!(cursor.varint(), Ok(number));
            assert_eq!(cursor.uvarint(), Ok(number as u64));
            assert!(cursor.is_empty());
        }
    }

    #[test]
    fn number_that_never_ends_is_refused() {
        assert_eq!(Cursor::new(&[0x80]).uvarint(), Err(Malformed::CutShort));
        let endless = Cursor::new(&[0x80; 11]).uvarint();
        assert!(matches!(endless, Err(Malformed::Invalid(_))));
        assert_eq!(Cursor::new(b"\x05abc").prefixed(), Err(Malformed::CutShort));
        assert_eq!(Cursor::new(b"\x04abc").count(1), Err(Malformed::CutShort));
    }
}
