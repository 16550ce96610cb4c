//! The fingerprints of AES rounds in plain code. It is used by a processor without AES instructions
//! on data of another processor, and is the oracle of the tests. Follows FIPS 197.

use super::{Fingerprint, HashKeyGenerator};

type Block = [u8; 16];

/// The round keys of one block, of which the first is added before the rounds.
type RoundKeys = [Block; 4];

/// Number of blocks with keys of their own, as in the implementation with AES instructions.
const BLOCKS: usize = 31;

/// Number of parts after the first with keys of their own.
const PARTS: usize = 8;

/// The keys of the hash, and the substitution table of the standard.
pub(super) struct PlainKeys {
    blocks: [RoundKeys; BLOCKS],
    length: RoundKeys,
    chain: [RoundKeys; PARTS],
    substitutes: [u8; 256],
}

/// Prints only the name of the type, because keys are secret.
impl std::fmt::Debug for PlainKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlainKeys")
    }
}

impl PlainKeys {
    /// Generates the same keys as the implementation with AES instructions.
    pub(super) fn generate(words: &mut HashKeyGenerator) -> Box<Self> {
        let mut block = || {
            let (high, low) = (words.next(), words.next());
            (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
        };
        let mut keys = || -> RoundKeys { std::array::from_fn(|_| block()) };
        Box::new(Self {
            blocks: std::array::from_fn(|_| keys()),
            length: keys(),
            chain: std::array::from_fn(|_| keys()),
            substitutes: std::array::from_fn(|byte| substitute(byte as u8)),
        })
    }

    /// Returns the same fingerprint of `bytes` as the implementation with AES instructions.
    pub(super) fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
        let mut sum = self.rounds((bytes.len() as u128).to_le_bytes(), &self.length);
        for (number, part) in bytes.chunks(BLOCKS * 16).enumerate() {
            if let Some(number) = number.checked_sub(1) {
                sum = self.rounds(sum, &self.chain[number.min(PARTS - 1)]);
            }
            for (block, keys) in part.chunks(16).zip(&self.blocks) {
                let block = block.try_into().unwrap_or_else(|_| last_block(bytes));
                let more = self.rounds(block, keys);
                sum = std::array::from_fn(|i| sum[i] ^ more[i]);
            }
        }
        let sum = u128::from_le_bytes(sum);
        Fingerprint {
            high: (sum >> 64) as u64,
            low: sum as u64,
        }
    }

    /// Computes four rounds, the last one without a key.
    fn rounds(&self, block: Block, keys: &RoundKeys) -> Block {
        let mut state = std::array::from_fn(|i| block[i] ^ keys[0][i]);
        for key in [keys[1], keys[2], keys[3], [0; 16]] {
            state = self.round(state, key);
        }
        state
    }

    /// Computes one round of the cipher: substitution, shift, mix, and the addition of the key.
    pub(super) fn round(&self, state: Block, key: Block) -> Block {
        let shifted: Block = std::array::from_fn(|i| {
            let (column, row) = (i / 4, i % 4);
            self.substitutes[usize::from(state[(column + row) % 4 * 4 + row])]
        });
        std::array::from_fn(|i| {
            let cell = |turn: usize| shifted[i / 4 * 4 + (i + turn) % 4];
            doubled(cell(0)) ^ doubled(cell(1)) ^ cell(1) ^ cell(2) ^ cell(3) ^ key[i]
        })
    }
}

/// Returns the last 16 bytes of the input. A shorter input is converted: its first and last eight
/// bytes, or for fewer bytes a number.
fn last_block(bytes: &[u8]) -> Block {
    if let Some(last) = bytes.last_chunk() {
        return *last;
    }
    let mut block = [0; 16];
    match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            block[..8].copy_from_slice(first);
            block[8..].copy_from_slice(last);
        }
        _ => {
            for (to, from) in block.iter_mut().zip(bytes.iter().rev()) {
                *to = *from;
            }
        }
    }
    block
}

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

fn substitute(byte: u8) -> u8 {
    let inverse = (0..=255).find(|b| product(byte, *b) == 1).unwrap_or(0);
    (0..5).fold(0x63, |sum, turn| sum ^ inverse.rotate_left(turn))
}
