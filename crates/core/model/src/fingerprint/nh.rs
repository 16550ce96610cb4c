//! Fingerprints computed with multiplications, for all processors.
//!
//! **Why they can replace the input.** Each half is NH (Black, Halevi, Krawczyk, Krovetz, Rogaway:
//! *UMAC*, 1999) over 64-bit words, `sum of (a + k) * (b + k') mod 2^128` with secret random `k`:
//! two different inputs of equal length collide with a probability of at most 2^-64. Inputs longer
//! than the keys are chained: the sum of a block provides the first words of the next, which adds
//! at most 2^-64 per block. The 128-bit sum and the length are then folded into 64 bits by one more
//! product of the same kind, whose halves are added: at most another 2^-61. Both halves have keys
//! of their own, so two different label sets of up to 496 bytes collide with a probability below
//! 2^-120, and each further block of either adds less than a tenth of this.

use super::{Fingerprint, HashKeyGenerator};

/// Words of a block: two for the chain, the others for 496 bytes, longer than nearly every label
/// set.
const BLOCK_WORDS: usize = 64;

const BLOCK_BYTES: usize = (BLOCK_WORDS - 2) * 8;

#[derive(Debug)]
struct NhHalfKeys {
    words: [u64; BLOCK_WORDS],
    fold: [u64; 3],
}

/// The keys of both halves of the fingerprint, which are independent.
#[derive(Debug)]
pub(super) struct NhKeys {
    high: NhHalfKeys,
    low: NhHalfKeys,
}

impl NhKeys {
    /// Generates the keys of both halves from the given words.
    pub(super) fn generate(words: &mut HashKeyGenerator) -> Box<Self> {
        let mut half = || NhHalfKeys {
            words: std::array::from_fn(|_| words.next()),
            fold: std::array::from_fn(|_| words.next()),
        };
        Box::new(Self {
            high: half(),
            low: half(),
        })
    }

    /// Returns the fingerprint of `bytes`, which may have any length.
    pub(super) fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
        let (mut high, mut low) = (0, 0);
        let mut rest = bytes;
        loop {
            let (block, behind) = rest.split_at(rest.len().min(BLOCK_BYTES));
            (high, low) = (chain(high, &self.high.words), chain(low, &self.low.words));
            let (more_high, more_low) = self.sums(block);
            high = high.wrapping_add(more_high);
            low = low.wrapping_add(more_low);
            if behind.is_empty() {
                break;
            }
            rest = behind;
        }
        Fingerprint {
            high: self.high.fold(high, bytes.len()),
            low: self.low.fold(low, bytes.len()),
        }
    }

    /// Computes both sums over one block, two words at a time.
    #[inline]
    fn sums(&self, block: &[u8]) -> (u128, u128) {
        let (mut high, mut low) = (0u128, 0u128);
        let mut keys = self.high.words[2..]
            .chunks_exact(2)
            .zip(self.low.words[2..].chunks_exact(2));
        let mut add = |pair: &[u8; 16], (h, l): (&[u64], &[u64])| {
            let (a, b) = words(pair);
            high = high.wrapping_add(product(a, b, h));
            low = low.wrapping_add(product(a, b, l));
        };
        let (pairs, rest) = block.as_chunks::<16>();
        for (pair, keys) in pairs.iter().zip(&mut keys) {
            add(pair, keys);
        }
        if !rest.is_empty()
            && let Some(keys) = keys.next()
        {
            let mut last = [0; 16];
            last[..rest.len()].copy_from_slice(rest);
            add(&last, keys);
        }
        (high, low)
    }
}

impl NhHalfKeys {
    fn fold(&self, sum: u128, bytes: usize) -> u64 {
        let [k0, k1, k2] = self.fold;
        let a = (sum as u64).wrapping_add(k0);
        let b = ((sum >> 64) as u64).wrapping_add(k1);
        let p = u128::from(a) * u128::from(b) + u128::from(k2) * (bytes as u128 + 1);
        (p as u64).wrapping_add((p >> 64) as u64)
    }
}

/// Returns the product that includes the sum of the previous block.
fn chain(sum: u128, keys: &[u64; BLOCK_WORDS]) -> u128 {
    product(sum as u64, (sum >> 64) as u64, &keys[..2])
}

#[inline]
fn product(a: u64, b: u64, keys: &[u64]) -> u128 {
    u128::from(a.wrapping_add(keys[0])) * u128::from(b.wrapping_add(keys[1]))
}

#[inline]
fn words(pair: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*pair);
    (both as u64, (both >> 64) as u64)
}
