//! The bytes of COMMITs, and the parts that checkpoints share with them.
//!
//! Invariant: decoding accepts only bytes that encoding wrote, and each list is checked against the
//! remaining bytes before it is allocated.

use super::{
    BlockChange, CommitRecord, CommittedBlock, CommittedBlockKind, CommittedFile, ReplayFrom,
    StateFormatError,
};
use crate::bytes::{ByteReader, push_prefixed, push_varint};
use crate::ids::{Epoch, SegmentSequence, WriterId};
use crate::object_name::{BlockName, is_file_name};
use firn_model::log::LogPosition;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::tenant::TenantId;

const VERSION: u8 = 1;

/// Minimum size of an encoded name: the length of the tenant, its first byte, and the two numbers.
const NAME_BYTES_MIN: usize = 2 + 16 + 8;

/// Minimum size of an encoded block: its name, the range and seven bytes of numbers and flags.
const BLOCK_BYTES_MIN: usize = NAME_BYTES_MIN + 16 + 7;

/// Minimum size of an encoded file: the length of its name, and its size.
const FILE_BYTES_MIN: usize = 2;

const DAMAGED: StateFormatError = StateFormatError::Damaged { what: "commit" };

impl CommitRecord {
    /// Encodes the COMMIT as the payload of a frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        let change = &self.change;
        let fields = StateFields {
            version: self.version,
            cut: change.cut,
            late_through: change.late_through,
            replay_from: self.replay_from,
        };
        push_state_fields(&fields, &mut bytes);
        push_blocks(&change.added, &mut bytes);
        push_varint(change.removed.len() as u64, &mut bytes);
        for name in &change.removed {
            push_name(name, &mut bytes);
        }
        bytes
    }

    /// Decodes the payload of a frame.
    ///
    /// # Errors
    ///
    /// [`StateFormatError`] for bytes of another version or of none.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateFormatError> {
        let mut reader = ByteReader::new(bytes);
        let version = reader.u8().ok_or(DAMAGED)?;
        if version != VERSION {
            return Err(StateFormatError::UnknownVersion {
                what: "commit",
                version: version.into(),
                expected: VERSION.into(),
            });
        }
        let commit = read_commit(&mut reader).ok_or(DAMAGED)?;
        reader.is_at_end().then_some(commit).ok_or(DAMAGED)
    }
}

fn read_commit(reader: &mut ByteReader<'_>) -> Option<CommitRecord> {
    let fields = read_state_fields(reader)?;
    let added = read_blocks(reader)?;
    let count = reader.count(NAME_BYTES_MIN)?;
    let mut removed = Vec::with_capacity(count);
    for _ in 0..count {
        removed.push(read_name(reader)?);
    }
    Some(CommitRecord {
        version: fields.version,
        replay_from: fields.replay_from,
        change: BlockChange {
            cut: fields.cut,
            late_through: fields.late_through,
            added,
            removed,
        },
    })
}

/// The fields that a COMMIT and a checkpoint have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateFields {
    pub(crate) version: u64,
    pub(crate) cut: TimestampMs,
    pub(crate) late_through: LogPosition,
    pub(crate) replay_from: ReplayFrom,
}

pub(crate) fn push_state_fields(fields: &StateFields, into: &mut Vec<u8>) {
    let from = &fields.replay_from;
    push_varint(fields.version, into);
    into.extend_from_slice(&fields.cut.to_le_bytes());
    push_varint(fields.late_through.0, into);
    push_varint(from.position.0, into);
    push_varint(from.sequence.0, into);
    push_varint(from.epoch.0, into);
    into.extend_from_slice(&from.writer.0.to_be_bytes());
}

pub(crate) fn read_state_fields(reader: &mut ByteReader<'_>) -> Option<StateFields> {
    Some(StateFields {
        version: reader.varint()?,
        cut: reader.i64()?,
        late_through: LogPosition(reader.varint()?),
        replay_from: ReplayFrom {
            position: LogPosition(reader.varint()?),
            sequence: SegmentSequence(reader.varint()?),
            epoch: Epoch(reader.varint()?),
            writer: WriterId(reader.id()?),
        },
    })
}

pub(crate) fn push_blocks(blocks: &[CommittedBlock], into: &mut Vec<u8>) {
    push_varint(blocks.len() as u64, into);
    for block in blocks {
        push_name(&block.name, into);
        into.push(block.kind as u8);
        into.push(block.is_bad.into());
        push_varint(block.sequence, into);
        push_varint(block.level.into(), into);
        into.extend_from_slice(&block.range.min.to_le_bytes());
        into.extend_from_slice(&block.range.max.to_le_bytes());
        push_varint(block.series, into);
        push_varint(block.samples, into);
        push_varint(block.files.len() as u64, into);
        for file in &block.files {
            push_prefixed(file.name.as_bytes(), into);
            push_varint(file.bytes, into);
        }
    }
}

pub(crate) fn read_blocks(reader: &mut ByteReader<'_>) -> Option<Vec<CommittedBlock>> {
    let count = reader.count(BLOCK_BYTES_MIN)?;
    let mut blocks = Vec::with_capacity(count);
    for _ in 0..count {
        blocks.push(read_block(reader)?);
    }
    Some(blocks)
}

fn read_block(reader: &mut ByteReader<'_>) -> Option<CommittedBlock> {
    Some(CommittedBlock {
        name: read_name(reader)?,
        kind: match reader.u8()? {
            1 => CommittedBlockKind::Main,
            2 => CommittedBlockKind::Late,
            _ => return None,
        },
        is_bad: match reader.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        },
        sequence: reader.varint()?,
        level: u32::try_from(reader.varint()?).ok()?,
        range: TimeRange {
            min: reader.i64()?,
            max: reader.i64()?,
        },
        series: reader.varint()?,
        samples: reader.varint()?,
        files: read_files(reader)?,
    })
}

fn read_files(reader: &mut ByteReader<'_>) -> Option<Vec<CommittedFile>> {
    let count = reader.count(FILE_BYTES_MIN)?;
    let mut files = Vec::new();
    for _ in 0..count {
        let name = reader.text().filter(|name| is_file_name(name))?;
        files.push(CommittedFile {
            name: name.to_owned(),
            bytes: reader.varint()?,
        });
    }
    Some(files)
}

fn push_name(name: &BlockName, into: &mut Vec<u8>) {
    push_prefixed(name.tenant.as_str().as_bytes(), into);
    into.extend_from_slice(&name.block.to_be_bytes());
    into.extend_from_slice(&name.upload.to_le_bytes());
}

fn read_name(reader: &mut ByteReader<'_>) -> Option<BlockName> {
    Some(BlockName {
        tenant: TenantId::new(reader.text()?).ok()?,
        block: reader.id()?,
        upload: reader.u64()?,
    })
}
