//! The times of the samples that recent batches added. A cache of results uses them to determine
//! which of its results are still complete.
//!
//! ```text
//! batch:   4      7      9     12
//! oldest:  100    200    300   400      both ascend; a batch with an older sample removes the
//! batch 13 with the time 250:           entries before it that are not older than this sample
//!          100    200    250
//! ```
//!
//! Invariant: for every batch, the oldest time of all batches after it is at least the time of the
//! first entry after it. Entries are merged where that costs less than a second, or when there are
//! too many, so that the memory is limited; the times are then too old, never too new.

use crate::sync::{Mutex, lock};
use firn_model::sample::TimestampMs;
use std::collections::VecDeque;

/// Maximum distance of the oldest samples of batches that share an entry, in milliseconds.
const GRAIN_MS: i64 = 1_000;

/// Maximum number of entries, 16 bytes each. When it is reached, pairs are merged.
const ENTRIES_MAX: usize = 4_096;

/// The oldest times of the samples of recent batches. Every append records its batch before the
/// batch becomes visible.
#[derive(Debug, Default)]
pub(crate) struct AppendedTimes {
    entries: Mutex<VecDeque<AppendedTime>>,
}

/// The oldest time of the samples of all batches up to this one and after the previous entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AppendedTime {
    sequence: u64,
    oldest: TimestampMs,
}

impl AppendedTimes {
    /// Records that batch `sequence` contains no sample before `oldest`. Batches may be recorded in
    /// any order.
    pub(crate) fn record(&self, sequence: u64, oldest: TimestampMs) {
        let mut entries = lock(&self.entries);
        let end = entries.partition_point(|entry| entry.sequence < sequence);
        if entries.get(end).is_some_and(|later| later.oldest <= oldest) {
            return;
        }
        let start = entries
            .partition_point(|entry| entry.oldest < oldest)
            .min(end);
        entries.drain(start..end);
        let previous = start.checked_sub(1).map(|at| &mut entries[at]);
        if let Some(previous) = previous
            && oldest.saturating_sub(previous.oldest) < GRAIN_MS
        {
            previous.sequence = sequence;
            return;
        }
        entries.insert(start, AppendedTime { sequence, oldest });
        if entries.len() >= ENTRIES_MAX {
            merge_pairs(&mut entries);
        }
    }

    /// Returns a time such that no batch after `sequence` contains a sample before it: `i64::MAX`
    /// without such a batch.
    pub(crate) fn oldest_after(&self, sequence: u64) -> TimestampMs {
        let entries = lock(&self.entries);
        let first = entries.partition_point(|entry| entry.sequence <= sequence);
        entries
            .get(first)
            .map_or(TimestampMs::MAX, |entry| entry.oldest)
    }
}

/// Replaces each pair of neighbours by one entry with the time of the first, which is older, and
/// the batch of the second.
fn merge_pairs(entries: &mut VecDeque<AppendedTime>) {
    let all = entries.make_contiguous();
    let merged = all.chunks(2).map(|pair| AppendedTime {
        sequence: pair[pair.len() - 1].sequence,
        oldest: pair[0].oldest,
    });
    *entries = merged.collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    #[test]
    fn oldest_after_is_never_newer_than_a_sample_and_exact_without_merges() {
        for seed in 0..500 {
            let rng = SimRng::new(seed);
            let (times, mut batches) = (AppendedTimes::default(), Vec::new());
            let step = 1 + rng.next_below(3_000) as i64;
            for n in 0..300i64 {
                let late = if rng.one_in(10) {
                    rng.next_below(100_000) as i64
                } else {
                    0
                };
                batches.push((n as u64 + 1, n * step - late));
            }
            // Neighbours are recorded in another order.
            for at in (1..batches.len()).filter(|_| rng.one_in(3)) {
                batches.swap(at - 1, at);
            }
            for (sequence, oldest) in &batches {
                times.record(*sequence, *oldest);
            }
            for since in 0..=300u64 {
                let after = batches.iter().filter(|(sequence, _)| *sequence > since);
                let exact = after.map(|(_, oldest)| *oldest).min().unwrap_or(i64::MAX);
                let found = times.oldest_after(since);
                assert!(
                    found <= exact,
                    "seed {seed}, since {since}: {found}, {exact}"
                );
                let is_near = exact.saturating_sub(found) <= GRAIN_MS;
                assert!(is_near, "seed {seed}, since {since}: {found}, {exact}");
            }
        }
    }

    #[test]
    fn entries_are_limited_and_stay_older_than_their_samples() {
        let times = AppendedTimes::default();
        for sequence in 0..100_000u64 {
            times.record(sequence, sequence as i64 * GRAIN_MS);
        }
        assert!(lock(&times.entries).len() < ENTRIES_MAX);
        for since in (0..99_999u64).step_by(77) {
            let exact = (since as i64 + 1) * GRAIN_MS;
            let found = times.oldest_after(since);
            assert!(found <= exact, "since {since}: {found}");
        }
        // The newest entries are exact, because older ones are merged more often.
        assert!(times.oldest_after(99_900) > 99_000 * GRAIN_MS);
    }
}
