//! The options of a log.

use firn_model::log::LogPosition;
use std::time::Duration;

/// The time at which written records are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSyncMode {
    /// Before they are acknowledged. Acknowledged records survive a power loss.
    Always,
    /// With the first group after this interval, and by
    /// [`LocalLog::sync`](super::local::LocalLog::sync). Acknowledged records survive the end of
    /// the process; a power loss costs at most the records since the last sync.
    Interval(Duration),
    /// When a segment is full and at a clean stop. Records survive only the end of the process.
    None,
}

/// The options of a log, set by the store.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// When segments are synced. Decides whether acked records survive power loss.
    pub sync: LogSyncMode,
    /// Size at which a segment is closed, in bytes. 64 MiB: a million samples per second take about
    /// 1.5 MB of records per second, so a segment lasts about a minute at the highest rates and an
    /// hour at usual ones. Trimming leaves at most one such segment of old records, and a folder of
    /// 15 GB has 240 files.
    pub segment_bytes: u64,
    /// Memory of the batches that may wait while a group is written, in bytes; above it appends
    /// block. The group itself may take the same amount again. 32 MiB hold 1.5 million samples.
    pub queue_bytes_max: usize,
    /// Free space in bytes below which [`LocalLog::admit`](super::local::LocalLog::admit) rejects
    /// writes. Admitted records can then still be written, and sealing can still free space. Two
    /// segments: one to fill, one in reserve.
    pub free_bytes_min: u64,
    /// Positions start after this one, up to which pages cover the log. Opening the log removes the
    /// segments before it.
    pub start_after: LogPosition,
    /// The newest assigned position, even if its record is lost. New records get later ones.
    pub given: LogPosition,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            sync: LogSyncMode::Always,
            segment_bytes: 64 << 20,
            queue_bytes_max: 32 << 20,
            free_bytes_min: 128 << 20,
            start_after: LogPosition(0),
            given: LogPosition(0),
        }
    }
}
