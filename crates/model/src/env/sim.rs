//! A world in memory for tests and for `firn test promql`: deterministic, and as unkind as asked.

use super::{Clock, Compute, Job, Rng, Work};
use crate::sample::TimestampMs;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A clock that moves only when told.
#[derive(Debug, Default)]
pub struct SimClock(AtomicI64);

impl SimClock {
    /// Sets the time.
    pub fn set_ms(&self, now: TimestampMs) {
        self.0.store(now, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now_ms(&self) -> TimestampMs {
        self.0.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed).max(0) as u64)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, good enough to choose test cases.
#[derive(Debug)]
pub struct SimRng(AtomicU64);

impl SimRng {
    /// A generator that repeats by `seed`.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Rng for SimRng {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Runs everything at once on the calling thread.
#[derive(Debug, Default)]
pub struct Inline;

impl Compute for Inline {
    fn spawn(&self, _work: Work, job: Job) {
        job();
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        for i in 0..tasks {
            task(i);
        }
    }

    fn threads(&self) -> usize {
        1
    }
}
