//! Stalls: errors that prevent the log from writing for a while, and the times of its retries.
//!
//! ```text
//! sound -> no room (ENOSPC, EDQUOT)           retries in place, once a second
//!       -> failing (a write or sync: EIO ...) retries in a new segment, at once and then with
//!                                             growing pauses
//!       -> poisoned                           until restart
//! ```
//!
//! Invariant: while the log is stalled, every record that it accepted and did not write remains in
//! its queue, so that no record is missing between the records written before and after the stall.
//! A failing log becomes poisoned only if some records are neither durable nor in the queue, which
//! can happen only if the log acknowledges records before it syncs them.

use crate::error::StorageError;
use firn_model::log::LogHealth;
use std::time::Duration;

/// Kind of a failure, which determines how the log retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogWriteFault {
    /// There was no space for a write. Earlier records are unaffected.
    NoRoom,
    /// A write or sync failed. The segment is not written any more.
    Failed,
}

/// Time between retries without space, and between the first two retries of a failing disk.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum time between retries of a disk that keeps failing: each retry creates a file.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The reason why the log cannot write now, and the time of its next retry.
#[derive(Clone, Debug)]
pub(super) struct LogStall {
    pub(super) fault: LogWriteFault,
    pub(super) cause: String,
    attempts: u32,
    /// Time of the next retry on the monotonic clock.
    next: Duration,
}

impl LogStall {
    /// Returns a stall at time `now`. `before` is the stall that it continues, if any; it lengthens
    /// the pause.
    pub(super) fn new(
        fault: LogWriteFault,
        error: &StorageError,
        before: Option<&LogStall>,
        now: Duration,
    ) -> Self {
        let attempts = before.map_or(0, |stall| stall.attempts + 1);
        let pause = match fault {
            LogWriteFault::NoRoom => PAUSE,
            LogWriteFault::Failed => PAUSE.saturating_mul(1 << attempts.min(5)).min(PAUSE_MAX),
        };
        Self {
            fault,
            cause: error.to_string(),
            attempts,
            next: now.saturating_add(pause),
        }
    }

    /// Returns whether the next retry is due at time `now`.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        now >= self.next
    }

    /// Returns the error with which new records are rejected during the stall.
    pub(super) fn refusal(&self) -> StorageError {
        let cause = self.cause.clone();
        match self.fault {
            LogWriteFault::NoRoom => StorageError::NoRoom { cause },
            LogWriteFault::Failed => StorageError::Failing { cause },
        }
    }

    /// Returns the health of the log during the stall.
    pub(super) fn health(&self) -> LogHealth {
        match self.fault {
            LogWriteFault::NoRoom => LogHealth::NoRoom(self.cause.clone()),
            LogWriteFault::Failed => LogHealth::Failing(self.cause.clone()),
        }
    }

    /// Logs the stall once, with advice for the operator.
    pub(super) fn log_stall(&self) {
        match self.fault {
            LogWriteFault::NoRoom => tracing::warn!(
                cause = %self.cause,
                "no space for the log: writes are rejected until space is free; free space on the \
                 disk of the data folder"
            ),
            LogWriteFault::Failed => tracing::error!(
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
        let mut stall: Option<LogStall> = None;
        for _ in 0..7 {
            let next = LogStall::new(
                LogWriteFault::Failed,
                &error,
                stall.as_ref(),
                Duration::ZERO,
            );
            pauses.push(next.next.as_secs());
            stall = Some(next);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn stall_without_room_tries_each_second() {
        let error = StorageError::Closed;
        let first = LogStall::new(LogWriteFault::NoRoom, &error, None, Duration::ZERO);
        let second = LogStall::new(
            LogWriteFault::NoRoom,
            &error,
            Some(&first),
            Duration::from_secs(1),
        );
        assert!(!second.is_due(Duration::from_millis(1_999)));
        assert!(second.is_due(Duration::from_secs(2)));
    }
}
