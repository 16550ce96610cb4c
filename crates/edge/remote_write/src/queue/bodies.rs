//! The log of bodies on disk, shared by all targets. A body is synced before it is acknowledged.
//!
//! ```text
//! append -> pending -> group: one write, one sync -> end advances, callers are notified
//!                        ` failure: callers receive the error; next group begins a new segment
//! read(at) -> entries of one segment          trim(to) -> segments that end before it are removed
//! ```
//!
//! Positions count the bytes of frames since the first start. A segment is named after its start
//! position and ends where the next one begins, so that the remains of a failed write behind its
//! end are never read. Group commit has no timer: the next group contains all that arrived during
//! the last sync.
//!
//! Invariant: a body is below [`BodyLog::end`] only after it has been synced; no I/O happens under
//! the lock. The cursors of the targets determine which bodies are still needed.

mod commit;
mod format;
mod segments;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub use format::frame_bytes;
pub use format::{BodyLogEntry, PASSED_HEADERS, ReceivedWrite};
pub use segments::is_segment;

use bytes::Bytes;
use firn_model::env::{DirLock, DiskFile, Env, JobKind, OpenMode};
use firn_model::error::Error;
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use firn_wire::remote_write::WriteRequestContents;
use format::{BodyLogFrame, HEADER_BYTES, own_frame, peek, peek_contents, read_frame};
use segments::{BodyLogSegment, CHUNK_BYTES, entries_of, file_name, find_segments, read_at};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Length in bytes at which a segment is closed: small enough to free space soon, large enough that
/// a GiB consists of only 64 files.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Number of bytes of the newest groups that are kept in memory. Targets that keep up read bodies
/// from there, which saves a read, a checksum and a thread switch. Holds about four seconds at
/// 100,000 samples per second.
const RECENT_BYTES_MAX: usize = 16 << 20;

/// Time without disk access after a failed write: senders retry faster than the disk recovers.
const FAULT_PAUSE: Duration = Duration::from_secs(1);

/// Number of bytes that are read of the frame of a dropped body: its headers and the counts of its
/// contents.
const PEEKED_BYTES: usize = 256;

/// Callback that receives the result when a body is durable, or the reason why it could not be
/// stored.
pub type Done = Box<dyn FnOnce(Result<(), String>) + Send>;

/// The log of bodies. Clones share the same log, which is closed when the last one is dropped.
#[derive(Clone)]
pub struct BodyLog(Arc<BodyLogShared>);

struct BodyLogShared {
    env: Env,
    dir: PathBuf,
    segment_bytes: u64,
    state: Mutex<BodyLogState>,
    end: watch::Sender<u64>,
    /// The lock on the directory, held as long as the log is open.
    _lock: Box<dyn DirLock>,
}

struct BodyLogState {
    /// Segments, oldest first. The last one ends at the end of the log.
    segments: VecDeque<BodyLogSegment>,
    /// File of the last segment, if more can be appended to it.
    file: Option<Arc<dyn DiskFile>>,
    /// The newest groups, oldest first: start position and frames of each.
    recent: VecDeque<(u64, Bytes)>,
    pending: VecDeque<PendingBody>,
    is_committing: bool,
    fault: Option<BodyLogFault>,
}

struct PendingBody {
    time_ms: TimestampMs,
    write: ReceivedWrite,
    done: Done,
}

/// A failed write, after which the disk is not used for [`FAULT_PAUSE`] and new bodies are
/// rejected.
#[derive(Clone)]
struct BodyLogFault {
    /// Monotonic time from which writes are tried again, since the start of the clock.
    retry_at: Duration,
    message: String,
}

/// The result of reading the log at a position, within one segment.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyLogRead {
    /// Complete bodies in order; empty at the end of the log.
    Entries(Vec<BodyLogEntry>),
    /// A range without valid bodies, which ends at the start of a segment or at the end of the log.
    Damaged {
        /// Position from which valid bodies may continue; reading resumes there.
        to: u64,
        /// Description of the damage, with the name of the segment if there is one.
        what: String,
    },
}

impl BodyLog {
    /// Opens the log in `dir`, which is created if necessary. Its end is at least `least_end`, so
    /// that positions are never reused. Fails with [`firn_model::error::ErrorKind::Unavailable`].
    pub fn open(env: Env, dir: &Path, least_end: u64) -> Result<Self, Error> {
        Self::open_with(env, dir, least_end, SEGMENT_BYTES)
    }

    fn open_with(env: Env, dir: &Path, least_end: u64, segment_bytes: u64) -> Result<Self, Error> {
        let failed = |what: &str, e: &io::Error| {
            Error::unavailable(format!("{what} {}: {e}", dir.display()))
        };
        env.disk
            .create_dir_all(dir)
            .map_err(|e| failed("create", &e))?;
        let taken = env.disk.lock(&dir.join("lock"));
        let taken = taken.map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => {
                Error::unavailable(format!("{} is in use by another process", dir.display()))
            }
            _ => failed("lock", &e),
        })?;
        let segments = find_segments(&env, dir).map_err(|e| failed("read", &e))?;
        let end = segments.back().map_or(0, |last| last.end).max(least_end);
        Ok(Self(Arc::new(BodyLogShared {
            env,
            dir: dir.to_owned(),
            segment_bytes,
            state: Mutex::new(BodyLogState {
                segments,
                file: None,
                recent: VecDeque::new(),
                pending: VecDeque::new(),
                is_committing: false,
                fault: None,
            }),
            end: watch::Sender::new(end),
            _lock: taken,
        })))
    }

    /// Returns the position after the newest durable body.
    pub fn end(&self) -> u64 {
        *self.0.end.borrow()
    }

    /// Returns a receiver that follows [`BodyLog::end`].
    pub fn follow_end(&self) -> watch::Receiver<u64> {
        self.0.end.subscribe()
    }

    /// Returns the position of the oldest body.
    pub fn start(&self) -> u64 {
        let state = lock(&self.0.state);
        state.segments.front().map_or(self.end(), |s| s.start)
    }

    /// Returns the total length of the frames on disk in bytes, without the headers of segments.
    pub fn bytes(&self) -> u64 {
        let state = lock(&self.0.state);
        state.segments.iter().map(|s| s.end - s.start).sum()
    }

    /// Returns the error of the newest group if it could not be made durable.
    pub fn fault(&self) -> Option<String> {
        lock(&self.0.state)
            .fault
            .as_ref()
            .map(|f| f.message.clone())
    }

    /// Makes `write` durable, in the order of the calls, and passes the result to `done`. The
    /// number of pending bodies is bounded only by the callers that wait.
    pub fn append(&self, write: ReceivedWrite, done: Done) {
        let now = self.0.env.clock.monotonic();
        let time_ms = self.0.env.clock.now_ms();
        let mut state = lock(&self.0.state);
        if let Some(fault) = state.fault.as_ref().filter(|fault| now < fault.retry_at) {
            let message = fault.message.clone();
            drop(state);
            return done(Err(message));
        }
        state.pending.push_back(PendingBody {
            time_ms,
            write,
            done,
        });
        if std::mem::replace(&mut state.is_committing, true) {
            return;
        }
        drop(state);
        let shared = self.0.clone();
        let commit = Box::new(move || shared.commit());
        self.0.env.compute.spawn(JobKind::Log, commit);
    }

    /// Returns the bodies from `at` to the end of a group if they are still in memory. It returns
    /// about as many as a read from disk.
    pub fn recent(&self, at: u64) -> Option<Vec<BodyLogEntry>> {
        let groups: Vec<(u64, Bytes)> = {
            let state = lock(&self.0.state);
            let behind = state.recent.partition_point(|(start, _)| *start <= at);
            let from = state.recent.range(behind.checked_sub(1)?..);
            let near = from.take_while(|(start, _)| *start < at + CHUNK_BYTES);
            near.cloned().collect()
        };
        let mut entries: Vec<BodyLogEntry> = Vec::new();
        for (start, frames) in groups {
            // Groups are not contiguous if a write failed between them.
            if entries.last().is_some_and(|last| last.end != start) {
                break;
            }
            let mut offset = usize::try_from(at.saturating_sub(start)).ok()?;
            while let Some((time_ms, write, frame_bytes)) = own_frame(&frames, offset) {
                entries.push(BodyLogEntry {
                    at: start + offset as u64,
                    end: start + (offset + frame_bytes) as u64,
                    time_ms,
                    write,
                });
                offset += frame_bytes;
            }
        }
        (!entries.is_empty()).then_some(entries)
    }

    /// Reads some bodies from `at` on, about [`CHUNK_BYTES`] of them. Fails with the error of the
    /// disk.
    pub fn read(&self, at: u64) -> io::Result<BodyLogRead> {
        self.0.read(at)
    }

    /// Returns the end of the body at `at`, its arrival time, and the counts of its contents if
    /// they were stored. Only its length is validated, because it is used for bodies that are
    /// dropped. Fails if no body begins at `at`.
    pub fn peek(&self, at: u64) -> io::Result<(u64, TimestampMs, Option<WriteRequestContents>)> {
        let Some(segment) = self.0.segment_of(at) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let file = self.0.open_segment(segment.start)?;
        let mut prefix = [0; PEEKED_BYTES];
        let read = file.read_at(HEADER_BYTES as u64 + at - segment.start, &mut prefix)?;
        let prefix = prefix.get(..read).unwrap_or_default();
        match peek(prefix).map(|(bytes, time)| (at + bytes as u64, time)) {
            Some((end, time)) if end <= segment.end => Ok((end, time, peek_contents(prefix))),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Returns the end of the segment that contains `at`.
    pub fn segment_end(&self, at: u64) -> u64 {
        self.0.segment_of(at).map_or(self.end(), |s| s.end)
    }

    /// Removes segments whose bodies are all before `to`. The newest one is kept, because it
    /// determines the end of the log, unless the disk is full and its own bytes may be the cause.
    pub fn trim(&self, to: u64) -> io::Result<()> {
        self.remove(to, false)
    }

    /// Removes segments whose bodies are all before `to`, including the newest one. Reused
    /// positions are harmless when there are no cursors.
    pub fn clear(&self, to: u64) -> io::Result<()> {
        self.remove(to, true)
    }

    fn remove(&self, to: u64, is_all: bool) -> io::Result<()> {
        loop {
            let mut state = lock(&self.0.state);
            let may_be_last = (is_all || state.fault.is_some()) && !state.is_committing;
            let oldest = state.segments.front().filter(|oldest| oldest.end <= to);
            let Some(oldest) = oldest
                .copied()
                .filter(|_| may_be_last || state.segments.len() > 1)
            else {
                return Ok(());
            };
            state.segments.pop_front();
            drop(state);
            self.0.env.disk.remove_file(&self.0.path(oldest.start))?;
        }
    }
}

impl BodyLogState {
    /// Keeps a group in memory and drops the oldest ones beyond [`RECENT_BYTES_MAX`] in total.
    fn remember(&mut self, start: u64, frames: Bytes) {
        self.recent.push_back((start, frames));
        let mut bytes: usize = self.recent.iter().map(|(_, frames)| frames.len()).sum();
        while bytes > RECENT_BYTES_MAX
            && let Some((_, oldest)) = self.recent.pop_front()
        {
            bytes -= oldest.len();
        }
    }
}

impl BodyLogShared {
    fn path(&self, start: u64) -> PathBuf {
        self.dir.join(file_name(start))
    }

    fn segment_of(&self, at: u64) -> Option<BodyLogSegment> {
        let state = lock(&self.state);
        let mut segments = state.segments.iter().rev();
        segments
            .find(|segment| segment.start <= at)
            .filter(|segment| at < segment.end)
            .copied()
    }

    fn open_segment(&self, start: u64) -> io::Result<Arc<dyn DiskFile>> {
        self.env.disk.open(&self.path(start), OpenMode::Read)
    }

    fn read(&self, at: u64) -> io::Result<BodyLogRead> {
        let Some(segment) = self.segment_of(at) else {
            return Ok(self.gap(at));
        };
        let left = segment.end - at;
        let damaged = |what: &str| BodyLogRead::Damaged {
            to: segment.end,
            what: format!("{}: {what}", file_name(segment.start)),
        };
        let file = match self.open_segment(segment.start) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(damaged("it is missing")),
            Err(e) => return Err(e),
        };
        let offset = HEADER_BYTES as u64 + at - segment.start;
        let mut bytes = read_at(&*file, offset, left.min(CHUNK_BYTES))?;
        if let BodyLogFrame::Short(whole) = read_frame(&bytes, 0)
            && whole as u64 <= left
            && whole > bytes.len()
        {
            bytes = read_at(&*file, offset, whole as u64)?;
        }
        let (entries, rest) = entries_of(&bytes, at);
        match rest {
            _ if !entries.is_empty() => Ok(BodyLogRead::Entries(entries)),
            BodyLogFrame::Damaged(what) => Ok(damaged(what)),
            _ => Ok(damaged("it is truncated")),
        }
    }

    /// Describes a position outside all segments: the end of the log, or a lost segment.
    fn gap(&self, at: u64) -> BodyLogRead {
        let state = lock(&self.state);
        let next = state.segments.iter().map(|s| s.start).find(|s| *s > at);
        let end = *self.end.borrow();
        match next.or((at < end).then_some(end)) {
            None => BodyLogRead::Entries(Vec::new()),
            Some(to) => BodyLogRead::Damaged {
                to,
                what: "a segment is missing".into(),
            },
        }
    }
}
