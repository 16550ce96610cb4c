//! The rate of a tenant's samples, averaged like Mimir's: each interval of 15 seconds has a weight
//! of a fifth.

use std::time::Duration;

/// Length of an interval in seconds.
const INTERVAL_SECONDS: u64 = 15;

/// Weight of the newest complete interval.
const WEIGHT: f64 = 0.2;

/// Number of intervals without samples after which the rate is negligible.
const INTERVALS_MAX: u64 = 1_000;

/// The moving average of complete intervals. Costs no time while there are no samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SampleRate {
    /// Number of the current interval since the start of the clock; `None` before the first sample.
    interval: Option<u64>,
    /// Samples of the current interval.
    samples: u64,
    /// Samples per second; `None` before the end of the first interval.
    average: Option<f64>,
}

impl SampleRate {
    /// Adds samples at the monotonic time `now`.
    pub(super) fn add(&mut self, samples: u64, now: Duration) {
        self.advance(now);
        self.interval.get_or_insert(interval_of(now));
        self.samples += samples;
    }

    /// Returns the samples per second at the monotonic time `now`; zero during the first interval.
    pub(super) fn per_second(&mut self, now: Duration) -> f64 {
        self.advance(now);
        self.average.unwrap_or_default()
    }

    /// Ends all intervals before `now`.
    fn advance(&mut self, now: Duration) {
        let Some(interval) = &mut self.interval else {
            return;
        };
        let passed = interval_of(now).saturating_sub(*interval);
        if passed == 0 {
            return;
        }
        *interval += passed;
        let newest = self.samples as f64 / INTERVAL_SECONDS as f64;
        self.samples = 0;
        let average = self
            .average
            .map_or(newest, |average| average + WEIGHT * (newest - average));
        let empty = (passed - 1).min(INTERVALS_MAX) as i32;
        self.average = Some(average * (1.0 - WEIGHT).powi(empty));
    }
}

fn interval_of(time: Duration) -> u64 {
    time.as_secs() / INTERVAL_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_the_average_of_complete_intervals_and_falls_without_samples() {
        let mut rate = SampleRate::default();
        let at = Duration::from_secs;
        assert_eq!(rate.per_second(at(7)), 0.0);
        rate.add(150, at(100));
        rate.add(150, at(104));
        assert_eq!(rate.per_second(at(104)), 0.0);
        assert_eq!(rate.per_second(at(105)), 20.0);
        rate.add(600, at(105));
        assert_eq!(rate.per_second(at(119)), 20.0);
        assert_eq!(rate.per_second(at(120)), 24.0);
        assert!((rate.per_second(at(150)) - 24.0 * 0.64).abs() < 1e-9);
        assert!(rate.per_second(at(1_000_000)) < 1e-9);
    }
}
