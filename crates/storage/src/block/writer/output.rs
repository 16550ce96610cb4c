//! A file that is written from its first byte to its last, and two at once.

use crate::block::meta::FileMeta;
use crate::error::StorageError;
use crate::failpoints::{self, Flaw};
use firn_model::env::{Disk, File, OpenMode};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Two files of the same bytes.
pub(super) struct Twins {
    first: Output,
    second: Output,
}

impl Twins {
    /// Creates the files.
    pub(super) fn create(disk: &dyn Disk, paths: [PathBuf; 2]) -> Result<Self, StorageError> {
        let [first, second] = paths;
        Ok(Self {
            first: Output::create(disk, first)?,
            second: Output::create(disk, second)?,
        })
    }

    /// Appends bytes to both; returns where they begin.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<u64, StorageError> {
        self.second.append(bytes)?;
        self.first.append(bytes)
    }

    /// Bytes of one so far.
    pub(super) fn len(&self) -> u64 {
        self.first.len()
    }

    /// The checksum of the bytes so far.
    pub(super) fn crc(&mut self) -> Result<u32, StorageError> {
        self.first.flush()?;
        Ok(self.first.crc)
    }

    /// Ends the files, which are durable then but for their names.
    pub(super) fn finish(self) -> Result<[FileMeta; 2], StorageError> {
        Ok([self.first.finish()?, self.second.finish()?])
    }
}

/// See the module.
pub(super) struct Output {
    path: PathBuf,
    file: Arc<dyn File>,
    /// Bytes in the file.
    written: u64,
    buffer: Vec<u8>,
    crc: u32,
}

impl Output {
    /// Creates the file.
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

    /// Appends bytes; returns where they begin.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<u64, StorageError> {
        let offset = self.len();
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(offset)
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads bytes that were appended.
    pub(super) fn read(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, StorageError> {
        self.flush()?;
        let mut read = vec![0; bytes];
        let count = self
            .file
            .read_at(offset, &mut read)
            .map_err(StorageError::io("read", &self.path))?;
        match count == bytes {
            true => Ok(read),
            false => Err(StorageError::Damaged {
                path: self.path.clone(),
                offset,
                what: format!("{count} bytes where {bytes} were written"),
            }),
        }
    }

    /// Ends the file, which is durable then but for its name.
    pub(super) fn finish(mut self) -> Result<FileMeta, StorageError> {
        self.flush()?;
        if !failpoints::has(Flaw::SkipsBlockSync) {
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
