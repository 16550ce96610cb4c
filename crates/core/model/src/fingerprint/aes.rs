//! Fingerprints computed with the AES instructions of the processor, at about sixteen bytes in two
//! cycles.
//!
//! ```text
//! fingerprint = r(length, k') ^ r(b1, k1) ^ r(b2, k2) ^ ...
//! r(b, k) = four rounds of AES on b ^ k[0], with k[1], k[2], k[3] and zero as round keys
//! ```
//!
//! The blocks `b` have 16 bytes each. The last one ends at the end of the input and may overlap the
//! previous one, so all bytes count and no padding is needed except for inputs shorter than a
//! block. Every block has keys of its own, up to 496 bytes. For longer inputs, the sum over the
//! first part is the start of the next part, after four rounds with additional keys; the blocks of
//! each part use the same keys as those of the first.
//!
//! **Why the sum can replace the input.** Over independent uniform round keys, no difference of two
//! blocks becomes a given difference after four rounds with a probability above 2^-113 (Keliher and
//! Sui, *Exact maximum expected differential and linear probability for two-round AES*, 2007; for
//! the proof that the sum is therefore universal: Minematsu and Tsunoo, *Provably secure MACs from
//! differentially-uniform permutations*, 2006). Two inputs of equal length differ in some block.
//! Whatever the sum of the other blocks is, the sums are equal only if the difference of this block
//! becomes a given one. Inputs of different lengths differ in the block of the length. Therefore
//! two different inputs of up to 496 bytes, chosen without access to the keys, collide with a
//! probability of at most 2^-113. Each further part adds the same probability, once more for the
//! keys at its start. From the tenth part on, beyond 4,464 bytes, those keys repeat, and the
//! argument requires that four rounds are as good as a random permutation.
//!
//! A value of [`AesKeys`] proves that the processor supports AES: only [`AesKeys::generate`]
//! creates one. No code here reads or writes through a pointer. The only unsafe operation is the
//! call of functions whose instructions the processor might not support.

#![allow(unsafe_code)]

use super::{Fingerprint, HashKeyGenerator};
use std::arch::x86_64::*;

/// Number of bytes in a block, the block size of AES.
const BLOCK: usize = 16;

/// Number of blocks with keys of their own: 496 bytes, longer than nearly every label set.
const BLOCKS: usize = 31;

/// Number of parts after the first with keys of their own: 4,464 bytes.
const PARTS: usize = 8;

/// The round keys of one block, of which the first is added before the rounds.
type RoundKeys = [__m128i; 4];

/// The keys of the hash. A value exists only on a processor with AES.
#[derive(Debug)]
pub(super) struct AesKeys {
    blocks: [RoundKeys; BLOCKS],
    length: RoundKeys,
    /// The keys for the sums at the start of all parts except the first.
    chain: [RoundKeys; PARTS],
}

impl AesKeys {
    /// Generates keys, or returns `None` if the processor does not support AES.
    pub(super) fn generate(words: &mut HashKeyGenerator) -> Option<Box<Self>> {
        if !is_x86_feature_detected!("aes") {
            return None;
        }
        // SAFETY: the line above detected AES, which includes SSE2.
        let mut word = || unsafe { word(words.next(), words.next()) };
        let mut keys = || std::array::from_fn(|_| word());
        Some(Box::new(Self {
            blocks: std::array::from_fn(|_| keys()),
            length: keys(),
            chain: std::array::from_fn(|_| keys()),
        }))
    }

    /// Returns the fingerprint of `bytes`, at about sixteen bytes in two cycles.
    #[inline]
    pub(super) fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
        // SAFETY: `self` exists, so the processor supports AES.
        unsafe { fingerprint(self, bytes) }
    }
}

#[inline]
#[target_feature(enable = "sse2")]
fn word(high: u64, low: u64) -> __m128i {
    _mm_set_epi64x(high as i64, low as i64)
}

#[inline]
#[target_feature(enable = "sse2")]
fn load(block: &[u8; BLOCK]) -> __m128i {
    let block = u128::from_le_bytes(*block);
    word((block >> 64) as u64, block as u64)
}

/// Returns the contribution of one block to the sum.
#[inline]
#[target_feature(enable = "aes")]
fn rounds(block: __m128i, keys: &RoundKeys) -> __m128i {
    let mut state = _mm_xor_si128(block, keys[0]);
    for key in &keys[1..] {
        state = _mm_aesenc_si128(state, *key);
    }
    _mm_aesenc_si128(state, _mm_setzero_si128())
}

#[target_feature(enable = "aes")]
fn fingerprint(keys: &AesKeys, bytes: &[u8]) -> Fingerprint {
    let mut sum = rounds(word(0, bytes.len() as u64), &keys.length);
    let (blocks, rest) = bytes.as_chunks();
    // Number of used keys in the part that the last block belongs to.
    let mut used = 0;
    for (number, part) in blocks.chunks(BLOCKS).enumerate() {
        if let Some(number) = number.checked_sub(1) {
            sum = rounds(sum, &keys.chain[number.min(PARTS - 1)]);
        }
        for (block, keys) in part.iter().zip(&keys.blocks) {
            sum = _mm_xor_si128(sum, rounds(load(block), keys));
        }
        used = part.len();
    }
    if !rest.is_empty() {
        if used == BLOCKS {
            sum = rounds(sum, &keys.chain[(blocks.len() / BLOCKS - 1).min(PARTS - 1)]);
            used = 0;
        }
        let last = match bytes.last_chunk() {
            Some(last) => load(last),
            None => expand_short_input(bytes),
        };
        sum = _mm_xor_si128(sum, rounds(last, &keys.blocks[used]));
    }
    Fingerprint {
        high: _mm_cvtsi128_si64(_mm_unpackhi_epi64(sum, sum)) as u64,
        low: _mm_cvtsi128_si64(sum) as u64,
    }
}

/// Converts an input that is shorter than a block. Different inputs of equal length give different
/// blocks.
#[inline]
#[target_feature(enable = "sse2")]
fn expand_short_input(bytes: &[u8]) -> __m128i {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return word(u64::from_le_bytes(*last), u64::from_le_bytes(*first));
    }
    let mut number = 0;
    for byte in bytes {
        number = number << 8 | u64::from(*byte);
    }
    word(0, number)
}
