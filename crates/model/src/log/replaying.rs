//! The progress of the replay of a log during a start, for components that wait for it.

use super::Position;
use std::sync::atomic::{AtomicU64, Ordering};

/// The range of records that is replayed, and the progress. One thread replays and updates it; any
/// thread may read it.
#[derive(Debug, Default)]
pub struct Replaying {
    first: AtomicU64,
    last: AtomicU64,
    at: AtomicU64,
}

/// The values of [`Replaying`] at one moment. All are zero if there is nothing to replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The position of the first record that is replayed.
    pub first: Position,
    /// The position of the last record that is replayed.
    pub last: Position,
    /// The position of the newest record that was read.
    pub at: Position,
}

impl Replaying {
    /// Starts the replay of the records from `first` to `last`. Does nothing if `last` is before
    /// `first`.
    pub fn begin(&self, first: Position, last: Position) {
        if first <= last {
            self.at.store(first.0, Ordering::Relaxed);
            self.last.store(last.0, Ordering::Relaxed);
            self.first.store(first.0, Ordering::Relaxed);
        }
    }

    /// Records that all records up to `at` were read.
    pub fn reach(&self, at: Position) {
        self.at.fetch_max(at.0, Ordering::Relaxed);
    }

    /// Returns the current progress, which another thread may update at the same time.
    pub fn now(&self) -> Replayed {
        let of = |place: &AtomicU64| Position(place.load(Ordering::Relaxed));
        Replayed {
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
        let replaying = Replaying::default();
        replaying.begin(Position(1), Position(0));
        assert_eq!(replaying.now(), Replayed::default());
        replaying.begin(Position(5), Position(9));
        assert_eq!(replaying.now().at, Position(5));
        replaying.reach(Position(8));
        replaying.reach(Position(7));
        let expected = Replayed {
            first: Position(5),
            last: Position(9),
            at: Position(8),
        };
        assert_eq!(replaying.now(), expected);
    }
}
