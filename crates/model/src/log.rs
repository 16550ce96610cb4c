//! The log as a trait: an engine that makes records durable, in order.
//!
//! The local segment log is one engine; an object-store log and Kafka follow. A record holds one
//! [`LogBatch`]; the engine chooses how it codes it.

mod batch;
mod created;
mod journal;
mod replaying;

pub use batch::{DecimalHint, FloatRow, FloatRows, HistogramRow, LogBatch};
pub use created::CreatedSeries;
pub use journal::{Journal, JournalMark};
pub use replaying::{Replayed, Replaying};

use crate::error::Error;
use crate::metrics::Collect;
use std::path::PathBuf;

/// A place in the log. Later records have greater positions; zero comes before every record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(pub u64);

impl Position {
    /// The position of the record after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The position of the record before this one.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// A record as it was appended, but for hints.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// Where it stands.
    pub position: Position,
    /// What was appended.
    pub batch: LogBatch,
}

type OnDone = Box<dyn FnOnce(Result<Position, Error>) + Send>;
type OnDelayed = Box<dyn FnOnce(Error) + Send>;

/// What an engine calls for a record: once when the record is durable (with its position) or can
/// never be, and before that at most once if the engine cannot write it now.
pub struct OnDurable {
    done: OnDone,
    delayed: Option<OnDelayed>,
}

impl OnDurable {
    /// Calls `done` when the record is durable or can never be.
    pub fn new(done: impl FnOnce(Result<Position, Error>) + Send + 'static) -> Self {
        Self {
            done: Box::new(done),
            delayed: None,
        }
    }

    /// Calls `delayed` before, if the log cannot write now and keeps the record until it can: the
    /// disk is full, or failed.
    pub fn or_delayed(self, delayed: impl FnOnce(Error) + Send + 'static) -> Self {
        Self {
            delayed: Some(Box::new(delayed)),
            ..self
        }
    }

    /// The record is durable, or can never be.
    pub fn done(self, outcome: Result<Position, Error>) {
        (self.done)(outcome);
    }

    /// What to call if the record is delayed; nothing the second time.
    pub fn take_delayed(&mut self) -> Option<impl FnOnce(Error) + Send + use<>> {
        self.delayed.take()
    }
}

impl std::fmt::Debug for OnDurable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnDurable")
    }
}

/// The positions of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// The first one that it still holds, or will give next.
    pub first: Position,
    /// The newest one given to a record, durable or not.
    pub last: Position,
    /// The newest one that is known to be durable.
    pub durable: Position,
    /// The first one of the unit (a segment, an object) to which records are added now. A manifest
    /// remembers it, so that a start notices when the unit is missing.
    pub growing: Position,
    /// A trim to here, or further, frees space.
    pub trims_from: Position,
}

/// How much a log holds, and how near it is to what it can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Bytes that it keeps, to within a unit of it.
    pub bytes: u64,
    /// So much is queued that records of a few threads more might have to wait.
    pub is_crowded: bool,
    /// It refuses records because the disk is full or nearly so, as of the last look.
    pub is_disk_full: bool,
    /// Below so many free bytes it refuses records.
    pub free_bytes_min: u64,
}

/// Whether a log takes records, and why not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogHealth {
    /// It does.
    #[default]
    Sound,
    /// Not until the disk has room; it goes on by itself.
    NoRoom(String),
    /// Not until the disk writes and syncs again; it tries by itself.
    Failing(String),
    /// Not until restart.
    Poisoned(String),
}

/// A stretch of the log that does not say what was appended there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// The file or object; empty if none is to blame.
    pub file: PathBuf,
    /// Where in the file it begins; `None` if records lack between two files.
    pub offset: Option<u64>,
    /// What is wrong or lost.
    pub what: String,
}

/// A file in which a log keeps records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Where it lies.
    pub path: PathBuf,
    /// All records that were acknowledged so far end before so many of its bytes.
    pub bytes: u64,
    /// Nothing is written to it any more.
    pub is_complete: bool,
}

/// The records of a log from a position on, in order, as far as there were any when it was opened.
pub trait Tail: Send {
    /// The next record; damage is an `Err` item at its place, and reading goes on behind it. `None`
    /// at the end. An error of the call is a unit that cannot be opened at all.
    fn next(&mut self) -> Result<Option<Result<LogRecord, LogDamage>>, Error>;
}

/// Makes records durable: the engine behind the store's promise that what was acknowledged stays.
///
/// One engine writes segments of a local disk. The store holds it as a trait object and knows
/// nothing else of it.
pub trait DurableLog: Send + Sync {
    /// An error unless an append could succeed now. The caller must ask before it changes anything
    /// for the sake of the append, so that a poisoned log or a full disk refuses a write whole.
    fn admit(&self) -> Result<(), Error>;

    /// Appends a record of `batch`, which the engine takes over: nothing is copied or coded on the
    /// caller's thread or under a lock of the engine. Returns at once, unless so much is queued
    /// that writers must wait. The engine calls `done` when the record is durable, on any thread
    /// and perhaps before this returns; `done` must not append itself. While the engine cannot
    /// write, it keeps the record and calls that it is delayed; if it can never write again, every
    /// append fails with [`crate::error::ErrorKind::Unavailable`] until the process restarts.
    ///
    /// A record that is followed by another may wait for it: it is written with the next append
    /// that is not, or by [`DurableLog::write_held`], and before anything waits for the log.
    fn append(&self, batch: LogBatch, done: OnDurable);

    /// Writes the records that wait for one behind them ([`LogBatch::is_followed`]), which may not
    /// come. Takes a lock; does nothing if none waits.
    fn write_held(&self);

    /// Reads the records from `from` on.
    fn tail(&self, from: Position) -> Box<dyn Tail + '_>;

    /// Where the log begins and ends, and up to where it is durable.
    fn positions(&self) -> Positions;

    /// How much it holds. Called for each batch: takes no lock.
    fn pressure(&self) -> Pressure;

    /// Whether it takes records.
    fn health(&self) -> LogHealth;

    /// Does the work that no append asks for, such as another attempt to write what could not be
    /// written. The owner calls it once a second.
    fn tick(&self);

    /// Makes all that was appended durable; does nothing if all is. An engine that acknowledges
    /// before it syncs relies on its owner for this while it is idle.
    fn sync(&self) -> Result<(), Error>;

    /// Begins a new unit, once all that was appended is durable: what is appended from here on can
    /// outlive what was before without any of it. Waits for the disk; after an error the log goes
    /// on in the old unit.
    fn begin_unit(&self) -> Result<(), Error>;

    /// The files with the records, oldest first; none if it keeps them elsewhere. A log that is
    /// opened on copies of them reads what this one has, up to the bytes that are named.
    fn files(&self) -> Vec<LogFile>;

    /// Forgets records before `to`; may keep some of them.
    fn trim(&self, to: Position) -> Result<(), Error>;

    /// A clean stop: takes no more records, waits until all are written, and syncs. Fails if the
    /// disk cannot write what waits.
    fn close(&self) -> Result<(), Error>;

    /// Removes all records, once the log is closed and nothing needs them.
    fn remove_all(&self) -> Result<(), Error>;

    /// The metrics of the engine.
    fn metrics(&self) -> &dyn Collect;
}
