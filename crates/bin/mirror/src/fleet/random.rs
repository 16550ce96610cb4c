//! Random numbers that depend only on their seed and are the same on every platform.
//!
//! The generator is SplitMix64; distributions are sums of uniform numbers. There are no logarithms
//! or trigonometric functions, because their last bits differ between C libraries, and the bytes of
//! a load must not.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes `parts` into one pseudo-random number; equal parts give equal numbers.
pub fn mix_parts(parts: &[u64]) -> u64 {
    let mut state = 0u64;
    for part in parts {
        state = scramble(state ^ part.wrapping_add(STEP));
    }
    state
}

fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A reproducible sequence of random numbers, created from a seed. It is fast and unsuitable for
/// cryptography.
#[derive(Clone, Debug)]
pub struct FleetRandom(u64);

impl FleetRandom {
    /// Creates the sequence that belongs to `seed`. Similar seeds give unrelated sequences.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 random bits of the sequence, from which all other values are derived.
    pub fn bits(&mut self) -> u64 {
        let out = scramble(self.0);
        self.0 = self.0.wrapping_add(STEP);
        out
    }

    /// Returns a number in 0..1 with all 53 bits of its mantissa random.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a uniformly distributed number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an approximately normal number with mean 0 and standard deviation 1: the sum of four
    /// uniform ones.
    pub fn next_normal(&mut self) -> f64 {
        let bits = self.bits();
        let sum: u64 = (0..4).map(|i| (bits >> (16 * i)) & 0xffff).sum();
        (sum as f64 / 65_536.0 - 2.0) * 1.732_050_807_568_877_2
    }

    /// Returns a random count of events with the given mean: never negative, standard deviation
    /// about `sqrt(mean)`.
    pub fn count(&mut self, mean: f64) -> u64 {
        if mean < 8.0 {
            let whole = mean as u64;
            let chance = mean - whole as f64;
            let base = if whole == 0 {
                0
            } else {
                self.below(2 * whole + 1)
            };
            return base + u64::from(self.unit() < chance);
        }
        (mean + self.next_normal() * mean.sqrt() + 0.5).max(0.0) as u64
    }
}
