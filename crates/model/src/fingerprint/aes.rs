//! Fingerprints by the processor's AES rounds: some sixteen bytes in two cycles.
//!
//! ```text
//! fingerprint = r(length, k') ^ r(b1, k1) ^ r(b2, k2) ^ ...
//! r(b, k) = four rounds of AES on b ^ k[0], with k[1], k[2], k[3] and zero as round keys
//! ```
//!
//! The blocks `b` are 16 bytes each; the last one ends where the input ends and may overlap the one
//! before, so that all bytes count and none is made up but for inputs shorter than a block. Every
//! block has keys of its own, up to 496 bytes. The sum over so many begins the next part, through
//! four rounds with further keys; the part's own blocks have the keys of those in the first.
//!
//! **Why the sum may stand for the input.** Over independent uniform round keys, no difference of
//! two blocks becomes a given difference behind four rounds with a probability above 2^-113
//! (Keliher and Sui, *Exact maximum expected differential and linear probability for two-round
//! AES*, 2007; that this makes a sum universal: Minematsu and Tsunoo, *Provably secure MACs from
//! differentially-uniform permutations*, 2006). Two inputs of one length differ in some block. For
//! whatever the others come to, the sums are equal only if this one's difference becomes a given
//! one. Inputs of two lengths differ in the block of the length. So two different inputs up to 496
//! bytes, chosen without knowledge of the keys, collide with a probability of at most 2^-113,
//! and each further part adds as much, once more for the keys that begin it. From the tenth part
//! on, beyond 4,464 bytes, those repeat, and the argument needs that four rounds are as good as a
//! random permutation.
//!
//! A value of [`AesKeys`] is the proof that the processor has AES: only [`AesKeys::draw`] makes
//! one. Nothing here reads or writes through a pointer: what is unsafe is only that a function is
//! called whose instructions the processor may lack.

#![allow(unsafe_code)]

use super::{Fingerprint, Words};
use std::arch::x86_64::*;

/// Bytes of a block.
const BLOCK: usize = 16;

/// Blocks with keys of their own: 496 bytes, longer than nearly every label set.
const BLOCKS: usize = 31;

/// Parts behind the first with keys of their own: 4,464 bytes.
const PARTS: usize = 8;

/// The keys of one block.
type RoundKeys = [__m128i; 4];

/// Keys, on a processor with AES.
#[derive(Debug)]
pub(super) struct AesKeys {
    blocks: [RoundKeys; BLOCKS],
    length: RoundKeys,
    /// Of the sums over the parts so far.
    chain: [RoundKeys; PARTS],
}

impl AesKeys {
    /// Draws keys if the processor has what it takes.
    pub(super) fn draw(words: &mut Words) -> Option<Box<Self>> {
        if !is_x86_feature_detected!("aes") {
            return None;
        }
        // SAFETY: the processor was just seen to have AES, which includes SSE2.
        let mut word = || unsafe { word(words.next(), words.next()) };
        let mut keys = || std::array::from_fn(|_| word());
        Some(Box::new(Self {
            blocks: std::array::from_fn(|_| keys()),
            length: keys(),
            chain: std::array::from_fn(|_| keys()),
        }))
    }

    /// The fingerprint of `bytes`.
    #[inline]
    pub(super) fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
        // SAFETY: `self` exists, so the processor has AES.
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

/// The part of the sum that one block is.
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
    // Of the part that the last block belongs to.
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
            None => short(bytes),
        };
        sum = _mm_xor_si128(sum, rounds(last, &keys.blocks[used]));
    }
    Fingerprint {
        high: _mm_cvtsi128_si64(_mm_unpackhi_epi64(sum, sum)) as u64,
        low: _mm_cvtsi128_si64(sum) as u64,
    }
}

/// Less than a block, so that different bytes of one length make different blocks.
#[inline]
#[target_feature(enable = "sse2")]
fn short(bytes: &[u8]) -> __m128i {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return word(u64::from_le_bytes(*last), u64::from_le_bytes(*first));
    }
    let mut number = 0;
    for byte in bytes {
        number = number << 8 | u64::from(*byte);
    }
    word(0, number)
}
