//! Compares a store with the partitions that divide its series.
//!
//! `FIRN_SEED=s` repeats one random history, and `FIRN_SEEDS=n` sets their number.

mod parts;
mod source;
mod world;

use super::routing::RoutingFlaw;
use world::PartitionWorld;

/// The seeds of an ordinary run, unless `FIRN_SEEDS` is set.
const SEEDS: u64 = 40;

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    match number("FIRN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FIRN_SEEDS").unwrap_or(SEEDS),
    }
}

/// Runs a random history on one store and on three partitions. Returns the first difference.
fn check(seed: u64, flaw: Option<RoutingFlaw>) -> Result<(), String> {
    let mut world = PartitionWorld::new(seed, flaw);
    for step in 0..60 {
        // Each store accepts late samples up to its own cut, and stores cut at different times.
        if world.has_blocks() {
            break;
        }
        let compared = world.step();
        compared.map_err(|difference| format!("FIRN_SEED={seed}, step {step}: {difference}"))?;
    }
    let compared = world.finish();
    compared.map_err(|difference| format!("FIRN_SEED={seed}, at the end: {difference}"))
}

#[test]
fn partitions_in_random_histories_return_the_results_of_one_store() {
    for seed in seeds() {
        if let Err(difference) = check(seed, None) {
            panic!("{difference}");
        }
    }
}

#[test]
fn keys_routed_by_their_bytes_are_found() {
    let found = (0..SEEDS).find_map(|seed| check(seed, Some(RoutingFlaw::TrustsKeys)).err());
    println!("{}", found.expect("a series in two partitions"));
}
