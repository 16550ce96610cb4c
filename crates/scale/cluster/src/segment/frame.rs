//! Frames: the records, COMMITs and BARRIERs within a segment of kind DATA.
//!
//! ```text
//! offset 0   4   8    12         20         21
//!        | header | payload | payload | position | kind | payload ...
//!        | crc32c | crc32c  | bytes   | u64      | u8   |
//! ```
//!
//! The checksum of the header also covers the place of the frame: the number of its segment and its
//! offset behind the header of the segment. Bytes of another segment or another offset are
//! therefore never accepted as a frame, and a reader continues behind damage with the next frame at
//! any offset. Invariants: the frames of a segment have consecutive positions, from the position in
//! the header on; [`FrameReader`] terminates for all bytes, returns positions in ascending order,
//! and allocates nothing.

use super::{SegmentBody, SegmentHeader};
use crate::bytes::ByteReader;
use crate::ids::SegmentSequence;
use firn_model::log::LogPosition;

/// Bytes of a frame before its payload.
const FRAME_HEADER_BYTES: usize = 21;

/// Maximum size of a payload in bytes: that of a record of the local log, which is the largest one.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// The kind of a frame. Records have the numbers that they have in the local log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SegmentFrameKind {
    /// A plain record.
    Record = 1,
    /// A record that is encoded relative to earlier ones of its unit.
    DeltaRecord = 7,
    /// A change of the block list ([`crate::commit`]).
    Commit = 16,
    /// A proof that its writer was still the leader. Empty.
    Barrier = 17,
}

impl SegmentFrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Record),
            7 => Some(Self::DeltaRecord),
            16 => Some(Self::Commit),
            17 => Some(Self::Barrier),
            _ => None,
        }
    }
}

/// A frame of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFrame<'a> {
    /// The position of the frame in the log of its partition.
    pub position: LogPosition,
    /// The kind of the payload.
    pub kind: SegmentFrameKind,
    /// The payload, which agrees with its checksum.
    pub payload: &'a [u8],
    /// The offset of the payload behind the header of the segment.
    pub start: usize,
}

/// Frames that are lost because bytes of their segment are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{count} records from position {} on are damaged, at offset {offset}", first.0)]
pub struct FrameDamage {
    /// The position of the first lost frame.
    pub first: LogPosition,
    /// The number of lost frames.
    pub count: u64,
    /// The offset behind the header of the segment at which the damage begins.
    pub offset: usize,
}

/// The error for an intact frame of a kind that this version of the format does not have. The log
/// must not be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error(
    "frame at position {} of a segment of version {version} has unknown kind {kind}", position.0
)]
pub struct UnknownFrameKind {
    /// The position of the frame.
    pub position: LogPosition,
    /// The version of the segment.
    pub version: u32,
    /// The number of the kind.
    pub kind: u8,
}

/// Collects the frames of a segment.
#[derive(Clone, Debug)]
pub struct SegmentBuilder {
    sequence: SegmentSequence,
    first: LogPosition,
    frames: u32,
    body: Vec<u8>,
}

impl SegmentBuilder {
    /// Creates a builder for the frames of segment `sequence`, from position `first` on.
    pub fn new(sequence: SegmentSequence, first: LogPosition) -> Self {
        Self {
            sequence,
            first,
            frames: 0,
            body: Vec::new(),
        }
    }

    /// Appends a frame and returns its position. `payload` must not exceed [`PAYLOAD_BYTES_MAX`].
    pub fn push(&mut self, kind: SegmentFrameKind, payload: &[u8]) -> LogPosition {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX);
        let position = LogPosition(self.first.0 + u64::from(self.frames));
        let mut header = [0; FRAME_HEADER_BYTES];
        header[4..8].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        header[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[12..20].copy_from_slice(&position.0.to_le_bytes());
        header[20] = kind as u8;
        let crc = header_crc(self.sequence, self.body.len(), &header);
        header[..4].copy_from_slice(&crc.to_le_bytes());
        self.body.extend_from_slice(&header);
        self.body.extend_from_slice(payload);
        self.frames += 1;
        position
    }

    /// Returns the number of frames.
    pub fn count(&self) -> u32 {
        self.frames
    }

    /// Returns the body and its checksum.
    pub fn finish(self) -> (SegmentBody, u32) {
        let crc = crc32c::crc32c(&self.body);
        (self.body.into(), crc)
    }
}

/// The header of a frame, as far as its checksum vouches for it.
struct SegmentFrameHeader {
    position: LogPosition,
    kind: u8,
    payload_bytes: usize,
    payload_crc: u32,
}

/// Reads the header of a frame at `offset`, if there is an intact one with its whole payload.
fn header_at(sequence: SegmentSequence, body: &[u8], offset: usize) -> Option<SegmentFrameHeader> {
    let rest = body.get(offset..)?;
    let header: &[u8; FRAME_HEADER_BYTES] = rest.first_chunk()?;
    let mut reader = ByteReader::new(header);
    let crc = reader.u32()?;
    let payload_crc = reader.u32()?;
    let payload_bytes = reader.u32()? as usize;
    // Checked before the checksum: a search for the next frame rejects most offsets here.
    if payload_bytes > rest.len() - FRAME_HEADER_BYTES || payload_bytes > PAYLOAD_BYTES_MAX {
        return None;
    }
    if crc != header_crc(sequence, offset, header) {
        return None;
    }
    Some(SegmentFrameHeader {
        position: LogPosition(reader.u64()?),
        kind: reader.u8()?,
        payload_bytes,
        payload_crc,
    })
}

fn header_crc(sequence: SegmentSequence, offset: usize, header: &[u8; FRAME_HEADER_BYTES]) -> u32 {
    let mut bytes = [0; 16 + FRAME_HEADER_BYTES - 4];
    bytes[..8].copy_from_slice(&sequence.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&(offset as u64).to_le_bytes());
    bytes[16..].copy_from_slice(&header[4..]);
    crc32c::crc32c(&bytes)
}

/// Iterates over the frames of a segment. A damaged part is one item, and the iteration continues
/// behind it.
#[derive(Clone, Debug)]
pub struct FrameReader<'a> {
    sequence: SegmentSequence,
    body: &'a [u8],
    offset: usize,
    /// The position of the next frame.
    next: LogPosition,
    /// The position behind the last frame.
    end: LogPosition,
    version: u32,
    /// A frame that follows damage, which is returned first.
    held: Option<Result<SegmentFrame<'a>, UnknownFrameKind>>,
}

/// An item of [`FrameReader`].
pub type ReadFrame<'a> = Result<Result<SegmentFrame<'a>, FrameDamage>, UnknownFrameKind>;

impl<'a> FrameReader<'a> {
    pub(super) fn new(header: &SegmentHeader, body: &'a [u8]) -> Self {
        Self {
            sequence: header.sequence,
            body,
            offset: 0,
            next: header.first,
            end: header.end(),
            version: super::VERSION,
            held: None,
        }
    }

    /// Reads the next frame that is intact, at or behind the current offset. Returns it with its
    /// offset.
    fn next_intact(&mut self) -> Option<Result<SegmentFrame<'a>, UnknownFrameKind>> {
        while self.offset < self.body.len() {
            let header = header_at(self.sequence, self.body, self.offset);
            let Some(header) = header.filter(|h| self.next <= h.position && h.position < self.end)
            else {
                self.offset += 1;
                continue;
            };
            let start = self.offset + FRAME_HEADER_BYTES;
            let payload = self.body.get(start..start + header.payload_bytes)?;
            self.offset = start + header.payload_bytes;
            if crc32c::crc32c(payload) != header.payload_crc {
                // Its header vouches for its length, so the next frame follows.
                continue;
            }
            return Some(frame(&header, payload, start, self.version));
        }
        None
    }
}

fn frame<'a>(
    header: &SegmentFrameHeader,
    payload: &'a [u8],
    start: usize,
    version: u32,
) -> Result<SegmentFrame<'a>, UnknownFrameKind> {
    let position = header.position;
    let unknown = UnknownFrameKind {
        position,
        version,
        kind: header.kind,
    };
    let kind = SegmentFrameKind::from_byte(header.kind).ok_or(unknown)?;
    Ok(SegmentFrame {
        position,
        kind,
        payload,
        start,
    })
}

impl<'a> Iterator for FrameReader<'a> {
    type Item = ReadFrame<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(held) = self.held.take() {
            return Some(held.map(Ok));
        }
        if self.next >= self.end {
            return None;
        }
        let (first, offset) = (self.next, self.offset);
        let found = self.next_intact();
        let position = match &found {
            Some(Ok(frame)) => frame.position,
            Some(Err(unknown)) => unknown.position,
            None => self.end,
        };
        self.next = if found.is_some() {
            position.next()
        } else {
            self.end
        };
        if position == first {
            return found.map(|frame| frame.map(Ok));
        }
        self.held = found;
        Some(Ok(Err(FrameDamage {
            first,
            count: position.0 - first.0,
            offset,
        })))
    }
}
