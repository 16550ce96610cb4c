//! How the keys of series are hashed in one state of aggregation, at each start the same.
//!
//! A state begins with the keys of the store, whose fingerprints of a batch serve both. It keeps
//! them for as long as it lives: where a store has others later (its manifest was lost, or the
//! folder went to another processor), the fingerprints of the state are made beside the store's.
//!
//! ```text
//! hash = 1 | secret u64          xxh3 of 128 bits, of states of an earlier version
//!      | 2 | seed 16 bytes       rounds of AES
//!      | 3 | seed 16 bytes       NH
//! ```

use super::code::{Malformed, Reader};
use firn_model::fingerprint::{Fingerprint, HashKeys, HashKind, Seed};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128_with_seed;

const XXH3: u8 = 1;
const AES: u8 = 2;
const NH: u8 = 3;

/// See the module.
#[derive(Clone, Debug)]
pub(super) enum Hashing {
    /// With keys that the store has too, or had.
    Keys(Arc<HashKeys>),
    /// With a secret of its own.
    Xxh3(u64),
}

impl Hashing {
    /// What stands for the series with this key.
    #[inline]
    pub(super) fn print(&self, key: &[u8]) -> Fingerprint {
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

    /// The keys, if it is with keys.
    pub(super) fn keys(&self) -> Option<&HashKeys> {
        match self {
            Self::Keys(keys) => Some(keys),
            Self::Xxh3(_) => None,
        }
    }

    /// Appends what it is.
    pub(super) fn push(&self, out: &mut Vec<u8>) {
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

    /// Reads what [`Hashing::push`] wrote; nothing if it is this one.
    pub(super) fn read_other(&self, reader: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
        let kind = match reader.byte()? {
            XXH3 => {
                let secret = u64::from_le_bytes(reader.array()?);
                let is_own = matches!(self, Self::Xxh3(own) if *own == secret);
                return Ok((!is_own).then_some(Self::Xxh3(secret)));
            }
            AES => HashKind::Aes,
            NH => HashKind::Nh,
            _ => return Err(Malformed("version")),
        };
        let mut word = || Ok(u64::from_le_bytes(reader.array()?));
        let seed = Seed([word()?, word()?]);
        let is_own = |keys: &HashKeys| keys.kind() == kind && keys.seed() == seed;
        match self.keys().is_some_and(is_own) {
            true => Ok(None),
            false => Ok(Some(Self::Keys(Arc::new(HashKeys::of(kind, seed))))),
        }
    }
}
