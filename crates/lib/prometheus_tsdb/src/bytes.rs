//! Reads and writes numbers and strings in Prometheus's binary format (`tsdb/encoding`): integers
//! in big-endian or as varints, strings preceded by their length, CRC-32C checksums.

use super::error::MalformedTsdbBytes;

/// Size of a checksum in bytes.
pub(super) const CHECKSUM_BYTES: u64 = 4;

/// Largest size of a 64-bit varint in bytes.
pub(super) const UVARINT_BYTES_MAX: usize = 10;

type Read<T> = Result<T, MalformedTsdbBytes>;

/// Reads values from the front of a slice. Methods fail with [`MalformedTsdbBytes::CutShort`] if
/// the slice is too short.
#[derive(Clone, Copy, Debug)]
pub(super) struct TsdbByteCursor<'b> {
    rest: &'b [u8],
}

impl<'b> TsdbByteCursor<'b> {
    /// Returns a cursor at the start of `bytes`.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the unread bytes.
    pub fn rest(&self) -> &'b [u8] {
        self.rest
    }

    /// Returns whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next `count` bytes.
    pub fn take(&mut self, count: usize) -> Read<&'b [u8]> {
        let split = self.rest.split_at_checked(count);
        let (head, rest) = split.ok_or(MalformedTsdbBytes::CutShort)?;
        self.rest = rest;
        Ok(head)
    }

    fn read_array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let split = self.rest.split_first_chunk::<N>();
        let (head, rest) = split.ok_or(MalformedTsdbBytes::CutShort)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Reads one byte.
    pub fn read_byte(&mut self) -> Read<u8> {
        self.read_array::<1>().map(|[byte]| byte)
    }

    /// Reads a big-endian integer of four bytes.
    pub fn read_be32(&mut self) -> Read<u32> {
        self.read_array().map(u32::from_be_bytes)
    }

    /// Reads a big-endian integer of eight bytes.
    pub fn read_be64(&mut self) -> Read<u64> {
        self.read_array().map(u64::from_be_bytes)
    }

    /// Reads a float of eight bytes.
    pub fn read_float(&mut self) -> Read<f64> {
        self.read_be64().map(f64::from_bits)
    }

    /// Reads an unsigned varint; fails if it has more than 64 bits.
    #[inline]
    pub fn read_uvarint(&mut self) -> Read<u64> {
        let mut value = 0u64;
        for (i, byte) in self.rest.iter().take(UVARINT_BYTES_MAX).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(i + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        match self.rest.len() {
            0..UVARINT_BYTES_MAX => Err(MalformedTsdbBytes::CutShort),
            _ => Err(MalformedTsdbBytes::Invalid(
                "a number has more than 64 bits",
            )),
        }
    }

    /// Reads a signed varint in zigzag encoding.
    pub fn read_varint(&mut self) -> Read<i64> {
        self.read_uvarint().map(from_zigzag)
    }

    /// Reads a length and returns that many bytes; fails if fewer remain.
    pub fn read_prefixed(&mut self) -> Read<&'b [u8]> {
        let count = self.read_uvarint()?;
        self.take(usize::try_from(count).map_err(|_| MalformedTsdbBytes::CutShort)?)
    }

    /// Reads a number of elements that take at least `bytes_min` bytes each. Fails if the remaining
    /// bytes cannot contain them, before memory is allocated.
    pub fn read_count(&mut self, bytes_min: usize) -> Read<usize> {
        let count = self.read_uvarint()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.rest.len() / bytes_min => Ok(count),
            _ => Err(MalformedTsdbBytes::CutShort),
        }
    }
}

/// Decodes a zigzag number. The lowest bit is the sign.
pub(super) const fn from_zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Encodes a number in zigzag form. The sign becomes the lowest bit.
pub(super) const fn to_zigzag(number: i64) -> u64 {
    (number << 1) as u64 ^ (number >> 63) as u64
}

/// Appends an unsigned varint.
pub(super) fn push_uvarint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a signed varint in zigzag encoding.
pub(super) fn push_varint(out: &mut Vec<u8>, number: i64) {
    push_uvarint(out, to_zigzag(number));
}

/// Appends bytes, preceded by their length. The length is an unsigned varint.
pub(super) fn push_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    push_uvarint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends the checksum of the bytes of `out` from `start` to its end.
pub(super) fn push_checksum(out: &mut Vec<u8>, start: usize) {
    let sum = checksum(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_be_bytes());
}

/// Returns the CRC-32C of `bytes`, the checksum of all files of a folder.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Extends the CRC-32C `sum` of preceding bytes by `bytes`; the checksum of no bytes is 0.
pub(super) fn extend_checksum(sum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(sum, bytes)
}

/// Verifies the checksum at the end of `bytes` and returns the bytes before it. Fails if they
/// differ.
pub(super) fn verify_checksum(bytes: &[u8]) -> Read<&[u8]> {
    let split = bytes
        .split_last_chunk::<4>()
        .ok_or(MalformedTsdbBytes::CutShort)?;
    let (bytes, sum) = split;
    if u32::from_be_bytes(*sum) == checksum(bytes) {
        Ok(bytes)
    } else {
        Err(MalformedTsdbBytes::Invalid("the checksum differs"))
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
            let mut cursor = TsdbByteCursor::new(&out);
            assert_eq!(cursor.read_varint(), Ok(number));
            assert_eq!(cursor.read_uvarint(), Ok(number as u64));
            assert!(cursor.is_empty());
        }
    }

    #[test]
    fn number_that_never_ends_is_refused() {
        assert_eq!(
            TsdbByteCursor::new(&[0x80]).read_uvarint(),
            Err(MalformedTsdbBytes::CutShort)
        );
        let endless = TsdbByteCursor::new(&[0x80; 11]).read_uvarint();
        assert!(matches!(endless, Err(MalformedTsdbBytes::Invalid(_))));
        assert_eq!(
            TsdbByteCursor::new(b"\x05abc").read_prefixed(),
            Err(MalformedTsdbBytes::CutShort)
        );
        assert_eq!(
            TsdbByteCursor::new(b"\x04abc").read_count(1),
            Err(MalformedTsdbBytes::CutShort)
        );
    }
}
