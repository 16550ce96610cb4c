//! Reads the complete chunks of the head, `chunks_head/000001` and following
//! (`tsdb/chunks/head_chunks.go`).
//!
//! ```text
//! magic u32 = 0x0130BC91 | version u8 = 1 | 3 zeros
//! | { series u64 | first time u64 | last time u64 | encoding u8 | length uvarint | data
//!   | CRC-32C }*
//! | zeros
//! ```
//!
//! The highest bit of the encoding marks out-of-order samples. A killed process may leave a
//! truncated last file, at which the chunks end: their samples are in the WAL too.

use super::bytes::{CHECKSUM_BYTES, TsdbByteCursor, UVARINT_BYTES_MAX, verify_checksum};
use super::chunk::{TsdbChunkEncoding, TsdbChunkSamples};
use super::error::{MalformedTsdbBytes, TsdbError};
use super::ranges::{FileReadWindow, NamedRangeFile, ReadRanges};
use super::segment::CHUNK_BYTES_MAX;
use firn_model::sample::TimeRange;

const MAGIC: u32 = 0x0130_BC91;
const VERSION: u8 = 1;

/// Size of the file header in bytes.
const HEADER_BYTES: u64 = 8;

/// Size of series, time range and encoding of a chunk in bytes.
const FIXED_BYTES: u64 = 25;

/// The bit of the encoding that marks out-of-order samples.
const OUT_OF_ORDER: u8 = 0x80;

/// A file of `chunks_head` with the number in its name. The caller lists the folder and opens the
/// files.
#[derive(Clone, Debug)]
pub struct HeadChunkFile<R> {
    /// Number of the file.
    pub number: u32,
    /// The content of the file.
    pub file: NamedRangeFile<R>,
}

/// A chunk of the head; its data is read on demand. Found by [`HeadChunks`], and valid for the same
/// list of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadChunk {
    /// Number of its series in the WAL.
    pub series: u64,
    /// Timestamps of its first and last sample.
    pub range: TimeRange,
    /// Encoding of its samples; `None` if it is unknown.
    pub encoding: Option<TsdbChunkEncoding>,
    /// True if its samples are out of order.
    pub is_out_of_order: bool,
    /// Reference that markers in the log contain: number of the file and offset in it.
    pub reference: u64,
    /// Position of its data: index of the file in the list, offset and length.
    data: (usize, u64, u64),
}

/// Reads the chunks of consecutive files. Chunks of all series are mixed, in the order in which
/// they were completed.
#[derive(Debug)]
pub struct HeadChunks<'f, R> {
    files: &'f [HeadChunkFile<R>],
    place: usize,
    offset: u64,
    window: FileReadWindow,
    torn: Option<(&'f str, u64)>,
}

impl<'f, R: ReadRanges> HeadChunks<'f, R> {
    /// Returns a reader before the first chunk; the files must be sorted by number.
    pub fn new(files: &'f [HeadChunkFile<R>]) -> Self {
        Self {
            files,
            place: 0,
            offset: 0,
            window: FileReadWindow::default(),
            torn: None,
        }
    }

    /// Returns the next chunk, or `None` at the end. Fails at damage in any file except for the
    /// last one.
    pub fn next_chunk(&mut self) -> Result<Option<HeadChunk>, TsdbError> {
        while let Some(file) = self.files.get(self.place) {
            match self.read_chunk(file) {
                Ok(Some(chunk)) => return Ok(Some(chunk)),
                Ok(None) => {
                    self.place += 1;
                    self.offset = 0;
                    self.window.clear();
                }
                Err(TsdbError::Damaged { offset, .. }) if self.place + 1 == self.files.len() => {
                    self.torn = Some((file.file.name(), offset));
                    self.place = self.files.len();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Returns the name of the last file and the offset at which its chunks end, if it is truncated
    /// or damaged; known only after the last chunk. The WAL contains the samples after that.
    pub fn torn_end(&self) -> Option<(&'f str, u64)> {
        self.torn
    }

    /// Reads the next chunk of a file; returns `None` at its end.
    fn read_chunk(&mut self, file: &HeadChunkFile<R>) -> Result<Option<HeadChunk>, TsdbError> {
        let HeadChunkFile { number, file } = file;
        if self.offset == 0 {
            check_header(file)?;
            self.offset = HEADER_BYTES;
        }
        let offset = self.offset;
        let head_bytes = FIXED_BYTES + UVARINT_BYTES_MAX as u64;
        let head = self.window.get_up_to(file, offset, head_bytes)?;
        let is_end = head.iter().take(FIXED_BYTES as usize - 1).all(|b| *b == 0);
        if is_end {
            return Ok(None);
        }
        let damaged = |error: MalformedTsdbBytes| file.damage_error(offset, error);
        let mut cursor = TsdbByteCursor::new(head);
        let series = cursor.read_be64().map_err(damaged)?;
        let min = cursor.read_be64().map_err(damaged)? as i64;
        let max = cursor.read_be64().map_err(damaged)? as i64;
        let encoding = cursor.read_byte().map_err(damaged)?;
        let length = cursor.read_uvarint().map_err(damaged)?;
        let data = (head.len() - cursor.rest().len()) as u64;
        if length > CHUNK_BYTES_MAX {
            let what = format!("a chunk has {length} bytes, limit {CHUNK_BYTES_MAX}");
            return Err(file.damage_error(offset, what));
        }
        let bytes = data + length + CHECKSUM_BYTES;
        let chunk = self.window.get(file, offset, bytes)?;
        verify_checksum(chunk).map_err(damaged)?;
        self.offset = offset + bytes;
        Ok(Some(HeadChunk {
            series,
            range: TimeRange::new(min, max),
            encoding: TsdbChunkEncoding::from_number(encoding & !OUT_OF_ORDER),
            is_out_of_order: encoding & OUT_OF_ORDER != 0,
            reference: u64::from(*number) << 32 | offset,
            data: (self.place, offset + data, length),
        }))
    }
}

fn check_header<R: ReadRanges>(file: &NamedRangeFile<R>) -> Result<(), TsdbError> {
    let header = file.read(0, HEADER_BYTES)?;
    let mut cursor = TsdbByteCursor::new(&header);
    let damaged = |error: MalformedTsdbBytes| file.damage_error(0, error);
    if cursor.read_be32().map_err(damaged)? != MAGIC {
        return Err(file.damage_error(0, "not a file of head chunks"));
    }
    match cursor.read_byte().map_err(damaged)? {
        VERSION => Ok(()),
        version => {
            Err(file.unsupported_error(format!("unknown version {version} of chunks of a head")))
        }
    }
}

impl HeadChunk {
    /// Reads the samples from `files`, which must be those that the chunk was found in. Fails if
    /// the encoding is unknown.
    pub fn read_samples<R: ReadRanges>(
        &self,
        files: &[HeadChunkFile<R>],
    ) -> Result<TsdbChunkSamples<'static>, TsdbError> {
        let (place, offset, length) = self.data;
        let file = files.get(place).zip(self.encoding);
        let (file, encoding) = file.ok_or_else(|| {
            TsdbError::Refused("chunk of another head, or of an unknown encoding".into())
        })?;
        let data = file.file.read(offset, length)?;
        TsdbChunkSamples::new(encoding, data).map_err(|error| file.file.damage_error(offset, error))
    }

    /// Returns the error for damaged samples.
    pub(super) fn damage_error<R: ReadRanges>(
        &self,
        files: &[HeadChunkFile<R>],
        error: impl ToString,
    ) -> TsdbError {
        match files.get(self.data.0) {
            Some(file) => file.file.damage_error(self.data.1, error),
            None => TsdbError::Refused(error.to_string()),
        }
    }
}
