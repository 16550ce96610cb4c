//! Finds columns that are equal to one before: they are stored once.

/// A hash of numbers that are compared wherever it is the same; nothing is stored of it.
pub(super) fn hash(numbers: impl Iterator<Item = u64>) -> u64 {
    const LANES: usize = 4;
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    // Several at once, as each step waits for the one before.
    let mut lanes = [1, 2, 3, 4u64];
    for (i, n) in numbers.enumerate() {
        let lane = &mut lanes[i % LANES];
        *lane = (lane.rotate_left(29) ^ n).wrapping_mul(FACTOR);
    }
    let mix = |hash: u64, lane: &u64| (hash ^ lane ^ lane >> 32).wrapping_mul(FACTOR);
    lanes.iter().fold(0, mix)
}
