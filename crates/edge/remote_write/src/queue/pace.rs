//! Estimates the number of lanes that a target needs, as Prometheus estimates shards: enough to
//! deliver the incoming bodies and a twentieth of the backlog per second.
//!
//! The number is only exposed as a metric; a parcel has as many lanes as there are full requests. A
//! number above the allowed maximum shows that the target accepts less than arrives.

use std::time::Duration;

/// Time between two estimates of the number of lanes, as in Prometheus.
const PERIOD: Duration = Duration::from_secs(10);

/// Weight of the newest period in the moving averages, as in Prometheus.
const WEIGHT: f64 = 0.2;

/// Share of the backlog that is to be delivered per second.
const CATCH_UP: f64 = 0.05;

/// Progress of a target at one time, from which rates are calculated by differences.
#[derive(Clone, Copy, Debug)]
pub struct TargetProgress {
    /// Monotonic time of the observation, since the start of the clock.
    pub at: Duration,
    /// Position of the end of the log.
    pub end: u64,
    /// Position of the next body that the target needs.
    pub cursor: u64,
    /// Total duration of its requests so far, over all lanes.
    pub busy: Duration,
}

/// Moving averages of the rates of one target, updated by its observations.
#[derive(Debug, Default)]
pub struct TargetRates {
    last: Option<TargetProgress>,
    /// Bytes per second that arrive and are delivered, and busy lanes.
    rates: Option<(f64, f64, f64)>,
    /// Estimated number of lanes; `None` until a body has been delivered.
    pub desired: Option<f64>,
}

impl TargetRates {
    /// Updates the rates and the estimate if a period has passed since the last update.
    pub fn tick(&mut self, now: TargetProgress) {
        let Some(last) = self.last else {
            self.last = Some(now);
            return;
        };
        let passed = now.at.saturating_sub(last.at);
        if passed < PERIOD {
            return;
        }
        self.last = Some(now);
        let by_second = |amount: f64| amount / passed.as_secs_f64();
        let seen = (
            by_second(now.end.saturating_sub(last.end) as f64),
            by_second(now.cursor.saturating_sub(last.cursor) as f64),
            by_second(now.busy.saturating_sub(last.busy).as_secs_f64()),
        );
        let (before, weight) = match self.rates {
            None => (seen, 1.0),
            Some(before) => (before, WEIGHT),
        };
        let mix = |new: f64, old: f64| weight * new + (1.0 - weight) * old;
        let rates = (
            mix(seen.0, before.0),
            mix(seen.1, before.1),
            mix(seen.2, before.2),
        );
        self.rates = Some(rates);
        let (comes, goes, busy) = rates;
        if goes > 0.0 {
            let waits = now.end.saturating_sub(now.cursor) as f64;
            self.desired = Some(busy / goes * (comes + CATCH_UP * waits));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the number of lanes after periods of 10 s. Each period has the bytes that arrived,
    /// the bytes that were delivered, and the total duration of requests in seconds.
    fn check(periods: &[(u64, u64, u64)], expected: Option<f64>) {
        let mut pace = TargetRates::default();
        let mut now = TargetProgress {
            at: Duration::ZERO,
            end: 0,
            cursor: 0,
            busy: Duration::ZERO,
        };
        pace.tick(now);
        for (comes, goes, busy) in periods {
            now.at += PERIOD;
            now.end += comes;
            now.cursor += goes;
            now.busy += Duration::from_secs(*busy);
            pace.tick(now);
        }
        assert_eq!(pace.desired, expected, "{periods:?}");
    }

    #[test]
    fn lanes_are_those_that_take_what_comes_and_a_part_of_what_waits() {
        check(&[], None);
        // Nothing was delivered, so the required time is unknown.
        check(&[(1000, 0, 0)], None);
        // One lane is busy half of the time.
        check(&[(1000, 1000, 5)], Some(0.5));
        // Two lanes are always busy with half of the incoming bytes, and 1,000 bytes remain.
        check(
            &[(2000, 1000, 20)],
            Some(2.0 / 100.0 * (200.0 + 0.05 * 1000.0)),
        );
        // The same again: the backlog doubles.
        check(
            &[(2000, 1000, 20), (2000, 1000, 20)],
            Some(2.0 / 100.0 * (200.0 + 0.05 * 2000.0)),
        );
        // Earlier rates are kept while nothing is delivered.
        let goes = 100.0 * 0.8;
        check(
            &[(1000, 1000, 10), (0, 0, 0)],
            Some(0.8 / goes * 100.0 * 0.8),
        );
    }
}
