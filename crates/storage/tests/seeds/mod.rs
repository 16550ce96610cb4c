//! Which seeds a random test runs: `FIRN_SEEDS=n` the first n, `FIRN_SEED=s` that one, else
//! `usual`.

use std::ops::Range;

/// The seeds of this run.
pub fn seeds(usual: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    match number("FIRN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FIRN_SEEDS").unwrap_or(usual),
    }
}
