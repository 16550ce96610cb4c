//! Tests of frames with random values, and of client and server over loopback.
//!
//! `FIRN_SEED=s` repeats one random case.

mod appends;
mod batches;
mod connections;
mod frames;
mod reads;
mod selections;
mod world;

/// Calls `check` with the seeds of a run.
fn for_seeds(count: u64, check: impl Fn(u64)) {
    let seed = std::env::var("FIRN_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds = seed.map_or(0..count, |seed| seed..seed + 1);
    for seed in seeds {
        println!("FIRN_SEED={seed}");
        check(seed);
    }
}
