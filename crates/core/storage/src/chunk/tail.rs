//! The tail: the newest bytes of an open chunk, stored in the series itself.

use crate::encoding::sink::{EncodeBuffer, EncodeSink};

/// Bytes of the tail, which round up a series to 96 bytes. A sample takes one to three.
pub(super) const TAIL_BYTES: usize = 15;

/// The tail, from the lowest byte on; the highest byte contains its length. It consists of two
/// words, because bytes that are written one by one cannot be read as words for about twenty
/// cycles: a sample is added in registers ([`ChunkTailBuffer`]).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkTail([u64; 2]);

impl ChunkTail {
    #[inline]
    pub(super) fn new(bits: u128, len: usize) -> Self {
        Self([bits as u64, (bits >> 64) as u64 | (len as u64) << 56])
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        (self.0[1] >> 56) as usize
    }

    /// Returns the bytes, followed by zeros.
    #[inline]
    fn bits(self) -> u128 {
        u128::from(self.0[1] & (u64::MAX >> 8)) << 64 | u128::from(self.0[0])
    }

    pub(super) fn bytes(self) -> [u8; TAIL_BYTES + 1] {
        self.bits().to_le_bytes()
    }
}

/// A tail in registers, to which a sample is added. Bytes that do not fit are lost, which
/// [`ChunkTailBuffer::tail`] detects.
pub(super) struct ChunkTailBuffer {
    bits: u128,
    /// Counted from one, as in [`TailBuffer`].
    end: usize,
}

impl ChunkTailBuffer {
    #[inline]
    pub(super) fn from_tail(tail: ChunkTail) -> Self {
        Self {
            bits: tail.bits(),
            end: 1 + tail.len(),
        }
    }

    /// Returns the tail, or `None` if the bytes do not fit into one.
    #[inline]
    pub(super) fn tail(&self) -> Option<ChunkTail> {
        let len = self.end - 1;
        (len <= TAIL_BYTES).then(|| ChunkTail::new(self.bits, len))
    }

    #[inline]
    fn shift(position: usize) -> u32 {
        8 * (position as u32 - 1)
    }
}

impl EncodeSink for ChunkTailBuffer {
    #[inline]
    fn position(&self) -> usize {
        self.end
    }

    #[inline]
    fn put(&mut self, byte: u8) {
        self.bits |= u128::from(byte).wrapping_shl(Self::shift(self.end));
        self.end += 1;
    }

    #[inline]
    fn put_low(&mut self, n: u64, len: usize) {
        let low = n & (u64::MAX >> (64 - 8 * len));
        self.bits |= u128::from(low).wrapping_shl(Self::shift(self.end));
        self.end += len;
    }

    #[inline]
    fn increment(&mut self, position: usize, last: u8) -> bool {
        let shift = Self::shift(position);
        let is_below = self.bits.wrapping_shr(shift) as u8 != last;
        self.bits += u128::from(is_below).wrapping_shl(shift);
        is_below
    }
}

/// A buffer for a tail and all bytes that one sample adds to it: a first time, a start, a time and
/// a value, and the slack of an eight-byte store.
pub(super) type TailBuffer = EncodeBuffer<{ 1 + TAIL_BYTES + 8 + 11 + 9 + 11 + 8 }>;
