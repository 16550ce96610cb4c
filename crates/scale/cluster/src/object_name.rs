//! The keys of a cluster's objects: built and parsed here and nowhere else.
//!
//! ```text
//! cluster/format
//! log/<partition>/<sequence, 20 digits>
//! state/<partition>/<position, 20 digits>
//! blk/<tenant>/<partition>/<ulid, 26 digits>.<upload, 16 hexadecimal digits>/<file>
//! ```
//!
//! Invariants: parsing accepts only keys that [`ObjectName`] prints, so that equal names have equal
//! keys; the keys of one prefix sort by number.

use crate::ids::{PartitionId, SegmentSequence};
use firn_model::log::LogPosition;
use firn_model::tenant::TenantId;
use std::fmt;
use std::str::FromStr;

const ULID_DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const ULID_LEN: usize = 26;
const UPLOAD_LEN: usize = 16;
const NUMBER_LEN: usize = 20;

/// Maximum length of a file name within a block, in bytes.
pub const FILE_NAME_BYTES_MAX: usize = 64;

/// The name of a block in the bucket. Two uploads have different names even if their blocks have
/// the same id, because the ids of merged blocks follow from their inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockName {
    /// The owner of the samples.
    pub tenant: TenantId,
    /// The id of the block: the 128 bits of its ULID.
    pub block: u128,
    /// 64 random bits, drawn for each upload.
    pub upload: u64,
}

/// The name of an object of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectName {
    /// The settings of the cluster ([`crate::cluster_format`]).
    Format,
    /// A segment of the log of a partition ([`crate::segment`]).
    Segment(PartitionId, SegmentSequence),
    /// A checkpoint of a partition ([`crate::checkpoint`]), by the position of its last COMMIT.
    State(PartitionId, LogPosition),
    /// A file of a block.
    Block {
        /// The partition that wrote the block.
        partition: PartitionId,
        /// The name of the block.
        block: BlockName,
        /// The name of the file within the block.
        file: String,
    },
}

/// The error for a key that is not the name of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {0:?} is not the name of an object of a cluster")]
pub struct NotAnObjectName(pub String);

/// Returns the prefix of the segments of a partition.
pub fn log_prefix(partition: PartitionId) -> String {
    format!("log/{partition}/")
}

/// Returns the prefix of the checkpoints of a partition.
pub fn state_prefix(partition: PartitionId) -> String {
    format!("state/{partition}/")
}

/// Returns the prefix of the blocks of a tenant in a partition.
pub fn block_prefix(tenant: &TenantId, partition: PartitionId) -> String {
    format!("blk/{}/{partition}/", tenant.as_str())
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format => f.write_str("cluster/format"),
            Self::Segment(partition, sequence) => {
                write!(f, "{}{:020}", log_prefix(*partition), sequence.0)
            }
            Self::State(partition, position) => {
                write!(f, "{}{:020}", state_prefix(*partition), position.0)
            }
            Self::Block {
                partition,
                block,
                file,
            } => {
                let prefix = block_prefix(&block.tenant, *partition);
                let ulid = ulid_text(block.block);
                write!(f, "{prefix}{ulid}.{:016x}/{file}", block.upload)
            }
        }
    }
}

impl FromStr for ObjectName {
    type Err = NotAnObjectName;

    fn from_str(key: &str) -> Result<Self, Self::Err> {
        let parsed = parse(key).filter(|name| name.to_string() == key);
        parsed.ok_or_else(|| NotAnObjectName(key.to_owned()))
    }
}

fn parse(key: &str) -> Option<ObjectName> {
    let parts: Vec<&str> = key.splitn(6, '/').collect();
    match parts.as_slice() {
        ["cluster", "format"] => Some(ObjectName::Format),
        ["log", partition, number] => {
            let sequence = SegmentSequence(number_of(number)?);
            Some(ObjectName::Segment(partition_of(partition)?, sequence))
        }
        ["state", partition, number] => {
            let position = LogPosition(number_of(number)?);
            Some(ObjectName::State(partition_of(partition)?, position))
        }
        ["blk", tenant, partition, block, file] => {
            let (ulid, upload) = block.split_once('.')?;
            let is_upload = upload.len() == UPLOAD_LEN;
            let upload = u64::from_str_radix(upload, 16).ok();
            let block = BlockName {
                tenant: TenantId::new(tenant).ok()?,
                block: ulid_of(ulid)?,
                upload: upload.filter(|_| is_upload)?,
            };
            is_file_name(file).then_some(ObjectName::Block {
                partition: partition_of(partition)?,
                block,
                file: (*file).to_owned(),
            })
        }
        _ => None,
    }
}

/// Returns whether `name` may be the name of a file in a block: letters, digits, dots and hyphens.
pub fn is_file_name(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-';
    let is_dots = name.bytes().all(|b| b == b'.');
    name.len() <= FILE_NAME_BYTES_MAX && name.bytes().all(is_allowed) && !is_dots
}

fn partition_of(text: &str) -> Option<PartitionId> {
    text.parse().ok().map(PartitionId)
}

fn number_of(text: &str) -> Option<u64> {
    let is_padded = text.len() == NUMBER_LEN && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_padded)
}

/// Prints a ULID: 26 digits of Crockford's base 32.
fn ulid_text(ulid: u128) -> String {
    let digit = |i: usize| ULID_DIGITS[(ulid >> (5 * i) & 31) as usize] as char;
    (0..ULID_LEN).rev().map(digit).collect()
}

fn ulid_of(text: &str) -> Option<u128> {
    let mut ulid = 0u128;
    for byte in text.bytes().take(ULID_LEN) {
        let digit = ULID_DIGITS.iter().position(|d| *d == byte)?;
        ulid = ulid.checked_mul(32)? | digit as u128;
    }
    (text.len() == ULID_LEN).then_some(ulid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(file: &str) -> ObjectName {
        ObjectName::Block {
            partition: PartitionId(3),
            block: BlockName {
                tenant: TenantId::new("team-a").expect("the name is valid"),
                block: 1 << 80 | 7,
                upload: 0xabc,
            },
            file: file.to_owned(),
        }
    }

    #[test]
    fn name_printed_is_parsed() {
        let check = |name: ObjectName, key: &str| {
            assert_eq!(name.to_string(), key);
            assert_eq!(key.parse(), Ok(name));
        };
        check(ObjectName::Format, "cluster/format");
        let segment = ObjectName::Segment(PartitionId(7), SegmentSequence(42));
        check(segment, "log/7/00000000000000000042");
        let state = ObjectName::State(PartitionId(0), LogPosition(u64::MAX));
        check(state, "state/0/18446744073709551615");
        let key = "blk/team-a/3/00000000010000000000000007.0000000000000abc/data-000";
        check(block("data-000"), key);
    }

    #[test]
    fn key_that_is_not_printed_is_rejected() {
        let check = |key: &str| assert!(key.parse::<ObjectName>().is_err(), "{key}");
        check("");
        check("cluster/format/");
        check("log/7/42");
        check("log/07/00000000000000000042");
        check("log/+7/00000000000000000042");
        check("log/7/+0000000000000000042");
        check("log/7/99999999999999999999");
        check("log/7/00000000000000000042/a");
        check("state/4294967296/00000000000000000042");
        check("blk/team-a/3/00000000010000000000000007.0000000000000ABC/index");
        check("blk/team-a/3/00000000010000000000000007.abc/index");
        check("blk/team-a/3/80000000000000000000000000.0000000000000abc/index");
        check("blk/team-a/3/0000000001000000000000000U.0000000000000abc/index");
        check("blk/team-a/3/00000000010000000000000007.0000000000000abc/..");
        check("blk/team-a/3/00000000010000000000000007.0000000000000abc/a/b");
        check("blk/../3/00000000010000000000000007.0000000000000abc/index");
    }
}
