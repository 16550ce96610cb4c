//! Progress bar of a load on a terminal. It follows the data time of answered requests or, when a
//! directory is replayed, their number.

use super::metrics::LoadMetrics;
use super::options::{LoadAction, Options};
use super::trial::asking::LoadEndSignal;
use crate::error::MirrorError;
use crate::prepared;
use crate::progress::ProgressLine as Line;
use firn_model::metrics::DurationHistogram;
use std::time::{Duration, Instant};

/// Time between two updates of the bar.
const EVERY: Duration = Duration::from_millis(250);

/// The length of a load, which the full bar represents: data time or requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBarLength {
    /// Range of data time, for loads that are generated while they are sent.
    Time {
        /// Start of the range in milliseconds since the epoch.
        start_ms: i64,
        /// Length of the range in milliseconds.
        length_ms: i64,
    },
    /// Number of requests in the replayed directory, whose data time may be shifted.
    Requests(u64),
}

impl LoadBarLength {
    /// Determines the length of the load that `options` describe. Fails if the directory to replay
    /// cannot be read.
    pub fn from_options(options: &Options) -> Result<Self, MirrorError> {
        Ok(match &options.action {
            LoadAction::Replay(dir) => Self::Requests(prepared::read_summary(dir)?.requests),
            _ => Self::Time {
                start_ms: options.fleet.start_ms,
                length_ms: options.rounds as i64 * options.fleet.interval_ms,
            },
        })
    }

    /// Updates the bar several times a second until `end` is signalled.
    pub fn show_progress(self, shown: &LoadMetrics, end: &LoadEndSignal) {
        let line = Line::time();
        line.begin("", self.length() as usize);
        while end.wait_until(Instant::now() + EVERY) {
            let writes = &shown.writes;
            let answered = answers(&writes.push);
            let asked = answers(&shown.reads.instant) + answers(&shown.reads.range);
            let failed = writes.failures.get() + shown.reads.failures.get();
            line.set_position(
                self.done(writes.newest_answered_ms(), answered),
                format!("{answered} writes, {asked} queries, {failed} failed"),
            );
        }
    }

    fn length(self) -> u64 {
        match self {
            Self::Time { length_ms, .. } => length_ms.max(0).unsigned_abs(),
            Self::Requests(requests) => requests,
        }
    }

    /// Returns the completed part of the length, which is at most the length itself.
    fn done(self, answered_ms: i64, answered: u64) -> u64 {
        let done = match self {
            Self::Time { start_ms, .. } => answered_ms.saturating_sub(start_ms).max(0) as u64,
            Self::Requests(_) => answered,
        };
        done.min(self.length())
    }
}

fn answers(times: &DurationHistogram) -> u64 {
    times.bucket_counts().iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_is_as_long_as_the_load() {
        let time = LoadBarLength::Time {
            start_ms: 1_000,
            length_ms: 60_000,
        };
        for (bar, answered_ms, answered, expected) in [
            (time, i64::MIN, 0, 0),
            (time, 31_000, 9, 30_000),
            (time, 99_000, 9, 60_000),
            (LoadBarLength::Requests(10), 99_000, 4, 4),
            (LoadBarLength::Requests(10), 99_000, 11, 10),
        ] {
            let done = bar.done(answered_ms, answered);
            assert_eq!(done, expected, "{bar:?} {answered_ms} {answered}");
        }
    }
}
