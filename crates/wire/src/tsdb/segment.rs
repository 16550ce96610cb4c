//! Reads the chunk segments of a block, `chunks/000001` and following (`tsdb/chunks/chunks.go`).
//!
//! ```text
//! magic u32 = 0x85BD40DD | version u8 = 1 | 3 zeros
//! | { length uvarint | encoding u8 | data | CRC-32C of encoding and data }*
//! ```

use super::bytes::{CHECKSUM_BYTES, Cursor, UVARINT_BYTES_MAX, checked};
use super::chunk::Encoding;
use super::error::{Malformed, TsdbError};
use super::index::ChunkRef;
use super::ranges::{File, Ranges, Window};

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
pub struct Segments<R> {
    files: Vec<File<R>>,
}

/// The buffer of a walk over chunks, with the most recently read piece of a segment.
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkWalk {
    segment: Option<usize>,
    window: Window,
}

impl<R: Ranges> Segments<R> {
    /// Opens the segments, which must be sorted by number, and validates their headers. Fails if
    /// one is not supported.
    pub fn open(files: Vec<File<R>>) -> Result<Self, TsdbError> {
        for file in &files {
            let header = file.read(0, HEADER_BYTES)?;
            let mut cursor = Cursor::new(&header);
            let damaged = |error: Malformed| file.damaged(0, error);
            if cursor.be32().map_err(damaged)? != MAGIC {
                return Err(file.damaged(0, "not a chunk file"));
            }
            let version = cursor.byte().map_err(damaged)?;
            if version != VERSION {
                return Err(file.unsupported(format!("unknown version {version} of chunks")));
            }
        }
        Ok(Self { files })
    }

    /// Reads the chunk with this reference: its encoding and bytes. An invalid reference is
    /// reported as damage of the file `index`.
    pub(super) fn chunk<'w>(
        &self,
        walk: &'w mut ChunkWalk,
        reference: ChunkRef,
        index: &str,
    ) -> Result<(Encoding, &'w [u8]), TsdbError> {
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
            walk.window.forget();
            walk.segment = Some(number);
        }
        let offset = u64::from(reference.offset());
        let damaged = |error: Malformed| file.damaged(offset, error);
        let head = walk
            .window
            .get_up_to(file, offset, UVARINT_BYTES_MAX as u64)?;
        let mut cursor = Cursor::new(head);
        let length = cursor.uvarint().map_err(damaged)?;
        let start = offset + (head.len() - cursor.rest().len()) as u64;
        if length > CHUNK_BYTES_MAX {
            let what = format!("a chunk has {length} bytes, limit {CHUNK_BYTES_MAX}");
            return Err(file.damaged(offset, what));
        }
        let bytes = ENCODING_BYTES + length + CHECKSUM_BYTES;
        let bytes = walk.window.get(file, start, bytes)?;
        let chunk = checked(bytes).map_err(damaged)?;
        let (number, data) = chunk.split_first().ok_or(damaged(Malformed::CutShort))?;
        let encoding = Encoding::of_number(*number)
            .ok_or_else(|| file.unsupported(format!("unknown chunk encoding {number}")))?;
        Ok((encoding, data))
    }

    /// Returns the error for damaged samples of a chunk. It names the segment and the offset of the
    /// chunk.
    pub(super) fn damaged(&self, reference: ChunkRef, error: impl ToString) -> TsdbError {
        let file = self.files.get(reference.segment() as usize);
        let name = file.map_or("chunks", |file| file.name());
        TsdbError::Damaged {
            file: name.to_owned(),
            offset: u64::from(reference.offset()),
            what: error.to_string(),
        }
    }
}
