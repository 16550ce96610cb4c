//! Moments as rules see them: nanoseconds since the epoch, where samples have milliseconds.
//!
//! A group's instants differ from whole multiples of its interval by an offset in nanoseconds,
//! which shows in what is sent and answered about alerts. Samples get the milliseconds below.

use firn_model::sample::TimestampMs;
use std::time::Duration;

const NANOS_PER_MS: i64 = 1_000_000;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A moment: nanoseconds since the epoch. Arithmetic stops at the ends of what fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(i64);

impl Instant {
    /// The moment `nanos` behind the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The moment `ms` behind the epoch.
    pub const fn from_ms(ms: TimestampMs) -> Self {
        Self(ms.saturating_mul(NANOS_PER_MS))
    }

    /// The moment `seconds` behind the epoch.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(NANOS_PER_SECOND))
    }

    /// Nanoseconds since the epoch.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// The whole milliseconds below, as samples have them.
    pub const fn ms(self) -> TimestampMs {
        self.0.div_euclid(NANOS_PER_MS)
    }

    /// The whole seconds below.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(NANOS_PER_SECOND)
    }

    /// The moment `duration` later.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// The moment `duration` earlier.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }

    /// Whether `duration` or more passed from `earlier` up to here.
    pub fn is_since(self, earlier: Self, duration: Duration) -> bool {
        self.0.saturating_sub(earlier.0) >= nanos(duration)
    }

    /// The time from `earlier` up to here; nothing if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        let nanos = self.0.saturating_sub(earlier.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or_default())
    }
}

/// Nanoseconds of a duration, as many as fit.
fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instant_before_the_epoch_rounds_down() {
        let instant = Instant::from_nanos(-1);
        assert_eq!((instant.ms(), instant.seconds()), (-1, -1));
        let instant = Instant::from_nanos(1_999_999);
        assert_eq!((instant.ms(), instant.seconds()), (1, 0));
    }

    #[test]
    fn instant_at_the_ends_stops() {
        let end = Instant::from_nanos(i64::MAX);
        assert_eq!(end.after(Duration::MAX), end);
        let start = Instant::from_ms(i64::MIN);
        assert_eq!(start.before(Duration::from_secs(1)), start);
        assert!(end.is_since(start, Duration::MAX));
        assert_eq!(start.since(end), Duration::ZERO);
    }
}
