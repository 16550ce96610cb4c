//! A file of a block, read by offset and length. Its errors name the path and the offset.

use crate::encoding::DecodeError;
use crate::error::{StorageError, is_disk_fault};
use firn_model::env::{Disk, DiskFile, OpenMode};
use firn_model::metrics::Counter;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of bytes read at a time to compute a checksum.
const READ_BYTES: u64 = 1 << 20;

const MISSING: &str = "the file is missing";

/// An open block file of known length, or a placeholder for a missing one.
pub(crate) struct OpenBlockFile {
    path: PathBuf,
    /// `None` if the file is missing.
    file: Option<Arc<dyn DiskFile>>,
    bytes: u64,
}

impl std::fmt::Debug for OpenBlockFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockRanges({})", self.path.display())
    }
}

impl OpenBlockFile {
    /// Opens the file at `path` and reads its length.
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, StorageError> {
        let file = disk
            .open(path, OpenMode::Read)
            .map_err(StorageError::io("open", path))?;
        let bytes = file
            .len()
            .map_err(StorageError::io("read length of", path))?;
        Ok(Self {
            path: path.to_path_buf(),
            file: Some(file),
            bytes,
        })
    }

    /// Creates a placeholder for a missing file. Every read from it returns an error.
    pub(crate) fn new_missing(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            file: None,
            bytes: 0,
        }
    }

    /// Returns whether the file exists, that is, whether this is not a placeholder.
    pub(crate) fn is_present(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the error for a file whose length should be `wanted` bytes.
    pub(crate) fn wrong_length_error(&self, wanted: u64) -> StorageError {
        let what = format!("{} bytes instead of {wanted}", self.bytes);
        self.damage_error(self.bytes.min(wanted), what)
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the file in bytes, 0 if it is missing.
    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// Reads `bytes` bytes at `offset` and adds them to `count`. Ranges beyond the end of the file
    /// are rejected before memory is allocated.
    pub(crate) fn read(
        &self,
        offset: u64,
        bytes: usize,
        count: &Counter,
    ) -> Result<Vec<u8>, StorageError> {
        let Some(file) = &self.file else {
            return Err(self.damage_error(0, MISSING));
        };
        let end = offset.checked_add(bytes as u64);
        if end.is_none_or(|end| end > self.bytes) {
            let what = format!(
                "read of {bytes} bytes past the end of a file of {}",
                self.bytes
            );
            return Err(self.damage_error(offset, what));
        }
        let mut read = vec![0; bytes];
        let done = file.read_at(offset, &mut read);
        let done = done.map_err(|e| self.read_error(e))?;
        count.add(done as u64);
        if done < bytes {
            return Err(self.damage_error(offset, format!("{done} bytes instead of {bytes}")));
        }
        Ok(read)
    }

    /// Computes the CRC-32C of the whole file by reading it in large pieces.
    pub(crate) fn checksum(&self, count: &Counter) -> Result<u32, StorageError> {
        let mut sum = 0;
        for start in (0..self.bytes).step_by(READ_BYTES as usize) {
            let bytes = READ_BYTES.min(self.bytes - start) as usize;
            sum = crc32c::crc32c_append(sum, &self.read(start, bytes, count)?);
        }
        Ok(sum)
    }

    fn read_error(&self, source: io::Error) -> StorageError {
        if !is_disk_fault(&source) {
            return StorageError::io("read", &self.path)(source);
        }
        StorageError::Undelivered {
            path: self.path.clone(),
            source,
        }
    }

    /// Returns the error for corrupted bytes at `offset`, described by `what`.
    pub(crate) fn damage_error(&self, offset: u64, what: impl Into<String>) -> StorageError {
        StorageError::Damaged {
            path: self.path.clone(),
            offset,
            what: what.into(),
        }
    }

    /// Returns a function for `map_err` that reports malformed bytes at `offset`.
    pub(crate) fn malformed_error(&self, offset: u64) -> impl Fn(DecodeError) -> StorageError + '_ {
        move |e| self.damage_error(offset, e.to_string())
    }
}
