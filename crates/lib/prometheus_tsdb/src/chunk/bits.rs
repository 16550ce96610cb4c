//! Reads and writes single bits, most significant first (`tsdb/chunkenc/bstream.go`), and bit-level
//! varints (`varbit.go`).
//!
//! ```text
//! 0                         0
//! 10        and 3 bits      -3..=4, or up to 7 for unsigned numbers
//! 110       and 6 bits      -31..=32, 63
//! 1110      and 9 bits      and so on: 12, 18, 25 and 56 bits
//! 11111111  and 64 bits     all others
//! ```

use crate::bytes::{UVARINT_BYTES_MAX, from_zigzag, to_zigzag};
use crate::error::MalformedTsdbBytes;
use std::borrow::Cow;

type Read<T> = Result<T, MalformedTsdbBytes>;

/// Number of bits after each prefix, indexed by the number of ones in it.
const WIDTHS: [u32; 9] = [0, 3, 6, 9, 12, 18, 25, 56, 64];

const fn mask(count: u32) -> u64 {
    match count {
        64.. => u64::MAX,
        _ => (1 << count) - 1,
    }
}

/// Reads bits from front to back. Methods fail with [`MalformedTsdbBytes::CutShort`] after the last
/// bit.
#[derive(Clone, Debug)]
pub(super) struct XorBitReader<'b> {
    bytes: Cow<'b, [u8]>,
    /// Offset of the first byte that is not in the buffer.
    next: usize,
    buffer: u64,
    /// Number of unread bits, the lowest ones of the buffer.
    valid: u32,
}

impl<'b> XorBitReader<'b> {
    /// Returns a reader at the first bit of the byte at offset `start`.
    pub fn new(bytes: Cow<'b, [u8]>, start: usize) -> Self {
        Self {
            bytes,
            next: start,
            buffer: 0,
            valid: 0,
        }
    }

    /// Returns the number of unread bits.
    pub fn remaining(&self) -> u64 {
        8 * self.rest().len() as u64 + u64::from(self.valid)
    }

    /// Reads the next bit. Fails after the last one.
    #[inline]
    pub fn read_bit(&mut self) -> Read<bool> {
        if self.valid == 0 {
            self.refill();
        }
        self.valid = self
            .valid
            .checked_sub(1)
            .ok_or(MalformedTsdbBytes::CutShort)?;
        Ok(self.buffer >> self.valid & 1 == 1)
    }

    /// Reads the next `count` bits, at most 64, as the lowest bits of a number. Fails if fewer
    /// remain.
    #[inline]
    pub fn read_bits(&mut self, count: u32) -> Read<u64> {
        if count <= self.valid {
            self.valid -= count;
            return Ok(self.buffer.checked_shr(self.valid).unwrap_or(0) & mask(count));
        }
        let high = self.buffer & mask(self.valid);
        let missing = count - self.valid;
        self.refill();
        self.valid = self
            .valid
            .checked_sub(missing)
            .ok_or(MalformedTsdbBytes::CutShort)?;
        let low = self.buffer.checked_shr(self.valid).unwrap_or(0) & mask(missing);
        Ok(high.checked_shl(missing).unwrap_or(0) | low)
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.next..).unwrap_or_default()
    }

    fn refill(&mut self) {
        let rest = self.rest();
        if let Some(bytes) = rest.first_chunk::<8>() {
            (self.buffer, self.valid) = (u64::from_be_bytes(*bytes), 64);
            self.next += 8;
            return;
        }
        let add = |buffer, byte: &u8| buffer << 8 | u64::from(*byte);
        let (buffer, count) = (rest.iter().fold(0, add), rest.len());
        (self.buffer, self.valid) = (buffer, 8 * count as u32);
        self.next += count;
    }

    /// Counts ones up to the first zero, at most `max`. The terminating zero is consumed.
    #[inline]
    pub fn read_ones(&mut self, max: u32) -> Read<u32> {
        let mut ones = 0;
        while ones < max && self.read_bit()? {
            ones += 1;
        }
        Ok(ones)
    }

    /// Reads a signed number of `count` bits, whose range is -2^(count-1)+1..=2^(count-1) as in
    /// upstream.
    #[inline]
    pub fn read_signed(&mut self, count: u32) -> Read<i64> {
        let bits = self.read_bits(count)?;
        let is_negative = count < 64 && bits > 1 << (count - 1);
        Ok(if is_negative {
            bits | !mask(count)
        } else {
            bits
        } as i64)
    }

    /// Reads a signed bit-level varint. Prefix and width are those of the table above.
    pub fn read_varbit(&mut self) -> Read<i64> {
        match self.varbit_width()? {
            0 => Ok(0),
            width => self.read_signed(width),
        }
    }

    /// Reads an unsigned bit-level varint. Prefix and width are those of the table above.
    pub fn read_uvarbit(&mut self) -> Read<u64> {
        let width = self.varbit_width()?;
        self.read_bits(width)
    }

    fn varbit_width(&mut self) -> Read<u32> {
        let ones = self.read_ones(8)?;
        Ok(WIDTHS.get(ones as usize).copied().unwrap_or(64))
    }

    /// Reads an unsigned varint of whole bytes, at any bit position.
    pub fn read_uvarint(&mut self) -> Read<u64> {
        let mut value = 0;
        for i in 0..UVARINT_BYTES_MAX {
            let byte = self.read_bits(8)?;
            value |= (byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(MalformedTsdbBytes::Invalid(
            "a number has more than 64 bits",
        ))
    }

    /// Reads a signed varint of whole bytes, at any bit position.
    pub fn read_varint(&mut self) -> Read<i64> {
        self.read_uvarint().map(from_zigzag)
    }
}

/// Writes bits from front to back into a buffer that grows as necessary.
#[derive(Clone, Debug, Default)]
pub(super) struct XorBitWriter {
    bytes: Vec<u8>,
    /// Number of unused bits in the last byte, which are its lowest.
    free: u32,
}

impl XorBitWriter {
    /// Returns a writer whose output begins with `header`.
    pub fn with_header(header: &[u8]) -> Self {
        Self {
            bytes: header.to_vec(),
            free: 0,
        }
    }

    /// Returns the output; unused bits of the last byte are zero.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the output for modification of the header.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Appends one bit.
    pub fn write_bit(&mut self, bit: bool) {
        self.write_bits(u64::from(bit), 1);
    }

    /// Appends the lowest `count` bits of a number, at most 64.
    pub fn write_bits(&mut self, number: u64, count: u32) {
        let mut left = count;
        while left > 0 {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            let taken = left.min(self.free);
            let part = number >> (left - taken) & mask(taken);
            self.free -= taken;
            left -= taken;
            if let Some(last) = self.bytes.last_mut() {
                *last |= (part << self.free) as u8;
            }
        }
    }

    /// Appends a signed bit-level varint. The shortest prefix that fits is used.
    pub fn write_varbit(&mut self, number: i64) {
        let fits = |width: u32| {
            let half = 1i64 << (width - 1);
            -half < number && number <= half
        };
        let prefix = match number {
            0 => 0,
            _ => (1..8).find(|p| fits(WIDTHS[*p])).unwrap_or(8),
        };
        self.write_prefixed(prefix, number as u64);
    }

    /// Appends an unsigned bit-level varint. The shortest prefix that fits is used.
    pub fn write_uvarbit(&mut self, number: u64) {
        let prefix = (0..8).find(|p| number <= mask(WIDTHS[*p])).unwrap_or(8);
        self.write_prefixed(prefix, number);
    }

    fn write_prefixed(&mut self, ones: usize, number: u64) {
        self.write_bits(mask(ones as u32), ones as u32);
        if ones < 8 {
            self.write_bit(false);
        }
        self.write_bits(number, WIDTHS[ones]);
    }

    /// Appends an unsigned varint of whole bytes, at any bit position.
    pub fn write_uvarint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.write_bits(number & 0x7f | 0x80, 8);
            number >>= 7;
        }
        self.write_bits(number, 8);
    }

    /// Appends a signed varint of whole bytes, at any bit position.
    pub fn write_varint(&mut self, number: i64) {
        self.write_uvarint(to_zigzag(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_written_at_any_place_read_as_they_were() {
        let numbers = [0, 1, 5, 0x1234_5678_9abc_def0, u64::MAX];
        let mut writer = XorBitWriter::default();
        let mut wanted = Vec::new();
        for (i, number) in (0..65).flat_map(|i| numbers.map(|n| (i, n))) {
            writer.write_bits(number, i);
            wanted.push((i, number & mask(i)));
        }
        let mut reader = XorBitReader::new(writer.bytes().into(), 0);
        for (count, number) in wanted {
            assert_eq!(reader.read_bits(count), Ok(number), "{count}");
        }
        assert!(reader.remaining() < 8);
        assert_eq!(reader.read_bits(8), Err(MalformedTsdbBytes::CutShort));
    }

    #[test]
    fn numbers_of_variable_length_read_as_they_were() {
        let mut numbers = vec![0, i64::MIN, i64::MAX];
        for shift in 0..63 {
            let power = 1i64 << shift;
            numbers.extend([power, power + 1, power - 1, -power, -power - 1, 1 - power]);
        }
        let mut writer = XorBitWriter::default();
        for number in &numbers {
            writer.write_varbit(*number);
            writer.write_uvarbit(*number as u64);
            writer.write_varint(*number);
        }
        let mut reader = XorBitReader::new(writer.bytes().into(), 0);
        for number in numbers {
            assert_eq!(reader.read_varbit(), Ok(number));
            assert_eq!(reader.read_uvarbit(), Ok(number as u64));
            assert_eq!(reader.read_varint(), Ok(number));
        }
    }

    #[test]
    fn small_numbers_take_as_many_bits_as_upstream_gives_them() {
        for (number, bits) in [
            (0, 1),
            (4, 5),
            (-3, 5),
            (-4, 9),
            (5, 9),
            (32, 9),
            (33, 13),
            (2048, 17),
            (131_072, 24),
            (131_073, 32),
            (i64::MAX, 72),
        ] {
            let mut writer = XorBitWriter::default();
            writer.write_varbit(number);
            let written = 8 * writer.bytes().len() as u32 - writer.free;
            assert_eq!(written, bits, "{number}");
        }
    }
}
