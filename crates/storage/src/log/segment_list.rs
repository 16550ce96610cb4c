//! Which segments the log has, how far each may be read, and which the disk did not deliver.

use super::metrics::LogMetrics;
use super::segment::{SegmentInfo, file_name};
use firn_model::log::Position;
use firn_model::sync::lock;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The segments on disk.
pub(crate) struct SegmentList {
    /// The first position of each and the bytes that may be read, oldest first.
    segments: Mutex<Vec<(Position, u64)>>,
    /// The segments of which the disk did not deliver all.
    unreadable: Mutex<BTreeSet<Position>>,
    metrics: Arc<LogMetrics>,
}

impl SegmentList {
    /// An empty list that counts into `metrics`.
    pub(super) fn new(metrics: Arc<LogMetrics>) -> Self {
        Self {
            segments: Mutex::default(),
            unreadable: Mutex::default(),
            metrics,
        }
    }

    /// Adds the newest segment.
    pub(super) fn push(&self, first: Position, bytes: u64) {
        let mut segments = lock(&self.segments);
        segments.push((first, bytes));
        self.count(&segments);
    }

    /// The first position of the oldest segment.
    pub(super) fn first(&self) -> Position {
        let segments = lock(&self.segments);
        segments.first().map_or(Position(0), |segment| segment.0)
    }

    /// The first position of the newest segment.
    pub(super) fn newest(&self) -> Position {
        let segments = lock(&self.segments);
        segments.last().map_or(Position(0), |segment| segment.0)
    }

    /// The newest segment may be read up to `bytes`.
    pub(super) fn grow(&self, bytes: u64) {
        let mut segments = lock(&self.segments);
        if let Some(newest) = segments.last_mut() {
            newest.1 = bytes;
        }
        self.count(&segments);
    }

    /// The first position of the second-oldest segment: a trim to there removes the oldest one.
    pub(super) fn second(&self) -> Option<Position> {
        let segments = lock(&self.segments);
        segments.get(1).map(|segment| segment.0)
    }

    /// Takes the segment that begins with `first` off the list.
    pub(super) fn forget(&self, first: Position) {
        let mut segments = lock(&self.segments);
        segments.retain(|segment| segment.0 != first);
        self.count(&segments);
    }

    /// Notes that the disk did not deliver all of the segment that begins with `first`.
    pub(super) fn note_unreadable(&self, first: Position) {
        lock(&self.unreadable).insert(first);
    }

    /// Whether the disk did not deliver all of the segment that begins with `first`.
    pub(super) fn is_unreadable(&self, first: Position) -> bool {
        lock(&self.unreadable).contains(&first)
    }

    /// All segments of the log in `dir`, oldest first.
    pub(super) fn all(&self, dir: &Path) -> Vec<SegmentInfo> {
        let segments = lock(&self.segments).clone();
        let nexts = segments.iter().skip(1).map(|s| Some(s.0)).chain([None]);
        let info = |(&(first, bytes), next): (&(Position, u64), Option<Position>)| SegmentInfo {
            path: dir.join(file_name(first)),
            first,
            next,
            bytes,
        };
        segments.iter().zip(nexts).map(info).collect()
    }

    /// Takes all segments off the list.
    pub(super) fn clear(&self) {
        lock(&self.segments).clear();
    }

    fn count(&self, segments: &[(Position, u64)]) {
        self.metrics.segments.set(segments.len() as i64);
        let bytes: u64 = segments.iter().map(|s| s.1).sum();
        self.metrics.size_bytes.set(bytes as i64);
    }
}
