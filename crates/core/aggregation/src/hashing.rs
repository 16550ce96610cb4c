//! The hash function for series keys, which stays the same for the lifetime of an aggregation
//! state.
//!
//! A new state uses the hash keys of the store, so that the fingerprints of a batch serve both. It
//! keeps them as long as it lives: if the store gets other keys later (its manifest was lost, or
//! the folder was moved to another processor type), the state computes its own fingerprints.
//!
//! ```text
//! hash = 1 | secret u64          xxh3 of 128 bits, for states of an earlier version
//!      | 2 | seed 16 bytes       rounds of AES
//!      | 3 | seed 16 bytes       NH
//! ```

use super::code::{AggregationJournalError, AggregationJournalReader};
use firn_model::fingerprint::{Fingerprint, FingerprintSeed, HashKeys, HashKind};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128_with_seed;

const XXH3: u8 = 1;
const AES: u8 = 2;
const NH: u8 = 3;

/// The hash function of a state with its keys, which is written to every journal record.
#[derive(Clone, Debug)]
pub(super) enum SourceHashing {
    /// Hash keys that the store has or had too.
    Keys(Arc<HashKeys>),
    /// A secret that only the state has.
    Xxh3(u64),
}

impl SourceHashing {
    /// Returns the fingerprint of the series with this key, which identifies its source.
    #[inline]
    pub(super) fn fingerprint_of_key(&self, key: &[u8]) -> Fingerprint {
        match self {
            Self::Keys(keys) => keys.fingerprint(key),
            Self::Xxh3(secret) => {
                let hash = xxh3_128_with_seed(key, *secret);
                Fingerprint {
                    high: (hash >> 64) as u64,
                    low: hash as u64,
                }
            }
        }
    }

    /// Returns the hash keys, unless the state has a secret of its own.
    pub(super) fn hash_keys(&self) -> Option<&HashKeys> {
        match self {
            Self::Keys(keys) => Some(keys),
            Self::Xxh3(_) => None,
        }
    }

    /// Appends the encoded hash function to a journal record.
    pub(super) fn push_encoded(&self, out: &mut Vec<u8>) {
        let keys = match self {
            Self::Keys(keys) => keys,
            Self::Xxh3(secret) => {
                out.push(XXH3);
                return out.extend_from_slice(&secret.to_le_bytes());
            }
        };
        out.push(match keys.kind() {
            HashKind::Aes => AES,
            HashKind::Nh => NH,
        });
        for word in keys.seed().0 {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads a hash function that [`SourceHashing::push_encoded`] wrote; returns `None` if it
    /// equals this one. Fails for an unknown hash function.
    pub(super) fn read_if_different(
        &self,
        reader: &mut AggregationJournalReader<'_>,
    ) -> Result<Option<Self>, AggregationJournalError> {
        let kind = match reader.read_byte()? {
            XXH3 => {
                let secret = u64::from_le_bytes(reader.read_array()?);
                let is_own = matches!(self, Self::Xxh3(own) if *own == secret);
                return Ok((!is_own).then_some(Self::Xxh3(secret)));
            }
            AES => HashKind::Aes,
            NH => HashKind::Nh,
            _ => return Err(AggregationJournalError("version")),
        };
        let mut word = || Ok(u64::from_le_bytes(reader.read_array()?));
        let seed = FingerprintSeed([word()?, word()?]);
        let is_own = |keys: &HashKeys| keys.kind() == kind && keys.seed() == seed;
        if self.hash_keys().is_some_and(is_own) {
            Ok(None)
        } else {
            Ok(Some(Self::Keys(Arc::new(HashKeys::from_seed(kind, seed)))))
        }
    }
}
