//! The byte codes that open chunks and log blocks share: times, values and histograms, exact to the
//! bit.
//!
//! Every code is a run of bytes that begins with an operation byte; `docs/format/chunk.md` draws
//! them. An encoder appends to a `Vec<u8>`; a decoder reads through [`cursor::Cursor`], which
//! checks every length, so corrupt bytes end in [`Malformed`] and never in a panic or a large
//! allocation.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod cursor;
pub(crate) mod decimal;
pub(crate) mod histogram;
pub(crate) mod time;
pub(crate) mod value;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;

/// No processor of this kind has it.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Avx512 {}

#[cfg(not(target_arch = "x86_64"))]
impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        None
    }
}

/// Encoded bytes that no encoder writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed bytes: {0}")]
pub struct Malformed(pub(crate) &'static str);

/// A signed number as an unsigned one that is small when the number is near zero.
pub(crate) fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub(crate) fn unzigzag(z: u64) -> i64 {
    (z >> 1) as i64 ^ -((z & 1) as i64)
}

/// Maps the bits of a float to an integer, so that integers are ordered as floats are, and back.
#[inline]
pub(crate) fn ordered(bits: u64) -> i64 {
    (bits ^ ((bits as i64 >> 63) as u64 >> 1)) as i64
}

/// A little-endian number of fewer than eight bytes, one by one: a copy of so many would be a call.
#[inline]
pub(crate) fn few(bytes: &[u8]) -> u64 {
    let byte = |(i, byte): (usize, &u8)| u64::from(*byte) << (8 * i);
    bytes
        .iter()
        .enumerate()
        .map(byte)
        .fold(0, |n, byte| n | byte)
}

/// Bytes that `n` needs without its leading zero bytes; at least one.
pub(crate) fn byte_len(n: u64) -> usize {
    (8 - (n | 1).leading_zeros() as usize / 8).max(1)
}

/// Where an encoder writes: a vector, or a buffer of fixed size.
pub(crate) trait Sink {
    /// Bytes written so far.
    fn position(&self) -> usize;

    /// Appends a byte.
    fn put(&mut self, byte: u8);

    /// Appends the low `len` bytes of `n`, little endian.
    fn put_low(&mut self, n: u64, len: usize);

    /// Adds one to the byte at `position`, or returns false if it is `last` or not there.
    fn increment(&mut self, position: usize, last: u8) -> bool;
}

impl Sink for Vec<u8> {
    fn position(&self) -> usize {
        self.len()
    }

    fn put(&mut self, byte: u8) {
        self.push(byte);
    }

    fn put_low(&mut self, n: u64, len: usize) {
        // Eight bytes are one store, `len` of them a call.
        let end = self.len() + len;
        self.extend_from_slice(&n.to_le_bytes());
        self.truncate(end);
    }

    #[inline]
    fn increment(&mut self, position: usize, last: u8) -> bool {
        increment(self, position, last)
    }
}

/// Bytes of a fixed number at most, and the slack of a move of eight: whoever writes knows that
/// they do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer<const BYTES: usize> {
    bytes: [u8; BYTES],
    /// From one on, so that a run never stands at zero, which says that there is none.
    end: usize,
}

impl<const BYTES: usize> Default for Buffer<BYTES> {
    fn default() -> Self {
        Self {
            bytes: [0; BYTES],
            end: 1,
        }
    }
}

impl<const BYTES: usize> Buffer<BYTES> {
    /// What was written.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[1..self.end]
    }

    /// Appends the first `len` of `bytes`.
    #[inline]
    pub(crate) fn put_first<const MOST: usize>(&mut self, bytes: [u8; MOST], len: usize) {
        self.bytes[self.end..self.end + MOST].copy_from_slice(&bytes);
        self.end += len;
    }
}

impl<const BYTES: usize> Sink for Buffer<BYTES> {
    #[inline]
    fn position(&self) -> usize {
        self.end
    }

    #[inline]
    fn put(&mut self, byte: u8) {
        self.bytes[self.end] = byte;
        self.end += 1;
    }

    #[inline]
    fn put_low(&mut self, n: u64, len: usize) {
        self.put_first(n.to_le_bytes(), len);
    }

    #[inline]
    fn increment(&mut self, position: usize, last: u8) -> bool {
        increment(&mut self.bytes, position, last)
    }
}

/// [`Sink::increment`] of bytes in memory.
#[inline]
pub(crate) fn increment(bytes: &mut [u8], position: usize, last: u8) -> bool {
    match bytes.get_mut(position) {
        Some(byte) if *byte != last => {
            *byte += 1;
            true
        }
        _ => false,
    }
}

/// Appends `n` seven bits a byte, least significant first.
pub(crate) fn push_uvarint(out: &mut impl Sink, mut n: u64) {
    while n >= 0x80 {
        out.put((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    out.put(n as u8);
}

/// Appends numbers that have no more than `width` bits, 64 at most, least significant first, and
/// rounds up to bytes.
pub(crate) fn push_bits(out: &mut impl Sink, width: usize, numbers: impl Iterator<Item = u64>) {
    let (mut pending, mut bits) = (0u64, 0);
    for number in numbers {
        pending |= number << bits;
        bits += width;
        if bits >= 64 {
            out.put_low(pending, 8);
            bits -= 64;
            // What had no room any more.
            pending = number.unbounded_shr((width - bits) as u32);
        }
    }
    if bits > 0 {
        out.put_low(pending, bits.div_ceil(8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zigzag_of_extremes_returns() {
        for n in [0, 1, -1, i64::MAX, i64::MIN, 1 << 40] {
            assert_eq!(unzigzag(zigzag(n)), n);
        }
        assert_eq!((zigzag(-1), zigzag(1)), (1, 2));
    }

    #[test]
    fn byte_len_counts_significant_bytes() {
        let cases = [
            (0, 1),
            (1, 1),
            (255, 1),
            (256, 2),
            (u64::MAX, 8),
            (1 << 56, 8),
            (1 << 55, 7),
        ];
        for (n, len) in cases {
            assert_eq!(byte_len(n), len, "{n}");
        }
    }
}
