//! What waits to be written, and what the log shares between those who append and the one who
//! commits.
//!
//! Invariant: the writer is in [`State`] unless a group is committed, so there is one committer.

use super::metrics::LogMetrics;
use super::options::LogOptions;
use super::segment_list::SegmentList;
use super::stall::Stall;
use super::writer::Writer;
use crate::error::StorageError;
use crate::file::frame::PAYLOAD_BYTES_MAX;
use firn_model::env::Env;
use firn_model::log::{OnDurable, Position};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A record that waits.
pub(crate) struct Queued {
    pub(super) position: Position,
    pub(super) payload: Vec<u8>,
    pub(super) done: OnDurable,
}

pub(super) struct State {
    pub(super) queue: Vec<Queued>,
    pub(super) queued_bytes: usize,
    pub(super) next: Position,
    /// As of the last group.
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
    pub(super) fn must_wait_for(&self, bytes: usize, queue_bytes_max: usize) -> bool {
        // A stalled log takes what was admitted before: it is in the head already.
        let full = self.queued_bytes > 0 && self.queued_bytes + bytes > queue_bytes_max;
        full && self.stalled.is_none() && self.refusal(bytes).is_none()
    }

    /// Why a record of `bytes` cannot be taken.
    pub(super) fn refusal(&self, bytes: usize) -> Option<StorageError> {
        if bytes > PAYLOAD_BYTES_MAX {
            return Some(StorageError::RecordTooLarge {
                bytes,
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        let poison = self.poison();
        poison.or(self.closed.then_some(StorageError::Closed))
    }

    pub(super) fn poison(&self) -> Option<StorageError> {
        let cause = self.poisoned.clone()?;
        Some(StorageError::Poisoned { cause })
    }
}

/// What appends, the committer and the owner share.
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
