//! Random numbers that depend on nothing but their seed: the same on every platform and run.
//!
//! SplitMix64, and distributions made of sums of uniform numbers. There is no logarithm and no
//! trigonometry here: the last bits of those differ between C libraries, and the bytes of a load
//! must not.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes `parts` into one number that looks random; equal parts give equal numbers.
pub fn mix(parts: &[u64]) -> u64 {
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

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let out = scramble(self.0);
        self.0 = self.0.wrapping_add(STEP);
        out
    }

    /// A number in 0..1 with all 53 bits of its mantissa random.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// About normal, mean 0, deviation 1: four uniform numbers added up.
    pub fn bell(&mut self) -> f64 {
        let bits = self.bits();
        let sum: u64 = (0..4).map(|i| (bits >> (16 * i)) & 0xffff).sum();
        (sum as f64 / 65_536.0 - 2.0) * 1.732_050_807_568_877_2
    }

    /// A count of events of which `mean` are expected: never negative, deviation `sqrt(mean)`.
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
        (mean + self.bell() * mean.sqrt() + 0.5).max(0.0) as u64
    }
}
