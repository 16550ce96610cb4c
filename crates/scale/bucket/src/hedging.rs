//! Second attempts of slow operations.
//!
//! Invariant: at most one second attempt per operation, and second attempts for at most
//! [`HEDGED_PERCENT_MAX`] percent of the operations. A store that becomes slow altogether therefore
//! gets few additional requests.

use firn_model::sync::lock;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::sleep;

/// Percentage of the operations that may have a second attempt.
const HEDGED_PERCENT_MAX: u32 = 5;

/// Number of latest durations from which the p99 is taken.
const DURATIONS_KEPT: usize = 256;

/// Number of durations without which there is no p99.
const DURATIONS_MIN: usize = 64;

/// Second attempts that may be saved up while operations are fast.
const SAVED_MAX: u32 = 8;

/// A running attempt.
pub(crate) type HedgedAttempt<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Latest durations of one kind of operation, and the second attempts that it may still have.
#[derive(Debug, Default)]
pub(crate) struct Hedging(Mutex<HedgingState>);

#[derive(Debug, Default)]
struct HedgingState {
    /// Ring of the latest durations, and the index of the next one.
    durations: Vec<Duration>,
    next_index: usize,
    /// Percents of a second attempt that were saved up.
    percents: u32,
}

impl Hedging {
    /// Adds the duration of an attempt that succeeded.
    pub(crate) fn observe(&self, took: Duration) {
        let mut state = lock(&self.0);
        let index = state.next_index;
        match state.durations.get_mut(index) {
            Some(oldest) => *oldest = took,
            None => state.durations.push(took),
        }
        state.next_index = (index + 1) % DURATIONS_KEPT;
    }

    /// Counts an operation. Returns the duration after which it may have a second attempt.
    pub(crate) fn start(&self) -> Option<Duration> {
        let mut state = lock(&self.0);
        state.percents = (state.percents + HEDGED_PERCENT_MAX).min(SAVED_MAX * 100);
        p99(&state.durations)
    }

    /// Returns whether a second attempt may start, and counts it.
    pub(crate) fn take(&self) -> bool {
        let mut state = lock(&self.0);
        let left = state.percents.checked_sub(100);
        state.percents = left.unwrap_or(state.percents);
        left.is_some()
    }
}

fn p99(durations: &[Duration]) -> Option<Duration> {
    if durations.len() < DURATIONS_MIN {
        return None;
    }
    let mut sorted = durations.to_vec();
    let index = sorted.len() * 99 / 100;
    Some(*sorted.select_nth_unstable(index).1)
}

/// Runs `first`, and after `wait` a second attempt if `second` returns one. Returns the first
/// result with the highest `rank`; a result of rank [`FINAL`] is not waited for.
pub(crate) async fn race<'a, T>(
    mut first: HedgedAttempt<'a, T>,
    wait: Option<Duration>,
    second: impl FnOnce() -> Option<HedgedAttempt<'a, T>>,
    rank: fn(&T) -> u8,
) -> T {
    let Some(wait) = wait else { return first.await };
    tokio::select! {
        biased;
        result = &mut first => return result,
        () = sleep(wait) => {}
    }
    let Some(mut second) = second() else {
        return first.await;
    };
    let (result, other) = tokio::select! {
        biased;
        result = &mut first => (result, second),
        result = &mut second => (result, first),
    };
    if rank(&result) >= FINAL {
        return result;
    }
    let last = other.await;
    if rank(&last) > rank(&result) {
        return last;
    }
    result
}

/// The rank of a result that no other attempt can improve.
pub(crate) const FINAL: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn after<'a>(ms: u32, result: u8) -> HedgedAttempt<'a, u8> {
        Box::pin(async move {
            sleep(ms * MS).await;
            result
        })
    }

    #[tokio::test(start_paused = true)]
    async fn race_returns_the_best_result_of_two_attempts() {
        // Results are their ranks.
        for (first, second, expected, took) in [
            ((1, 10), Some((1, 3)), 10, 1),
            ((50, 10), Some((1, 11)), 11, 6),
            ((50, 10), Some((1, 3)), 10, 50),
            ((50, 2), Some((60, 3)), 3, 65),
            ((50, 3), Some((60, 3)), 3, 65),
            ((50, 3), None, 3, 50),
        ] {
            let start = tokio::time::Instant::now();
            let second = || second.map(|(ms, rank)| after(ms, rank));
            let result = race(after(first.0, first.1), Some(5 * MS), second, |r| *r).await;
            let elapsed = start.elapsed().as_millis();
            assert_eq!((result, elapsed), (expected, took), "{first:?}");
        }
    }

    #[test]
    fn hedging_starts_after_the_p99_of_enough_durations() {
        let hedging = Hedging::default();
        for i in 1..DURATIONS_MIN as u32 {
            hedging.observe(i * MS);
        }
        assert_eq!(hedging.start(), None);
        hedging.observe(64 * MS);
        assert_eq!(hedging.start(), Some(64 * MS));
        for _ in 0..DURATIONS_KEPT - 2 {
            hedging.observe(7 * MS);
        }
        hedging.observe(9 * MS);
        hedging.observe(8 * MS);
        assert_eq!(
            hedging.start(),
            Some(7 * MS),
            "two of 256 are above the p99"
        );
    }

    #[test]
    fn hedges_are_at_most_five_percent_of_the_operations() {
        let hedging = Hedging::default();
        let mut taken = 0;
        for _ in 0..10_000 {
            hedging.start();
            taken += u32::from(hedging.take());
        }
        assert_eq!(taken, 500);
        for _ in 0..10_000 {
            hedging.start();
        }
        let saved = (0..100).filter(|_| hedging.take()).count();
        assert_eq!(saved, SAVED_MAX as usize);
    }
}
