//! Keyed hashes of label bytes: 128 bits that stand for a label set, and 64 bits for tables. The
//! bytes hashed for a label set are its [key](firn_model::series_key).
//!
//! A fingerprint stands for the labels it was made of: labels are not compared. Two label sets of
//! up to 496 bytes, chosen by an attacker, have the same one with a probability of at most 2^-113.
//! A billion series are 2^59 pairs: a chance of 2^-54 that any two of them are ever taken for one.
//! [`aes`] and [`nh`] say why. The keys are drawn when the process starts and never leave it, so
//! that no client can search for collisions; nor does a fingerprint, so that it may be another on
//! another processor.

#[cfg(target_arch = "x86_64")]
mod aes;
mod nh;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
use aes::AesKeys;
use firn_model::env::Rng;
use nh::NhKeys;

/// What stands for a label set within one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    /// Chooses the shard and the place in a table.
    pub(crate) high: u64,
    /// The rest.
    pub(crate) low: u64,
}

/// The secret keys of a process, for the fastest way that its processor has.
#[derive(Debug)]
pub(crate) enum HashKeys {
    /// Four rounds of AES a block.
    #[cfg(target_arch = "x86_64")]
    Aes(Box<AesKeys>),
    /// Two multiplications a block.
    Nh(Box<NhKeys>),
}

impl HashKeys {
    /// Draws keys.
    pub(crate) fn new(rng: &dyn Rng) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = AesKeys::draw(rng) {
            return Self::Aes(keys);
        }
        Self::portable(rng)
    }

    /// Draws keys for what every processor has.
    fn portable(rng: &dyn Rng) -> Self {
        Self::Nh(NhKeys::draw(rng))
    }

    /// The fingerprint of `bytes`.
    #[inline]
    pub(crate) fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Aes(keys) => keys.fingerprint(bytes),
            Self::Nh(keys) => keys.fingerprint(bytes),
        }
    }

    /// 64 bits for a table of short keys.
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        self.fingerprint(bytes).high
    }
}
