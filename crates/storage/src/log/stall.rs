//! What keeps the log from writing for a while, and when it tries again.
//!
//! ```text
//! sound -> no room (ENOSPC, EDQUOT)            tries again in place, once a second
//!       -> failing (a write or sync: EIO ...)  tries again in a new segment, at once and then with
//!                                              growing pauses
//!       -> poisoned                            until restart
//! ```
//!
//! Invariant: while the log is stalled every record that it took and did not write stays in its
//! queue, so that nothing is missing between what was written before and what is written after.
//! Failing becomes poisoned only where records are neither known to be durable nor in the queue any
//! more, which takes a log that acknowledges before it syncs.

use crate::error::StorageError;
use firn_model::log::LogHealth;
use std::time::Duration;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// There was no room for a write. What was written before is as it was.
    NoRoom,
    /// A write or sync failed: the segment is written no more.
    Failed,
}

/// Between attempts without room, and between the first two of a disk that fails.
const PAUSE: Duration = Duration::from_secs(1);

/// Between attempts of a disk that goes on failing: each makes a file.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Why the log cannot write now, and when it tries again.
#[derive(Clone, Debug)]
pub(super) struct Stall {
    pub(super) fault: Fault,
    pub(super) cause: String,
    attempts: u32,
    /// On the monotonic clock.
    next: Duration,
}

impl Stall {
    /// A stall that begins, or goes on after `before`, at `now`.
    pub(super) fn new(
        fault: Fault,
        error: &StorageError,
        before: Option<&Stall>,
        now: Duration,
    ) -> Self {
        let attempts = before.map_or(0, |stall| stall.attempts + 1);
        let pause = match fault {
            Fault::NoRoom => PAUSE,
            Fault::Failed => PAUSE.saturating_mul(1 << attempts.min(5)).min(PAUSE_MAX),
        };
        Self {
            fault,
            cause: error.to_string(),
            attempts,
            next: now.saturating_add(pause),
        }
    }

    /// Whether it is time for another attempt.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        now >= self.next
    }

    /// The error with which new records are refused.
    pub(super) fn refusal(&self) -> StorageError {
        let cause = self.cause.clone();
        match self.fault {
            Fault::NoRoom => StorageError::NoRoom { cause },
            Fault::Failed => StorageError::Failing { cause },
        }
    }

    /// The health of the log while it stalls.
    pub(super) fn health(&self) -> LogHealth {
        match self.fault {
            Fault::NoRoom => LogHealth::NoRoom(self.cause.clone()),
            Fault::Failed => LogHealth::Failing(self.cause.clone()),
        }
    }

    /// Logs the stall, once, with what the operator can do.
    pub(super) fn announce(&self) {
        match self.fault {
            Fault::NoRoom => tracing::warn!(
                cause = %self.cause,
                "no space for the log: writes are rejected until space is free; free space on the \
                 disk of the data folder"
            ),
            Fault::Failed => tracing::error!(
                cause = %self.cause,
                "disk error: writes are rejected and retried in a new log segment; acknowledged \
                 samples are safe. Check the system's log and the disk, and move the data folder \
                 to another disk if the error persists"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_of_a_failing_disk_pauses_longer_and_longer() {
        let error = StorageError::Closed;
        let mut pauses = Vec::new();
        let mut stall: Option<Stall> = None;
        for _ in 0..7 {
            let next = Stall::new(Fault::Failed, &error, stall.as_ref(), Duration::ZERO);
            pauses.push(next.next.as_secs());
            stall = Some(next);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn stall_without_room_tries_each_second() {
        let error = StorageError::Closed;
        let first = Stall::new(Fault::NoRoom, &error, None, Duration::ZERO);
        let second = Stall::new(Fault::NoRoom, &error, Some(&first), Duration::from_secs(1));
        assert!(!second.is_due(Duration::from_millis(1_999)));
        assert!(second.is_due(Duration::from_secs(2)));
    }
}
