//! The space on the disk of the data folder, and the part of it that is reserved for the log.
//!
//! Pages, blocks and snapshots are not written into the reserve: a failed write of the log stops
//! all writes, while samples that are not sealed only make the log longer.

use crate::data_dir::DataDir;
use crate::error::StorageError;
use crate::parts::options::LogTrimming;
use crate::parts::retention::log_file_bytes;
use firn_model::env::Disk;
use firn_model::log::DurableLog;

/// The disk of the data folder, and the log that uses it.
#[derive(Clone, Copy)]
pub(crate) struct DiskSpace<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) dir: &'a DataDir,
    pub(super) log: &'a dyn DurableLog,
    pub(super) trimming: LogTrimming,
}

impl DiskSpace<'_> {
    /// Returns the disk space in bytes that pages must leave to the log. A log that accepts no
    /// records leaves half of its reserve to pages, because sealing is the way to free space.
    pub(super) fn log_reserve_bytes(&self, is_full: bool) -> u64 {
        self.log.pressure().free_bytes_min / if is_full { 2 } else { 1 }
    }

    /// Returns an error unless the disk has `required` free bytes.
    pub(super) fn check_free(&self, required: u64) -> Result<(), StorageError> {
        let path = self.dir.pages();
        // A disk that does not report its free space counts as having enough.
        let free = self.disk.free_bytes(&path).unwrap_or(u64::MAX);
        if free < required {
            return Err(StorageError::DiskFull {
                path,
                free,
                required,
            });
        }
        Ok(())
    }

    /// Returns an error unless the disk has `bytes` free bytes beside the reserve of the log.
    pub(super) fn check_free_beside_log(&self, bytes: u64) -> Result<(), StorageError> {
        self.check_free(bytes.saturating_add(self.log_reserve_bytes(false)))
    }

    /// Returns the size of the disk in bytes, if the disk reports it.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        let total = self.disk.total_bytes(self.dir.root()).ok()?;
        (total > 0).then_some(total)
    }

    /// Returns the bytes of the log in the data folder.
    pub(super) fn log_file_bytes(&self) -> u64 {
        log_file_bytes(self.log, self.trimming)
    }
}
