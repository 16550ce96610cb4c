//! The progress of the replay of a log during a start, for components that wait for it.

use super::LogPosition;
use std::sync::atomic::{AtomicU64, Ordering};

/// The range of records that is replayed, and the progress. One thread replays and updates it; any
/// thread may read it.
#[derive(Debug, Default)]
pub struct LogReplayProgress {
    first: AtomicU64,
    last: AtomicU64,
    at: AtomicU64,
}

/// The values of [`LogReplayProgress`] at one moment. All are zero if there is nothing to replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogReplayPositions {
    /// The position of the first record that is replayed.
    pub first: LogPosition,
    /// The position of the last record that is replayed.
    pub last: LogPosition,
    /// The position of the newest record that was read.
    pub at: LogPosition,
}

impl LogReplayProgress {
    /// Starts the replay of the records from `first` to `last`. Does nothing if `last` is before
    /// `first`.
    pub fn begin(&self, first: LogPosition, last: LogPosition) {
        if first <= last {
            self.at.store(first.0, Ordering::Relaxed);
            self.last.store(last.0, Ordering::Relaxed);
            self.first.store(first.0, Ordering::Relaxed);
        }
    }

    /// Records that all records up to `at` were read.
    pub fn advance_to(&self, at: LogPosition) {
        self.at.fetch_max(at.0, Ordering::Relaxed);
    }

    /// Returns the current progress, which another thread may update at the same time.
    pub fn positions(&self) -> LogReplayPositions {
        let of = |place: &AtomicU64| LogPosition(place.load(Ordering::Relaxed));
        LogReplayPositions {
            first: of(&self.first),
            last: of(&self.last),
            at: of(&self.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaying_goes_from_the_first_record_to_the_last() {
        let replaying = LogReplayProgress::default();
        replaying.begin(LogPosition(1), LogPosition(0));
        assert_eq!(replaying.positions(), LogReplayPositions::default());
        replaying.begin(LogPosition(5), LogPosition(9));
        assert_eq!(replaying.positions().at, LogPosition(5));
        replaying.advance_to(LogPosition(8));
        replaying.advance_to(LogPosition(7));
        let expected = LogReplayPositions {
            first: LogPosition(5),
            last: LogPosition(9),
            at: LogPosition(8),
        };
        assert_eq!(replaying.positions(), expected);
    }
}
