//! The queue of records to write, and the state that appenders and the commit job share.
//!
//! Invariants: the writer is in [`LogQueueState`] unless a group is being committed, so there is at
//! most one commit job; while the writer is there and the log is not stalled, all queued records
//! are marked as followed by another record.

use super::metrics::LogMetrics;
use super::options::LogOptions;
use super::segment_list::LogSegmentList;
use super::stall::LogStall;
use super::writer::LogWriter;
use crate::error::StorageError;
use firn_model::env::Env;
use firn_model::log::{DurableCallbacks, LogBatch, LogPosition};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// An accepted record that waits to be written, with the callback to run once it is durable.
pub(crate) struct QueuedLogRecord {
    pub(super) position: LogPosition,
    pub(super) batch: LogBatch,
    /// Memory of the batch, in bytes.
    pub(super) bytes: usize,
    pub(super) done: DurableCallbacks,
}

/// State of the log behind its lock: the queue, the idle writer, and failures.
pub(super) struct LogQueueState {
    pub(super) queue: Vec<QueuedLogRecord>,
    /// Memory of the batches in the queue, in bytes.
    pub(super) queued_bytes: usize,
    pub(super) next: LogPosition,
    /// The newest durable position at the end of the last group.
    pub(super) durable: LogPosition,
    /// `None` while a group is committed.
    pub(super) writer: Option<Box<LogWriter>>,
    /// Number of threads that wait for a change.
    pub(super) waiting: u32,
    pub(super) poisoned: Option<String>,
    /// Set while the records of the queue cannot be written.
    pub(super) stalled: Option<LogStall>,
    pub(super) closed: bool,
    /// Time of the last check of the free space on the monotonic clock, and bytes accepted since.
    pub(super) looked_at: Duration,
    pub(super) bytes_since: usize,
    pub(super) disk_full: bool,
}

impl LogQueueState {
    /// Returns whether an append of `bytes` must wait because the queue is full.
    pub(super) fn must_wait_for(&self, bytes: usize, queue_bytes_max: usize) -> bool {
        // A stalled log accepts batches that were admitted before, because the head already
        // contains them.
        let full = self.queued_bytes > 0 && self.queued_bytes + bytes > queue_bytes_max;
        full && self.stalled.is_none() && self.refusal().is_none()
    }

    /// Takes the writer to commit the queued records. Returns `None` if there are none, if a job
    /// owns the writer, or if the log is stalled.
    pub(super) fn writer_for_queue(&mut self) -> Option<Box<LogWriter>> {
        let can_commit = !self.queue.is_empty() && self.stalled.is_none();
        self.writer.take_if(|_| can_commit)
    }

    /// Returns the reason why no record can be accepted, if there is one.
    pub(super) fn refusal(&self) -> Option<StorageError> {
        let poison = self.poison_error();
        poison.or(self.closed.then_some(StorageError::Closed))
    }

    /// Returns the error of a poisoned log, which accepts no records until restart.
    pub(super) fn poison_error(&self) -> Option<StorageError> {
        let cause = self.poisoned.clone()?;
        Some(StorageError::Poisoned { cause })
    }
}

/// The state shared by appenders, the commit job and the owner of the log.
pub(super) struct SharedLogState {
    pub(super) env: Env,
    pub(super) dir: PathBuf,
    pub(super) options: LogOptions,
    pub(super) segments: Arc<LogSegmentList>,
    pub(super) metrics: Arc<LogMetrics>,
    /// The newest segment that existed when the log was opened.
    pub(super) found_newest: LogPosition,
    pub(super) state: Mutex<LogQueueState>,
    /// Notified when the queue shrinks, when the writer is returned, and when the log is poisoned.
    pub(super) changed: Condvar,
}
