//! Keyed hashes of label bytes: 128 bits that identify a label set, and 64 bits for hash tables.
//! The hashed bytes of a label set are its [key](crate::series_key).
//!
//! A fingerprint replaces the labels from which it was computed: labels are not compared. Two label
//! sets of up to 496 bytes, chosen by an attacker, have the same fingerprint with a probability of
//! at most 2^-113. A billion series are 2^59 pairs, so the probability of any collision is 2^-54.
//! [`aes`] and [`nh`] contain the proofs. The keys are derived from a [`FingerprintSeed`], which is
//! generated once and never leaves the data folder, so no client can search for collisions. A
//! processor uses the hash that it computes fastest; all hashes can be computed on every processor.
//!
//! ```text
//! seed -> words -> keys of AES rounds (AES instructions or plain code), or keys of NH
//! ```

#[cfg(target_arch = "x86_64")]
mod aes;
mod nh;
mod plain;
#[cfg(test)]
mod tests;

use crate::env::Rng;
use crate::labels::LabelsRef;
use crate::series_key::KeyFormat;
#[cfg(target_arch = "x86_64")]
use aes::AesKeys;
use nh::NhKeys;
use plain::PlainKeys;
use std::sync::Arc;

/// The identifier of a label set under one seed and one hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// The upper half, which selects the shard and the position in a hash table.
    pub high: u64,
    /// The lower half, which distinguishes fingerprints with the same upper half.
    pub low: u64,
}

/// The secret seed from which keys are derived. It is stored in the data folder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FingerprintSeed(pub [u64; 2]);

impl FingerprintSeed {
    /// Generates a random seed. This happens once for each data folder.
    pub fn generate(rng: &dyn Rng) -> Self {
        Self([rng.next_u64(), rng.next_u64()])
    }
}

/// Prints no bits of the seed, which is secret.
impl std::fmt::Debug for FingerprintSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed")
    }
}

/// The hash functions for fingerprints. Their results differ even with the same seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// Four rounds of AES per block of 16 bytes, for processors with AES instructions.
    Aes,
    /// Two multiplications per block of 16 bytes, for all other processors.
    Nh,
}

impl HashKind {
    /// Returns the hash that this processor computes fastest: AES if it has the instructions.
    pub fn fastest() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("aes") {
            return Self::Aes;
        }
        Self::Nh
    }
}

/// Secret keys, in the form for the fastest implementation on this processor.
#[derive(Debug)]
pub struct HashKeys {
    seed: FingerprintSeed,
    kind: HashKind,
    way: HashImplementation,
}

/// Keys are equal if they give equal fingerprints.
impl PartialEq for HashKeys {
    fn eq(&self, other: &Self) -> bool {
        (self.seed, self.kind) == (other.seed, other.kind)
    }
}

#[derive(Debug)]
enum HashImplementation {
    #[cfg(target_arch = "x86_64")]
    Aes(Box<AesKeys>),
    Plain(Box<PlainKeys>),
    Nh(Box<NhKeys>),
}

impl HashKeys {
    /// Generates random keys for the hash that is fastest on this processor.
    pub fn new(rng: &dyn Rng) -> Self {
        Self::from_seed(HashKind::fastest(), FingerprintSeed::generate(rng))
    }

    /// Derives the keys of a hash from `seed`. Equal arguments give equal fingerprints on all
    /// processors.
    pub fn from_seed(kind: HashKind, seed: FingerprintSeed) -> Self {
        let way = match kind {
            HashKind::Nh => {
                HashImplementation::Nh(NhKeys::generate(&mut HashKeyGenerator::from_seed(seed)))
            }
            HashKind::Aes => Self::aes(seed),
        };
        Self { seed, kind, way }
    }

    fn aes(seed: FingerprintSeed) -> HashImplementation {
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = AesKeys::generate(&mut HashKeyGenerator::from_seed(seed)) {
            return HashImplementation::Aes(keys);
        }
        HashImplementation::Plain(PlainKeys::generate(&mut HashKeyGenerator::from_seed(seed)))
    }

    /// Returns the seed from which the keys were derived.
    pub fn seed(&self) -> FingerprintSeed {
        self.seed
    }

    /// Returns the hash function for which the keys were derived.
    pub fn kind(&self) -> HashKind {
        self.kind
    }

    /// Returns the fingerprint of `bytes` under these keys.
    #[inline]
    pub fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
        match &self.way {
            #[cfg(target_arch = "x86_64")]
            HashImplementation::Aes(keys) => keys.fingerprint(bytes),
            HashImplementation::Plain(keys) => keys.fingerprint(bytes),
            HashImplementation::Nh(keys) => keys.fingerprint(bytes),
        }
    }

    /// Returns a 64-bit hash for a hash table of short keys.
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.fingerprint(bytes).high
    }
}

/// The hash of a store for the keys of its series.
#[derive(Clone, Debug)]
pub struct SeriesHash {
    /// The secret keys of the hash, shared by all users of the store.
    pub keys: Arc<HashKeys>,
    /// The format of series keys that are created from labels.
    pub format: &'static dyn KeyFormat,
}

impl SeriesHash {
    /// Returns the fingerprint of a label set: the hash of its key. `key` is a reusable buffer.
    pub fn hash_labels(&self, labels: LabelsRef<'_>, key: &mut Vec<u8>) -> Fingerprint {
        key.clear();
        self.format.push_key(key, labels);
        self.keys.fingerprint(key)
    }
}

/// The generator of the words from which keys are built: xoroshiro128** (Blackman and Vigna,
/// *Scrambled linear pseudorandom number generators*, 2021). It need not be cryptographically
/// secure, because fingerprints are never visible to clients.
struct HashKeyGenerator([u64; 2]);

impl HashKeyGenerator {
    fn from_seed(seed: FingerprintSeed) -> Self {
        // The state must not be zero, because it would remain zero.
        Self(match seed.0 {
            [0, 0] => [0, 1],
            state => state,
        })
    }

    fn next(&mut self) -> u64 {
        let [a, mut b] = self.0;
        let word = a.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        b ^= a;
        self.0 = [a.rotate_left(24) ^ b ^ b << 16, b.rotate_left(37)];
        word
    }
}
