//! Keyed hashes of label bytes: 128 bits that stand for a label set, and 64 bits for tables. The
//! bytes hashed for a label set are its [key](crate::series_key).
//!
//! A fingerprint stands for the labels it was made of: labels are not compared. Two label sets of
//! up to 496 bytes, chosen by an attacker, have the same one with a probability of at most 2^-113.
//! A billion series are 2^59 pairs: a chance of 2^-54 that any two of them are ever taken for one.
//! [`aes`] and [`nh`] say why. The keys follow from a [`Seed`], which is drawn once and never
//! leaves the data folder, so that no client can search for collisions. A processor takes the hash
//! that it is fastest at; what another one took can be computed on each.
//!
//! ```text
//! seed -> words -> keys of AES rounds, by the processor or in plain code; or of NH
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

/// What stands for a label set under one seed and one hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Chooses the shard and the place in a table.
    pub high: u64,
    /// The rest.
    pub low: u64,
}

/// Where secret keys come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u64; 2]);

impl Seed {
    /// Draws one.
    pub fn draw(rng: &dyn Rng) -> Self {
        Self([rng.next_u64(), rng.next_u64()])
    }
}

/// A seed is a secret.
impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed")
    }
}

/// A hash. Two of them give different fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// Four rounds of AES a block.
    Aes,
    /// Two multiplications a block.
    Nh,
}

impl HashKind {
    /// The one that this processor is fastest at.
    pub fn fastest() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("aes") {
            return Self::Aes;
        }
        Self::Nh
    }
}

/// Secret keys, for the fastest way in which this processor makes their hash.
#[derive(Debug)]
pub struct HashKeys {
    seed: Seed,
    kind: HashKind,
    way: Way,
}

#[derive(Debug)]
enum Way {
    #[cfg(target_arch = "x86_64")]
    Aes(Box<AesKeys>),
    Plain(Box<PlainKeys>),
    Nh(Box<NhKeys>),
}

impl HashKeys {
    /// Draws keys of the fastest hash.
    pub fn new(rng: &dyn Rng) -> Self {
        Self::of(HashKind::fastest(), Seed::draw(rng))
    }

    /// The keys that follow from `seed`.
    pub fn of(kind: HashKind, seed: Seed) -> Self {
        let way = match kind {
            HashKind::Nh => Way::Nh(NhKeys::draw(&mut Words::of(seed))),
            HashKind::Aes => Self::aes(seed),
        };
        Self { seed, kind, way }
    }

    fn aes(seed: Seed) -> Way {
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = AesKeys::draw(&mut Words::of(seed)) {
            return Way::Aes(keys);
        }
        Way::Plain(PlainKeys::draw(&mut Words::of(seed)))
    }

    /// What they follow from.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Which hash they are of.
    pub fn kind(&self) -> HashKind {
        self.kind
    }

    /// The fingerprint of `bytes`.
    #[inline]
    pub fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
        match &self.way {
            #[cfg(target_arch = "x86_64")]
            Way::Aes(keys) => keys.fingerprint(bytes),
            Way::Plain(keys) => keys.fingerprint(bytes),
            Way::Nh(keys) => keys.fingerprint(bytes),
        }
    }

    /// 64 bits for a table of short keys.
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.fingerprint(bytes).high
    }
}

/// How a store hashes the keys of its series.
#[derive(Clone, Debug)]
pub struct SeriesHash {
    /// With these.
    pub keys: Arc<HashKeys>,
    /// How the series keys are written that are made of labels.
    pub format: &'static dyn KeyFormat,
}

impl SeriesHash {
    /// The fingerprint of a label set: that of its key. `key` is memory.
    pub fn of_labels(&self, labels: LabelsRef<'_>, key: &mut Vec<u8>) -> Fingerprint {
        key.clear();
        self.format.push_key(key, labels);
        self.keys.fingerprint(key)
    }
}

/// The words that keys are made of: xoroshiro128** (Blackman and Vigna, *Scrambled linear
/// pseudorandom number generators*, 2021). No fingerprint can be seen from outside, so nothing is
/// to be told of the words by others.
struct Words([u64; 2]);

impl Words {
    fn of(seed: Seed) -> Self {
        // All zeros would stay so.
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
