//! The local log: segments of checksummed records in one folder, group commit, recovery.
//!
//! An append queues a record. If nothing commits, a job on the log's thread is started that writes
//! everything queued, syncs once, calls the callbacks in order of position, and repeats until the
//! queue is empty: under load groups grow by themselves, and an idle log costs nothing.
//!
//! Invariants: a callback hears `Ok` only after its record is as durable as [`SyncMode`] promises;
//! positions ascend by one and none is given twice to two acknowledged records; a segment is not
//! written again after a failed write or sync (a retried sync may lie): what it held without being
//! durable is written again in a new one, from memory. Records that cannot be written wait
//! ([`stall`]), new ones are refused meanwhile, and reading goes on.

mod commit;
mod delta_codec;
mod local;
mod metrics;
mod queue;
pub(crate) mod record;
mod recovery;
pub(crate) mod segment;
mod segment_list;
mod stall;
mod tail;
mod writer;

#[cfg(test)]
mod tests;

pub use crate::file::frame::PAYLOAD_BYTES_MAX;
pub use local::LocalLog;
pub use metrics::LogMetrics;
pub use segment::SegmentInfo;

use firn_model::log::Position;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// When written records are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Before they are acknowledged: they survive power loss.
    Always,
    /// With the first group after so much time, and by [`LocalLog::sync`]: acknowledged records
    /// survive the end of the process; power loss costs at most what came since the last sync.
    Interval(Duration),
    /// When a segment is full and at a clean stop: records survive the end of the process only.
    None,
}

/// How a log behaves.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// When to sync.
    pub sync: SyncMode,
    /// A segment that has reached this size is closed. 64 MiB: a million samples a second make
    /// about 1.5 MB of records, so a segment lasts most of a minute at the highest rates and an
    /// hour at usual ones, trimming leaves at most so much behind, and a folder of 15 GB has 240
    /// files.
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
    /// Positions up to here were given, whatever is left of their records.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
