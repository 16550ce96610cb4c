//! A bounded pool of segment files that are open for reading, whatever the retention.
//!
//! A segment is opened when a page is read from it, and is closed when it is the least recently
//! used file of a full pool. Readers hold an `Arc`, so the last of them closes a file that left the
//! pool. Invariant: no lock is held while a file is opened, read or closed.

use crate::sync::{Mutex, lock};
use firn_model::env::{Disk, DiskFile, OpenMode};
use firn_model::log::LogPosition;
use firn_model::metrics::{Counter, Gauge};
use rustc_hash::FxHashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of open files. At twelve segments per day, it covers five days, more than most
/// queries do, with a sixteenth of the file descriptors that a process has by default. Opening a
/// file takes about 10 us, a fraction of the time to read a page that no cache holds.
pub(crate) const FILES_MAX: usize = 64;

/// An open file and the logical time of its last use.
struct PooledFile {
    file: Arc<dyn DiskFile>,
    used_at: u64,
}

#[derive(Default)]
struct FilePoolState {
    files: FxHashMap<LogPosition, PooledFile>,
    /// Logical clock, incremented with each lookup.
    now: u64,
}

/// A pool of open segment files with least-recently-used eviction, shared by all segments of a
/// store.
pub(crate) struct SegmentFilePool {
    disk: Arc<dyn Disk>,
    open: Mutex<FilePoolState>,
    /// Number of files in the pool.
    pub(crate) open_files: Gauge,
    /// Number of times that a file was opened.
    pub(crate) opens: Counter,
}

impl std::fmt::Debug for SegmentFilePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FilePool({} open)", self.open_files.get())
    }
}

impl SegmentFilePool {
    /// Creates an empty pool for files on `disk`.
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            open: Mutex::default(),
            open_files: Gauge::default(),
            opens: Counter::default(),
        }
    }

    /// Returns the file of the segment with this number, opening it at `path` if necessary.
    pub(crate) fn get(&self, number: LogPosition, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.find(number) {
            return Ok(file);
        }
        let file = self.disk.open(path, OpenMode::Read)?;
        self.opens.inc();
        let gone = self.insert(number, file.clone());
        drop(gone);
        Ok(file)
    }

    /// Closes the file of a segment that is about to be removed.
    pub(crate) fn close_segment(&self, number: LogPosition) {
        let mut open = lock(&self.open);
        let gone = open.files.remove(&number);
        self.open_files.set(open.files.len() as i64);
        drop(open);
        drop(gone);
    }

    fn find(&self, number: LogPosition) -> Option<Arc<dyn DiskFile>> {
        let mut open = lock(&self.open);
        open.now += 1;
        let now = open.now;
        let kept = open.files.get_mut(&number)?;
        kept.used_at = now;
        Some(kept.file.clone())
    }

    /// Adds a file and returns the one that is evicted for it, which the caller closes without the
    /// lock.
    fn insert(&self, number: LogPosition, file: Arc<dyn DiskFile>) -> Option<PooledFile> {
        let mut open = lock(&self.open);
        let used_at = open.now;
        let mut gone = open.files.insert(number, PooledFile { file, used_at });
        if open.files.len() > FILES_MAX {
            let oldest = open.files.iter().min_by_key(|(_, kept)| kept.used_at);
            let oldest = oldest.map(|(number, _)| *number);
            gone = oldest.and_then(|oldest| open.files.remove(&oldest));
        }
        self.open_files.set(open.files.len() as i64);
        gone
    }
}
