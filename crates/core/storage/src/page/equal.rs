//! Hashing of columns, to find equal ones, which are stored once.

/// Returns a hash of numbers. It is never stored, and equal hashes are followed by a comparison.
pub(super) fn hash_numbers(numbers: impl Iterator<Item = u64>) -> u64 {
    const LANES: usize = 4;
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    // Several lanes, because each step depends on the previous one of its lane.
    let mut lanes = [1, 2, 3, 4u64];
    for (i, n) in numbers.enumerate() {
        let lane = &mut lanes[i % LANES];
        *lane = (lane.rotate_left(29) ^ n).wrapping_mul(FACTOR);
    }
    let mix = |hash: u64, lane: &u64| (hash ^ lane ^ lane >> 32).wrapping_mul(FACTOR);
    lanes.iter().fold(0, mix)
}
