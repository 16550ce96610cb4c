//! The list of segments: how far each can be read, and which ones the disk failed to read.

use super::metrics::LogMetrics;
use super::segment::{LogSegmentInfo, file_name};
use firn_model::log::LogPosition;
use firn_model::sync::lock;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The segments on disk. Shared by the log, its writer and its readers.
pub(crate) struct LogSegmentList {
    /// First position and number of readable bytes of each segment, oldest first.
    segments: Mutex<Vec<(LogPosition, u64)>>,
    /// The segments that the disk failed to read completely.
    unreadable: Mutex<BTreeSet<LogPosition>>,
    metrics: Arc<LogMetrics>,
}

impl LogSegmentList {
    /// Returns an empty list that updates the gauges in `metrics`.
    pub(super) fn new(metrics: Arc<LogMetrics>) -> Self {
        Self {
            segments: Mutex::default(),
            unreadable: Mutex::default(),
            metrics,
        }
    }

    /// Adds the newest segment, which begins at position `first`, and updates the metrics.
    pub(super) fn push(&self, first: LogPosition, bytes: u64) {
        let mut segments = lock(&self.segments);
        segments.push((first, bytes));
        self.count(&segments);
    }

    /// Returns the first position of the oldest segment.
    pub(super) fn first(&self) -> LogPosition {
        let segments = lock(&self.segments);
        segments.first().map_or(LogPosition(0), |segment| segment.0)
    }

    /// Returns the first position of the newest segment.
    pub(super) fn newest(&self) -> LogPosition {
        let segments = lock(&self.segments);
        segments.last().map_or(LogPosition(0), |segment| segment.0)
    }

    /// Sets the number of readable bytes of the newest segment.
    pub(super) fn set_newest_bytes(&self, bytes: u64) {
        let mut segments = lock(&self.segments);
        if let Some(newest) = segments.last_mut() {
            newest.1 = bytes;
        }
        self.count(&segments);
    }

    /// Returns the first position of the second-oldest segment: a trim up to it removes the oldest
    /// one.
    pub(super) fn second(&self) -> Option<LogPosition> {
        let segments = lock(&self.segments);
        segments.get(1).map(|segment| segment.0)
    }

    /// Removes the segment that begins with `first` from the list.
    pub(super) fn remove(&self, first: LogPosition) {
        let mut segments = lock(&self.segments);
        segments.retain(|segment| segment.0 != first);
        self.count(&segments);
    }

    /// Records that the disk failed to read all of the segment that begins with `first`.
    pub(super) fn note_unreadable(&self, first: LogPosition) {
        lock(&self.unreadable).insert(first);
    }

    /// Returns whether the disk failed to read all of the segment that begins with `first`.
    pub(super) fn is_unreadable(&self, first: LogPosition) -> bool {
        lock(&self.unreadable).contains(&first)
    }

    /// Returns all segments of the log in `dir`, oldest first.
    pub(super) fn all(&self, dir: &Path) -> Vec<LogSegmentInfo> {
        let segments = lock(&self.segments).clone();
        let nexts = segments.iter().skip(1).map(|s| Some(s.0)).chain([None]);
        let info =
            |(&(first, bytes), next): (&(LogPosition, u64), Option<LogPosition>)| LogSegmentInfo {
                path: dir.join(file_name(first)),
                first,
                next,
                bytes,
            };
        segments.iter().zip(nexts).map(info).collect()
    }

    /// Removes all segments from the list, but not from the disk.
    pub(super) fn clear(&self) {
        lock(&self.segments).clear();
    }

    fn count(&self, segments: &[(LogPosition, u64)]) {
        self.metrics.segments.set(segments.len() as i64);
        let bytes: u64 = segments.iter().map(|s| s.1).sum();
        self.metrics.size_bytes.set(bytes as i64);
    }
}
