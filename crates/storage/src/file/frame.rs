//! One checksummed frame as bytes, the unit of log segments, page segments and the series
//! catalogue.
//!
//! ```text
//! offset 0   4   8    12         20         24     25
//!        | header | payload | payload | position | unsynced | kind | payload ...
//!        | crc32c | crc32c  | bytes   | u64      | u32      | u8   |
//! ```
//!
//! Integers are little endian. The header's checksum also covers the place where the frame stands
//! (the first position of its file and its offset), so bytes of another file or another place are
//! never taken for a frame. Invariant: what [`decode_header`] accepts was written there by
//! [`encode`]; the payload is checked by its own sum, so that a damaged payload behind a sound
//! header costs one frame. `docs/format/log.md` draws it byte by byte.

use firn_model::log::Position;

/// Bytes of a frame before its payload.
pub(crate) const FRAME_HEADER_BYTES: usize = 25;

/// The largest payload: a decompressed remote-write body is at most half of it, and what the log
/// holds of a body is smaller than the body.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// A payload of the log.
    Log = 1,
    /// Zeros up to the end of a sector, with the position of the frame before.
    Padding = 2,
    /// The directory at the end of a file that is complete.
    Directory = 3,
    /// A page of samples.
    Page = 4,
    /// Series of the catalogue.
    Series = 5,
    /// Exemplars.
    Exemplars = 6,
    /// A record of the log, delta-coded.
    DeltaCoded = 7,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Log),
            2 => Some(Self::Padding),
            3 => Some(Self::Directory),
            4 => Some(Self::Page),
            5 => Some(Self::Series),
            6 => Some(Self::Exemplars),
            7 => Some(Self::DeltaCoded),
            _ => None,
        }
    }
}

/// Where a frame stands; part of its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first position of the file.
    pub(crate) first: Position,
    /// The frame's offset in the file.
    pub(crate) offset: u64,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) position: Position,
    /// How many frames right before this one were not known to be durable when it was written.
    /// All earlier ones were: damage to them is damage, not a torn tail.
    pub(crate) unsynced: u32,
    pub(crate) kind: FrameKind,
    pub(crate) payload_bytes: u32,
    pub(crate) payload_crc: u32,
}

impl FrameHeader {
    /// Header and payload together.
    pub(crate) fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(self.payload_bytes)
    }

    /// The newest position that was durable when this frame was written.
    pub(crate) fn durable_before(&self) -> Position {
        let before = self.position.previous().0;
        Position(before.saturating_sub(u64::from(self.unsynced)))
    }
}

/// Appends a frame to `into`. The caller has checked that the payload is within
/// [`PAYLOAD_BYTES_MAX`].
pub(crate) fn encode(
    place: Place,
    position: Position,
    unsynced: u32,
    kind: FrameKind,
    payload: &[u8],
    into: &mut Vec<u8>,
) {
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX);
    let mut header = [0; FRAME_HEADER_BYTES];
    header[4..8].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    header[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[12..20].copy_from_slice(&position.0.to_le_bytes());
    header[20..24].copy_from_slice(&unsynced.to_le_bytes());
    header[24] = kind as u8;
    let crc = header_crc(place, &header);
    header[..4].copy_from_slice(&crc.to_le_bytes());
    into.extend_from_slice(&header);
    into.extend_from_slice(payload);
}

/// Reads a header; `None` unless one was written at `place`.
pub(crate) fn decode_header(place: Place, bytes: &[u8; FRAME_HEADER_BYTES]) -> Option<FrameHeader> {
    let kind = FrameKind::from_byte(bytes[24])?;
    let payload_bytes = u32_at(bytes, 8);
    if payload_bytes as usize > PAYLOAD_BYTES_MAX {
        return None;
    }
    if header_crc(place, bytes) != u32_at(bytes, 0) {
        return None;
    }
    Some(FrameHeader {
        position: Position(u64::from(u32_at(bytes, 12)) | u64::from(u32_at(bytes, 16)) << 32),
        unsynced: u32_at(bytes, 20),
        kind,
        payload_bytes,
        payload_crc: u32_at(bytes, 4),
    })
}

fn header_crc(place: Place, header: &[u8; FRAME_HEADER_BYTES]) -> u32 {
    let mut bytes = [0; 16 + FRAME_HEADER_BYTES - 4];
    bytes[..8].copy_from_slice(&place.first.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&place.offset.to_le_bytes());
    bytes[16..].copy_from_slice(&header[4..]);
    crc32c::crc32c(&bytes)
}

fn u32_at(bytes: &[u8; FRAME_HEADER_BYTES], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}
