//! The first 24 bytes of a file of frames: magic, format version, first position, checksum.
//!
//! The file name contains the same position, so a damaged header loses nothing: frames are checked
//! against the name. The header exists to distinguish a newer format from damage.

use crate::error::StorageError;
use firn_model::log::LogPosition;
use std::path::Path;

/// Size of the file header, and so the offset of the first frame.
pub(crate) const FILE_HEADER_BYTES: u64 = 24;

/// Magic and version of a kind of file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileMagic {
    /// The first eight bytes of the file.
    bytes: [u8; 8],
    /// The format version that this release writes and reads.
    version: u32,
}

impl FileMagic {
    const fn new(bytes: [u8; 8], version: u32) -> Self {
        Self { bytes, version }
    }
}

/// Magic of log segments, and the version of their format.
pub(crate) const SEGMENT_MAGIC: FileMagic = FileMagic::new(*b"FIRNWAL\0", 2);

/// Magic of page segments, and the version of their format.
pub(crate) const PAGES_MAGIC: FileMagic = FileMagic::new(*b"FIRNPGS\0", 1);

/// Magic of the series catalogue and its copy, and the version of their format.
pub(crate) const SERIES_MAGIC: FileMagic = FileMagic::new(*b"FIRNSER\0", 1);

/// Magic of the files of exemplars, and the version of their format.
pub(crate) const EXEMPLARS_MAGIC: FileMagic = FileMagic::new(*b"FIRNEXM\0", 1);

/// State of a file header, as determined by [`check`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileHeaderState {
    /// The header is valid, and its position is that of the file name.
    Sound,
    /// The header is corrupt or too short.
    Damaged,
    /// The disk failed to read the header.
    Unreadable,
}

/// Encodes the header of a file that begins at position `first`, checksum included.
pub(crate) fn encode(magic: &FileMagic, first: LogPosition) -> [u8; FILE_HEADER_BYTES as usize] {
    let mut bytes = [0; FILE_HEADER_BYTES as usize];
    bytes[..8].copy_from_slice(&magic.bytes);
    bytes[8..12].copy_from_slice(&magic.version.to_le_bytes());
    bytes[12..20].copy_from_slice(&first.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..20]);
    bytes[20..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Checks `bytes`, the first ones of the file at `path`, against the expected header. A valid
/// header of another version is an error, so that a newer file is never treated as damaged.
pub(crate) fn check(
    bytes: &[u8],
    magic: &FileMagic,
    first: LogPosition,
    path: &Path,
) -> Result<FileHeaderState, StorageError> {
    let Ok(bytes) = <[u8; FILE_HEADER_BYTES as usize]>::try_from(bytes) else {
        return Ok(FileHeaderState::Damaged);
    };
    if bytes == encode(magic, first) {
        return Ok(FileHeaderState::Sound);
    }
    let [_, _, _, _, _, _, _, _, v0, v1, v2, v3, ..] = bytes;
    let version = u32::from_le_bytes([v0, v1, v2, v3]);
    let [.., c0, c1, c2, c3] = bytes;
    let sum_holds = crc32c::crc32c(&bytes[..20]) == u32::from_le_bytes([c0, c1, c2, c3]);
    if sum_holds && bytes.starts_with(&magic.bytes) && version != magic.version {
        return Err(StorageError::Format {
            path: path.to_path_buf(),
            found: version.to_string(),
            known: magic.version,
        });
    }
    Ok(FileHeaderState::Damaged)
}
