//! Random numbers of tests, reproducible by their seed.

use std::cell::Cell;

/// A generator of pseudo-random numbers, which a test creates from its seed.
pub(crate) struct SplitMixRng(Cell<u64>);

impl SplitMixRng {
    /// Creates a generator whose numbers are reproducible by `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    /// Returns a number below `bound`, which must not be zero.
    pub(crate) fn next_below(&self, bound: u64) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut z = self.0.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// Returns true with the probability `1/n`, for random decisions of tests.
    pub(crate) fn one_in(&self, n: u64) -> bool {
        self.next_below(n) == 0
    }
}
