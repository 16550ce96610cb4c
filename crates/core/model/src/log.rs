//! The log as a trait: an engine that makes records durable, in order.
//!
//! The local segment log is one engine; an object-store log and Kafka are planned. A record
//! contains one [`LogBatch`], and each engine chooses its encoding.

mod batch;
mod created;
mod journal;
mod replaying;

pub use batch::{DecimalHint, FloatRow, FloatRows, HistogramRow, LogBatch};
pub use created::CreatedSeries;
pub use journal::{JournalMark, JournalRecord};
pub use replaying::{LogReplayPositions, LogReplayProgress};

use crate::error::Error;
use crate::metrics::Collect;
use std::path::PathBuf;

/// The position of a record in the log. Later records have larger positions; zero is before every
/// record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogPosition(pub u64);

impl LogPosition {
    /// Returns the position of the next record, without checking that it exists.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the position of the previous record; that of position zero is zero.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// A record as it was appended, except for hints.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// The position of the record, which increases by one per record.
    pub position: LogPosition,
    /// The appended data, decoded by the engine.
    pub batch: LogBatch,
}

type OnDone = Box<dyn FnOnce(Result<LogPosition, Error>) + Send>;
type OnDelayed = Box<dyn FnOnce(Error) + Send>;

/// The callbacks of a record. The engine calls `done` once: when the record is durable
/// (with its position) or can never be. Before that it calls `delayed` at most once, if it cannot
/// write the record now.
pub struct DurableCallbacks {
    done: OnDone,
    delayed: Option<OnDelayed>,
}

impl DurableCallbacks {
    /// Creates callbacks with `done`, which is called when the record is durable or can
    /// never be.
    pub fn new(done: impl FnOnce(Result<LogPosition, Error>) + Send + 'static) -> Self {
        Self {
            done: Box::new(done),
            delayed: None,
        }
    }

    /// Adds the callback `delayed`. It is called if the log cannot write now, because the disk is
    /// full or failing, and keeps the record until it can.
    pub fn or_delayed(self, delayed: impl FnOnce(Error) + Send + 'static) -> Self {
        Self {
            delayed: Some(Box::new(delayed)),
            ..self
        }
    }

    /// Reports that the record is durable, or can never be.
    pub fn report_outcome(self, outcome: Result<LogPosition, Error>) {
        (self.done)(outcome);
    }

    /// Removes and returns the callback for a delay. Returns `None` in further calls.
    pub fn take_delayed(&mut self) -> Option<impl FnOnce(Error) + Send + use<>> {
        self.delayed.take()
    }
}

impl std::fmt::Debug for DurableCallbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnDurable")
    }
}

/// The positions of a log at one moment, as [`DurableLog::positions`] returns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPositions {
    /// The position of the first record in the log, or of the next record if the log is empty.
    pub first: LogPosition,
    /// The position of the newest record, durable or not.
    pub last: LogPosition,
    /// The position of the newest record that is certainly durable.
    pub durable: LogPosition,
    /// The position of the first record in the current unit (a segment or an object), to which
    /// records are appended. The manifest contains it, so that a start detects a missing unit.
    pub growing: LogPosition,
    /// The lowest position up to which a trim frees space.
    pub trims_from: LogPosition,
}

/// The size of a log, and its remaining capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPressure {
    /// Number of stored bytes, accurate to one unit of the log.
    pub kept_bytes: u64,
    /// Number of stored bytes whose samples are not sealed, accurate to one unit of the log: those
    /// after the position of [`DurableLog::mark_sealed`]. In a log that is trimmed as soon as its
    /// samples are sealed, these are all stored bytes.
    pub unsealed_bytes: u64,
    /// True if the queue is so long that records of a few more threads might have to wait.
    pub is_crowded: bool,
    /// True if the log rejects records because the disk is full or nearly full, as of the last
    /// check.
    pub is_disk_full: bool,
    /// The number of free bytes on the disk below which the log rejects records.
    pub free_bytes_min: u64,
}

/// The health of a log: whether it accepts records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogHealth {
    /// The log accepts records and makes them durable.
    #[default]
    Sound,
    /// The log rejects records until the disk has free space. It recovers by itself.
    NoRoom(String),
    /// The log rejects records until the disk can write and sync again. It retries by itself.
    Failing(String),
    /// The log rejects records until the process restarts. Contains the reason.
    Poisoned(String),
}

/// A damaged part of the log, which does not contain the appended records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// The file or object; empty if the damage is not in a file.
    pub file: PathBuf,
    /// The byte offset of the damage in the file. `None` if records between two files are missing.
    pub offset: Option<u64>,
    /// A description of the error and of the lost data.
    pub what: String,
}

/// A file in which a log stores records, for backups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// The path of the file, within the data folder.
    pub path: PathBuf,
    /// The number of bytes that contain all records acknowledged so far.
    pub bytes: u64,
    /// True if the log does not write to the file any more.
    pub is_complete: bool,
}

/// An iterator over the records of a log from a position on, in order. It ends at the last record
/// that existed when it was created.
pub trait LogRecordReader: Send {
    /// Returns the next record, or `None` at the end. A damaged part is returned as an inner `Err`
    /// at its position, and the following call continues after it. The outer error means that a
    /// unit cannot be opened at all.
    fn next(&mut self) -> Result<Option<Result<LogRecord, LogDamage>>, Error>;
}

/// Makes records durable. The engine implements the guarantee of the store that acknowledged data
/// is not lost.
///
/// One engine writes segments to a local disk. The store only uses this trait.
pub trait DurableLog: Send + Sync {
    /// Returns an error unless an append could succeed now. The caller must check this before it
    /// changes any state because of the append, so that a poisoned log or a full disk rejects a
    /// write as a whole.
    fn check_append(&self) -> Result<(), Error>;

    /// Appends `batch` as a record. Neither copies nor encodes it on the calling thread or under a
    /// lock of the engine, and returns immediately unless the queue is full.
    ///
    /// The engine calls `done` when the record is durable, on any thread and possibly
    /// before this method returns. It calls them one after the other, in the order of the positions
    /// of the records. `done` must not append. If the engine cannot write, it keeps the record and
    /// reports the delay. If it can never write again, every append fails with
    /// [`crate::error::ErrorKind::Unavailable`] until the process restarts.
    ///
    /// A record that is followed by another may be held: it is written with the next append that is
    /// not followed, or by [`DurableLog::write_held_records`], and in any case before another
    /// thread waits for the log.
    fn append(&self, batch: LogBatch, done: DurableCallbacks);

    /// Writes the records that are held for a following one ([`LogBatch::is_followed`]), because
    /// that may never be appended. Takes a lock; does nothing if no record is held.
    fn write_held_records(&self);

    /// Returns an iterator over the records from position `from` on.
    fn read_from(&self, from: LogPosition) -> Box<dyn LogRecordReader + '_>;

    /// Returns the first, last and durable positions of the log.
    fn positions(&self) -> LogPositions;

    /// Returns the size and the remaining capacity of the log. This is called for each batch and
    /// takes no lock.
    fn pressure(&self) -> LogPressure;

    /// Returns whether the log accepts records, and the reason if it does not.
    fn health(&self) -> LogHealth;

    /// Runs periodic work that is not part of an append, such as retries of failed writes. The
    /// owner calls it once per second.
    fn tick(&self);

    /// Makes all appended records durable. Does nothing if they are. An engine that acknowledges
    /// records before it syncs them relies on this call of its owner while it is idle.
    fn sync(&self) -> Result<(), Error>;

    /// Starts a new unit after all appended records are durable, so that records appended from now
    /// on can be kept without any older ones. Waits for the disk. After an error the log continues
    /// in the old unit.
    fn begin_unit(&self) -> Result<(), Error>;

    /// Returns the files that contain the records, oldest first; empty if records are stored
    /// elsewhere. A log opened on copies of these files, up to the given numbers of bytes, contains
    /// the same records.
    fn files(&self) -> Vec<LogFile>;

    /// Records that all samples before `to` are sealed, for [`LogPressure::unsealed_bytes`]. The
    /// owner calls it instead of [`DurableLog::trim`] if the log keeps its records. Does nothing in
    /// a log that is trimmed.
    fn mark_sealed(&self, to: LogPosition) {
        let _ = to;
    }

    /// Deletes records before `to`. Some of them may be kept.
    fn trim(&self, to: LogPosition) -> Result<(), Error>;

    /// Closes the log: rejects further records, waits until all are written, and syncs. Fails if
    /// the disk cannot write the remaining records.
    fn close(&self) -> Result<(), Error>;

    /// Rejects further records and starts no more writes, because another process writes this log
    /// now. Does not wait. Records whose outcome is open fail, or become durable if their write had
    /// already begun.
    fn abandon(&self);

    /// Deletes all records. The log must be closed, and its records must not be needed any more.
    fn remove_all(&self) -> Result<(), Error>;

    /// Returns the metrics of the engine, which the store adds to its own.
    fn metrics(&self) -> &dyn Collect;
}
