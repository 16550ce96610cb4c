//! The operating system as an [`super::Env`]: wall clock, randomness, `std::fs` and threads.
//!
//! Below the binary and the server, only this file and its folder may call the operating system; a
//! test in `tests/style` checks this.

mod pool;

use super::{Clock, Compute, DirLock, Disk, DiskFile, Env, Job, JobKind, LockOwner, OpenMode, Rng};
use crate::sample::TimestampMs;
use crate::sync::lock;
use pool::ComputePool;
use rustix::time::{ClockId, clock_gettime};
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Creates an environment with as many compute threads as the process may use cores.
pub fn system_env() -> io::Result<Env> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    Ok(Env {
        clock: Arc::new(SystemClock {
            start: Instant::now(),
        }),
        rng: Arc::new(SystemRng(AtomicU64::new(0))),
        disk: Arc::new(SystemDisk),
        compute: Arc::new(ComputeThreads::new(threads)?),
    })
}

/// Returns the time since the start of the machine, including suspends, which
/// [`Clock::monotonic`] does not count. For leases, during which another process must not act.
pub fn boot_time() -> Duration {
    read_clock(ClockId::Boottime)
}

fn read_clock(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

struct SystemClock {
    start: Instant,
}

impl Clock for SystemClock {
    fn now_ms(&self) -> TimestampMs {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(d) => d.as_millis() as i64,
            Err(before) => -(before.duration().as_millis() as i64),
        }
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn thread_time(&self) -> Duration {
        read_clock(ClockId::ThreadCPUTime)
    }
}

/// Random numbers from the hash keys of the standard library, which the operating system seeds.
struct SystemRng(AtomicU64);

impl Rng for SystemRng {
    fn next_u64(&self) -> u64 {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(self.0.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }
}

struct SystemDisk;

struct SystemFile {
    file: fs::File,
    direct: Option<DirectFile>,
}

/// A second handle of a file that bypasses the page cache. A small write that is synced immediately
/// is faster this way, because only its own sectors are written instead of whole pages.
struct DirectFile {
    file: fs::File,
    sector_bytes: usize,
    /// A buffer with the alignment that the operating system requires. Data is copied here before
    /// it is written.
    aligned: Mutex<Vec<u8>>,
}

struct LockedFile {
    /// Holds the lock until it is closed, when the process drops or ends.
    _file: fs::File,
}

impl DirLock for LockedFile {}

/// Writes the id of this process to the lock file, whose lock it holds.
fn write_owner(mut file: &fs::File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

/// Reads the process id from a lock file. Returns `None` if it contains none.
fn read_owner(path: &Path) -> Option<LockOwner> {
    let text = fs::read_to_string(path).ok()?;
    text.trim_end().parse().ok().map(LockOwner)
}

impl Disk for SystemDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::Write | OpenMode::WriteDirect => {
                options.write(true);
            }
            OpenMode::CreateNew | OpenMode::CreateNewDirect => {
                options.write(true).create_new(true);
            }
        }
        let file = options.open(path)?;
        let is_direct = matches!(mode, OpenMode::WriteDirect | OpenMode::CreateNewDirect);
        let direct = is_direct.then(|| DirectFile::open(path)).flatten();
        Ok(Arc::new(SystemFile { file, direct }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(PathBuf::from(entry?.file_name()));
        }
        names.sort();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        let parent = match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        self.create_dir_all(parent)?;
        match fs::create_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            Err(e) => Err(e),
            Ok(()) => self.sync_dir(parent),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => {
                // The id is only informative: the lock is valid without it.
                let _ = write_owner(&file);
                Ok(Box::new(LockedFile { _file: file }))
            }
            Err(fs::TryLockError::WouldBlock) => Err(match read_owner(path) {
                Some(owner) => io::Error::new(io::ErrorKind::WouldBlock, owner),
                None => io::ErrorKind::WouldBlock.into(),
            }),
            Err(fs::TryLockError::Error(e)) => Err(e),
        }
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn total_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }
}

impl DirectFile {
    /// The largest sector size for which direct writes are used, in bytes.
    const SECTOR_BYTES_MAX: usize = 4096;

    /// Opens a direct handle, or returns `None` if the operating system or the file system does not
    /// support it.
    #[cfg(target_os = "linux")]
    fn open(path: &Path) -> Option<Self> {
        use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, statx};
        use std::os::unix::fs::OpenOptionsExt;
        let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::DIOALIGN).ok()?;
        let sector_bytes = stat.stx_dio_offset_align as usize;
        if !sector_bytes.is_power_of_two() || sector_bytes > Self::SECTOR_BYTES_MAX {
            return None;
        }
        let flags = OFlags::DIRECT.bits() as i32;
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).custom_flags(flags).open(path).ok()?;
        Some(Self {
            file,
            sector_bytes,
            aligned: Mutex::default(),
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn open(_path: &Path) -> Option<Self> {
        None
    }

    fn can_write(&self, offset: u64, bytes: &[u8]) -> bool {
        offset.is_multiple_of(self.sector_bytes as u64)
            && bytes.len().is_multiple_of(self.sector_bytes)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut memory = lock(&self.aligned);
        let room = bytes.len() + Self::SECTOR_BYTES_MAX;
        if memory.len() < room {
            memory.resize(room, 0);
        }
        let address = memory.as_ptr().addr();
        let start = address.next_multiple_of(Self::SECTOR_BYTES_MAX) - address;
        let aligned = &mut memory[start..start + bytes.len()];
        aligned.copy_from_slice(bytes);
        self.file.write_all_at(aligned, offset)
    }
}

impl DiskFile for SystemFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(direct) = self.direct.as_ref().filter(|d| d.can_write(offset, bytes)) {
            match direct.write_all_at(offset, bytes) {
                // The file system does not support the alignment that it reported.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                outcome => return outcome,
            }
        }
        self.file.write_all_at(bytes, offset)
    }

    fn sector_bytes(&self) -> u64 {
        self.direct.as_ref().map_or(1, |d| d.sector_bytes as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// Requests have priority over background work, which gets a tenth of the time of other threads if
/// all cores are busy. It holds locks for about 50 µs at a time.
const BACKGROUND_NICENESS: i32 = 10;

/// A pool of compute threads, and one thread for each kind of work that may block. The latter are
/// not part of the pool, because a pool thread that waits may meanwhile start another job within
/// the waiting one.
struct ComputeThreads {
    /// Number of compute threads, including one for the caller.
    threads: usize,
    pool: ComputePool,
    /// Number of active calls of `for_each`, by which helpers are distributed.
    callers: AtomicUsize,
    log: mpsc::Sender<Job>,
    background: mpsc::Sender<Job>,
    compaction: mpsc::Sender<Job>,
}

/// Stack size of a compute thread in bytes. A subquery needs 5 kB per level, or 17 kB without
/// optimization. Queries with deeper nesting continue on an additional stack segment, at some cost.
/// Unused stack occupies no memory.
pub const STACK_BYTES: usize = 8 << 20;

impl ComputeThreads {
    fn new(threads: usize) -> io::Result<Self> {
        Ok(Self {
            threads,
            // Callers participate, so one more thread than cores would only compete with them.
            pool: ComputePool::new(threads.saturating_sub(1), STACK_BYTES)?,
            callers: AtomicUsize::new(0),
            log: start_worker("firn-log", 0)?,
            background: start_worker("firn-background", BACKGROUND_NICENESS)?,
            compaction: start_worker("firn-compaction", BACKGROUND_NICENESS)?,
        })
    }
}

/// Increments a counter while it exists, also if the thread panics.
struct CounterGuard<'a> {
    counter: &'a AtomicUsize,
    /// The value of the counter including this increment, when it was made.
    count: usize,
}

impl<'a> CounterGuard<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        let count = counter.fetch_add(1, Ordering::Relaxed) + 1;
        Self { counter, count }
    }
}

impl Drop for CounterGuard<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts a thread that runs jobs one after another until its sender is dropped.
///
/// The queue needs no limit: the log has at most one job, and the callers limit background work. A
/// panic of a job is printed on the standard error and must not end the thread, because the
/// following jobs would wait forever.
fn start_worker(name: &str, niceness: i32) -> io::Result<mpsc::Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // On Linux this applies only to this thread. If it fails, only the priority is
            // affected.
            let _ = rustix::process::nice(niceness);
            for job in jobs {
                let _ = panic::catch_unwind(AssertUnwindSafe(job));
            }
        })?;
    Ok(sender)
}

impl Compute for ComputeThreads {
    fn spawn(&self, work: JobKind, job: Job) {
        let worker = match work {
            JobKind::Log => &self.log,
            JobKind::Background => &self.background,
            JobKind::Compaction => &self.compaction,
        };
        worker
            .send(job)
            .expect("a worker ends only after its sender was dropped");
    }

    /// Tasks are started in order, so a caller that merges their results in order has to hold only
    /// few. The calling thread participates immediately and waits for the other threads only at the
    /// end.
    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let callers = CounterGuard::new(&self.callers);
        // If there are as many callers as cores, additional threads would only compete with them.
        let idle = self.threads.saturating_sub(callers.count);
        self.pool.for_each(tasks, idle, task);
    }

    fn threads(&self) -> usize {
        self.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_each_within_a_task_of_for_each_ends() {
        let threads = ComputeThreads::new(2).unwrap();
        let count = AtomicUsize::new(0);
        threads.for_each(4, &|_| {
            threads.for_each(4, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(count.into_inner(), 16);
    }

    #[test]
    fn for_each_begins_tasks_in_order_on_each_thread_and_does_each_once() {
        let threads = ComputeThreads::new(4).unwrap();
        for tasks in [0, 1, 3, 1_000] {
            let done = Mutex::new(Vec::new());
            threads.for_each(tasks, &|task| {
                done.lock()
                    .unwrap()
                    .push((std::thread::current().id(), task));
            });
            let done = done.into_inner().unwrap();
            let mut all: Vec<usize> = done.iter().map(|(_, task)| *task).collect();
            for (thread, _) in &done {
                let of_thread = done.iter().filter(|(other, _)| other == thread);
                assert!(of_thread.map(|(_, task)| task).is_sorted(), "{done:?}");
            }
            all.sort_unstable();
            assert_eq!(all, (0..tasks).collect::<Vec<_>>());
        }
    }

    #[test]
    fn worker_after_a_panicking_job_runs_the_next_one() {
        let threads = ComputeThreads::new(1).unwrap();
        let (sender, receiver) = mpsc::channel();
        threads.spawn(JobKind::Log, Box::new(|| panic!("a job that fails")));
        threads.spawn(
            JobKind::Log,
            Box::new(move || sender.send("next").expect("the test waits")),
        );
        assert_eq!(receiver.recv(), Ok("next"));
    }

    #[test]
    fn linked_file_outlives_its_first_name_and_an_empty_folder_goes() {
        let root = std::env::temp_dir().join(format!("firn-env-{}", std::process::id()));
        let (from, to) = (root.join("a/x"), root.join("y"));
        SystemDisk.create_dir_all(&root.join("a")).unwrap();
        let file = SystemDisk.open(&from, OpenMode::CreateNew).unwrap();
        file.write_all_at(0, b"bytes").unwrap();
        SystemDisk.link(&from, &to).unwrap();
        let again = SystemDisk.link(&from, &to).map_err(|e| e.kind());
        assert_eq!(again, Err(io::ErrorKind::AlreadyExists));
        assert!(SystemDisk.remove_dir(&root.join("a")).is_err());
        SystemDisk.remove_file(&from).unwrap();
        SystemDisk.remove_dir(&root.join("a")).unwrap();
        assert_eq!(SystemDisk.list(&root).unwrap(), [PathBuf::from("y")]);
        assert_eq!(fs::read(&to).unwrap(), b"bytes");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn for_each_from_a_background_job_ends() {
        let threads = Arc::new(ComputeThreads::new(1).unwrap());
        let (sender, receiver) = mpsc::channel();
        let inner = threads.clone();
        threads.spawn(
            JobKind::Background,
            Box::new(move || {
                let count = AtomicUsize::new(0);
                inner.for_each(3, &|_| {
                    count.fetch_add(1, Ordering::Relaxed);
                });
                sender.send(count.into_inner()).expect("the test waits");
            }),
        );
        assert_eq!(receiver.recv(), Ok(3));
    }
}
