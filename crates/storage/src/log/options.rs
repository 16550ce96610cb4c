//! How a log behaves.

use firn_model::log::Position;
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
    /// Bytes of memory of the batches that may wait while a group is written; beyond them writers
    /// wait. As much again may be in the group itself. 32 MiB: 1.5 million samples.
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
            queue_bytes_max: 32 << 20,
            free_bytes_min: 128 << 20,
            start_after: Position(0),
            given: Position(0),
        }
    }
}
