//! Tests of watermark, index and store with many thread interleavings, selected by seed.
//!
//! Each test runs its threads on one thread of the system, and a scheduler decides at every lock
//! and atomic which one continues. With the named flaw the same test must fail. `make
//! interleavings` runs them; `FIRN_SEED=s` starts at another seed. Interleavings that only weakly
//! ordered memory permits are not tested.
// A test fails by a panic, and its output is shown in that case.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod index;
mod store;
mod watermark;

use crate::failpoints::{StoreFlaw, with_flaw};
use crate::seeds::seeds;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Stack size of a thread: opening a store takes more than the default of 32 KiB.
const STACK_BYTES: usize = 1 << 20;

/// Maximum number of times that a thread is preempted: few races need more.
const CHANGES: usize = 3;

/// Runs `test` under `orders` fair interleavings, and as many in which one thread runs far ahead of
/// the others (Burckhardt et al. 2010). Repeats this with each of `flaws`, which must fail.
#[track_caller]
fn check(orders: usize, flaws: &[StoreFlaw], test: impl Fn() + Copy + Send + Sync + 'static) {
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
