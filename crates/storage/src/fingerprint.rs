//! Keyed hashes of label bytes: 128 bits that stand for a label set, and 64 bits for tables. The
//! bytes hashed are those of the set's [`firn_model::section`].
//!
//! **Why a fingerprint may stand for the labels it was made of.** Each half is NH (Black, Halevi,
//! Krawczyk, Krovetz, Rogaway: *UMAC*, 1999) over 64-bit words, `sum of (a + k) * (b + k') mod
//! 2^128` with secret random `k`: two different inputs of one length collide with probability at
//! most 2^-64. Inputs longer than the keys are chained, the sum of a block being the first words of
//! the next, which adds at most 2^-64 a block. The 128-bit sum and the length are then folded into
//! 64 bits by one more product of the same kind, whose halves are added: at most another 2^-61.
//! Both halves of the fingerprint use keys of their own, so two different label sets up to 496
//! bytes collide with probability below 2^-120, and each further block of either adds to it less
//! than a tenth. A billion series are 2^59 pairs: a chance of 2^-61 that any two of them are ever
//! taken for one. The keys are drawn when the process starts and never leave it, so that nobody can
//! search for collisions.

use firn_model::env::Rng;
use firn_model::labels::LabelsRef;
use firn_model::section::push_section;

/// Words of a block: two carry the chain, the rest 496 bytes, longer than nearly every label set.
const BLOCK_WORDS: usize = 64;

const BLOCK_BYTES: usize = (BLOCK_WORDS - 2) * 8;

/// What stands for a label set within one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    /// Chooses the shard and the place in a table.
    pub(crate) high: u64,
    /// The rest.
    pub(crate) low: u64,
}

#[derive(Debug)]
struct Half {
    words: [u64; BLOCK_WORDS],
    fold: [u64; 3],
}

/// The secret keys of a process.
#[derive(Debug)]
pub(crate) struct HashKeys {
    high: Box<Half>,
    low: Box<Half>,
}

impl HashKeys {
    /// Draws keys.
    pub(crate) fn new(rng: &dyn Rng) -> Self {
        let half = || {
            Box::new(Half {
                words: std::array::from_fn(|_| rng.next_u64()),
                fold: std::array::from_fn(|_| rng.next_u64()),
            })
        };
        Self {
            high: half(),
            low: half(),
        }
    }

    /// The fingerprint of a label set: that of its section, so that one which arrives as such need
    /// not be looked into. `section` is memory for it.
    pub(crate) fn of_labels(&self, labels: LabelsRef<'_>, section: &mut Vec<u8>) -> Fingerprint {
        section.clear();
        push_section(section, labels);
        self.fingerprint(section)
    }

    /// The fingerprint of `bytes`.
    pub(crate) fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
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

    /// 64 bits for a table of short keys.
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        self.fingerprint(bytes).high
    }

    /// Both sums over one block, a pair of words at a time.
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

impl Half {
    fn fold(&self, sum: u128, bytes: usize) -> u64 {
        let [k0, k1, k2] = self.fold;
        let a = (sum as u64).wrapping_add(k0);
        let b = ((sum >> 64) as u64).wrapping_add(k1);
        let p = u128::from(a) * u128::from(b) + u128::from(k2) * (bytes as u128 + 1);
        (p as u64).wrapping_add((p >> 64) as u64)
    }
}

/// The product that carries the sum of the block before.
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

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;
    use std::collections::HashSet;

    #[test]
    fn fingerprint_of_near_inputs_differs_in_both_halves() {
        let keys = HashKeys::new(&SimRng::new(1));
        let mut highs = HashSet::new();
        let mut lows = HashSet::new();
        let mut inputs = 0;
        for len in [
            0, 1, 7, 8, 15, 16, 17, 300, 495, 496, 497, 512, 992, 993, 4_000,
        ] {
            for at in (0..len).step_by(1 + len / 40) {
                for bit in [1, 16, 128] {
                    let mut bytes = vec![0; len];
                    bytes[at] = bit;
                    let print = keys.fingerprint(&bytes);
                    assert!(
                        highs.insert(print.high) && lows.insert(print.low),
                        "{len} {at} {bit}"
                    );
                    inputs += 1;
                }
            }
            let zeros = keys.fingerprint(&vec![0; len]);
            assert!(
                highs.insert(zeros.high) && lows.insert(zeros.low),
                "{len} zeros"
            );
        }
        assert!(inputs > 1_000);
    }

    #[test]
    fn fingerprint_high_bits_of_counting_inputs_spread_evenly() {
        let keys = HashKeys::new(&SimRng::new(2));
        let mut shards = [0; 16];
        for i in 0..16_000 {
            let print = keys.fingerprint(format!("__name__ up pod app-{i}").as_bytes());
            shards[(print.high >> 60) as usize] += 1;
        }
        assert!(
            shards.iter().all(|n| (850..1_150).contains(n)),
            "{shards:?}"
        );
    }

    #[test]
    fn fingerprint_under_other_keys_differs() {
        let print = |seed| HashKeys::new(&SimRng::new(seed)).fingerprint(b"up");
        assert_ne!(print(1), print(2));
    }
}
