//! A file that is written sequentially, and a pair of such files with the same content.

use crate::block::meta::FileMeta;
use crate::error::StorageError;
use crate::failpoints::{self, StoreFlaw};
use firn_model::env::{Disk, DiskFile, OpenMode};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of the write buffer in bytes, after which it is written to the file.
const BUFFER_BYTES: usize = 256 << 10;

/// Two files that are written with identical content: the index and its copy.
pub(super) struct IndexFilePair {
    first: BlockFileWriter,
    second: BlockFileWriter,
}

impl IndexFilePair {
    /// Creates both files. Returns an error if one of them exists.
    pub(super) fn create(disk: &dyn Disk, paths: [PathBuf; 2]) -> Result<Self, StorageError> {
        let [first, second] = paths;
        Ok(Self {
            first: BlockFileWriter::create(disk, first)?,
            second: BlockFileWriter::create(disk, second)?,
        })
    }

    /// Appends bytes to both files and returns the offset at which they begin.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<u64, StorageError> {
        self.second.append(bytes)?;
        self.first.append(bytes)
    }

    /// Returns the length of each file so far, in bytes.
    pub(super) fn len(&self) -> u64 {
        self.first.len()
    }

    /// Returns the CRC-32C of the bytes so far, flushing the buffer first.
    pub(super) fn crc(&mut self) -> Result<u32, StorageError> {
        self.first.flush()?;
        Ok(self.first.crc)
    }

    /// Flushes and syncs both files. The caller must sync the folder to make their names durable.
    pub(super) fn finish(self) -> Result<[FileMeta; 2], StorageError> {
        Ok([self.first.finish()?, self.second.finish()?])
    }
}

/// A file that is written sequentially through a buffer, with a running checksum.
pub(super) struct BlockFileWriter {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    /// Number of bytes that were written to the file.
    written: u64,
    buffer: Vec<u8>,
    crc: u32,
}

impl BlockFileWriter {
    /// Creates the file. Returns an error if it exists.
    pub(super) fn create(disk: &dyn Disk, path: PathBuf) -> Result<Self, StorageError> {
        let file = disk
            .open(&path, OpenMode::CreateNew)
            .map_err(StorageError::io("create", &path))?;
        Ok(Self {
            path,
            file,
            written: 0,
            buffer: Vec::new(),
            crc: 0,
        })
    }

    /// Appends bytes and returns the offset at which they begin.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<u64, StorageError> {
        let offset = self.len();
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(offset)
    }

    /// Returns the length of the file so far in bytes, including buffered ones.
    pub(super) fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads bytes that were appended earlier, flushing the buffer first.
    pub(super) fn read(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, StorageError> {
        self.flush()?;
        let mut read = vec![0; bytes];
        let count = self
            .file
            .read_at(offset, &mut read)
            .map_err(StorageError::io("read", &self.path))?;
        if count == bytes {
            Ok(read)
        } else {
            Err(StorageError::Damaged {
                path: self.path.clone(),
                offset,
                what: format!("{count} bytes where {bytes} were written"),
            })
        }
    }

    /// Flushes and syncs the file. The caller must sync the folder to make its name durable.
    pub(super) fn finish(mut self) -> Result<FileMeta, StorageError> {
        self.flush()?;
        if !failpoints::has(StoreFlaw::SkipsBlockSync) {
            let synced = self.file.sync_data();
            synced.map_err(StorageError::io("sync", &self.path))?;
        }
        let name = self.path.file_name().unwrap_or_default();
        Ok(FileMeta {
            name: name.to_string_lossy().into_owned(),
            bytes: self.written,
            crc: self.crc,
        })
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        self.file
            .write_all_at(self.written, &self.buffer)
            .map_err(StorageError::io("write", &self.path))?;
        self.crc = crc32c::crc32c_append(self.crc, &self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
