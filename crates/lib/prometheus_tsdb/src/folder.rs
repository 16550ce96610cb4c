//! Output of a block: the folder interface that the caller implements, and buffers for its files.

use super::error::TsdbError;
use firn_model::error::Error;

/// A file of a block that is being written, including scratch files. The caller maps it to a path
/// and decides when to sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockFile {
    /// A segment of chunks; the first has number 1.
    Chunks(u32),
    /// The index, written after the last series.
    Index,
    /// The metadata of the block, written last.
    Meta,
    /// The tombstones, which are empty in a new block.
    Tombstones,
    /// Scratch file with the series, read while the index is written. Not part of the block.
    SeriesScratch,
    /// Scratch file with the postings offset table, read while the index is written. Not part of
    /// the block.
    TableScratch,
}

impl BlockFile {
    /// Returns the path of the file, relative to the folder of the block.
    pub fn path(self) -> String {
        match self {
            BlockFile::Chunks(number) => format!("chunks/{number:06}"),
            BlockFile::Index => "index".to_owned(),
            BlockFile::Meta => "meta.json".to_owned(),
            BlockFile::Tombstones => "tombstones".to_owned(),
            BlockFile::SeriesScratch => "index_tmp_series".to_owned(),
            BlockFile::TableScratch => "index_tmp_po".to_owned(),
        }
    }

    /// Returns whether the file must be removed once the block is complete.
    pub fn is_scratch(self) -> bool {
        matches!(self, BlockFile::SeriesScratch | BlockFile::TableScratch)
    }
}

/// The destination of a block, implemented by the caller. Files begin empty and only grow; only
/// scratch files are read back.
pub trait BlockFolder {
    /// Appends to a file, and creates it if it does not exist. An error ends the writing of the
    /// block.
    fn append(&mut self, file: BlockFile, bytes: &[u8]) -> Result<(), Error>;

    /// Fills `into` with the content of a scratch file from `offset` on. An error ends the writing
    /// of the block.
    fn read(&mut self, file: BlockFile, offset: u64, into: &mut [u8]) -> Result<(), Error>;
}

/// Size of the buffer that is filled before the caller is called, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// A buffered file that is being written; the caller must flush it at the end.
#[derive(Debug)]
pub(super) struct BlockFileOutput {
    file: BlockFile,
    buffer: Vec<u8>,
    flushed: u64,
}

impl BlockFileOutput {
    /// Returns a writer at the beginning of a file.
    pub fn new(file: BlockFile) -> Self {
        Self {
            file,
            buffer: Vec::new(),
            flushed: 0,
        }
    }

    /// Returns the number of appended bytes.
    pub fn len(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Appends bytes to the buffer, and writes it to the folder if it is full.
    pub fn push<F: BlockFolder>(&mut self, folder: &mut F, bytes: &[u8]) -> Result<(), TsdbError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < BUFFER_BYTES {
            Ok(())
        } else {
            self.flush(folder)
        }
    }

    /// Appends zeros up to a multiple of `align` bytes.
    pub fn pad<F: BlockFolder>(&mut self, folder: &mut F, align: u64) -> Result<(), TsdbError> {
        let zeros = self.len().next_multiple_of(align) - self.len();
        self.push(folder, &vec![0; zeros as usize])
    }

    /// Writes the buffer to the folder. Does nothing if the buffer is empty.
    pub fn flush<F: BlockFolder>(&mut self, folder: &mut F) -> Result<(), TsdbError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let appended = folder.append(self.file, &self.buffer);
        appended.map_err(|error| io_error(self.file, error))?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// A sequential reader of a scratch file, which buffers one piece of it.
#[derive(Debug)]
pub(super) struct ScratchFileReader {
    file: BlockFile,
    len: u64,
    offset: u64,
    buffer: Vec<u8>,
}

impl ScratchFileReader {
    /// Returns a reader at the beginning of a file of `len` bytes.
    pub fn new(file: BlockFile, len: u64) -> Self {
        Self {
            file,
            len,
            offset: 0,
            buffer: Vec::new(),
        }
    }

    /// Reads the next piece; returns an empty slice at the end.
    pub fn read_piece<F: BlockFolder>(&mut self, folder: &mut F) -> Result<&[u8], TsdbError> {
        let left = self.len - self.offset;
        self.buffer
            .resize(left.min(BUFFER_BYTES as u64) as usize, 0);
        let read = folder.read(self.file, self.offset, &mut self.buffer);
        read.map_err(|error| io_error(self.file, error))?;
        self.offset += self.buffer.len() as u64;
        Ok(&self.buffer)
    }
}

fn io_error(file: BlockFile, error: Error) -> TsdbError {
    TsdbError::Io {
        file: file.path(),
        error,
    }
}
