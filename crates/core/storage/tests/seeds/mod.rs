//! The seeds of random tests: `FIRN_SEEDS=n` runs the first n, `FIRN_SEED=s` runs only s, and
//! otherwise the test's usual number of seeds is run.

use std::ops::Range;

/// Returns the seeds of this run.
pub fn seeds(usual: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    match number("FIRN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FIRN_SEEDS").unwrap_or(usual),
    }
}
