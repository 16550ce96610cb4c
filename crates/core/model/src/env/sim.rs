//! A simulated environment for tests and for `firn test promql`. It is deterministic and injects
//! faults on request.
//!
//! [`sim_env`] creates an environment. Its behavior depends only on the seed and on the calls of
//! the test, so the seed reproduces a failure.

mod disk;

pub use disk::{SimDisk, SimDiskOperation};

use super::{Clock, Compute, Env, Job, JobKind, Rng};
use crate::sample::TimestampMs;
use crate::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A simulated environment, with handles for the test to control it.
#[derive(Clone, Debug)]
pub struct SimEnv {
    /// The environment for the code under test, which uses the clock and the disk below.
    pub env: Env,
    /// The clock of the environment, which starts at zero.
    pub clock: Arc<SimClock>,
    /// The disk of the environment, which is initially empty.
    pub disk: Arc<SimDisk>,
}

/// Creates an environment that is reproducible by `seed`. Compute tasks run inline.
pub fn sim_env(seed: u64) -> SimEnv {
    sim_env_with(seed, Arc::new(InlineCompute))
}

/// Creates an environment that is reproducible by `seed` and runs jobs on `compute`.
pub fn sim_env_with(seed: u64, compute: Arc<dyn Compute>) -> SimEnv {
    let clock = Arc::new(SimClock::default());
    let disk = Arc::new(SimDisk::new(seed));
    SimEnv {
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

/// A clock that advances only on request of the test.
#[derive(Debug, Default)]
pub struct SimClock(AtomicI64);

impl SimClock {
    /// Sets the time in milliseconds since the Unix epoch.
    pub fn set_ms(&self, now: TimestampMs) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// Advances the clock by the given number of milliseconds.
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

/// A pseudorandom generator, SplitMix64 (Steele, Lea, Flood 2014). It is small, seedable, and good
/// enough to choose test cases.
#[derive(Debug)]
pub struct SimRng(AtomicU64);

impl SimRng {
    /// Creates a generator whose numbers are reproducible by `seed`.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Returns a number below `bound`, which must not be zero.
    pub fn next_below(&self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// Returns true with the probability `1/n`, for random decisions of tests.
    pub fn one_in(&self, n: u64) -> bool {
        self.next_below(n) == 0
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

/// Runs all jobs and tasks immediately on the calling thread.
#[derive(Debug, Default)]
pub struct InlineCompute;

impl Compute for InlineCompute {
    fn spawn(&self, _work: JobKind, job: Job) {
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

/// Stores jobs until [`DeferredCompute::run`] is called, so that a test can act between the request
/// and the job. Compute tasks run inline.
#[derive(Default)]
pub struct DeferredCompute(Mutex<VecDeque<(JobKind, Job)>>);

impl DeferredCompute {
    /// Runs the waiting jobs and the jobs that they spawn, oldest first. Jobs of the log run before
    /// all others, which may wait for them.
    pub fn run(&self) {
        while let Some(job) = self.pop() {
            job();
        }
    }

    /// Runs only the waiting jobs for `only` and those that they spawn, as if the other threads
    /// were stopped.
    pub fn run_only(&self, only: JobKind) {
        while let Some(job) = self.pop_of(only) {
            job();
        }
    }

    /// Drops the waiting jobs, as if the process had ended before they started.
    pub fn discard(&self) {
        while let Some(job) = self.pop() {
            drop(job);
        }
    }

    fn pop(&self) -> Option<Job> {
        let mut jobs = lock(&self.0);
        let of_log = jobs.iter().position(|(work, _)| *work == JobKind::Log);
        jobs.remove(of_log.unwrap_or(0)).map(|(_, job)| job)
    }

    fn pop_of(&self, only: JobKind) -> Option<Job> {
        let mut jobs = lock(&self.0);
        let at = jobs.iter().position(|(work, _)| *work == only)?;
        jobs.remove(at).map(|(_, job)| job)
    }
}

impl Compute for DeferredCompute {
    fn spawn(&self, work: JobKind, job: Job) {
        let mut jobs = lock(&self.0);
        jobs.push_back((work, job));
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        InlineCompute.for_each(tasks, task);
    }

    fn threads(&self) -> usize {
        1
    }
}
