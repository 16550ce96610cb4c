//! Tests of properties that all hashes must have, and a comparison of AES instructions with plain
//! code.

use super::*;
use crate::env::sim::SimRng;
use std::collections::HashSet;

/// Input lengths around those of words, blocks and parts.
const LENGTHS: [usize; 28] = [
    0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 281, 300, 480, 495, 496, 497, 511, 512, 513,
    992, 993, 1_500, 4_500, 9_000,
];

/// Returns keys of the hash that this processor uses, and keys of the other hash or of the same one
/// again.
fn ways(seed: u64) -> [HashKeys; 2] {
    let random = SimRng::new(seed);
    let portable = HashKeys::from_seed(HashKind::Nh, FingerprintSeed::generate(&random));
    [HashKeys::new(&random), portable]
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
            // Inputs of zeros differ only in their lengths.
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
    // The two halves of NH have no avalanche for one key; only their sums over all keys do.
    let keys = &ways(4)[0];
    if keys.kind() == HashKind::Nh {
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
            // Six standard deviations from one half. A single byte has only 128 pairs.
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

/// Returns a fixed sequence of bytes with the given length.
fn counted_bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + length) as u8).collect()
}

/// Fingerprints are stored in the journal of aggregation, so they must never change.
#[test]
fn fingerprint_of_a_seed_is_the_same_one_in_each_version() {
    let seed = FingerprintSeed([1, 2]);
    for (kind, expected) in [
        (
            HashKind::Aes,
            [
                [0xf8fc_842e_1635_62a0, 0x3a2e_17bc_bf07_0e33],
                [0x43b6_dd72_eeba_2be3, 0x7577_8833_692e_f244],
                [0xa231_e459_7357_c066, 0xb149_8dc1_2f61_0091],
            ],
        ),
        (
            HashKind::Nh,
            [
                [0x6990_dc78_88c2_3abc, 0x5f3a_f053_d3bf_0a28],
                [0x03e1_76db_1f94_fd9a, 0xa8d2_3c43_6408_5560],
                [0x2168_c1b4_528e_6bbe, 0xf83c_0778_0f6a_7642],
            ],
        ),
    ] {
        let keys = HashKeys::from_seed(kind, seed);
        let found = [3, 281, 1_500].map(|length| {
            let print = keys.fingerprint(&counted_bytes(length));
            [print.high, print.low]
        });
        assert_eq!(found, expected, "{kind:?}: {found:#x?}");
    }
}

#[test]
fn round_of_the_standard_gives_its_example() {
    // FIPS 197, appendix B: the first round of the cipher, after the first key was added.
    let keys = PlainKeys::generate(&mut HashKeyGenerator::from_seed(FingerprintSeed([1, 1])));
    let state = 0x193d_e3be_a0f4_e22b_9ac6_8d2a_e9f8_4808u128.to_be_bytes();
    let key = 0xa0fa_fe17_8854_2cb1_23a3_3939_2a6c_7605u128.to_be_bytes();
    let wanted = 0xa49c_7ff2_689f_352b_6b5b_ea43_026a_5049u128.to_be_bytes();
    assert_eq!(keys.round(state, key), wanted);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn fingerprint_by_the_processor_equals_the_plain_rounds() {
    let random = SimRng::new(7);
    let seed = FingerprintSeed::generate(&random);
    let Some(keys) = AesKeys::generate(&mut HashKeyGenerator::from_seed(seed)) else {
        return;
    };
    let plain = PlainKeys::generate(&mut HashKeyGenerator::from_seed(seed));
    for length in LENGTHS.into_iter().chain((0..40).map(|i| i * 37)) {
        let bytes = random_bytes(&random, length);
        assert_eq!(
            keys.fingerprint(&bytes),
            plain.fingerprint(&bytes),
            "{length}"
        );
    }
}
