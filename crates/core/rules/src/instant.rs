//! Timestamps of rule evaluations, in nanoseconds since the epoch. Samples have milliseconds.
//!
//! The instants of a group are offset from multiples of its interval by nanoseconds. The offset is
//! visible in notifications and API responses. Timestamps of samples are rounded down to
//! milliseconds.

use firn_model::sample::TimestampMs;
use std::time::Duration;

const NANOS_PER_MS: i64 = 1_000_000;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A point in time, in nanoseconds since the Unix epoch. Evaluations and alerts use it; samples
/// have milliseconds. Arithmetic saturates at the limits of 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleInstant(i64);

impl RuleInstant {
    /// Creates an instant from nanoseconds since the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Creates an instant from milliseconds since the epoch; saturates if the nanoseconds overflow.
    pub const fn from_ms(ms: TimestampMs) -> Self {
        Self(ms.saturating_mul(NANOS_PER_MS))
    }

    /// Creates an instant from seconds since the epoch; saturates if the nanoseconds overflow.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(NANOS_PER_SECOND))
    }

    /// Returns the nanoseconds since the epoch.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Returns the milliseconds since the epoch, rounded down, the unit of sample timestamps.
    pub const fn ms(self) -> TimestampMs {
        self.0.div_euclid(NANOS_PER_MS)
    }

    /// Returns the seconds since the epoch, rounded down also for times before the epoch.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(NANOS_PER_SECOND)
    }

    /// Returns the instant that is `duration` later; saturates.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// Returns the instant that is `duration` earlier; saturates.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }

    /// Returns whether at least `duration` elapsed between `earlier` and this instant.
    pub fn has_elapsed_since(self, earlier: Self, duration: Duration) -> bool {
        self.0.saturating_sub(earlier.0) >= nanos(duration)
    }

    /// Returns the time elapsed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        let nanos = self.0.saturating_sub(earlier.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or_default())
    }
}

/// Returns the nanoseconds of a duration, at most `i64::MAX`, about 292 years.
fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instant_before_the_epoch_rounds_down() {
        let instant = RuleInstant::from_nanos(-1);
        assert_eq!((instant.ms(), instant.seconds()), (-1, -1));
        let instant = RuleInstant::from_nanos(1_999_999);
        assert_eq!((instant.ms(), instant.seconds()), (1, 0));
    }

    #[test]
    fn instant_at_the_ends_stops() {
        let end = RuleInstant::from_nanos(i64::MAX);
        assert_eq!(end.after(Duration::MAX), end);
        let start = RuleInstant::from_ms(i64::MIN);
        assert_eq!(start.before(Duration::from_secs(1)), start);
        assert!(end.has_elapsed_since(start, Duration::MAX));
        assert_eq!(start.since(end), Duration::ZERO);
    }
}
