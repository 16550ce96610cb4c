//! COMMITs: changes of the block list of a partition, and the list that they add up to.
//!
//! ```text
//! commit = 1 u8 | version varint | cut i64 | late_through varint | replay_from
//!        | block* (counted) | removed name* (counted)
//! ```
//!
//! A COMMIT is the commit point of its blocks: a block that no COMMIT adds does not exist. The
//! leader appends it after all files are uploaded. Invariants: versions increase by one; the
//! position from which a replay begins never falls; a name is added once. `docs/format/segment.md`
//! specifies the bytes.

mod codec;

pub(crate) use codec::{
    StateFields, push_blocks, push_state_fields, read_blocks, read_state_fields,
};

use crate::ids::{Epoch, SegmentSequence, WriterId};
use crate::object_name::BlockName;
use firn_model::log::LogPosition;
use firn_model::sample::{TimeRange, TimestampMs};
use std::hash::{Hash, Hasher};

/// The place from which a replay reads the log. Blocks contain everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplayFrom {
    /// The position of the first frame that is read.
    pub position: LogPosition,
    /// The segment that contains it, which is the first one of a unit.
    pub sequence: SegmentSequence,
    /// The epoch of that segment.
    pub epoch: Epoch,
    /// The writer of that epoch.
    pub writer: WriterId,
}

impl ReplayFrom {
    /// The begin of a log.
    pub const BEGIN: Self = Self {
        position: LogPosition(1),
        sequence: SegmentSequence::FIRST,
        epoch: Epoch(0),
        writer: WriterId(0),
    };
}

/// The kind of a block, which determines whether it may overlap others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CommittedBlockKind {
    /// A block of in-order samples. They do not overlap.
    Main = 1,
    /// A block of late or imported samples, which may overlap any other.
    Late = 2,
}

/// A file of a block, with the size that ranged reads need.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommittedFile {
    /// The name within the block ([`crate::object_name::is_file_name`]).
    pub name: String,
    /// The size in bytes.
    pub bytes: u64,
}

/// The entry of a block in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedBlock {
    /// The name of the block in the bucket.
    pub name: BlockName,
    /// Whether it may overlap others.
    pub kind: CommittedBlockKind,
    /// True if the block is quarantined: it stays in the bucket and is not read.
    pub is_bad: bool,
    /// The order of arrival among the blocks of the partition.
    pub sequence: u64,
    /// The number of merges that its samples went through.
    pub level: u32,
    /// The times of its oldest and newest sample.
    pub range: TimeRange,
    /// The number of series.
    pub series: u64,
    /// The number of samples.
    pub samples: u64,
    /// Its files.
    pub files: Vec<CommittedFile>,
}

/// Names are unique, so the hash covers the name alone.
impl Hash for CommittedBlock {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The change of a COMMIT, without the parts that the log core adds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockChange {
    /// Blocks own the in-order samples before this time.
    pub cut: TimestampMs,
    /// Blocks contain the late samples of all records up to and including this position.
    pub late_through: LogPosition,
    /// Blocks that are uploaded and not listed yet.
    pub added: Vec<CommittedBlock>,
    /// Blocks that are listed and no longer needed.
    pub removed: Vec<BlockName>,
}

/// A COMMIT of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommitRecord {
    /// The number of the COMMIT: one more than that of the one before it.
    pub version: u64,
    /// The place from which replays begin once a checkpoint contains this COMMIT.
    pub replay_from: ReplayFrom,
    /// The change of the block list.
    pub change: BlockChange,
}

/// The block list of a partition: the sum of all COMMITs up to one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlockState {
    /// The version of the last COMMIT; zero before the first.
    pub version: u64,
    /// See [`CommitRecord::replay_from`].
    pub replay_from: ReplayFrom,
    /// See [`BlockChange::cut`].
    pub cut: TimestampMs,
    /// See [`BlockChange::late_through`].
    pub late_through: LogPosition,
    /// The blocks in the order in which they were added.
    pub blocks: Vec<CommittedBlock>,
}

impl Default for BlockState {
    fn default() -> Self {
        Self {
            version: 0,
            replay_from: ReplayFrom::BEGIN,
            cut: i64::MIN,
            late_through: LogPosition(0),
            blocks: Vec::new(),
        }
    }
}

/// The error for a COMMIT that does not fit the list before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitMismatch {
    /// A COMMIT is missing or occurs twice.
    #[error("commit has version {found}, expected {expected}")]
    Version {
        /// The version of the COMMIT.
        found: u64,
        /// The version after the list.
        expected: u64,
    },
    /// The begin of replays falls.
    #[error("commit replays from segment {found}, before segment {limit}")]
    ReplayFrom {
        /// The segment in the COMMIT.
        found: SegmentSequence,
        /// The segment in the list.
        limit: SegmentSequence,
    },
    /// A removed block is not listed.
    #[error("commit removes a block that is not listed: {0:?}")]
    NotListed(BlockName),
    /// An added block is listed already.
    #[error("commit adds a block that is listed: {0:?}")]
    Listed(BlockName),
}

/// The error for bytes that are not a COMMIT or a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StateFormatError {
    /// The bytes are damaged.
    #[error("{what} is damaged")]
    Damaged {
        /// The kind of the bytes.
        what: &'static str,
    },
    /// The bytes were written by a newer build.
    #[error("{what} has version {version}, expected version {expected}")]
    UnknownVersion {
        /// The kind of the bytes.
        what: &'static str,
        /// The version of the bytes.
        version: u32,
        /// The version of this build.
        expected: u32,
    },
}

impl BlockState {
    /// Returns the list after `commit`.
    ///
    /// # Errors
    ///
    /// [`CommitMismatch`] if the COMMIT does not follow this list. The list is unchanged then.
    pub fn apply(&mut self, commit: &CommitRecord) -> Result<(), CommitMismatch> {
        let expected = self.version.saturating_add(1);
        if commit.version != expected {
            let found = commit.version;
            return Err(CommitMismatch::Version { found, expected });
        }
        let (found, limit) = (commit.replay_from.sequence, self.replay_from.sequence);
        if found < limit {
            return Err(CommitMismatch::ReplayFrom { found, limit });
        }
        let change = &commit.change;
        let mut blocks = self.blocks.clone();
        for removed in &change.removed {
            let at = blocks.iter().position(|block| block.name == *removed);
            let at = at.ok_or_else(|| CommitMismatch::NotListed(removed.clone()))?;
            blocks.remove(at);
        }
        for added in &change.added {
            if blocks.iter().any(|block| block.name == added.name) {
                return Err(CommitMismatch::Listed(added.name.clone()));
            }
            blocks.push(added.clone());
        }
        *self = Self {
            version: expected,
            replay_from: commit.replay_from,
            cut: change.cut,
            late_through: change.late_through,
            blocks,
        };
        Ok(())
    }
}
