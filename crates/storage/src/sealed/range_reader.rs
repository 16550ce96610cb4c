//! Bytes by offset and length: a file here, an object in a bucket later. No mmap: a page fault has
//! no error path and no account.

use crate::error::StorageError;
use firn_model::env::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Hands out ranges of something immutable.
pub(crate) trait RangeReader: Send + Sync {
    /// The `bytes` bytes at `offset`; fewer are an error. `bytes` was checked against a directory
    /// whose sums hold, so it may be allocated.
    fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, StorageError>;

    /// What it is called in messages.
    fn path(&self) -> &Path;
}

/// Ranges of a file.
pub(crate) struct FileRanges {
    file: Arc<dyn File>,
    path: PathBuf,
}

impl FileRanges {
    /// Ranges of `file`, which lies at `path`.
    pub(crate) fn new(file: Arc<dyn File>, path: PathBuf) -> Self {
        Self { file, path }
    }
}

impl RangeReader for FileRanges {
    fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, StorageError> {
        let mut read = vec![0; bytes];
        let count = self
            .file
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
}
