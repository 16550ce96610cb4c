//! Reads the chunk segments of a block, `chunks/000001` and following (`tsdb/chunks/chunks.go`).
//!
//! ```text
//! magic u32 = 0x85BD40DD | version u8 = 1 | 3 zeros
//! | { length uvarint | encoding u8 | data | CRC-32C of encoding and data }*
//! ```

use super::bytes::{CHECKSUM_BYTES, TsdbByteCursor, UVARINT_BYTES_MAX, verify_checksum};
use super::chunk::TsdbChunkEncoding;
use super::error::{MalformedTsdbBytes, TsdbError};
use super::index::ChunkRef;
use super::ranges::{FileReadWindow, NamedRangeFile, ReadRanges};

/// The first bytes of a segment.
pub(super) const MAGIC: u32 = 0x85BD_40DD;

/// The version of segments.
pub(super) const VERSION: u8 = 1;

/// Size of the file header in bytes.
pub(super) const HEADER_BYTES: u64 = 8;

/// Size of the encoding in bytes.
const ENCODING_BYTES: u64 = 1;

/// Largest size of a chunk in bytes: the limit of a `chunks_head` file, through which all chunks of
/// blocks have passed.
pub(super) const CHUNK_BYTES_MAX: u64 = 128 << 20;

/// The segments of a block, whose headers were validated; the caller provides the files.
#[derive(Debug)]
pub struct ChunkSegments<R> {
    files: Vec<NamedRangeFile<R>>,
}

/// The buffer of a walk over chunks, with the most recently read piece of a segment.
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkSegmentBuffer {
    segment: Option<usize>,
    window: FileReadWindow,
}

impl<R: ReadRanges> ChunkSegments<R> {
    /// Opens the segments, which must be sorted by number, and validates their headers. Fails if
    /// one is not supported.
    pub fn open(files: Vec<NamedRangeFile<R>>) -> Result<Self, TsdbError> {
        for file in &files {
            let header = file.read(0, HEADER_BYTES)?;
            let mut cursor = TsdbByteCursor::new(&header);
            let damaged = |error: MalformedTsdbBytes| file.damage_error(0, error);
            if cursor.read_be32().map_err(damaged)? != MAGIC {
                return Err(file.damage_error(0, "not a chunk file"));
            }
            let version = cursor.read_byte().map_err(damaged)?;
            if version != VERSION {
                return Err(file.unsupported_error(format!("unknown version {version} of chunks")));
            }
        }
        Ok(Self { files })
    }

    /// Reads the chunk with this reference: its encoding and bytes. An invalid reference is
    /// reported as damage of the file `index`.
    pub(super) fn read_chunk<'w>(
        &self,
        walk: &'w mut ChunkSegmentBuffer,
        reference: ChunkRef,
        index: &str,
    ) -> Result<(TsdbChunkEncoding, &'w [u8]), TsdbError> {
        let number = reference.segment() as usize;
        let file = self.files.get(number).ok_or_else(|| TsdbError::Damaged {
            file: index.to_owned(),
            offset: 0,
            what: format!(
                "a chunk is in segment {} of {}",
                number + 1,
                self.files.len()
            ),
        })?;
        if walk.segment != Some(number) {
            walk.window.clear();
            walk.segment = Some(number);
        }
        let offset = u64::from(reference.offset());
        let damaged = |error: MalformedTsdbBytes| file.damage_error(offset, error);
        let head = walk
            .window
            .get_up_to(file, offset, UVARINT_BYTES_MAX as u64)?;
        let mut cursor = TsdbByteCursor::new(head);
        let length = cursor.read_uvarint().map_err(damaged)?;
        let start = offset + (head.len() - cursor.rest().len()) as u64;
        if length > CHUNK_BYTES_MAX {
            let what = format!("a chunk has {length} bytes, limit {CHUNK_BYTES_MAX}");
            return Err(file.damage_error(offset, what));
        }
        let bytes = ENCODING_BYTES + length + CHECKSUM_BYTES;
        let bytes = walk.window.get(file, start, bytes)?;
        let chunk = verify_checksum(bytes).map_err(damaged)?;
        let (number, data) = chunk
            .split_first()
            .ok_or(damaged(MalformedTsdbBytes::CutShort))?;
        let encoding = TsdbChunkEncoding::from_number(*number)
            .ok_or_else(|| file.unsupported_error(format!("unknown chunk encoding {number}")))?;
        Ok((encoding, data))
    }

    /// Returns the error for damaged samples of a chunk. It names the segment and the offset of the
    /// chunk.
    pub(super) fn damage_error(&self, reference: ChunkRef, error: impl ToString) -> TsdbError {
        let file = self.files.get(reference.segment() as usize);
        let name = file.map_or("chunks", |file| file.name());
        TsdbError::Damaged {
            file: name.to_owned(),
            offset: u64::from(reference.offset()),
            what: error.to_string(),
        }
    }
}
