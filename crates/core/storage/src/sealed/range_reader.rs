//! Reads by offset and length from an immutable file; an object store can be added later. Files are
//! not memory-mapped, because a page fault cannot return an error and its memory is not accounted
//! for.

use super::file_pool::SegmentFilePool;
use crate::error::StorageError;
use crate::sync::atomic::{AtomicBool, Ordering};
use firn_model::log::LogPosition;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The action in the error of a read that could not open the file, so that nothing in it is
/// readable.
pub(crate) const OPEN: &str = "open file of";

/// A source of byte ranges of an immutable object, such as a segment file.
pub(crate) trait RangeReader: Send + Sync {
    /// Reads `bytes` bytes at `offset`; a shorter read is an error. The caller must have validated
    /// `bytes` against a directory with a matching checksum, because that much memory is allocated.
    fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, StorageError>;

    /// Returns the path used in messages.
    fn path(&self) -> &Path;

    /// Marks the object as about to be removed. Reads may fail from now on, which is not damage.
    fn mark_removed(&self);

    /// Returns whether [`RangeReader::mark_removed`] was called.
    fn is_removed(&self) -> bool;
}

/// A file of a segment, which is open only while it is in the pool of recently used files.
pub(crate) struct SegmentFileReader {
    files: Arc<SegmentFilePool>,
    number: LogPosition,
    path: PathBuf,
    is_removed: AtomicBool,
}

impl SegmentFileReader {
    /// Creates a reader of the file at `path`, which belongs to the segment with this number.
    pub(crate) fn new(files: Arc<SegmentFilePool>, number: LogPosition, path: PathBuf) -> Self {
        Self {
            files,
            number,
            path,
            is_removed: AtomicBool::new(false),
        }
    }
}

impl RangeReader for SegmentFileReader {
    fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, StorageError> {
        let file = self.files.get(self.number, &self.path);
        let file = file.map_err(StorageError::io(OPEN, &self.path))?;
        if self.is_removed() {
            // The file was opened while it was being removed, so the pool must not keep it.
            self.files.close_segment(self.number);
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
        self.files.close_segment(self.number);
    }

    fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }
}
