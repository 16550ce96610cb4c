//! Segments: the objects of a partition's log, and their header.
//!
//! ```text
//! log/<partition>/<sequence> = header | frame*          bare (FENCE, HANDOFF) = header alone
//!
//! offset 0       8         12     13      16        32          36       40
//!        | magic | version | kind | zeros | cluster | partition | frames | sequence
//!        | 8     | u32     | u8   | 3     | 16      | u32       | u32    | u64
//!
//! offset 48      56       72      80     88         92         96
//!        | epoch | writer | first | unit | body crc | crc      | frames ...
//!        | u64   | 16     | u64   | u64  | crc32c   | crc32c of bytes 0 to 91
//! ```
//!
//! Integers are little endian, identifiers are 16 bytes in the order of their text. Invariants:
//! [`SegmentHeader::decode`] accepts only bytes that [`SegmentHeader::encode`] wrote; equal headers
//! mean equal segments, because the header contains the checksum of the frames; an object of
//! exactly [`HEADER_BYTES`] is bare, and all others are DATA. All versions of the format keep
//! magic, version, kind and the last checksum at these offsets, so that a newer segment is
//! distinguished from a damaged one. `docs/format/segment.md` specifies the bytes.

mod frame;

pub use frame::{
    FrameDamage, FrameReader, PAYLOAD_BYTES_MAX, SegmentBuilder, SegmentFrame, SegmentFrameKind,
    UnknownFrameKind,
};

use crate::bytes::ByteReader;
use crate::ids::{ClusterId, Epoch, PartitionId, SegmentSequence, WriterId};
use firn_model::log::LogPosition;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Bytes of a header, and of a whole segment that is bare.
pub const HEADER_BYTES: usize = 96;

/// The first bytes of each segment.
pub const MAGIC: [u8; 8] = *b"FIRNSEG\0";

/// The version of the format that this build reads and writes.
pub const VERSION: u32 = 1;

/// Bytes of the header that its own checksum covers.
const CHECKED_BYTES: usize = HEADER_BYTES - 4;

/// The kind of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SegmentKind {
    /// Frames of the leader of an epoch.
    Data = 1,
    /// The begin of an epoch: its writer leads from here on, and the keys in the window behind it
    /// are void.
    Fence = 2,
    /// The end of an epoch: its writer has stopped to acknowledge appends and to answer strong
    /// reads.
    HandOff = 3,
}

impl SegmentKind {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Data),
            2 => Some(Self::Fence),
            3 => Some(Self::HandOff),
            _ => None,
        }
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The cluster that the segment belongs to.
    pub cluster: ClusterId,
    /// The partition whose log contains the segment.
    pub partition: PartitionId,
    /// The number of the segment, which its key repeats.
    pub sequence: SegmentSequence,
    /// The kind of the segment.
    pub kind: SegmentKind,
    /// The epoch of the writer; for a FENCE the epoch that it begins.
    pub epoch: Epoch,
    /// The writer that created the segment.
    pub writer: WriterId,
    /// The position of the first frame; for a bare segment the position of the next frame, or zero
    /// if the writer does not have it.
    pub first: LogPosition,
    /// The number of frames, which have consecutive positions.
    pub frames: u32,
    /// The first segment of the unit, at which a reader of delta-coded records must begin.
    pub unit: SegmentSequence,
    /// The CRC-32C of all bytes behind the header.
    pub body_crc: u32,
}

/// The error for bytes that are not a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SegmentError {
    /// The object ends within its header.
    #[error("segment of {bytes} bytes is shorter than its header of {HEADER_BYTES}")]
    Short {
        /// The size of the object.
        bytes: usize,
    },
    /// The header is damaged, or the object is none of Firn's.
    #[error("header of segment of {bytes} bytes differs from its checksum")]
    Damaged {
        /// The number of bytes from which it was decoded.
        bytes: usize,
    },
    /// The segment was written by a newer build.
    #[error("segment has version {version} and kind {kind}, expected version {VERSION}")]
    UnknownVersion {
        /// The version of the segment.
        version: u32,
        /// The number of its kind.
        kind: u8,
    },
    /// The segment has a kind that does not exist in its version.
    #[error("segment of version {version} has unknown kind {kind}, expected 1 to 3")]
    UnknownKind {
        /// The version of the segment.
        version: u32,
        /// The number of its kind.
        kind: u8,
    },
    /// The segment belongs to another cluster, partition or key.
    #[error("segment belongs to cluster {cluster}, partition {partition}, number {sequence}")]
    Foreign {
        /// The cluster in the header.
        cluster: ClusterId,
        /// The partition in the header.
        partition: PartitionId,
        /// The number in the header.
        sequence: SegmentSequence,
    },
    /// The size does not fit the kind: a bare segment with frames, or DATA without.
    #[error("segment of kind {kind:?} has {frames} frames in {bytes} bytes")]
    WrongSize {
        /// The kind of the segment.
        kind: SegmentKind,
        /// The number of frames in the header.
        frames: u32,
        /// The size of the object.
        bytes: usize,
    },
}

/// The place at which a segment is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentPlace {
    /// The cluster of the bucket.
    pub cluster: ClusterId,
    /// The partition in the key.
    pub partition: PartitionId,
    /// The number in the key.
    pub sequence: SegmentSequence,
}

/// The place, the writer and the positions determine the frames, so the hash omits their checksum.
impl Hash for SegmentHeader {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place().hash(state);
        (self.kind, self.epoch, self.writer).hash(state);
        (self.first, self.frames, self.unit).hash(state);
    }
}

impl SegmentHeader {
    /// Returns the place of the segment.
    pub fn place(&self) -> SegmentPlace {
        SegmentPlace {
            cluster: self.cluster,
            partition: self.partition,
            sequence: self.sequence,
        }
    }

    /// Returns the position behind the last frame.
    pub fn end(&self) -> LogPosition {
        LogPosition(self.first.0.saturating_add(u64::from(self.frames)))
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12] = self.kind as u8;
        bytes[16..32].copy_from_slice(&self.cluster.0.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.partition.0.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.frames.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.sequence.0.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[56..72].copy_from_slice(&self.writer.0.to_be_bytes());
        bytes[72..80].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[80..88].copy_from_slice(&self.unit.0.to_le_bytes());
        bytes[88..92].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the header of the object with the first bytes `bytes`, which may end behind the
    /// header, at `place`.
    ///
    /// # Errors
    ///
    /// [`SegmentError`] for anything but a header of this version at this place.
    pub fn decode(place: SegmentPlace, bytes: &[u8]) -> Result<Self, SegmentError> {
        let short = SegmentError::Short { bytes: bytes.len() };
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(short)?;
        let damaged = SegmentError::Damaged { bytes: bytes.len() };
        let header = parse(header, damaged)?;
        if header.place() != place {
            return Err(SegmentError::Foreign {
                cluster: header.cluster,
                partition: header.partition,
                sequence: header.sequence,
            });
        }
        Ok(header)
    }
}

fn parse(bytes: &[u8; HEADER_BYTES], damaged: SegmentError) -> Result<SegmentHeader, SegmentError> {
    let (checked, crc) = bytes.split_at(CHECKED_BYTES);
    let is_intact = crc32c::crc32c(checked).to_le_bytes() == *crc;
    if !is_intact || !bytes.starts_with(&MAGIC) {
        return Err(damaged);
    }
    let mut reader = ByteReader::new(&checked[MAGIC.len()..]);
    let version = reader.u32().ok_or(damaged)?;
    let kind = reader.u8().ok_or(damaged)?;
    if version != VERSION {
        return Err(SegmentError::UnknownVersion { version, kind });
    }
    let known = SegmentKind::from_byte(kind);
    let known = known.ok_or(SegmentError::UnknownKind { version, kind })?;
    let zeros: [u8; 3] = reader.array().ok_or(damaged)?;
    let header = fields(&mut reader, known).ok_or(damaged)?;
    let is_bare = header.kind != SegmentKind::Data;
    if zeros != [0; 3] || is_bare != (header.frames == 0) {
        return Err(damaged);
    }
    Ok(header)
}

fn fields(reader: &mut ByteReader<'_>, kind: SegmentKind) -> Option<SegmentHeader> {
    let cluster = ClusterId(reader.id()?);
    let partition = PartitionId(reader.u32()?);
    let frames = reader.u32()?;
    Some(SegmentHeader {
        cluster,
        partition,
        sequence: SegmentSequence(reader.u64()?),
        kind,
        epoch: Epoch(reader.u64()?),
        writer: WriterId(reader.id()?),
        first: LogPosition(reader.u64()?),
        frames,
        unit: SegmentSequence(reader.u64()?),
        body_crc: reader.u32()?,
    })
}

/// The bytes behind a header. Cloning is cheap.
///
/// Two bodies that occur with equal headers are equal, so the hash covers the length alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentBody(Arc<[u8]>);

impl SegmentBody {
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for SegmentBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl Hash for SegmentBody {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.0.len());
    }
}

/// A segment: a header and the encoded frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The header, whose checksum is that of the body.
    pub header: SegmentHeader,
    /// The frames; empty if the segment is bare.
    pub body: SegmentBody,
}

impl Segment {
    /// Decodes the object `bytes` at `place`. The body is not checked against its checksum: damage
    /// costs only the frames that it hit, which [`Segment::frames`] finds.
    ///
    /// # Errors
    ///
    /// Those of [`SegmentHeader::decode`], and [`SegmentError::WrongSize`].
    pub fn decode(place: SegmentPlace, bytes: &[u8]) -> Result<Self, SegmentError> {
        let header = SegmentHeader::decode(place, bytes)?;
        let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let is_bare = header.kind != SegmentKind::Data;
        if is_bare != body.is_empty() {
            return Err(SegmentError::WrongSize {
                kind: header.kind,
                frames: header.frames,
                bytes: bytes.len(),
            });
        }
        let body = SegmentBody(body.into());
        Ok(Self { header, body })
    }

    /// Encodes the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.body.0.len());
        bytes.extend_from_slice(&self.header.encode());
        bytes.extend_from_slice(&self.body.0);
        bytes
    }

    /// Returns whether the body is as it was written.
    pub fn is_intact(&self) -> bool {
        crc32c::crc32c(&self.body.0) == self.header.body_crc
    }

    /// Returns the frames, and the damage between them.
    pub fn frames(&self) -> FrameReader<'_> {
        FrameReader::new(&self.header, &self.body.0)
    }
}
