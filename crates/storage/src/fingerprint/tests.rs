//! What is asked of every way to make fingerprints, and the AES rounds beside plain ones.

use super::*;
use firn_model::env::sim::SimRng;
use std::collections::HashSet;

/// Lengths around those of words, blocks and parts.
const LENGTHS: [usize; 28] = [
    0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 281, 300, 480, 495, 496, 497, 511, 512, 513,
    992, 993, 1_500, 4_500, 9_000,
];

/// The way that this processor takes, and the portable one.
fn ways(seed: u64) -> [HashKeys; 2] {
    let random = SimRng::new(seed);
    [HashKeys::new(&random), HashKeys::portable(&random)]
}

fn random_bytes(random: &SimRng, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.next_u64() as u8).collect()
}

#[test]
fn fingerprint_of_near_inputs_differs_in_both_halves() {
    for keys in ways(1) {
        let mut highs = HashSet::new();
        let mut lows = HashSet::new();
        let mut inputs = 0;
        let mut check = |bytes: &[u8], what: &str| {
            let print = keys.fingerprint(bytes);
            assert!(highs.insert(print.high), "{what}, high, of {keys:?}");
            assert!(lows.insert(print.low), "{what}, low, of {keys:?}");
            inputs += 1;
        };
        for length in LENGTHS {
            for at in (0..length).step_by(1 + length / 40) {
                for bit in [1, 16, 128] {
                    let mut bytes = vec![0; length];
                    bytes[at] = bit;
                    check(&bytes, &format!("{length} {at} {bit}"));
                }
            }
            // Zeros too: only the length tells them apart.
            check(&vec![0; length], &format!("{length} zeros"));
        }
        assert!(inputs > 1_500);
    }
}

#[test]
fn fingerprint_of_swapped_blocks_differs() {
    for keys in ways(2) {
        let random = SimRng::new(3);
        for length in [32, 48, 300, 992, 1_488, 6_000] {
            let bytes = random_bytes(&random, length);
            let mut prints = HashSet::from([keys.fingerprint(&bytes)]);
            for block in 1..length / 16 {
                let mut swapped = bytes.clone();
                let (first, rest) = swapped.split_at_mut(16 * block);
                first[..16].swap_with_slice(&mut rest[..16]);
                assert!(
                    prints.insert(keys.fingerprint(&swapped)),
                    "{length} {block}"
                );
            }
        }
    }
}

/// Each bit of the input changes each bit of the result in half of the cases.
#[test]
fn fingerprint_changes_by_half_of_its_bits_with_each_bit_of_the_input() {
    const TRIALS: u32 = 512;
    // The halves of NH are no avalanche: their sums are, over all keys.
    let keys = &ways(4)[0];
    if matches!(keys, HashKeys::Nh(_)) {
        return;
    }
    let random = SimRng::new(5);
    for length in [1, 5, 8, 13, 16, 40, 281, 497, 1_000] {
        for bit in [0, 3, 8 * length / 2, 8 * length - 1] {
            let mut flips = [0u32; 128];
            for _ in 0..TRIALS {
                let mut bytes = random_bytes(&random, length);
                let before = keys.fingerprint(&bytes);
                bytes[bit / 8] ^= 1 << (bit % 8);
                let after = keys.fingerprint(&bytes);
                let changed =
                    u128::from(before.high ^ after.high) << 64 | u128::from(before.low ^ after.low);
                for (i, flips) in flips.iter_mut().enumerate() {
                    *flips += (changed >> i & 1) as u32;
                }
            }
            // Six standard deviations around the half; one byte has 128 pairs only.
            let off = |n: &u32| n.abs_diff(TRIALS / 2) > if length == 1 { 140 } else { 68 };
            assert!(!flips.iter().any(off), "{length} {bit} {flips:?}");
        }
    }
}

#[test]
fn fingerprint_high_bits_of_counting_inputs_spread_evenly() {
    for keys in ways(6) {
        let mut shards = [0; 16];
        for i in 0..16_000 {
            let print = keys.fingerprint(format!("__name__ up pod app-{i}").as_bytes());
            shards[(print.high >> 60) as usize] += 1;
        }
        assert!(
            shards.iter().all(|n| (850..1_150).contains(n)),
            "{shards:?}"
        );
    }
}

#[test]
fn fingerprint_under_other_keys_differs() {
    for way in 0..2 {
        let print = |seed| ways(seed)[way].fingerprint(b"up");
        assert_ne!(print(1), print(2));
    }
}

/// The rounds of FIPS 197 as its pages tell them, and the sum over them.
#[cfg(target_arch = "x86_64")]
mod plain {
    use super::*;

    type Block = [u8; 16];
    type RoundKeys = [Block; 4];

    fn doubled(byte: u8) -> u8 {
        byte << 1 ^ if byte & 0x80 == 0 { 0 } else { 0x1b }
    }

    fn product(a: u8, b: u8) -> u8 {
        let (mut power, mut sum) = (a, 0);
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                sum ^= power;
            }
            power = doubled(power);
        }
        sum
    }

    fn substituted(byte: u8) -> u8 {
        let inverse = (0..=255).find(|b| product(byte, *b) == 1).unwrap_or(0);
        (0..5).fold(0x63, |sum, turn| sum ^ inverse.rotate_left(turn))
    }

    fn round(boxes: &[u8; 256], state: Block, key: Block) -> Block {
        let shifted: Block = std::array::from_fn(|i| {
            let (column, row) = (i / 4, i % 4);
            boxes[usize::from(state[(column + row) % 4 * 4 + row])]
        });
        std::array::from_fn(|i| {
            let cell = |turn: usize| shifted[i / 4 * 4 + (i + turn) % 4];
            doubled(cell(0)) ^ doubled(cell(1)) ^ cell(1) ^ cell(2) ^ cell(3) ^ key[i]
        })
    }

    fn rounds(boxes: &[u8; 256], block: Block, keys: &RoundKeys) -> Block {
        let mut state = std::array::from_fn(|i| block[i] ^ keys[0][i]);
        for key in [keys[1], keys[2], keys[3], [0; 16]] {
            state = round(boxes, state, key);
        }
        state
    }

    fn plain_fingerprint(boxes: &[u8; 256], draw: &SimRng, bytes: &[u8]) -> Fingerprint {
        let block = || {
            let (high, low) = (draw.next_u64(), draw.next_u64());
            (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
        };
        let keys = || -> RoundKeys { std::array::from_fn(|_| block()) };
        let blocks: [RoundKeys; 31] = std::array::from_fn(|_| keys());
        let length = keys();
        let chain: [RoundKeys; 8] = std::array::from_fn(|_| keys());
        let mut sum = rounds(boxes, (bytes.len() as u128).to_le_bytes(), &length);
        for (part, at) in (0..bytes.len()).step_by(496).enumerate() {
            if part > 0 {
                sum = rounds(boxes, sum, &chain[(part - 1).min(7)]);
            }
            let end = bytes.len().min(at + 496);
            for (i, start) in (at..end).step_by(16).enumerate() {
                let block = match bytes.get(start..start + 16) {
                    Some(block) => block.try_into().unwrap(),
                    None => last_block(bytes),
                };
                let more = rounds(boxes, block, &blocks[i]);
                sum = std::array::from_fn(|i| sum[i] ^ more[i]);
            }
        }
        let sum = u128::from_le_bytes(sum);
        Fingerprint {
            high: (sum >> 64) as u64,
            low: sum as u64,
        }
    }

    /// The last 16 bytes; of fewer the first and the last eight; of fewer still a number.
    fn last_block(bytes: &[u8]) -> Block {
        let mut block = [0; 16];
        match bytes.len() {
            16.. => block.copy_from_slice(&bytes[bytes.len() - 16..]),
            8.. => {
                block[..8].copy_from_slice(&bytes[..8]);
                block[8..].copy_from_slice(&bytes[bytes.len() - 8..]);
            }
            length => {
                for (to, from) in block[..length].iter_mut().zip(bytes.iter().rev()) {
                    *to = *from;
                }
            }
        }
        block
    }

    #[test]
    fn rounds_of_the_standard_give_its_example() {
        // FIPS 197, appendix B: the first round of its cipher, behind the first key.
        let boxes = std::array::from_fn(|byte| substituted(byte as u8));
        let state = 0x193d_e3be_a0f4_e22b_9ac6_8d2a_e9f8_4808u128.to_be_bytes();
        let key = 0xa0fa_fe17_8854_2cb1_23a3_3939_2a6c_7605u128.to_be_bytes();
        let wanted = 0xa49c_7ff2_689f_352b_6b5b_ea43_026a_5049u128.to_be_bytes();
        assert_eq!(round(&boxes, state, key), wanted);
    }

    #[test]
    fn fingerprint_by_the_processor_equals_the_plain_rounds() {
        let boxes = std::array::from_fn(|byte| substituted(byte as u8));
        let random = SimRng::new(7);
        let Some(keys) = AesKeys::draw(&SimRng::new(8)) else {
            return;
        };
        for length in LENGTHS.into_iter().chain((0..40).map(|i| i * 37)) {
            let bytes = random_bytes(&random, length);
            let plain = plain_fingerprint(&boxes, &SimRng::new(8), &bytes);
            assert_eq!(keys.fingerprint(&bytes), plain, "{length}");
        }
    }
}
