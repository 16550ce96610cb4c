//! Errors of the local store: one enum, mapped to the error kinds that other crates use.
//!
//! Messages contain the file, the offset or the limit, so that the operator can act.

use firn_model::error::{Error, ErrorKind};
use firn_model::log::LogPosition;
use std::io;
use std::path::{Path, PathBuf};

/// An error of the local store. [`StorageError::kind`] determines the reaction of the caller.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A disk operation failed, for a reason that has no variant of its own.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// Verb and object of the operation: `read segment`.
        action: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the operating system, which determines the reason.
        source: io::Error,
    },
    /// Another process uses the data folder.
    #[error(
        "data folder {} is locked: another process{} is using it",
        path.display(),
        shown(*owner)
    )]
    Locked {
        /// Path of the locked data folder.
        path: PathBuf,
        /// Id of the process, if available.
        owner: Option<u32>,
    },
    /// The data folder is not writable.
    #[error("data folder {} is not writable: {source}", path.display())]
    NotWritable {
        /// Path of the data folder.
        path: PathBuf,
        /// Error of the operating system on the attempt to write.
        source: io::Error,
    },
    /// The folder is not empty and contains no data folder, so the store does not create one in it.
    #[error(
        "folder {} is not empty and is not a firn data folder: it contains {found}",
        path.display()
    )]
    Foreign {
        /// Path of the folder, which is left unchanged.
        path: PathBuf,
        /// Name of the first foreign file found in it.
        found: String,
    },
    /// The folder has the data of a store with a log of its own, so it cannot become scratch.
    #[error(
        "folder {} contains the data of a store with a local log; a store whose log is elsewhere \
         empties its folder, so it needs another one",
        path.display()
    )]
    NotScratch {
        /// Path of the folder, which is left unchanged.
        path: PathBuf,
    },
    /// The folder is scratch: without the log of its store it does not contain all samples.
    #[error(
        "folder {} is the scratch folder of a store whose log is elsewhere: its files do not \
         contain all samples",
        path.display()
    )]
    Scratch {
        /// Path of the folder, which is left unchanged.
        path: PathBuf,
    },
    /// The operation needs a folder that contains all samples.
    #[error("{operation} is not supported: the log of this store is not in its data folder")]
    NeedsLocalLog {
        /// Name of the operation: `a snapshot`.
        operation: &'static str,
    },
    /// A delete in the time range of a block that cannot be read.
    #[error(
        "block {block} cannot be read, so its samples cannot be deleted: repair the data folder \
         with \"firn tsdb repair\""
    )]
    DeletesInBadBlock {
        /// Id of the block.
        block: String,
    },
    /// The place outside of the folder that keeps the blocks did not store a change of their list.
    #[error("publish blocks: {0}")]
    Home(Error),
    /// The folder is not a data folder.
    #[error(
        "folder {} is not a firn data folder: it does not contain a file FORMAT", path.display())]
    NoData {
        /// Path of the folder that has no file `FORMAT`.
        path: PathBuf,
    },
    /// A file cannot be read from the disk. It cannot be copied, so repair does not replace it
    /// either.
    #[error(
        "{} cannot be read from this disk; copy all readable files of the data folder to another \
         disk and repair the copy",
        path.display()
    )]
    NotRepairable {
        /// Path of the unreadable file.
        path: PathBuf,
    },
    /// The file has a format that this version does not support.
    #[error("{} has format {found}, but this version supports format {known}", path.display())]
    Format {
        /// Path of the file with the unsupported format.
        path: PathBuf,
        /// The format in the file, as text.
        found: String,
        /// The format that this version supports.
        known: u32,
    },
    /// Bytes that were durable are corrupt or missing, so data is lost.
    #[error("{} is damaged at offset {offset}: {what}", path.display())]
    Damaged {
        /// Path of the damaged file.
        path: PathBuf,
        /// Offset at which the damage begins.
        offset: u64,
        /// Description of the damage or the loss.
        what: String,
    },
    /// The disk or the file system fails to read bytes of a block, which may still be there.
    #[error("read {}: {source}", path.display())]
    Undelivered {
        /// Path of the file that cannot be read.
        path: PathBuf,
        /// Error of the operating system on the attempt to read.
        source: io::Error,
    },
    /// An earlier write or sync failed, and its data is no longer in memory. The log gives no
    /// guarantees until the process restarts.
    #[error("the log rejects writes until restart: {cause}")]
    Poisoned {
        /// Message of the first failure, after which the log rejects all writes.
        cause: String,
    },
    /// A write failed because the disk or the quota is full.
    #[error("the disk is full, writes resume when space is free: {cause}")]
    NoRoom {
        /// Message of the failed write.
        cause: String,
    },
    /// A write or sync failed, and so did all retries.
    #[error("disk error, writes are retried: {cause}")]
    Failing {
        /// Message of the last failed attempt.
        cause: String,
    },
    /// The disk is nearly full, so writes are rejected before it is.
    #[error("disk of {} is full: {free} bytes free, {required} required", path.display())]
    DiskFull {
        /// Path of the folder of the log or the pages.
        path: PathBuf,
        /// Free space of the file system in bytes.
        free: u64,
        /// Free space in bytes below which writes are rejected.
        required: u64,
    },
    /// Sealing lags too far behind the writes.
    #[error("sealing is behind: {bytes} bytes of the log are not sealed, limit {limit}")]
    Backlog {
        /// Bytes of the log whose samples are not sealed.
        bytes: u64,
        /// Maximum bytes of unsealed log, above which writes are rejected.
        limit: u64,
    },
    /// Late samples arrive faster than they are flushed.
    #[error("too many late samples in memory: {bytes} bytes, limit {limit}")]
    LateBacklog {
        /// Memory of the late samples in bytes.
        bytes: usize,
        /// Maximum memory of late samples in bytes.
        limit: usize,
    },
    /// A record exceeds the maximum of the format.
    #[error("log record too large: {bytes} bytes, limit {limit}")]
    RecordTooLarge {
        /// Size of the record in bytes.
        bytes: usize,
        /// Maximum size of a payload in bytes.
        limit: usize,
    },
    /// The series of the folder need more memory than the limit.
    #[error(
        "too many series in {}: the labels of {series} series need {bytes} bytes of memory, limit \
         {limit}; raise firn.memory_limit or use a machine with more memory",
        path.display()
    )]
    TooManySeries {
        /// Path of the folder of the catalogue.
        path: PathBuf,
        /// Number of series read so far.
        series: u64,
        /// Lower bound of the memory that they need, in bytes.
        bytes: usize,
        /// Maximum memory for them, in bytes: the option `memory_max` of the store.
        limit: usize,
    },
    /// A histogram has more buckets than a column can contain.
    #[error("histogram too large: {buckets} buckets, spans and bounds, limit {limit}")]
    TooManyBuckets {
        /// Number of its buckets, spans and custom bounds.
        buckets: usize,
        /// Maximum number of buckets, spans and custom bounds of a histogram.
        limit: usize,
    },
    /// The log was closed before the record was queued.
    #[error("the log is closed")]
    Closed,
    /// Records of the log are missing.
    #[error("log {} misses records {} to {}", path.display(), from.0, to.0)]
    Missing {
        /// Path of the segment after whose end they are missing.
        path: PathBuf,
        /// Position of the first missing record.
        from: LogPosition,
        /// Position of the last missing record.
        to: LogPosition,
    },
}

/// The kind of the error of a file in the home of blocks that did not answer. Readers return it;
/// they do not leave out the data, as they do after a disk fault.
pub const HOME_FAULT: io::ErrorKind = io::ErrorKind::NotConnected;

/// Returns whether the disk or the file system failed, so that the data may still be there. A full
/// table of open files, a missing permission and a missing file are not disk faults.
pub(crate) fn is_disk_fault(error: &io::Error) -> bool {
    /// EIO, EBADMSG and EUCLEAN of Linux.
    const FAULTS: [i32; 3] = [5, 74, 117];
    match error.raw_os_error() {
        Some(number) => FAULTS.contains(&number),
        None => error.kind() == io::ErrorKind::Other,
    }
}

impl StorageError {
    /// Returns whether the disk failed to read stored data, see [`is_disk_fault`].
    pub(crate) fn is_disk_fault(&self) -> bool {
        match self {
            Self::Undelivered { .. } => true,
            Self::Io { source, .. } => is_disk_fault(source),
            _ => false,
        }
    }

    /// Returns whether the home of the blocks did not answer. Nothing is known about the data then,
    /// and a repeat may succeed.
    pub(crate) fn is_home_fault(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == HOME_FAULT,
            _ => false,
        }
    }

    /// Returns whether the disk had no space.
    pub(crate) fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded),
            _ => false,
        }
    }

    /// Returns the error kind, which determines the reaction of the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } | Self::Poisoned { .. } | Self::DiskFull { .. } | Self::Closed => {
                ErrorKind::Unavailable
            }
            Self::Locked { .. } | Self::NotWritable { .. } | Self::Backlog { .. } => {
                ErrorKind::Unavailable
            }
            Self::Home(error) => error.kind,
            Self::NoRoom { .. } | Self::Failing { .. } | Self::LateBacklog { .. } => {
                ErrorKind::Unavailable
            }
            Self::Foreign { .. } | Self::NoData { .. } | Self::Format { .. } => ErrorKind::Invalid,
            Self::NotScratch { .. } | Self::Scratch { .. } | Self::NeedsLocalLog { .. } => {
                ErrorKind::Invalid
            }
            Self::Damaged { .. }
            | Self::DeletesInBadBlock { .. }
            | Self::Undelivered { .. }
            | Self::Missing { .. }
            | Self::NotRepairable { .. } => ErrorKind::Corrupt,
            Self::RecordTooLarge { .. }
            | Self::TooManySeries { .. }
            | Self::TooManyBuckets { .. } => ErrorKind::Limited,
        }
    }

    /// Returns a function for `map_err` that creates the error of a failed `action` on `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

/// Formats the id of a process as ` (12)`; empty if it is unknown.
fn shown(process: Option<u32>) -> String {
    process.map_or(String::new(), |id| format!(" ({id})"))
}

impl From<StorageError> for Error {
    fn from(e: StorageError) -> Self {
        Error::new(e.kind(), e.to_string())
    }
}
