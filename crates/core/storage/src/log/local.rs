//! [`LocalLog`]: the implementation of [`DurableLog`] on a local disk.

use super::commit::LogCommitJob;
use super::metrics::LogMetrics;
use super::options::LogOptions;
use super::queue::{LogQueueState, QueuedLogRecord, SharedLogState};
use super::record::LogRecordEncoder;
use super::recovery;
use super::segment::{self, LogSegmentInfo, LogSegmentReader};
use super::segment_list::LogSegmentList;
use super::stall::{LogStall, LogWriteFault};
use super::tail::LogSegmentTail;
use super::writer::LogWriter;
use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use crate::file::frame::PAYLOAD_BYTES_MAX;
use crate::manifest::Manifest;
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::log::{
    DurableCallbacks, DurableLog, LogBatch, LogFile, LogHealth, LogPosition, LogPositions,
    LogPressure, LogRecord, LogRecordReader,
};
use firn_model::metrics::{Collect, Gauge};
use firn_model::sample::TimeRange;
use firn_model::sync::{lock, wait};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Maximum time between two checks of the free space. A program that writes 500 MB/s uses less than
/// [`LogOptions::free_bytes_min`] in this time.
const LOOK_EACH: Duration = Duration::from_millis(250);

/// Maximum bytes of accepted batches between two checks of the free space.
const LOOK_BYTES: usize = 8 << 20;

/// File extension of a segment that the disk cannot read and the log does not need any more.
const UNREADABLE_EXTENSION: &str = "unreadable";

/// A log of segments in one folder of a local disk. Created by the store; appends from several
/// threads are queued and committed in groups.
pub struct LocalLog(pub(super) Arc<SharedLogState>);

impl LocalLog {
    /// Opens the log in the existing folder `dir`. Truncates a torn tail; damaged records are kept
    /// and reported when they are read.
    pub fn open(
        env: &Env,
        dir: &Path,
        options: LogOptions,
        metrics: Arc<LogMetrics>,
    ) -> Result<Self, StorageError> {
        let segments = Arc::new(LogSegmentList::new(metrics.clone()));
        let start = recovery::recover(env, dir, &options, &segments)?;
        let (next, found_newest) = (start.last.next(), start.found_newest);
        let writer = LogWriter::new(env, dir, &options, segments.clone(), metrics.clone(), start);
        let log = Self(Arc::new(SharedLogState {
            env: env.clone(),
            dir: dir.to_path_buf(),
            options,
            segments,
            metrics,
            found_newest,
            state: Mutex::new(LogQueueState {
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

    /// Returns the records after `trimmed` that exist according to the manifest but are in no
    /// segment. Gaps between segments are not searched for: reads find and report them.
    pub(crate) fn find_missing_records(
        &self,
        trimmed: LogPosition,
        known: &Manifest,
    ) -> Option<Damage> {
        if known.log > trimmed && self.0.found_newest < known.log {
            let path = self.0.dir.join(segment::file_name(known.log));
            let what = "the newest segment is missing or empty".to_owned();
            return Some(Damage::for_file(DamageKind::Log, &path, what));
        }
        let first = self.0.segments.first();
        let (from, to) = (trimmed.next(), known.logged.min(first.previous()));
        (from <= to).then(|| {
            let what = format!("records {} to {} are missing", from.0, to.0);
            // The time range is unknown, because the preceding records are gone too.
            Damage::for_file(DamageKind::Log, &self.0.dir, what)
                .with_time_range(Some(TimeRange::ALL))
        })
    }

    /// Returns the job that retries to write the waiting records; `None` if no records wait or the
    /// retry is not due. `at_once` ignores the time of the next retry.
    fn take_retry_job(&self, at_once: bool) -> Option<LogCommitJob> {
        let now = self.0.env.clock.monotonic();
        let mut state = lock(&self.0.state);
        let stall = state.stalled.as_ref()?;
        if !at_once && !stall.is_due(now) {
            return None;
        }
        let writer = state.writer.take()?;
        Some(LogCommitJob::new(self.0.clone(), writer))
    }

    /// Calls [`LogWriter::write_durability_mark`], unless records are being written or wait.
    fn write_durability_mark(&self) {
        let mut state = lock(&self.0.state);
        if !state.queue.is_empty() || state.poisoned.is_some() || state.stalled.is_some() {
            return;
        }
        let Some(writer) = state.writer.take() else {
            return;
        };
        drop(state);
        let mut commit = LogCommitJob::new(self.0.clone(), writer);
        if let Err(e) = commit.writer_mut().write_durability_mark() {
            // The next record carries the same mark, and its write reports the disk error.
            let _ = commit.writer_mut().rewind_to_last_group(&e);
        }
        self.0.return_writer(commit);
    }

    /// Starts a new segment after all appended records, unless the newest segment has no records
    /// yet.
    fn begin_segment(&self) -> Result<(), StorageError> {
        let mut state = lock(&self.0.state);
        let writer = loop {
            let stalled = state.stalled.as_ref().map(LogStall::refusal);
            if let Some(refusal) = state.refusal().or(stalled) {
                return Err(refusal);
            }
            let is_idle = state.queue.is_empty();
            match state.writer.take_if(|_| is_idle) {
                Some(writer) => break writer,
                None => state = self.wait_for_commit(state),
            }
        };
        drop(state);
        let mut commit = LogCommitJob::new(self.0.clone(), writer);
        let outcome = commit.writer_mut().rotate_unless_empty();
        if let Err(e) = &outcome
            && commit.writer_mut().rewind_to_last_group(e).is_none()
        {
            self.0.poison_log(e, Vec::new());
        }
        self.0.return_writer(commit);
        outcome
    }

    /// Returns the current segments, oldest first.
    pub fn segments(&self) -> Vec<LogSegmentInfo> {
        self.0.segments.all(&self.0.dir)
    }

    pub(super) fn open_segment(
        &self,
        segment: LogSegmentInfo,
    ) -> Result<LogSegmentReader, StorageError> {
        LogSegmentReader::open(&*self.0.env.disk, segment)
    }

    /// Returns the next record of a segment, and counts damage and unreadable segments.
    pub(super) fn next_record(
        &self,
        reader: &mut LogSegmentReader,
    ) -> Option<Result<LogRecord, StorageError>> {
        let item = reader.next();
        if reader.is_unreadable() {
            self.0.segments.note_unreadable(reader.first());
        }
        let item = item?;
        if item.is_err() {
            self.0.metrics.damages.inc();
        }
        Some(item)
    }

    /// Syncs all written records. Fails if the log cannot write.
    fn sync_written(&self) -> Result<(), StorageError> {
        let mut state = lock(&self.0.state);
        let writer = loop {
            let is_settled = state.queue.is_empty() || state.stalled.is_some();
            match state.writer.take_if(|_| is_settled) {
                Some(writer) => break writer,
                None => state = self.wait_for_commit(state),
            }
        };
        let stalled = state.stalled.as_ref().map(LogStall::refusal);
        let refusal = state.poison_error().or(stalled);
        drop(state);
        let mut commit = LogCommitJob::new(self.0.clone(), writer);
        let outcome = match refusal {
            Some(refusal) => Err(refusal),
            None => commit.writer_mut().sync().inspect_err(|e| {
                // Only a log that acknowledges records before it syncs them has unsynced records
                // here.
                self.0.poison_log(e, Vec::new());
            }),
        };
        self.0.return_writer(commit);
        outcome
    }

    /// Checks the free space and rejects appends while the disk is nearly full. A disk that does
    /// not report its free space counts as having enough.
    fn check_free_space(&self) -> Result<(), StorageError> {
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
                .is_some_and(|s| s.fault == LogWriteFault::NoRoom);
        self.0.metrics.disk_full.set(i64::from(is_shown));
        drop(state);
        match (was_full, full) {
            (false, true) => tracing::warn!(
                free,
                required,
                "disk nearly full: writes are rejected until space is free"
            ),
            (true, false) => tracing::info!(free, "disk has free space again: writes are accepted"),
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

    /// Waits until the commit job changes the state. Records that are held back for a following one
    /// are written first, because the caller's record may be that one.
    fn wait_for_commit<'a>(
        &'a self,
        mut state: MutexGuard<'a, LogQueueState>,
    ) -> MutexGuard<'a, LogQueueState> {
        if let Some(writer) = state.writer_for_queue() {
            drop(state);
            self.0.spawn(LogCommitJob::new(self.0.clone(), writer));
            return lock(&self.0.state);
        }
        state.waiting += 1;
        let mut state = wait(&self.0.changed, state);
        state.waiting -= 1;
        state
    }

    /// Removes the segments all of whose records are before `to`, oldest first.
    fn remove_before(&self, to: LogPosition) -> Result<(), StorageError> {
        // A removal is durable before the next one starts. Otherwise a crash could undo an older
        // removal and not a newer one, which would leave a gap.
        while self.0.segments.second().is_some_and(|second| second <= to) {
            let first = self.0.segments.first();
            self.discard(first)?;
            self.0.segments.remove(first);
        }
        Ok(())
    }

    /// Removes a segment. A segment that the disk could not read is renamed and kept instead: its
    /// records may be readable once the disk is repaired.
    fn discard(&self, first: LogPosition) -> Result<(), StorageError> {
        let disk = &*self.0.env.disk;
        if !self.0.segments.is_unreadable(first) {
            return segment::remove(disk, &self.0.dir, first);
        }
        let path = self.0.dir.join(segment::file_name(first));
        let aside = path.with_extension(UNREADABLE_EXTENSION);
        tracing::error!(file = %aside.display(), "keeping a log segment that the disk cannot read");
        disk.rename(&path, &aside)
            .and_then(|()| disk.sync_dir(&self.0.dir))
            .map_err(StorageError::io("set segment aside", &path))
    }
}

/// Returns an error if the record of `batch` is too large for a frame. An encoded record takes less
/// than twice the memory of the batch, so almost no batch has to be encoded for this check.
fn check_size(batch: &LogBatch) -> Result<(), StorageError> {
    if 2 * batch.memory_bytes() < PAYLOAD_BYTES_MAX {
        return Ok(());
    }
    let mut record = Vec::new();
    LogRecordEncoder::default().encode(batch, &mut record);
    match record.len() {
        ..=PAYLOAD_BYTES_MAX => Ok(()),
        bytes => Err(StorageError::RecordTooLarge {
            bytes,
            limit: PAYLOAD_BYTES_MAX,
        }),
    }
}

impl DurableLog for LocalLog {
    fn append(&self, batch: LogBatch, mut done: DurableCallbacks) {
        if let Err(refusal) = check_size(&batch) {
            return done.report_outcome(Err(refusal.into()));
        }
        let bytes = batch.memory_bytes();
        let mut state = lock(&self.0.state);
        while state.must_wait_for(bytes, self.0.options.queue_bytes_max) {
            state = self.wait_for_commit(state);
        }
        if let Some(refusal) = state.refusal() {
            drop(state);
            return done.report_outcome(Err(refusal.into()));
        }
        let stalled = state.stalled.as_ref().map(LogStall::refusal);
        let delayed = stalled.and_then(|refusal| Some((done.take_delayed()?, refusal)));
        let position = state.next;
        state.next = position.next();
        state.queued_bytes += bytes;
        state.bytes_since += bytes;
        let is_followed = batch.is_followed;
        self.0.metrics.queued_bytes.set(state.queued_bytes as i64);
        state.queue.push(QueuedLogRecord {
            position,
            batch,
            bytes,
            done,
        });
        let writer = if is_followed {
            None
        } else {
            state.writer_for_queue()
        };
        drop(state);
        if let Some(writer) = writer {
            self.0.spawn(LogCommitJob::new(self.0.clone(), writer));
        }
        if let Some((delayed, refusal)) = delayed {
            delayed(refusal.into());
        }
    }

    fn write_held_records(&self) {
        let writer = lock(&self.0.state).writer_for_queue();
        if let Some(writer) = writer {
            self.0.spawn(LogCommitJob::new(self.0.clone(), writer));
        }
    }

    fn check_append(&self) -> Result<(), Error> {
        let now = self.0.env.clock.monotonic();
        let state = lock(&self.0.state);
        if let Some(refusal) = state.refusal() {
            return Err(refusal.into());
        }
        let stalled = state.stalled.as_ref().map(LogStall::refusal);
        let is_old = now.saturating_sub(state.looked_at) >= LOOK_EACH;
        let must_look = state.disk_full || is_old || state.bytes_since >= LOOK_BYTES;
        drop(state);
        if let Some(stalled) = stalled {
            if let Some(commit) = self.take_retry_job(false) {
                self.0.spawn(commit);
            }
            return Err(stalled.into());
        }
        if must_look {
            self.check_free_space()?;
        }
        Ok(())
    }

    fn read_from(&self, from: LogPosition) -> Box<dyn LogRecordReader + '_> {
        Box::new(LogSegmentTail::new(self, from))
    }

    fn positions(&self) -> LogPositions {
        let (last, durable) = {
            let state = lock(&self.0.state);
            (state.next.previous(), state.durable)
        };
        let segments = &self.0.segments;
        LogPositions {
            first: segments.first(),
            last,
            durable,
            growing: segments.newest(),
            trims_from: segments.second().unwrap_or(LogPosition(u64::MAX)),
        }
    }

    /// Reads gauges, which follow the state under its lock: this is called for each batch.
    fn pressure(&self) -> LogPressure {
        let metrics = &self.0.metrics;
        let bytes_of = |gauge: &Gauge| u64::try_from(gauge.get()).unwrap_or(0);
        LogPressure {
            kept_bytes: bytes_of(&metrics.size_bytes),
            unsealed_bytes: bytes_of(&metrics.size_bytes),
            is_crowded: bytes_of(&metrics.queued_bytes) > self.0.options.queue_bytes_max as u64 / 2,
            is_disk_full: metrics.disk_full.get() > 0,
            free_bytes_min: self.0.options.free_bytes_min,
        }
    }

    fn health(&self) -> LogHealth {
        let state = lock(&self.0.state);
        if let Some(cause) = &state.poisoned {
            return LogHealth::Poisoned(cause.clone());
        }
        match &state.stalled {
            Some(stall) => stall.health(),
            None if state.disk_full => {
                LogHealth::NoRoom("free space is below the required minimum".to_owned())
            }
            None => LogHealth::Sound,
        }
    }

    /// Checks the free space, retries to write waiting records, and writes a mark that the newest
    /// records are durable.
    fn tick(&self) {
        // The state contains the result.
        let _ = self.check_free_space();
        if let Some(commit) = self.take_retry_job(false) {
            commit.run();
        }
        self.write_durability_mark();
    }

    /// Syncs all written records. In interval mode, only this call syncs an idle log.
    fn sync(&self) -> Result<(), Error> {
        Ok(self.sync_written()?)
    }

    fn begin_unit(&self) -> Result<(), Error> {
        Ok(self.begin_segment()?)
    }

    fn files(&self) -> Vec<LogFile> {
        let segments = self.segments().into_iter();
        let file = |segment: LogSegmentInfo| LogFile {
            path: segment.path,
            bytes: segment.bytes,
            is_complete: segment.next.is_some(),
        };
        segments.map(file).collect()
    }

    fn trim(&self, to: LogPosition) -> Result<(), Error> {
        let next = lock(&self.0.state).next;
        assert!(
            to <= next,
            "a trim to {} behind the last record {}",
            to.0,
            next.0
        );
        Ok(self.remove_before(to)?)
    }

    fn close(&self) -> Result<(), Error> {
        lock(&self.0.state).closed = true;
        if let Some(commit) = self.take_retry_job(true) {
            commit.run();
        }
        self.sync()
    }

    /// Closes the log without waiting. A local log has no other writer, so the records that are
    /// being written may become durable.
    fn abandon(&self) {
        lock(&self.0.state).closed = true;
    }

    fn remove_all(&self) -> Result<(), Error> {
        for segment in self.segments() {
            self.discard(segment.first)?;
        }
        self.0.segments.clear();
        let synced = self.0.env.disk.sync_dir(&self.0.dir);
        Ok(synced.map_err(StorageError::io("sync folder", &self.0.dir))?)
    }

    fn metrics(&self) -> &dyn Collect {
        &*self.0.metrics
    }
}
