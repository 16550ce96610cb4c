//! The one door for time, randomness, files and threads.
//!
//! Everything below the binary and the server takes an [`Env`]; nothing there calls the system.
//! [`real`] is the system; [`sim`] is a disk in memory that loses, tears and reorders what was not
//! synced, a clock that stands still until told, and compute that runs inline, so that a test
//! replays by its seed.

pub mod real;
pub mod sim;

use crate::sample::TimestampMs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Wall time, for the three decisions that may depend on it, and elapsed time for measurements.
pub trait Clock: Send + Sync {
    /// Now, in milliseconds since the Unix epoch.
    fn now_ms(&self) -> TimestampMs;

    /// Time since some fixed moment; never runs backwards.
    fn monotonic(&self) -> Duration;
}

/// Randomness.
pub trait Rng: Send + Sync {
    /// The next number.
    fn next_u64(&self) -> u64;
}

/// An open file. Positions are explicit: there is no cursor to share.
pub trait File: Send + Sync {
    /// Reads up to `into.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`; extends the file if needed.
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes that begin and end at multiples of this may go past the system's cache; 1 if none
    /// does.
    fn sector_bytes(&self) -> u64 {
        1
    }

    /// Makes written bytes and the length durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts or extends the file.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading and writing; it must not exist.
    CreateNew,
    /// Like [`OpenMode::Write`], for a file that is synced after every write: whole sectors go past
    /// the system's cache, where the file system lets them.
    WriteDirect,
    /// Like [`OpenMode::CreateNew`], for such a file.
    CreateNewDirect,
}

/// Held while the process owns a data folder; another process cannot take it.
pub trait DirLock: Send + Sync {}

/// The process that holds a lock, inside the error of another one that wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("process {0} holds the lock")]
pub struct LockOwner(pub u32);

impl LockOwner {
    /// The owner that `error` names, if it names one.
    pub fn of(error: &io::Error) -> Option<Self> {
        let inner = error.get_ref()?;
        inner.downcast_ref::<Self>().copied()
    }
}

/// A file system.
pub trait Disk: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// The names in a folder, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    /// Creates a folder and those above it; the names of those it created are durable.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Moves a file over another one, at once or not at all.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a second name, which must be free. Changes by one name are seen by the other.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a folder, which must be empty.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes created, linked, renamed and removed names in `dir` durable, those of folders too.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the folder for this process, by the file `path`; fails with `WouldBlock` if another
    /// has it. The error then contains a [`LockOwner`] if the owner is known.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>>;

    /// Bytes that may still be written to the file system of `dir`.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Bytes that the file system of `dir` has, used and free.
    fn total_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// What a piece of background work is for: decides the thread it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Writes and syncs of the log: its own thread, may block on the disk.
    Log,
    /// Sealing, removal and other shaped work: may block on the disk.
    Background,
    /// Merging blocks: may take long and block on the disk.
    Compaction,
}

/// A job handed to [`Compute::spawn`].
pub type Job = Box<dyn FnOnce() + Send>;

/// Threads.
pub trait Compute: Send + Sync {
    /// Runs `job` on the threads for `work`; returns at once. In simulation it runs inline.
    fn spawn(&self, work: Work, job: Job);

    /// Calls `task(0..tasks)` on the compute threads and returns when all are done. The caller
    /// helps. Which thread runs which task is not determined; results must not depend on it.
    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));

    /// Compute threads.
    fn threads(&self) -> usize;
}

/// The door.
#[derive(Clone)]
pub struct Env {
    /// Wall and elapsed time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// Threads.
    pub compute: Arc<dyn Compute>,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}
