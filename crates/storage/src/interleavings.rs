//! The orders in which threads may meet in watermark, index and store, tried by seed.
//!
//! Each test runs its threads on one thread of the system, and a scheduler decides at every lock
//! and atomic who goes on. With the flaw that it names the same test fails. `make interleavings`
//! runs them, `FIRN_SEED=s` begins at another seed; orders that only a weakly ordered memory shows
//! are not tried.
// A panic is how a test fails, and what it prints is shown when it does.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod index;
mod store;
mod watermark;

use crate::failpoints::{Flaw, with_flaw};
use crate::seeds::seeds;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of a thread's stack: opening a store takes more than the usual 32 KiB.
const STACK_BYTES: usize = 1 << 20;

/// How often a thread is held back for the others at most: few races need more.
const CHANGES: usize = 3;

/// Runs `test` under `orders` orders of its threads that are even, and as many in which one thread
/// runs far ahead of the others (Burckhardt et al. 2010); and with each of `flaws`, which must
/// fail.
#[track_caller]
fn check(orders: usize, flaws: &[Flaw], test: impl Fn() + Copy + Send + Sync + 'static) {
    let seed = seeds(1).start;
    let run = || {
        explore(PctScheduler::new_from_seed(seed, CHANGES, orders), test);
        explore(RandomScheduler::new_from_seed(seed, orders), test);
    };
    println!("FIRN_SEED={seed}");
    run();
    for flaw in flaws {
        let outcome = with_flaw(*flaw, || catch_unwind(AssertUnwindSafe(run)));
        assert!(outcome.is_err(), "{flaw:?} is missed");
    }
}

fn explore(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::Print;
    Runner::new(scheduler, config).run(test);
}
