//! What can go wrong with the local store: one enum, mapped to the kinds that cross room borders.
//!
//! Messages name the file, the offset or the limit, so that the operator can act.

use firn_model::error::{Error, ErrorKind};
use firn_model::log::Position;
use std::io;
use std::path::{Path, PathBuf};

/// An error of the local store.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The disk refused an operation.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// Verb and object: `read segment`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process owns the data folder.
    #[error(
        "data folder {} is locked: another process{} is using it",
        path.display(),
        shown(*owner)
    )]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The process, if it is known.
        owner: Option<u32>,
    },
    /// The data folder cannot be written.
    #[error("data folder {} is not writable: {source}", path.display())]
    NotWritable {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder holds something else.
    #[error(
        "folder {} is not empty and is not a firn data folder: it contains {found}",
        path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// The first name found in it.
        found: String,
    },
    /// The folder holds no data of ours.
    #[error(
        "folder {} is not a firn data folder: it does not contain a file FORMAT", path.display())]
    NoData {
        /// The folder.
        path: PathBuf,
    },
    /// A file that the disk does not deliver cannot be copied, so it is not replaced either.
    #[error(
        "{} cannot be read from this disk; copy all readable files of the data folder to another \
         disk and repair the copy",
        path.display()
    )]
    NotRepairable {
        /// The file.
        path: PathBuf,
    },
    /// The bytes are of a format that this version does not read.
    #[error("{} has format {found}, but this version supports format {known}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format that was found.
        found: String,
        /// The only one that this version reads.
        known: u32,
    },
    /// Bytes that were durable do not say what they should.
    #[error("{} is damaged at offset {offset}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong or lost.
        what: String,
    },
    /// The disk, or the file system's own structures, fail where bytes of a block lie: they may be
    /// there.
    #[error("read {}: {source}", path.display())]
    Undelivered {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An earlier write or sync failed, and its bytes are no longer in memory; nothing is promised
    /// until the process restarts.
    #[error("the log rejects writes until restart: {cause}")]
    Poisoned {
        /// The failure.
        cause: String,
    },
    /// A write found no room on the disk or in the quota.
    #[error("the disk is full, writes resume when space is free: {cause}")]
    NoRoom {
        /// What the system said.
        cause: String,
    },
    /// A write or sync failed, and so did those that were tried since.
    #[error("disk error, writes are retried: {cause}")]
    Failing {
        /// The last failure.
        cause: String,
    },
    /// The disk is nearly full.
    #[error("disk of {} is full: {free} bytes free, {required} required", path.display())]
    DiskFull {
        /// The folder of the log or the pages.
        path: PathBuf,
        /// Bytes free.
        free: u64,
        /// Bytes that must stay free.
        required: u64,
    },
    /// Sealing does not keep up with what is written.
    #[error("sealing is behind: {bytes} bytes of the log are not sealed, limit {limit}")]
    Backlog {
        /// Bytes of the log.
        bytes: u64,
        /// The most there may be.
        limit: u64,
    },
    /// Late samples come faster than they leave memory.
    #[error("too many late samples in memory: {bytes} bytes, limit {limit}")]
    LateBacklog {
        /// Bytes that they take.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// A record is larger than the format holds.
    #[error("log record too large: {bytes} bytes, limit {limit}")]
    RecordTooLarge {
        /// Bytes of the record.
        bytes: usize,
        /// The largest payload.
        limit: usize,
    },
    /// The series of the folder do not fit into memory.
    #[error(
        "too many series in {}: the labels of {series} series need {bytes} bytes of memory, limit \
         {limit}; raise firn.memory_limit or use a machine with more memory",
        path.display()
    )]
    TooManySeries {
        /// The folder of the catalogue.
        path: PathBuf,
        /// Those that were read.
        series: u64,
        /// What they take for certain.
        bytes: usize,
        /// The memory that there is.
        limit: usize,
    },
    /// A histogram has more buckets than any column holds.
    #[error("histogram too large: {buckets} buckets, spans and bounds, limit {limit}")]
    TooManyBuckets {
        /// Its buckets, spans and custom bounds.
        buckets: usize,
        /// The most there may be.
        limit: usize,
    },
    /// The log was closed before the record reached it.
    #[error("the log is closed")]
    Closed,
    /// Records that the log should hold are gone.
    #[error("log {} misses records {} to {}", path.display(), from.0, to.0)]
    Missing {
        /// The segment at whose end they should be.
        path: PathBuf,
        /// The first one.
        from: Position,
        /// The last one.
        to: Position,
    },
}

/// Whether the disk, or the file system's own structures, failed: what is asked for may be there.
/// A full table of open files, a missing permission or a missing file are no faults of the disk.
pub(crate) fn is_disk_fault(error: &io::Error) -> bool {
    /// EIO, EBADMSG and EUCLEAN of Linux.
    const FAULTS: [i32; 3] = [5, 74, 117];
    match error.raw_os_error() {
        Some(number) => FAULTS.contains(&number),
        None => error.kind() == io::ErrorKind::Other,
    }
}

impl StorageError {
    /// Whether the disk did not deliver what is stored, see [`is_disk_fault`].
    pub(crate) fn is_disk_fault(&self) -> bool {
        match self {
            Self::Undelivered { .. } => true,
            Self::Io { source, .. } => is_disk_fault(source),
            _ => false,
        }
    }

    /// Whether there was no room on the disk.
    pub(crate) fn is_no_room(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded),
            _ => false,
        }
    }

    /// What the caller must do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } | Self::Poisoned { .. } | Self::DiskFull { .. } | Self::Closed => {
                ErrorKind::Unavailable
            }
            Self::Locked { .. } | Self::NotWritable { .. } | Self::Backlog { .. } => {
                ErrorKind::Unavailable
            }
            Self::NoRoom { .. } | Self::Failing { .. } | Self::LateBacklog { .. } => {
                ErrorKind::Unavailable
            }
            Self::Foreign { .. } | Self::NoData { .. } | Self::Format { .. } => ErrorKind::Invalid,
            Self::Damaged { .. }
            | Self::Undelivered { .. }
            | Self::Missing { .. }
            | Self::NotRepairable { .. } => ErrorKind::Corrupt,
            Self::RecordTooLarge { .. }
            | Self::TooManySeries { .. }
            | Self::TooManyBuckets { .. } => ErrorKind::Limited,
        }
    }

    /// For `map_err`: the disk refused `action` on `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

/// The id of a process, as ` (12)`; nothing if it is unknown.
fn shown(process: Option<u32>) -> String {
    process.map_or(String::new(), |id| format!(" ({id})"))
}

impl From<StorageError> for Error {
    fn from(e: StorageError) -> Self {
        Error::new(e.kind(), e.to_string())
    }
}
