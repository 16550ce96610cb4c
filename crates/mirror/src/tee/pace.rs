//! How many lanes a target asks for, by how fast bodies come and go, as Prometheus reckons its
//! shards: to take what comes, and a twentieth of what waits, each second.
//!
//! The number is shown, not acted upon: a round has as many lanes as there are full requests. One
//! beyond what is allowed says that the target takes less than what comes.

use std::time::Duration;

/// Between two looks: Prometheus's.
const PERIOD: Duration = Duration::from_secs(10);

/// What the newest period weighs.
const WEIGHT: f64 = 0.2;

/// The share of what waits that is to go in a second.
const CATCH_UP: f64 = 0.05;

/// How far a target is at some time.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    /// By the monotonic clock.
    pub at: Duration,
    /// Where bodies end.
    pub end: u64,
    /// Where the next one begins that it needs.
    pub cursor: u64,
    /// What its requests took up to now, all lanes together.
    pub busy: Duration,
}

/// Rates by the second.
#[derive(Debug, Default)]
pub struct Pace {
    last: Option<Tick>,
    /// Bytes that come, bytes that go, and seconds of lanes that this takes.
    rates: Option<(f64, f64, f64)>,
    /// Lanes that are asked for.
    pub desired: Option<f64>,
}

impl Pace {
    /// Looks anew, if it is time to.
    pub fn tick(&mut self, now: Tick) {
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

    /// The lanes after periods of 10 s: what came, what went and for how long requests were under
    /// way in each, in bytes and seconds.
    fn check(periods: &[(u64, u64, u64)], expected: Option<f64>) {
        let mut pace = Pace::default();
        let mut now = Tick {
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
        // Nothing went: what it would take is not known.
        check(&[(1000, 0, 0)], None);
        // One lane is busy for half of the time.
        check(&[(1000, 1000, 5)], Some(0.5));
        // Two lanes all the time for half of what comes, and 1,000 bytes are left.
        check(
            &[(2000, 1000, 20)],
            Some(2.0 / 100.0 * (200.0 + 0.05 * 1000.0)),
        );
        // As much again: twice as much waits.
        check(
            &[(2000, 1000, 20), (2000, 1000, 20)],
            Some(2.0 / 100.0 * (200.0 + 0.05 * 2000.0)),
        );
        // What went before is remembered while nothing goes.
        let goes = 100.0 * 0.8;
        check(
            &[(1000, 1000, 10), (0, 0, 0)],
            Some(0.8 / goes * 100.0 * 0.8),
        );
    }
}
