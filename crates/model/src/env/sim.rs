//! A world in memory for tests and for `firn test promql`: deterministic, and as unkind as asked.
//!
//! [`env`] puts one together. Everything in it follows from the seed and from what the test calls,
//! so a failure is repeated by its seed alone.

mod disk;

pub use disk::{Operation, SimDisk};

use super::{Clock, Compute, Env, Job, Rng, Work};
use crate::sample::TimestampMs;
use crate::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A simulated world and the handles by which a test moves it.
#[derive(Clone, Debug)]
pub struct Sim {
    /// What the code under test gets.
    pub env: Env,
    /// Its clock; stands at zero.
    pub clock: Arc<SimClock>,
    /// Its disk; empty.
    pub disk: Arc<SimDisk>,
}

/// A world that repeats by `seed`; compute runs inline.
pub fn env(seed: u64) -> Sim {
    env_with(seed, Arc::new(Inline))
}

/// A world that repeats by `seed` and runs jobs on `compute`.
pub fn env_with(seed: u64, compute: Arc<dyn Compute>) -> Sim {
    let clock = Arc::new(SimClock::default());
    let disk = Arc::new(SimDisk::new(seed));
    Sim {
        env: Env {
            clock: clock.clone(),
            rng: Arc::new(SimRng::new(seed)),
            disk: disk.clone(),
            compute,
        },
        clock,
        disk,
    }
}

/// A clock that moves only when told.
#[derive(Debug, Default)]
pub struct SimClock(AtomicI64);

impl SimClock {
    /// Sets the time.
    pub fn set_ms(&self, now: TimestampMs) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// Moves the time on.
    pub fn advance_ms(&self, by: i64) {
        self.0.fetch_add(by, Ordering::Relaxed);
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

    /// A number below `bound`, which is not zero.
    pub fn below(&self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// True once in `n` times.
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
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

/// Keeps jobs until [`Deferred::run`], so that a test decides what happens between the request and
/// the work. Compute tasks run inline.
#[derive(Default)]
pub struct Deferred(Mutex<VecDeque<(Work, Job)>>);

impl Deferred {
    /// Runs the jobs that wait and those that they spawn, oldest first; the log's before all
    /// others, which may wait for them.
    pub fn run(&self) {
        while let Some(job) = self.pop() {
            job();
        }
    }

    /// Runs only the jobs for `only` that wait and those that they spawn: the other threads stand
    /// still meanwhile.
    pub fn run_only(&self, only: Work) {
        while let Some(job) = self.pop_of(only) {
            job();
        }
    }

    /// Drops the jobs that wait: the process ended before they began.
    pub fn discard(&self) {
        while let Some(job) = self.pop() {
            drop(job);
        }
    }

    fn pop(&self) -> Option<Job> {
        let mut jobs = lock(&self.0);
        let of_log = jobs.iter().position(|(work, _)| *work == Work::Log);
        jobs.remove(of_log.unwrap_or(0)).map(|(_, job)| job)
    }

    fn pop_of(&self, only: Work) -> Option<Job> {
        let mut jobs = lock(&self.0);
        let at = jobs.iter().position(|(work, _)| *work == only)?;
        jobs.remove(at).map(|(_, job)| job)
    }
}

impl Compute for Deferred {
    fn spawn(&self, work: Work, job: Job) {
        let mut jobs = lock(&self.0);
        jobs.push_back((work, job));
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        Inline.for_each(tasks, task);
    }

    fn threads(&self) -> usize {
        1
    }
}
