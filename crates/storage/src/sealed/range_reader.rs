//! Bytes by offset and length: a file here, an object in a bucket later. No mmap: a page fault
//! returns no error and its memory is not counted.

use super::file_pool::FilePool;
use crate::error::StorageError;
use crate::sync::atomic::{AtomicBool, Ordering};
use firn_model::log::Position;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a read was about that found no file: nothing of it can be read.
pub(crate) const OPEN: &str = "open file of";

/// Hands out ranges of something immutable.
pub(crate) trait RangeReader: Send + Sync {
    /// The `bytes` bytes at `offset`; fewer are an error. `bytes` was checked against a directory
    /// whose sums hold, so it may be allocated.
    fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, StorageError>;

    /// What it is called in messages.
    fn path(&self) -> &Path;

    /// Says that it is about to be removed: from here on reads may fail, and that is no damage.
    fn mark_removed(&self);

    /// Whether [`RangeReader::mark_removed`] was called.
    fn is_removed(&self) -> bool;
}

/// Ranges of a file, which is open while it is among those that were read last.
pub(crate) struct FileRanges {
    files: Arc<FilePool>,
    number: Position,
    path: PathBuf,
    is_removed: AtomicBool,
}

impl FileRanges {
    /// Ranges of the file of the segment with this number, which lies at `path`.
    pub(crate) fn new(files: Arc<FilePool>, number: Position, path: PathBuf) -> Self {
        Self {
            files,
            number,
            path,
            is_removed: AtomicBool::new(false),
        }
    }
}

impl RangeReader for FileRanges {
    fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, StorageError> {
        let file = self.files.get(self.number, &self.path);
        let file = file.map_err(StorageError::io(OPEN, &self.path))?;
        if self.is_removed() {
            // Opened while it was being removed: this reader must close it.
            self.files.forget(self.number);
        }
        let mut read = vec![0; bytes];
        let count = file
            .read_at(offset, &mut read)
            .map_err(StorageError::io("read page of", &self.path))?;
        if count < bytes {
            return Err(StorageError::Damaged {
                path: self.path.clone(),
                offset,
                what: format!("{count} bytes where a page has {bytes}"),
            });
        }
        Ok(read)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn mark_removed(&self) {
        self.is_removed.store(true, Ordering::Release);
        self.files.forget(self.number);
    }

    fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }
}
