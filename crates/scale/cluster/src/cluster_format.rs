//! The object `cluster/format`: the settings of a cluster that all its nodes share.
//!
//! It is JSON, created once and never overwritten. A node compares it with its config at each start
//! and refuses to run with another number of partitions. Invariants: decoding rejects unknown keys
//! and versions, because a newer build may depend on them; `Debug` prints no bit of the seed.

use crate::ids::ClusterId;
use firn_model::fingerprint::{FingerprintSeed, HashKind};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// The version of the object that this build writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Maximum number of segments in flight. Takeovers skip as many keys.
pub const WINDOW_MAX: u32 = 64;

/// The system that carries the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogEngine {
    /// Objects in a bucket that are created only if they do not exist.
    Bucket,
    /// Records of a Kafka topic.
    Kafka,
}

/// The settings of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFormat {
    /// The random identifier of the cluster, which each segment repeats.
    pub cluster: ClusterId,
    /// The secret seed of the fingerprints that divide series among partitions.
    pub seed: FingerprintSeed,
    /// The hash of the fingerprints, the same on all nodes.
    pub hash: HashKind,
    /// The number of partitions.
    pub partitions: NonZeroU32,
    /// The number of segments of a partition that may be in flight.
    pub window: NonZeroU32,
    /// The system that carries the logs.
    pub engine: LogEngine,
    /// The oldest version of Firn that may join, such as `0.1.0`.
    pub min_version: String,
}

/// The error for an object that is not a valid `cluster/format`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterFormatError {
    /// It is not JSON with exactly the known keys.
    #[error("cluster format: {0}")]
    Syntax(String),
    /// It was written by a newer build.
    #[error("cluster format has version {0}, expected version {FORMAT_VERSION}")]
    UnknownVersion(u32),
    /// An identifier or a seed is not 32 hexadecimal digits.
    #[error("cluster format: {key} {value:?} is not 32 hexadecimal digits in lower case")]
    NotHexadecimal {
        /// The key.
        key: &'static str,
        /// The value; empty for the seed, which is secret.
        value: String,
    },
    /// The hash is unknown.
    #[error("cluster format: unknown hash {0:?}, expected \"aes\" or \"nh\"")]
    UnknownHash(String),
    /// The window is too large.
    #[error("cluster format: window {0} exceeds the limit {WINDOW_MAX}")]
    Window(u32),
}

/// Only the version, which is read before the other keys.
#[derive(Deserialize)]
struct VersionKey {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FormatKeys {
    version: u32,
    cluster: String,
    seed: String,
    hash: String,
    partitions: NonZeroU32,
    window: NonZeroU32,
    engine: LogEngine,
    min_version: String,
}

impl ClusterFormat {
    /// Encodes the object as JSON, one key per line.
    pub fn encode(&self) -> String {
        let [high, low] = self.seed.0;
        let keys = FormatKeys {
            version: FORMAT_VERSION,
            cluster: self.cluster.to_string(),
            seed: format!("{high:016x}{low:016x}"),
            hash: match self.hash {
                HashKind::Aes => "aes".to_owned(),
                HashKind::Nh => "nh".to_owned(),
            },
            partitions: self.partitions,
            window: self.window,
            engine: self.engine,
            min_version: self.min_version.clone(),
        };
        let text = serde_json::to_string_pretty(&keys);
        text.expect("strings and numbers can be encoded") + "\n"
    }

    /// Decodes the object.
    ///
    /// # Errors
    ///
    /// [`ClusterFormatError`] with the value that is not accepted.
    pub fn decode(text: &str) -> Result<Self, ClusterFormatError> {
        let syntax = |error: serde_json::Error| ClusterFormatError::Syntax(error.to_string());
        let version = serde_json::from_str::<VersionKey>(text).map_err(syntax)?;
        if version.version != FORMAT_VERSION {
            return Err(ClusterFormatError::UnknownVersion(version.version));
        }
        let keys: FormatKeys = serde_json::from_str(text).map_err(syntax)?;
        if keys.window.get() > WINDOW_MAX {
            return Err(ClusterFormatError::Window(keys.window.get()));
        }
        let not_hexadecimal = |key, value: &str| ClusterFormatError::NotHexadecimal {
            key,
            value: value.to_owned(),
        };
        let cluster = hexadecimal(&keys.cluster);
        let cluster = cluster.ok_or_else(|| not_hexadecimal("cluster", &keys.cluster))?;
        let seed = hexadecimal(&keys.seed).ok_or_else(|| not_hexadecimal("seed", ""))?;
        let hash = match keys.hash.as_str() {
            "aes" => HashKind::Aes,
            "nh" => HashKind::Nh,
            _ => return Err(ClusterFormatError::UnknownHash(keys.hash)),
        };
        Ok(Self {
            cluster: ClusterId(cluster),
            seed: FingerprintSeed([(seed >> 64) as u64, seed as u64]),
            hash,
            partitions: keys.partitions,
            window: keys.window,
            engine: keys.engine,
            min_version: keys.min_version,
        })
    }
}

fn hexadecimal(text: &str) -> Option<u128> {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let is_valid = text.len() == 32 && text.bytes().all(is_digit);
    u128::from_str_radix(text, 16).ok().filter(|_| is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
  "version": 1,
  "cluster": "000102030405060708090a0b0c0d0e0f",
  "seed": "0000000000000001fedcba9876543210",
  "hash": "aes",
  "partitions": 12,
  "window": 4,
  "engine": "bucket",
  "min_version": "0.1.0"
}
"#;

    #[test]
    fn format_written_is_read() {
        let format = ClusterFormat::decode(TEXT).expect("the text is valid");
        assert_eq!(format.encode(), TEXT);
        assert_eq!(format.seed, FingerprintSeed([1, 0xfedc_ba98_7654_3210]));
        assert_eq!(format.partitions.get(), 12);
    }

    #[test]
    fn format_with_wrong_value_is_rejected_with_the_value() {
        let check = |from: &str, to: &str, expected: &str| {
            assert!(TEXT.contains(from));
            let error = ClusterFormat::decode(&TEXT.replace(from, to)).expect_err(to);
            let error = error.to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("n\": 1,", "n\": 2,", "version 2, expected version 1");
        check("000102", "00010G", "cluster \"00010G03");
        check("fedcba", "FEDCBA", "seed \"\" is not 32");
        check("aes", "md5", "unknown hash \"md5\"");
        check(": 12", ": 0", "nonzero");
        check("w\": 4", "w\": 65", "window 65 exceeds the limit 64");
        check("bucket", "etcd", "unknown variant `etcd`");
        check("min_version", "max_version", "unknown field `max_version`");
        check("}", "", "EOF");
    }
}
