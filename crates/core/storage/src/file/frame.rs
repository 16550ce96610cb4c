//! Encoding of one checksummed frame, the unit of log segments, page segments and the series
//! catalogue.
//!
//! ```text
//! offset 0   4   8    12         20         24     25
//!        | header | payload | payload | position | unsynced | kind | payload ...
//!        | crc32c | crc32c  | bytes   | u64      | u32      | u8   |
//! ```
//!
//! Integers are little endian. The header's checksum also covers the place of the frame (the first
//! position of its file and its offset), so bytes of another file or another place are never
//! accepted as a frame. Invariant: [`decode_header`] accepts only headers that [`encode`] wrote at
//! that place; the payload has a checksum of its own, so that a damaged payload after a valid
//! header affects one frame. `docs/format/log.md` describes the bytes.

use firn_model::log::LogPosition;

/// Bytes of a frame before its payload.
pub(crate) const FRAME_HEADER_BYTES: usize = 25;

/// Maximum size of a payload in bytes: a decompressed remote-write body is at most half of it, and
/// its record in the log is smaller than the body.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Kind of the payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// A plain record of the log.
    Log = 1,
    /// Zeros up to the end of a sector, with the position of the previous frame or the next one.
    Padding = 2,
    /// The directory at the end of a complete file.
    Directory = 3,
    /// A page of samples, in a page segment.
    Page = 4,
    /// Series of the catalogue: slots and labels.
    Series = 5,
    /// Exemplars of the file of exemplars.
    Exemplars = 6,
    /// A delta-coded record of the log.
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

/// The place of a frame, which is part of its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FramePlace {
    /// First position of the file.
    pub(crate) first: LogPosition,
    /// Offset of the frame in the file.
    pub(crate) offset: u64,
}

/// The decoded header of a frame, without the place that its checksum also covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) position: LogPosition,
    /// Number of frames directly before this one that were not durable when it was written. All
    /// earlier ones were durable: their damage is never a torn tail.
    pub(crate) unsynced: u32,
    pub(crate) kind: FrameKind,
    pub(crate) payload_bytes: u32,
    pub(crate) payload_crc: u32,
}

impl FrameHeader {
    /// Returns the size of header and payload together.
    pub(crate) fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(self.payload_bytes)
    }

    /// Returns the newest position that was durable when this frame was written.
    pub(crate) fn durable_before(&self) -> LogPosition {
        let before = self.position.previous().0;
        LogPosition(before.saturating_sub(u64::from(self.unsynced)))
    }
}

/// Appends a frame to `into`. The payload must not exceed [`PAYLOAD_BYTES_MAX`].
pub(crate) fn encode(
    place: FramePlace,
    position: LogPosition,
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

/// Decodes a header; returns `None` unless it was written at `place`.
pub(crate) fn decode_header(
    place: FramePlace,
    bytes: &[u8; FRAME_HEADER_BYTES],
) -> Option<FrameHeader> {
    let kind = FrameKind::from_byte(bytes[24])?;
    let payload_bytes = u32_at(bytes, 8);
    if payload_bytes as usize > PAYLOAD_BYTES_MAX {
        return None;
    }
    if header_crc(place, bytes) != u32_at(bytes, 0) {
        return None;
    }
    Some(FrameHeader {
        position: LogPosition(u64::from(u32_at(bytes, 12)) | u64::from(u32_at(bytes, 16)) << 32),
        unsynced: u32_at(bytes, 20),
        kind,
        payload_bytes,
        payload_crc: u32_at(bytes, 4),
    })
}

/// Returns the CRC-32C of a header together with the place of its frame.
fn header_crc(place: FramePlace, header: &[u8; FRAME_HEADER_BYTES]) -> u32 {
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
