//! Numbers of any width in bytes, least significant bit first: the only bit writer and bit reader
//! of the storage crate.
//!
//! The log, the page directory and the packs of chunks use this order directly; vectors of pages
//! interleave it in lanes.

use super::DecodeError;
use super::sink::EncodeSink;

/// Maximum width of a number that [`LsbBitReader::take`] reads: a word loaded at a byte boundary
/// contains that many bits after up to seven bits that were already read.
pub(crate) const BITS_MAX: u32 = 56;

/// Writes bits to a [`EncodeSink`], eight bytes at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LsbBitWriter {
    /// Bits that are not in the sink yet; fewer than 64.
    pending: u64,
    bits: u32,
}

impl LsbBitWriter {
    /// Appends the low `width` bits of `number`, at most 64. The other bits must be zero.
    #[inline]
    pub(crate) fn put(&mut self, out: &mut impl EncodeSink, number: u64, width: u32) {
        debug_assert!(width <= 64 && number.unbounded_shr(width) == 0);
        self.pending |= number << self.bits;
        self.bits += width;
        if self.bits >= 64 {
            out.put_low(self.pending, 8);
            self.bits -= 64;
            self.pending = number.unbounded_shr(width - self.bits);
        }
    }

    /// Appends the remaining bits and fills the last byte with zeros.
    #[inline]
    pub(crate) fn finish(self, out: &mut impl EncodeSink) {
        if self.bits > 0 {
            out.put_low(self.pending, self.bits.div_ceil(8) as usize);
        }
    }
}

/// Appends numbers of `width` bits each and fills the last byte with zeros.
#[inline]
pub(crate) fn push_bits(
    out: &mut impl EncodeSink,
    width: usize,
    numbers: impl Iterator<Item = u64>,
) {
    let mut bits = LsbBitWriter::default();
    for number in numbers {
        bits.put(out, number, width as u32);
    }
    bits.finish(out);
}

/// Reads bits. After the end it returns zeros, and [`LsbBitReader::finish`] reports an error, so
/// that single reads need no check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LsbBitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> LsbBitReader<'a> {
    /// Returns a reader at the first bit of `bytes`.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the next bits without consuming them. At least 57 of them are valid; the higher ones
    /// may be zero.
    #[inline]
    pub(crate) fn peek(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or(&[]);
        let word = match rest.first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => last_word(rest),
        };
        word >> (self.at % 8)
    }

    /// Skips `count` bits.
    #[inline]
    pub(crate) fn skip(&mut self, count: usize) {
        self.at += count;
    }

    /// Returns the next `count` bits, at most [`BITS_MAX`].
    #[inline]
    pub(crate) fn take(&mut self, count: u32) -> u64 {
        let bits = self.peek() & ((1 << count) - 1);
        self.skip(count as usize);
        bits
    }

    /// Returns the next `count` bits, at most 64.
    #[inline]
    pub(crate) fn take_long(&mut self, count: u32) -> u64 {
        match count {
            ..=BITS_MAX => self.take(count),
            _ => self.take(BITS_MAX) | self.take(count - BITS_MAX) << BITS_MAX,
        }
    }

    /// Returns an error unless exactly all bytes were read and the last byte is filled with zeros.
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        if self.at.div_ceil(8) == self.bytes.len() && self.peek() == 0 {
            Ok(())
        } else {
            Err(DecodeError("as many bits as values need"))
        }
    }
}

#[cold]
fn last_word(rest: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

/// Reads one number of at most [`BITS_MAX`] bits for each place of `out` from the start of `bytes`,
/// and stores the result of `each` for it. After the end of `bytes`, numbers are zero.
#[inline]
pub(crate) fn unpack(
    bytes: &[u8],
    width: usize,
    out: &mut [i64],
    mut each: impl FnMut(u64) -> i64,
) {
    match width {
        0 => out.fill_with(|| each(0)),
        1..9 => unpack_by::<8>(bytes, width, out, each),
        9..16 => unpack_by::<4>(bytes, width, out, each),
        16..30 => unpack_by::<2>(bytes, width, out, each),
        _ => unpack_by::<1>(bytes, width, out, each),
    }
}

/// Extracts `EACH` numbers from each word. Words begin at multiples of `EACH` bits of a byte, so
/// that 64 bits are valid for eight numbers, 60 for four and 58 for two.
#[inline]
fn unpack_by<const EACH: usize>(
    bytes: &[u8],
    width: usize,
    out: &mut [i64],
    mut each: impl FnMut(u64) -> i64,
) {
    let mask = u64::MAX >> (64 - width);
    let mut reader = LsbBitReader::new(bytes);
    let mut of_word = |places: &mut [i64]| {
        let mut word = reader.peek();
        for out in places {
            *out = each(word & mask);
            word >>= width;
        }
        reader.skip(EACH * width);
    };
    let (whole, rest) = out.as_chunks_mut::<EACH>();
    whole.iter_mut().for_each(|places| of_word(places));
    if !rest.is_empty() {
        of_word(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(width: u32) -> u64 {
        (0x9e37_79b9_7f4a_7c15u64 | 1 << 63).unbounded_shr(64 - width)
    }

    #[test]
    fn bits_of_every_width_return() {
        let (mut bytes, mut writer) = (Vec::new(), LsbBitWriter::default());
        for width in 1..=64 {
            writer.put(&mut bytes, number(width), width);
        }
        writer.finish(&mut bytes);
        assert_eq!(bytes.len(), 260);
        let mut reader = LsbBitReader::new(&bytes);
        for width in 1..=64 {
            assert_eq!(reader.take_long(width), number(width), "{width} bits");
        }
        assert_eq!(reader.finish(), Ok(()));
        reader.take(1);
        assert!(reader.finish().is_err());
        assert!(LsbBitReader::new(&bytes[..1]).finish().is_err());
    }

    #[test]
    fn unpack_of_every_width_and_count_returns_what_was_pushed() {
        for width in 0..=BITS_MAX {
            for count in [1, 2, 7, 8, 16, 24, 41] {
                let numbers: Vec<u64> = (0..count).map(|i| number(width) >> (i % 5)).collect();
                let mut bytes = Vec::new();
                push_bits(&mut bytes, width as usize, numbers.iter().copied());
                let mut out = vec![-1; numbers.len()];
                unpack(&bytes, width as usize, &mut out, |n| n as i64);
                let read: Vec<u64> = out.iter().map(|n| *n as u64).collect();
                assert_eq!(read, numbers, "{count} of {width} bits");
            }
        }
    }
}
