//! Random inputs for fuzz targets: valid texts that are cut, joined and mixed with small pieces.
//!
//! The seed of a run reproduces it. `FIRN_SEEDS=n` runs n seeds instead of the few seeds of an
//! ordinary test run, and `FIRN_SEED=s` runs a single seed.

use firn_model::env::sim::SimRng;

/// Number of seeds of an ordinary test run, which takes a second or two.
const SEEDS: u64 = 20;

/// Number of texts generated from one seed, each of which is passed to the target.
const TEXTS_PER_SEED: usize = 50;

/// Calls `target` with random texts made from those of `corpus` and the small `pieces`.
pub(crate) fn run(corpus: &[&str], pieces: &[&str], target: fn(&[u8])) {
    let seeds = match number("FIRN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FIRN_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        // Printed only if the test fails, to reproduce it.
        println!("FIRN_SEED={seed}");
        let rng = SimRng::new(seed);
        for _ in 0..TEXTS_PER_SEED {
            target(&mutate(&rng, corpus, pieces));
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn pick<'a>(rng: &SimRng, from: &[&'a str]) -> &'a [u8] {
    from[rng.next_below(from.len() as u64) as usize].as_bytes()
}

fn mutate(rng: &SimRng, corpus: &[&str], pieces: &[&str]) -> Vec<u8> {
    let mut text = pick(rng, corpus).to_vec();
    for _ in 0..rng.next_below(4) {
        let start = rng.next_below(text.len() as u64 + 1) as usize;
        let cut = (rng.next_below(5) as usize).min(text.len() - start);
        let put_in: &[u8] = match rng.next_below(8) {
            0 => b"",
            1 => pick(rng, corpus),
            2 => &[rng.next_below(256) as u8],
            _ => pick(rng, pieces),
        };
        text.splice(start..start + cut, put_in.iter().copied());
    }
    text
}
