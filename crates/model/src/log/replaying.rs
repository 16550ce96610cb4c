//! How far a log is replayed at a start, for those who wait for it.

use super::Position;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which part of a log is replayed, and how far: told by the thread that replays, asked by any.
#[derive(Debug, Default)]
pub struct Replaying {
    first: AtomicU64,
    last: AtomicU64,
    at: AtomicU64,
}

/// What [`Replaying`] says at one moment. All are zero if there is nothing to replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The first record.
    pub first: Position,
    /// The last one.
    pub last: Position,
    /// The newest one that was read.
    pub at: Position,
}

impl Replaying {
    /// Says that the records from `first` to `last` are going to be replayed; none if `last` comes
    /// before `first`.
    pub fn begin(&self, first: Position, last: Position) {
        if first <= last {
            self.at.store(first.0, Ordering::Relaxed);
            self.last.store(last.0, Ordering::Relaxed);
            self.first.store(first.0, Ordering::Relaxed);
        }
    }

    /// Says that the records up to `at` were read.
    pub fn reach(&self, at: Position) {
        self.at.fetch_max(at.0, Ordering::Relaxed);
    }

    /// How far it is.
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
