//! The local log: segments of checksummed blocks in one folder, group commit, recovery.
//!
//! [`LocalLog::append`] queues a block. If nobody commits, a job on the log's thread is started
//! that writes everything queued, syncs once, calls the callbacks in order of position, and repeats
//! until the queue is empty: under load groups grow by themselves, and an idle log costs nothing.
//!
//! Invariants: a callback hears `Ok` only after its block is as durable as [`SyncMode`] promises;
//! positions ascend by one and none is given twice to two acknowledged blocks; a segment is written
//! no more after a failed write or sync (a retried sync may lie): what it held without being
//! durable is written again in a new one, from memory. Blocks that cannot be written wait
//! ([`stall`]), new ones are refused meanwhile, and reading goes on.
//! What a payload means is the head's affair; batches are condensed on their way to the disk.

pub(crate) mod block;
mod commit;
mod condense;
pub(crate) mod file_header;
mod metrics;
pub(crate) mod recovery;
pub(crate) mod scan;
pub(crate) mod segment;
mod stall;
mod tail;
mod writer;

#[cfg(test)]
mod tests;

pub use block::PAYLOAD_BYTES_MAX;
pub use metrics::LogMetrics;
pub use segment::SegmentInfo;
pub use stall::LogHealth;
pub(crate) use tail::Tail;

use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use crate::manifest::Manifest;
use commit::Commit;
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::log::{DurableLog, LogBlock, OnDurable, Position};
use firn_model::sample::TimeRange;
use stall::{Fault, Stall};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use writer::Writer;

/// When written blocks are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Before they are acknowledged: they survive power loss.
    Always,
    /// With the first group after so much time, and by [`LocalLog::sync`]: acknowledged blocks
    /// survive the end of the process; power loss costs at most what came since the last sync.
    Interval(Duration),
    /// When a segment is full and at a clean stop: blocks survive the end of the process only.
    None,
}

/// How a log behaves.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// When to sync.
    pub sync: SyncMode,
    /// A segment that has reached this size is closed. 64 MiB: a million samples a second make
    /// about 1.5 MB of blocks, so a segment lasts most of a minute at the highest rates and an hour
    /// at usual ones, trimming leaves at most so much behind, and a folder of 15 GB has 240 files.
    pub segment_bytes: u64,
    /// Payload bytes that may wait while a group is written; beyond them writers wait. As much
    /// again may be in the group itself. 16 MiB: a tenth of a second of a 160 MB/s disk.
    pub queue_bytes_max: usize,
    /// Below so many free bytes [`LocalLog::admit`] refuses, so that what was admitted can still be
    /// written and sealing can still free space. Two segments: one to fill, one for the rest.
    pub free_bytes_min: u64,
    /// Positions begin after this one, up to which pages cover the log. Segments before it are
    /// removed when the log is opened.
    pub start_after: Position,
    /// Positions up to here were given, whatever is left of their blocks.
    pub given: Position,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            sync: SyncMode::Always,
            segment_bytes: 64 << 20,
            queue_bytes_max: 16 << 20,
            free_bytes_min: 128 << 20,
            start_after: Position(0),
            given: Position(0),
        }
    }
}

/// Between two looks at the free space at most: another program that writes 500 MB/s takes less
/// meanwhile than [`LogOptions::free_bytes_min`].
const LOOK_EACH: Duration = Duration::from_millis(250);

/// Bytes taken between two looks at most.
const LOOK_BYTES: usize = 8 << 20;

/// Of a segment that the disk does not deliver and the log has no more use for.
const UNREADABLE_EXTENSION: &str = "unreadable";

/// A block that waits.
pub(crate) struct Queued {
    position: Position,
    payload: Vec<u8>,
    done: OnDurable,
}

/// The segments on disk, oldest first, with the bytes that may be read.
pub(crate) struct Catalog {
    segments: Mutex<Vec<(Position, u64)>>,
    /// Those of which the disk did not deliver all.
    unreadable: Mutex<BTreeSet<Position>>,
    metrics: Arc<LogMetrics>,
}

impl Catalog {
    fn push(&self, first: Position, bytes: u64) {
        let mut segments = lock(&self.segments);
        segments.push((first, bytes));
        self.count(&segments);
    }

    /// The newest one.
    fn newest(&self) -> Position {
        let segments = lock(&self.segments);
        segments.last().map_or(Position(0), |segment| segment.0)
    }

    /// The newest segment may be read up to `bytes`.
    fn grow(&self, bytes: u64) {
        let mut segments = lock(&self.segments);
        if let Some(newest) = segments.last_mut() {
            newest.1 = bytes;
        }
        self.count(&segments);
    }

    /// The oldest segment, if it holds nothing from `to` on and is not the newest one.
    fn oldest_before(&self, to: Position) -> Option<Position> {
        match **lock(&self.segments) {
            [(oldest, _), (next, _), ..] if next <= to => Some(oldest),
            _ => None,
        }
    }

    fn forget(&self, first: Position) {
        let mut segments = lock(&self.segments);
        segments.retain(|segment| segment.0 != first);
        self.count(&segments);
    }

    fn count(&self, segments: &[(Position, u64)]) {
        self.metrics.segments.set(segments.len() as i64);
        let bytes: u64 = segments.iter().map(|s| s.1).sum();
        self.metrics.size_bytes.set(bytes as i64);
    }
}

struct State {
    queue: Vec<Queued>,
    queued_bytes: usize,
    next: Position,
    /// As of the last group.
    durable: Position,
    /// Away while a group is committed.
    writer: Option<Box<Writer>>,
    /// Threads that sleep until something changes.
    waiting: u32,
    poisoned: Option<String>,
    /// Blocks of the queue cannot be written now.
    stalled: Option<Stall>,
    closed: bool,
    /// When the free space was looked at, on the monotonic clock, and bytes taken since.
    looked_at: Duration,
    bytes_since: usize,
    disk_full: bool,
}

impl State {
    fn must_wait_for(&self, bytes: usize, queue_bytes_max: usize) -> bool {
        // A stalled log takes what was admitted before: it is in the head already.
        let full = self.queued_bytes > 0 && self.queued_bytes + bytes > queue_bytes_max;
        full && self.stalled.is_none() && self.refusal(bytes).is_none()
    }

    /// Why a block of `bytes` cannot be taken.
    fn refusal(&self, bytes: usize) -> Option<StorageError> {
        if bytes > PAYLOAD_BYTES_MAX {
            return Some(StorageError::BlockTooLarge {
                bytes,
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        let poison = self.poison();
        poison.or(self.closed.then_some(StorageError::Closed))
    }

    fn poison(&self) -> Option<StorageError> {
        let cause = self.poisoned.clone()?;
        Some(StorageError::Poisoned { cause })
    }
}

struct Shared {
    env: Env,
    dir: PathBuf,
    options: LogOptions,
    catalog: Arc<Catalog>,
    metrics: Arc<LogMetrics>,
    /// The newest segment with which it was opened.
    found_newest: Position,
    state: Mutex<State>,
    /// Signalled when the queue shrinks, when the writer comes back, and when the log is poisoned.
    changed: Condvar,
}

/// See the module.
pub struct LocalLog(Arc<Shared>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalLog {
    /// Opens the log in `dir`, which exists. Cuts off a torn tail; what is damaged is kept and
    /// reported when it is read.
    pub fn open(
        env: &Env,
        dir: &Path,
        options: LogOptions,
        metrics: Arc<LogMetrics>,
    ) -> Result<Self, StorageError> {
        let catalog = Arc::new(Catalog {
            segments: Mutex::new(Vec::new()),
            unreadable: Mutex::default(),
            metrics: metrics.clone(),
        });
        let start = recovery::recover(env, dir, &options, &catalog)?;
        let (next, found_newest) = (start.last.next(), start.found_newest);
        let writer = Writer::new(env, dir, &options, catalog.clone(), metrics.clone(), start);
        let log = Self(Arc::new(Shared {
            env: env.clone(),
            dir: dir.to_path_buf(),
            options,
            catalog,
            metrics,
            found_newest,
            state: Mutex::new(State {
                queue: Vec::new(),
                queued_bytes: 0,
                next,
                durable: next.previous(),
                writer: Some(Box::new(writer)),
                waiting: 0,
                poisoned: None,
                stalled: None,
                closed: false,
                looked_at: Duration::ZERO,
                bytes_since: LOOK_BYTES,
                disk_full: false,
            }),
            changed: Condvar::new(),
        }));
        log.remove_before(options.start_after.next())?;
        Ok(log)
    }

    /// The first position that it still holds, or will give next.
    pub fn first_position(&self) -> Position {
        let segments = lock(&self.0.catalog.segments);
        segments.first().map_or(Position(0), |s| s.0)
    }

    /// The newest position given to a block, durable or not.
    pub fn last_position(&self) -> Position {
        lock(&self.0.state).next.previous()
    }

    /// The newest position that is known to be durable.
    pub fn durable_position(&self) -> Position {
        lock(&self.0.state).durable
    }

    /// The number of the segment that grows.
    pub(crate) fn newest_segment(&self) -> Position {
        self.0.catalog.newest()
    }

    /// What of `known` behind `trimmed` is in no segment, but for what lies between segments, which
    /// reading finds.
    pub(crate) fn missing(&self, trimmed: Position, known: &Manifest) -> Option<Damage> {
        if known.log > trimmed && self.0.found_newest < known.log {
            let path = self.0.dir.join(segment::file_name(known.log));
            let what = "the newest segment is missing or empty".to_owned();
            return Some(Damage::of_file(DamageKind::Log, &path, what));
        }
        let first = self.first_position();
        let (from, to) = (trimmed.next(), known.logged.min(first.previous()));
        (from <= to).then(|| {
            let what = format!("blocks {} to {} are missing", from.0, to.0);
            // Nobody knows of when: what stands before them is forgotten.
            Damage::of_file(DamageKind::Log, &self.0.dir, what).within(Some(TimeRange::ALL))
        })
    }

    /// Whether a trim to `to` would free anything.
    pub fn may_trim(&self, to: Position) -> bool {
        self.0.catalog.oldest_before(to).is_some()
    }

    /// Whether it refuses blocks because the disk is full or nearly so, as of the last look.
    pub fn is_disk_full(&self) -> bool {
        let state = lock(&self.0.state);
        let has_no_room = |stall: &Stall| stall.fault == Fault::NoRoom;
        state.disk_full || state.stalled.as_ref().is_some_and(has_no_room)
    }

    /// Whether it takes blocks, and why not.
    pub fn health(&self) -> LogHealth {
        let state = lock(&self.0.state);
        if let Some(cause) = &state.poisoned {
            return LogHealth::Poisoned(cause.clone());
        }
        match &state.stalled {
            Some(stall) => stall.health(),
            None if state.disk_full => {
                LogHealth::NoRoom("less space is free than must stay so".to_owned())
            }
            None => LogHealth::Sound,
        }
    }

    /// Does what nobody asks for: looks at the free space, tries again to write what could not be
    /// written, and says on disk that the newest blocks are durable. Its owner calls it once a
    /// second.
    pub fn tick(&self) {
        // The state says what the look found.
        let _ = self.look_at_free_space();
        if let Some(commit) = self.next_attempt(false) {
            commit.run();
        }
        self.vouch();
    }

    /// The job that writes what waits, if it is time to, or `at_once`.
    fn next_attempt(&self, at_once: bool) -> Option<Commit> {
        let now = self.0.env.clock.monotonic();
        let mut state = lock(&self.0.state);
        let stall = state.stalled.as_ref()?;
        if !at_once && !stall.is_due(now) {
            return None;
        }
        let writer = state.writer.take()?;
        Some(Commit::new(self.0.clone(), writer))
    }

    /// See [`Writer::vouch`]; not while anything is written or waits.
    fn vouch(&self) {
        let mut state = lock(&self.0.state);
        if !state.queue.is_empty() || state.poisoned.is_some() || state.stalled.is_some() {
            return;
        }
        let Some(writer) = state.writer.take() else {
            return;
        };
        drop(state);
        let mut commit = Commit::new(self.0.clone(), writer);
        if let Err(e) = commit.writer_mut().vouch() {
            // The next block says it too, and meets what is wrong with the disk.
            let _ = commit.writer_mut().step_back(&e);
        }
        self.0.give_back(commit);
    }

    /// Whether so much is queued that blocks of a few threads more might have to wait.
    pub fn is_crowded(&self) -> bool {
        lock(&self.0.state).queued_bytes > self.0.options.queue_bytes_max / 2
    }

    /// Below so many free bytes it refuses.
    pub fn free_bytes_min(&self) -> u64 {
        self.0.options.free_bytes_min
    }

    /// The segments as they are now, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let segments = lock(&self.0.catalog.segments).clone();
        let nexts = segments.iter().skip(1).map(|s| Some(s.0)).chain([None]);
        segments
            .iter()
            .zip(nexts)
            .map(|(&(first, bytes), next)| SegmentInfo {
                path: self.0.dir.join(segment::file_name(first)),
                first,
                next,
                bytes,
            })
            .collect()
    }

    /// Calls `each` for every block of `segment` in order; damage is an `Err` item that names the
    /// place, and reading goes on behind it. Segments may be read from several threads at once.
    pub fn read_segment(
        &self,
        segment: &SegmentInfo,
        each: &mut dyn FnMut(Result<LogBlock, Error>),
    ) -> Result<(), StorageError> {
        let mut reader = self.open_segment(segment.clone())?;
        while let Some(item) = self.next_block(&mut reader) {
            each(item.map_err(Error::from));
        }
        Ok(())
    }

    /// The blocks from `from` on, to be asked for one by one.
    pub(crate) fn tail_from(&self, from: Position) -> Tail<'_> {
        Tail::new(self, from)
    }

    fn open_segment(&self, segment: SegmentInfo) -> Result<segment::Reader, StorageError> {
        segment::Reader::open(&*self.0.env.disk, segment)
    }

    fn next_block(&self, reader: &mut segment::Reader) -> Option<Result<LogBlock, StorageError>> {
        let item = reader.next();
        if reader.is_unreadable() {
            lock(&self.0.catalog.unreadable).insert(reader.first());
        }
        let item = item?;
        if item.is_err() {
            self.0.metrics.damages.inc();
        }
        Some(item)
    }

    /// Makes all that was written durable. In interval mode an idle log is synced by nobody else,
    /// so its owner calls this from time to time; it does nothing when there is nothing to sync.
    pub fn sync(&self) -> Result<(), StorageError> {
        let mut state = lock(&self.0.state);
        let writer = loop {
            match state.writer.take() {
                Some(writer) => break writer,
                None => state = self.wait(state),
            }
        };
        let stalled = state.stalled.as_ref().map(Stall::refusal);
        let refusal = state.poison().or(stalled);
        drop(state);
        let mut commit = Commit::new(self.0.clone(), writer);
        let outcome = match refusal {
            Some(refusal) => Err(refusal),
            None => commit.writer_mut().sync().inspect_err(|e| {
                // Only a log that acknowledges before it syncs has anything to sync here.
                self.0.fail(e, Vec::new());
            }),
        };
        self.0.give_back(commit);
        outcome
    }

    /// A clean stop: takes no more blocks, waits until all are written, and syncs. Fails if the
    /// disk cannot write what waits.
    pub fn close(&self) -> Result<(), StorageError> {
        lock(&self.0.state).closed = true;
        if let Some(commit) = self.next_attempt(true) {
            commit.run();
        }
        self.sync()
    }

    /// Removes every segment, once the log is closed and all of it is sealed.
    pub fn remove_all(&self) -> Result<(), StorageError> {
        for segment in self.segments() {
            self.discard(segment.first)?;
        }
        lock(&self.0.catalog.segments).clear();
        self.0
            .env
            .disk
            .sync_dir(&self.0.dir)
            .map_err(StorageError::io("sync folder", &self.0.dir))
    }

    /// Refuses while the disk is nearly full. A disk that cannot say is taken to have space.
    fn look_at_free_space(&self) -> Result<(), StorageError> {
        let required = self.0.options.free_bytes_min;
        let free = self.0.env.disk.free_bytes(&self.0.dir).unwrap_or(u64::MAX);
        let full = free < required;
        let mut state = lock(&self.0.state);
        let was_full = std::mem::replace(&mut state.disk_full, full);
        (state.looked_at, state.bytes_since) = (self.0.env.clock.monotonic(), 0);
        let is_shown = full
            || state
                .stalled
                .as_ref()
                .is_some_and(|s| s.fault == Fault::NoRoom);
        self.0.metrics.disk_full.set(i64::from(is_shown));
        drop(state);
        match (was_full, full) {
            (false, true) => tracing::warn!(
                free,
                required,
                "disk nearly full: writes are refused and go on by themselves once it has room"
            ),
            (true, false) => tracing::info!(free, "disk has room: writes are taken again"),
            _ => {}
        }
        if !full {
            return Ok(());
        }
        Err(StorageError::DiskFull {
            path: self.0.dir.clone(),
            free,
            required,
        })
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let changed = self.0.changed.wait(state);
        let mut state = changed.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    fn remove_before(&self, to: Position) -> Result<(), StorageError> {
        // One is gone for good before the next one is touched: if a crash undid an older removal
        // and not a newer one, there would be a gap.
        while let Some(first) = self.0.catalog.oldest_before(to) {
            self.discard(first)?;
            self.0.catalog.forget(first);
        }
        Ok(())
    }

    /// Removes a segment. One that the disk did not deliver is kept under another name: what was in
    /// it may be had once the disk is mended.
    fn discard(&self, first: Position) -> Result<(), StorageError> {
        let disk = &*self.0.env.disk;
        if !lock(&self.0.catalog.unreadable).contains(&first) {
            return segment::remove(disk, &self.0.dir, first);
        }
        let path = self.0.dir.join(segment::file_name(first));
        let aside = path.with_extension(UNREADABLE_EXTENSION);
        tracing::error!(file = %aside.display(), "keep a segment that the disk does not deliver");
        disk.rename(&path, &aside)
            .and_then(|()| disk.sync_dir(&self.0.dir))
            .map_err(StorageError::io("set segment aside", &path))
    }
}

impl DurableLog for LocalLog {
    fn append(&self, payload: Vec<u8>, mut done: OnDurable) {
        let mut state = lock(&self.0.state);
        while state.must_wait_for(payload.len(), self.0.options.queue_bytes_max) {
            state = self.wait(state);
        }
        if let Some(refusal) = state.refusal(payload.len()) {
            drop(state);
            return done.done(Err(refusal.into()));
        }
        let stalled = state.stalled.as_ref().map(Stall::refusal);
        let delayed = stalled.and_then(|refusal| Some((done.take_delayed()?, refusal)));
        let position = state.next;
        state.next = position.next();
        state.queued_bytes += payload.len();
        state.bytes_since += payload.len();
        self.0.metrics.queued_bytes.set(state.queued_bytes as i64);
        state.queue.push(Queued {
            position,
            payload,
            done,
        });
        let is_stalled = state.stalled.is_some();
        let writer = state.writer.take_if(|_| !is_stalled);
        drop(state);
        if let Some(writer) = writer {
            self.0.spawn(Commit::new(self.0.clone(), writer));
        }
        if let Some((delayed, refusal)) = delayed {
            delayed(refusal.into());
        }
    }

    fn admit(&self) -> Result<(), Error> {
        let now = self.0.env.clock.monotonic();
        let state = lock(&self.0.state);
        if let Some(refusal) = state.refusal(0) {
            return Err(refusal.into());
        }
        let stalled = state.stalled.as_ref().map(Stall::refusal);
        let is_old = now.saturating_sub(state.looked_at) >= LOOK_EACH;
        let must_look = state.disk_full || is_old || state.bytes_since >= LOOK_BYTES;
        drop(state);
        if let Some(stalled) = stalled {
            if let Some(commit) = self.next_attempt(false) {
                self.0.spawn(commit);
            }
            return Err(stalled.into());
        }
        if must_look {
            self.look_at_free_space()?;
        }
        Ok(())
    }

    fn tail(
        &self,
        from: Position,
        each: &mut dyn FnMut(Result<LogBlock, Error>),
    ) -> Result<(), Error> {
        let mut tail = self.tail_from(from);
        while let Some(item) = tail.next()? {
            each(item.map_err(Error::from));
        }
        Ok(())
    }

    fn trim(&self, to: Position) -> Result<(), Error> {
        Ok(self.remove_before(to)?)
    }
}
