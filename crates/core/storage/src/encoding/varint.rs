//! Varints, zigzag encoding, and lengths of numbers in bytes and bits.

use super::sink::EncodeSink;

/// Maps a signed number to an unsigned one that is small if the number is near zero.
#[inline]
pub(crate) fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

/// Returns the signed integer that [`zigzag`] maps to `z`.
#[inline]
pub(crate) fn unzigzag(z: u64) -> i64 {
    (z >> 1) as i64 ^ -((z & 1) as i64)
}

/// Returns the bytes of `n` without its leading zero bytes; at least one.
pub(crate) fn byte_len(n: u64) -> usize {
    (8 - (n | 1).leading_zeros() as usize / 8).max(1)
}

/// Returns the bits of `n` without its leading zeros; zero for zero.
pub(crate) fn bit_len(n: u64) -> usize {
    (u64::BITS - n.leading_zeros()) as usize
}

/// Returns the number of bytes that [`push_uvarint`] appends.
pub(crate) fn uvarint_len(n: u64) -> usize {
    bit_len(n | 1).div_ceil(7)
}

/// Appends `n`, seven bits per byte, least significant first.
pub(crate) fn push_uvarint(out: &mut impl EncodeSink, mut n: u64) {
    while n >= 0x80 {
        out.put((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    out.put(n as u8);
}

/// Appends the length of `bytes` as a varint, then the bytes.
pub(crate) fn push_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    push_uvarint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
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

    #[test]
    fn uvarint_len_counts_the_bytes_that_are_pushed() {
        for n in (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) - 1]) {
            let mut bytes = Vec::new();
            push_uvarint(&mut bytes, n);
            assert_eq!(uvarint_len(n), bytes.len(), "{n}");
        }
    }
}
