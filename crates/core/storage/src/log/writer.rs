//! The writer of the log: one open segment, groups of records, one sync per group.
//!
//! The commit job owns the writer, so no lock is held during disk operations. Invariants: a segment
//! is synced before the next one is created; `durable` is never ahead of the last successful sync;
//! after an error the writer returns to the end of the last group that was written completely.

use super::delta_codec::DeltaRecordEncoder;
use super::metrics::LogMetrics;
use super::options::{LogOptions, LogSyncMode};
use super::queue::QueuedLogRecord;
use super::record::LogRecordEncoder;
use super::segment;
use super::segment_list::LogSegmentList;
use super::stall::LogWriteFault;
use crate::error::StorageError;
use crate::failpoints::{self, StoreFlaw};
use crate::file::frame::{self, FRAME_HEADER_BYTES, FrameKind, FramePlace, PAYLOAD_BYTES_MAX};
use crate::file::header::{self, FILE_HEADER_BYTES, SEGMENT_MAGIC};
use firn_model::env::{DiskFile, Env, OpenMode};
use firn_model::log::{LogBatch, LogPosition};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes collected for one write. A larger write is not faster and costs memory.
const WRITE_BYTES: usize = 1 << 20;

/// Maximum size of an encoded record whose buffer is kept for the next one, in bytes; requests take
/// kilobytes.
const CODED_BYTES_KEPT: usize = 1 << 20;

/// The state at which a writer continues after recovery.
pub(crate) struct LogWriterStart {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) first: LogPosition,
    pub(crate) offset: u64,
    pub(crate) last: LogPosition,
    /// The newest segment that existed before recovery.
    pub(crate) found_newest: LogPosition,
}

/// Name of a segment file until its header is durable.
const TEMPORARY: &str = "wal.tmp";

/// Writes and syncs groups of records to the newest segment. Owned by one commit job at a time.
pub(crate) struct LogWriter {
    env: Env,
    dir: PathBuf,
    sync: LogSyncMode,
    segment_bytes: u64,
    segments: Arc<LogSegmentList>,
    metrics: Arc<LogMetrics>,
    file: Arc<dyn DiskFile>,
    first: LogPosition,
    offset: u64,
    last: LogPosition,
    durable: LogPosition,
    /// The newest position that a written record marks as durable.
    vouched: LogPosition,
    /// End of the last group that was written completely: offset and position.
    kept: (u64, LogPosition),
    /// True if the last failed operation was a sync.
    has_failed_sync: bool,
    /// A segment whose creation failed; parts of it may exist.
    unfinished: Option<LogPosition>,
    last_sync: Duration,
    buffer: Vec<u8>,
    delta: DeltaRecordEncoder,
    record: LogRecordEncoder,
    /// Buffer of the record that is being written.
    coded: Vec<u8>,
}

impl LogWriter {
    /// Returns a writer that continues at `start`, up to which all records are durable.
    pub(crate) fn new(
        env: &Env,
        dir: &Path,
        options: &LogOptions,
        segments: Arc<LogSegmentList>,
        metrics: Arc<LogMetrics>,
        start: LogWriterStart,
    ) -> Self {
        Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            sync: options.sync,
            segment_bytes: options.segment_bytes,
            segments,
            metrics,
            file: start.file,
            first: start.first,
            offset: start.offset,
            last: start.last,
            durable: start.last,
            vouched: start.last.previous(),
            kept: (start.offset, start.last),
            has_failed_sync: false,
            unfinished: None,
            last_sync: env.clock.monotonic(),
            buffer: Vec::new(),
            delta: DeltaRecordEncoder::default(),
            record: LogRecordEncoder::default(),
            coded: Vec::new(),
        }
    }

    /// Writes a group in order and syncs it if the sync mode requires that. Skips records that an
    /// earlier attempt has written.
    pub(crate) fn write(&mut self, group: &[QueuedLogRecord]) -> Result<(), StorageError> {
        self.remove_unfinished()?;
        let written = self.last;
        for queued in group.iter().filter(|queued| queued.position > written) {
            self.last = queued.position;
            self.encode_batch(&queued.batch);
            if self.buffer.len() >= WRITE_BYTES {
                self.flush()?;
            }
            if self.offset + self.buffer.len() as u64 >= self.segment_bytes {
                self.rotate()?;
            }
        }
        self.flush()?;
        let due = match self.sync {
            LogSyncMode::Always => true,
            LogSyncMode::Interval(every) => self.env.clock.monotonic() >= self.last_sync + every,
            LogSyncMode::None => false,
        };
        if due {
            self.sync()?;
        }
        self.kept = (self.offset, self.last);
        self.segments.set_newest_bytes(self.offset);
        self.metrics.records.add(group.len() as u64);
        self.metrics.groups.inc();
        Ok(())
    }

    /// Starts a new segment, unless the current one has no records yet.
    pub(crate) fn rotate_unless_empty(&mut self) -> Result<(), StorageError> {
        if self.last < self.first {
            return Ok(());
        }
        self.sync()?;
        self.begin_segment()
    }

    /// Discards, after an error, everything written since the end of the last complete group.
    /// Returns how to continue, or `None` if the log must be poisoned, because records before that
    /// end are neither durable nor in the queue.
    pub(crate) fn rewind_to_last_group(&mut self, error: &StorageError) -> Option<LogWriteFault> {
        self.buffer.clear();
        self.delta.begin();
        (self.offset, self.last) = self.kept;
        match (error.is_disk_full(), self.has_failed_sync) {
            (true, false) => Some(LogWriteFault::NoRoom),
            (_, true) if self.durable < self.last => None,
            _ => Some(LogWriteFault::Failed),
        }
    }

    /// Prepares the writer for a retry after [`LogWriter::rewind_to_last_group`]. Without space,
    /// the remains of a failed write are cut off. After another failure the segment is left as it
    /// is, and the next one begins at its last complete group.
    pub(crate) fn prepare(&mut self, fault: LogWriteFault) -> Result<(), StorageError> {
        match fault {
            // The open file may have been replaced on disk.
            LogWriteFault::NoRoom if self.unfinished == Some(self.first) => self.begin_segment(),
            LogWriteFault::NoRoom => {
                self.remove_unfinished()?;
                let cut = self.truncate_at_end();
                cut.map_err(StorageError::io("cut segment", &self.path()))
            }
            LogWriteFault::Failed => {
                self.sync()?;
                self.begin_segment()
            }
        }
    }

    /// Truncates the file at the current offset, to remove the rest of a failed write.
    fn truncate_at_end(&self) -> std::io::Result<()> {
        if self.file.len()? > self.offset {
            self.file.set_len(self.offset)?;
        }
        Ok(())
    }

    /// Writes a frame that marks all records as durable, unless a record does so already. Without
    /// the mark, recovery cannot distinguish damage of the last records from a torn write. The
    /// frame is not synced, because it only has to outlive the process.
    pub(crate) fn write_durability_mark(&mut self) -> Result<(), StorageError> {
        if self.durable < self.last || self.vouched >= self.last {
            return Ok(());
        }
        let sector = self.file.sector_bytes();
        let least = self.offset + FRAME_HEADER_BYTES as u64;
        let zeros = least.next_multiple_of(sector) - least;
        let place = FramePlace {
            first: self.first,
            offset: self.offset,
        };
        let (position, zeros) = (self.last.next(), vec![0; zeros as usize]);
        frame::encode(
            place,
            position,
            0,
            FrameKind::Padding,
            &zeros,
            &mut self.buffer,
        );
        self.file
            .write_all_at(self.offset, &self.buffer)
            .map_err(StorageError::io("write segment", &self.path()))?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        self.vouched = self.last;
        self.kept = (self.offset, self.last);
        self.segments.set_newest_bytes(self.offset);
        Ok(())
    }

    /// Adds the record of `batch` to the buffer at the position `last`, delta-coded if possible.
    fn encode_batch(&mut self, batch: &LogBatch) {
        let mut coded = std::mem::take(&mut self.coded);
        let mut record = std::mem::take(&mut self.record);
        let (last, bytes_max) = (self.last, PAYLOAD_BYTES_MAX);
        let is_delta = (self.delta).encode(last, batch, bytes_max, &mut record, &mut coded);
        if !is_delta {
            record.encode(batch, &mut coded);
        }
        let kind = if is_delta {
            FrameKind::DeltaCoded
        } else {
            FrameKind::Log
        };
        self.encode(kind, &coded);
        if coded.capacity() <= CODED_BYTES_KEPT {
            (self.coded, self.record) = (coded, record);
        }
    }

    /// Adds a frame at the position `last` to the buffer.
    fn encode(&mut self, kind: FrameKind, payload: &[u8]) {
        let place = FramePlace {
            first: self.first,
            offset: self.offset + self.buffer.len() as u64,
        };
        let unsynced = self.last.previous().0.saturating_sub(self.durable.0);
        self.vouched = self.durable;
        frame::encode(
            place,
            self.last,
            u32::try_from(unsynced).unwrap_or(u32::MAX),
            kind,
            payload,
            &mut self.buffer,
        );
    }

    /// Pads the buffer to the end of a sector, so that this write and the next one can bypass the
    /// system's cache.
    fn pad(&mut self) {
        let sector = self.file.sector_bytes();
        let end = self.offset + self.buffer.len() as u64;
        if end.is_multiple_of(sector) {
            return;
        }
        let least = end + FRAME_HEADER_BYTES as u64;
        let zeros = least.next_multiple_of(sector) - least;
        self.encode(FrameKind::Padding, &vec![0; zeros as usize]);
    }

    /// Returns the newest durable position.
    pub(crate) fn durable(&self) -> LogPosition {
        self.durable
    }

    /// Syncs all written records, so that they are durable.
    pub(crate) fn sync(&mut self) -> Result<(), StorageError> {
        if self.durable == self.last {
            return Ok(());
        }
        let start = self.env.clock.monotonic();
        let synced = self.file.sync_data();
        self.has_failed_sync = synced.is_err();
        synced.map_err(StorageError::io("sync segment", &self.path()))?;
        self.last_sync = self.env.clock.monotonic();
        self.metrics
            .fsync_duration
            .observe(self.last_sync.saturating_sub(start));
        self.durable = self.last;
        Ok(())
    }

    /// Pads the buffer to a sector and writes it to the segment, without a sync.
    fn flush(&mut self) -> Result<(), StorageError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.pad();
        self.file
            .write_all_at(self.offset, &self.buffer)
            .map_err(StorageError::io("write segment", &self.path()))?;
        self.offset += self.buffer.len() as u64;
        self.metrics.written_bytes.add(self.buffer.len() as u64);
        self.buffer.clear();
        Ok(())
    }

    /// Writes and syncs the current segment, and starts the next one.
    fn rotate(&mut self) -> Result<(), StorageError> {
        self.flush()?;
        self.sync()?;
        self.kept = (self.offset, self.last);
        self.segments.set_newest_bytes(self.offset);
        self.begin_segment()
    }

    /// Starts a new segment after the last record, which must be durable.
    fn begin_segment(&mut self) -> Result<(), StorageError> {
        let first = self.last.next();
        // A leftover of a failed attempt contains no acknowledged records, and is replaced.
        self.unfinished = Some(first);
        self.file = create_segment(&self.env, &self.dir, first, self.sync)?;
        self.unfinished = None;
        self.offset = FILE_HEADER_BYTES;
        self.kept = (self.offset, self.last);
        // A segment implies that all earlier ones are durable.
        self.vouched = self.last;
        if !failpoints::has(StoreFlaw::KeepsContext) {
            self.delta.begin();
        }
        if std::mem::replace(&mut self.first, first) == first {
            self.segments.set_newest_bytes(self.offset)
        } else {
            self.segments.push(first, self.offset)
        }
        Ok(())
    }

    /// Removes a segment whose creation failed, durably. Readers would otherwise take its name as
    /// the end of the segment that receives the next records.
    fn remove_unfinished(&mut self) -> Result<(), StorageError> {
        if let Some(first) = self.unfinished {
            segment::remove(&*self.env.disk, &self.dir, first)?;
            self.unfinished = None;
        }
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.dir.join(segment::file_name(self.first))
    }
}

/// Creates the segment that begins with `first` and replaces an existing one; its header and its
/// name are durable on return. The file gets the name of a segment only after its header is
/// durable, so no segment is without a header.
pub(crate) fn create_segment(
    env: &Env,
    dir: &Path,
    first: LogPosition,
    sync: LogSyncMode,
) -> Result<Arc<dyn DiskFile>, StorageError> {
    let disk = &*env.disk;
    let path = dir.join(segment::file_name(first));
    let temporary = dir.join(TEMPORARY);
    match disk.remove_file(&temporary) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            return Err(StorageError::io("remove segment", &temporary)(e));
        }
        _ => {}
    }
    let mode = match sync {
        LogSyncMode::Always => OpenMode::CreateNewDirect,
        LogSyncMode::Interval(_) | LogSyncMode::None => OpenMode::CreateNew,
    };
    let file = disk
        .open(&temporary, mode)
        .map_err(StorageError::io("create segment", &path))?;
    file.write_all_at(0, &header::encode(&SEGMENT_MAGIC, first))
        .map_err(StorageError::io("write segment", &path))?;
    file.sync_data()
        .map_err(StorageError::io("sync segment", &path))?;
    disk.rename(&temporary, &path)
        .map_err(StorageError::io("create segment", &path))?;
    disk.sync_dir(dir)
        .map_err(StorageError::io("sync folder", dir))?;
    Ok(file)
}
