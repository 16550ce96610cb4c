//! The records that wait to be written, and what appenders and the commit job share.
//!
//! Invariants: the writer is in [`State`] unless a group is committed, so there is one commit job;
//! while it is there and the log is not stalled, all records in the queue are followed by others.

use super::metrics::LogMetrics;
use super::options::LogOptions;
use super::segment_list::SegmentList;
use super::stall::Stall;
use super::writer::Writer;
use crate::error::StorageError;
use firn_model::env::Env;
use firn_model::log::{LogBatch, OnDurable, Position};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A record that waits.
pub(crate) struct Queued {
    pub(super) position: Position,
    pub(super) batch: LogBatch,
    /// Bytes of memory of the batch.
    pub(super) bytes: usize,
    pub(super) done: OnDurable,
}

pub(super) struct State {
    pub(super) queue: Vec<Queued>,
    /// Bytes of memory of the batches in the queue.
    pub(super) queued_bytes: usize,
    pub(super) next: Position,
    /// The newest durable position when the last group ended.
    pub(super) durable: Position,
    /// Away while a group is committed.
    pub(super) writer: Option<Box<Writer>>,
    /// Threads that sleep until something changes.
    pub(super) waiting: u32,
    pub(super) poisoned: Option<String>,
    /// Records of the queue cannot be written now.
    pub(super) stalled: Option<Stall>,
    pub(super) closed: bool,
    /// When the free space was looked at, on the monotonic clock, and bytes taken since.
    pub(super) looked_at: Duration,
    pub(super) bytes_since: usize,
    pub(super) disk_full: bool,
}

impl State {
    /// Whether there is no room for `bytes` more in the queue, and waiting makes some.
    pub(super) fn must_wait_for(&self, bytes: usize, queue_bytes_max: usize) -> bool {
        // A stalled log takes what was admitted before: it is in the head already.
        let full = self.queued_bytes > 0 && self.queued_bytes + bytes > queue_bytes_max;
        full && self.stalled.is_none() && self.refusal().is_none()
    }

    /// The writer, to commit what is queued; none if nothing is, if a job has the writer, or if the
    /// log is stalled.
    pub(super) fn writer_for_queue(&mut self) -> Option<Box<Writer>> {
        let can_commit = !self.queue.is_empty() && self.stalled.is_none();
        self.writer.take_if(|_| can_commit)
    }

    /// Why no record can be taken.
    pub(super) fn refusal(&self) -> Option<StorageError> {
        let poison = self.poison();
        poison.or(self.closed.then_some(StorageError::Closed))
    }

    /// Why no record can be taken until restart.
    pub(super) fn poison(&self) -> Option<StorageError> {
        let cause = self.poisoned.clone()?;
        Some(StorageError::Poisoned { cause })
    }
}

/// What appenders, the commit job and the owner share.
pub(super) struct Shared {
    pub(super) env: Env,
    pub(super) dir: PathBuf,
    pub(super) options: LogOptions,
    pub(super) segments: Arc<SegmentList>,
    pub(super) metrics: Arc<LogMetrics>,
    /// The newest segment with which it was opened.
    pub(super) found_newest: Position,
    pub(super) state: Mutex<State>,
    /// Signalled when the queue shrinks, when the writer comes back, and when the log is poisoned.
    pub(super) changed: Condvar,
}
