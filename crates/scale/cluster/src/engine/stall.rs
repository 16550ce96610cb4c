//! Outages: how long requests have failed, when to repeat them, and whether writes are rejected.

use super::options::BucketLogOptions;
use std::time::Duration;

/// The pause before the first repeat of a failed request, which doubles with each failure.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause: the bucket is used again soon after it is back.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The state of the requests to the bucket.
#[derive(Debug, Default)]
pub(super) struct BucketTrouble {
    /// Number of failures since a segment was stored.
    failures: u32,
    /// The time of the first failed creation since then.
    since: Option<Duration>,
    /// The text of the last failed creation.
    last_error: String,
    /// True while writes are rejected.
    pub(super) is_stalled: bool,
}

impl BucketTrouble {
    /// Records a failed creation, and returns the pause before its repeat.
    pub(super) fn record_failure(&mut self, now: Duration) -> Duration {
        self.since.get_or_insert(now);
        self.pause_longer()
    }

    /// Returns the pause before the repeat of a failed request. Reads that fail are no outage for
    /// writes.
    pub(super) fn pause_longer(&mut self) -> Duration {
        let doublings = self.failures.min(6);
        self.failures = self.failures.saturating_add(1);
        (PAUSE_MIN * (1 << doublings)).min(PAUSE_MAX)
    }

    /// Records the text of a failed creation.
    pub(super) fn record_error(&mut self, text: String) {
        self.last_error = text;
    }

    /// Records that the bucket stored a segment.
    pub(super) fn record_success(&mut self) {
        self.failures = 0;
        self.since = None;
    }

    /// Returns whether a request has failed since a segment was stored.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns whether the bucket does not store the log. `waits_since` is the time of the oldest
    /// record that is not durable.
    pub(super) fn is_outage(
        &self,
        options: &BucketLogOptions,
        now: Duration,
        waits_since: Option<Duration>,
    ) -> bool {
        let is_longer = |since: Option<Duration>, limit: Duration| {
            since.is_some_and(|since| now.saturating_sub(since) >= limit)
        };
        let is_failing = waits_since.is_some() && is_longer(self.since, options.failing_after);
        is_failing || is_longer(waits_since, options.slow_after)
    }

    /// Returns the reason for the rejection of writes.
    pub(super) fn reason(&self) -> &str {
        if self.last_error.is_empty() {
            "the bucket does not answer"
        } else {
            &self.last_error
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_up_to_its_limit_and_begins_anew_after_a_success() {
        let mut trouble = BucketTrouble::default();
        let mut pause = || trouble.record_failure(Duration::ZERO).as_millis();
        let pauses = [
            pause(),
            pause(),
            pause(),
            pause(),
            pause(),
            pause(),
            pause(),
        ];
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000]);
        trouble.record_success();
        assert_eq!(trouble.record_failure(Duration::ZERO).as_millis(), 50);
    }
}
