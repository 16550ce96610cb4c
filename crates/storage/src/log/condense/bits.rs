//! Bits in bytes, the lowest first.

use crate::encoding::Malformed;

/// Bits of one call of [`BitWriter::put`] and [`BitReader::take`]: a word holds them and up to
/// seven that are left from before.
pub(super) const BITS_MAX: u32 = 56;

/// Writes bits.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    /// Zeros from the byte after the next one on.
    bytes: Vec<u8>,
    /// Where the next byte begins.
    at: usize,
    /// Bits that are no whole byte yet.
    rest: u64,
    rest_bits: u32,
}

impl BitWriter {
    /// Empties it, and makes room.
    pub(super) fn begin(&mut self, bytes_max: usize) {
        self.bytes.clear();
        self.bytes.resize(bytes_max + size_of::<u64>(), 0);
        (self.at, self.rest, self.rest_bits) = (0, 0, 0);
    }

    /// Appends the low `count` bits of `bits`, at most [`BITS_MAX`]; the others are zero.
    #[inline]
    pub(super) fn put(&mut self, bits: u64, count: u32) {
        debug_assert!(count <= BITS_MAX && bits >> count == 0);
        self.rest |= bits << self.rest_bits;
        self.rest_bits += count;
        // Always a whole word: whether bytes are full cannot be foretold.
        let end = self.at + size_of::<u64>();
        self.bytes[self.at..end].copy_from_slice(&self.rest.to_le_bytes());
        self.at += self.rest_bits as usize / 8;
        self.rest >>= self.rest_bits / 8 * 8;
        self.rest_bits %= 8;
    }

    /// Appends the low `count` bits of `bits`, at most 64; the others are zero.
    #[inline]
    pub(super) fn put_long(&mut self, bits: u64, count: u32) {
        let low = count.min(BITS_MAX);
        self.put(bits & ((1 << low) - 1), low);
        if count > BITS_MAX {
            self.put(bits >> BITS_MAX, count - BITS_MAX);
        }
    }

    /// The bytes, the last one filled up with zeros.
    pub(super) fn finish(&mut self) -> &[u8] {
        &self.bytes[..self.at + usize::from(self.rest_bits > 0)]
    }
}

/// Reads bits. Behind the end there are zeros, of which [`BitReader::finish`] complains: so not
/// every step has to.
#[derive(Clone, Copy, Debug)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    /// At the first bit of `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next bits, of which at least 57 are what is there.
    #[inline]
    pub(super) fn peek(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or(&[]);
        let word = match rest.first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => last_word(rest),
        };
        word >> (self.at % 8)
    }

    /// Goes `count` bits on.
    #[inline]
    pub(super) fn skip(&mut self, count: u32) {
        self.at += count as usize;
    }

    /// The next `count` bits, at most [`BITS_MAX`].
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> u64 {
        let bits = self.peek() & ((1 << count) - 1);
        self.skip(count);
        bits
    }

    /// The next `count` bits, at most 64.
    pub(super) fn take_long(&mut self, count: u32) -> u64 {
        let low = self.take(count.min(BITS_MAX));
        low | self.take(count.saturating_sub(BITS_MAX)) << BITS_MAX
    }

    /// Checks that all bytes were read, and no more.
    pub(super) fn finish(&self) -> Result<(), Malformed> {
        if self.at.div_ceil(8) == self.bytes.len() && self.peek() == 0 {
            Ok(())
        } else {
            Err(Malformed("as many bits as values need"))
        }
    }
}

#[cold]
fn last_word(rest: &[u8]) -> u64 {
    let mut word = [0; 8];
    let count = rest.len().min(8);
    word[..count].copy_from_slice(&rest[..count]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_every_length_return() {
        let mut writer = BitWriter::default();
        writer.begin(260);
        let bits = |count: u32| (0x9e37_79b9_7f4a_7c15u64 | 1 << 63) >> (64 - count);
        for count in 1..=64 {
            writer.put_long(bits(count), count);
        }
        let bytes = writer.finish().to_vec();
        assert_eq!(bytes.len(), 260);
        let mut reader = BitReader::new(&bytes);
        for count in 1..=64 {
            assert_eq!(reader.take_long(count), bits(count), "{count} bits");
        }
        assert_eq!(reader.finish(), Ok(()));
        reader.take(1);
        assert!(reader.finish().is_err());
        assert!(BitReader::new(&bytes[..1]).finish().is_err());
    }
}
