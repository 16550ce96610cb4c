//! The only access to time, randomness, files and threads.
//!
//! All crates below the binary and the server use an [`Env`] and never call the operating system.
//! [`real`] is the operating system. [`sim`] is a simulation for tests that are reproducible by a
//! seed: a disk in memory that loses, tears and reorders unsynced writes, a clock that a test sets,
//! and threads whose work runs inline.

pub mod real;
pub mod sim;

use crate::sample::TimestampMs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A clock. Few decisions may depend on wall time; elapsed time is for measurements.
pub trait Clock: Send + Sync {
    /// Returns the wall time in milliseconds since the Unix epoch.
    fn now_ms(&self) -> TimestampMs;

    /// Returns the time since a fixed moment, which never decreases.
    fn monotonic(&self) -> Duration;

    /// Returns the processor time of the calling thread, for measurements. A clock that cannot
    /// measure it returns the elapsed time instead.
    fn thread_time(&self) -> Duration {
        self.monotonic()
    }
}

/// A source of random numbers. It is seeded in tests and unpredictable in production.
pub trait Rng: Send + Sync {
    /// Returns the next random number; all 64 bits are random.
    fn next_u64(&self) -> u64;
}

/// An open file. All positions are explicit: there is no shared cursor.
pub trait DiskFile: Send + Sync {
    /// Reads up to `into.len()` bytes at `offset`. Returns fewer only at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all `bytes` at `offset` and extends the file if necessary.
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns the sector size in bytes. Writes that are aligned to it may bypass the page cache.
    /// Returns 1 if no write does.
    fn sector_bytes(&self) -> u64 {
        1
    }

    /// Makes written bytes and the length of the file durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;

    /// Truncates or extends the file to the given length.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Returns the length in bytes, including unsynced writes.
    fn len(&self) -> io::Result<u64>;

    /// Returns whether the length of the file is zero.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// The mode in which a file is opened or created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Opens an existing file for reading. It is an error if it does not exist.
    Read,
    /// Opens an existing file for reading and writing. It is an error if it does not exist.
    Write,
    /// Creates a file for reading and writing. It is an error if it exists.
    CreateNew,
    /// Opens an existing file like [`OpenMode::ReceivedWrite`], for a file that is synced after
    /// every write. Writes of whole sectors bypass the page cache if the file system supports it.
    WriteDirect,
    /// Creates a file like [`OpenMode::CreateNew`], with writes like [`OpenMode::WriteDirect`].
    CreateNewDirect,
}

/// A lock that is held while the process owns a data folder. No other process can acquire it.
pub trait DirLock: Send + Sync {}

/// The process that holds a lock, as part of the error for another process that tries to acquire
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("process {0} holds the lock")]
pub struct LockOwner(pub u32);

impl LockOwner {
    /// Returns the lock owner that `error` contains, if there is one.
    pub fn from_error(error: &io::Error) -> Option<Self> {
        let inner = error.get_ref()?;
        inner.downcast_ref::<Self>().copied()
    }
}

/// A file system. Paths are those of the operating system.
pub trait Disk: Send + Sync {
    /// Opens or creates a file, depending on `mode`. A created name is durable only after
    /// [`Disk::sync_dir`].
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Returns the names in a folder, sorted and without the path of the folder.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    /// Creates a folder and its missing parents. Their names are durable afterwards.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Renames a file atomically, and replaces the file `to` if it exists.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. The removal is durable only after [`Disk::sync_dir`].
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Creates a hard link: a second name of the same file. It is an error if `to` exists.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a folder. It is an error if the folder is not empty.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes created, linked, renamed and removed names in `dir` durable, including those of
    /// folders.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Acquires a lock for this process by means of the file `path`. Fails with `WouldBlock` if
    /// another process holds it; the error then contains a [`LockOwner`] if the owner can be
    /// determined.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>>;

    /// Returns the number of free bytes in the file system of `dir`.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Returns the total size of the file system of `dir` in bytes.
    fn total_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// The purpose of a background job, which determines the thread that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// Writes and syncs of the log. Has a thread of its own and may block on the disk.
    Log,
    /// Sealing, removal and other work of limited duration. May block on the disk.
    Background,
    /// Compaction of blocks. May take long and block on the disk.
    Compaction,
}

/// A job for [`Compute::spawn`], which runs exactly once unless the process ends.
pub type Job = Box<dyn FnOnce() + Send>;

/// The threads of the process, for background jobs and for parallel computations.
pub trait Compute: Send + Sync {
    /// Runs `job` on the thread for `work` and returns immediately. In a simulation it runs inline.
    fn spawn(&self, work: JobKind, job: Job);

    /// Calls `task(0..tasks)` on the compute threads and on the calling thread. Returns when all
    /// tasks have finished. Results must not depend on the thread that runs a task, which is
    /// unspecified.
    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));

    /// Returns the number of compute threads, including the caller of `for_each`.
    fn threads(&self) -> usize;
}

/// The access to time, randomness, files and threads. Cloning is cheap.
#[derive(Clone)]
pub struct Env {
    /// The source of wall time and elapsed time.
    pub clock: Arc<dyn Clock>,
    /// The source of random numbers, such as hash seeds.
    pub rng: Arc<dyn Rng>,
    /// The file system that contains the data folder.
    pub disk: Arc<dyn Disk>,
    /// The threads for background jobs and computations.
    pub compute: Arc<dyn Compute>,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}
