//! Block ids: ULIDs, which sort by creation time.
//!
//! ```text
//! 128 bits = milliseconds since the epoch (48) | random or derived (80)
//! text     = 26 digits of Crockford's base 32, the first of which holds three bits
//! ```

use firn_model::sample::TimestampMs;
use std::fmt;
use std::str::FromStr;

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Number of digits in the text form.
const LEN: usize = 26;

/// Number of bits below the time.
const REST_BITS: u32 = 80;

/// The id of a block: a ULID, which is also the name of its folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u128);

/// The error for a text that is not a block id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid block id: expected 26 digits of Crockford's base 32")]
pub struct InvalidBlockId;

impl BlockId {
    /// Creates an id from a time in milliseconds and 80 further bits. Excess high bits of both are
    /// dropped.
    pub fn new(time_ms: TimestampMs, rest: u128) -> Self {
        let time = (time_ms as u128) << REST_BITS;
        Self(time | rest & ((1 << REST_BITS) - 1))
    }

    /// Returns the time of the id in milliseconds since the epoch.
    pub fn time_ms(self) -> TimestampMs {
        (self.0 >> REST_BITS) as TimestampMs
    }

    /// Returns the id as stored in a block: 16 bytes, big endian.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Returns the id stored as 16 bytes, big endian.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; LEN];
        for (i, digit) in text.iter_mut().rev().enumerate() {
            *digit = DIGITS[(self.0 >> (5 * i) & 31) as usize];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for BlockId {
    type Err = InvalidBlockId;

    fn from_str(text: &str) -> Result<Self, InvalidBlockId> {
        let bytes = text.as_bytes();
        if bytes.len() != LEN || bytes[0] > b'7' {
            return Err(InvalidBlockId);
        }
        bytes.iter().try_fold(Self(0), |id, byte| {
            let digit = DIGITS.iter().position(|digit| digit == byte);
            let digit = digit.ok_or(InvalidBlockId)?;
            Ok(Self(id.0 << 5 | digit as u128))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_id_returns_from_its_text_and_sorts_by_time() {
        let cases = [
            (0, 0, "00000000000000000000000000"),
            (1_469_918_176_385, 7, "01ARYZ6S410000000000000007"),
            ((1 << 48) - 1, u128::MAX, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"),
        ];
        let mut last = None;
        for (time, rest, text) in cases {
            let id = BlockId::new(time, rest);
            assert_eq!(id.to_string(), text);
            assert_eq!(text.parse(), Ok(id));
            assert_eq!(
                (id.time_ms(), BlockId::from_bytes(id.to_bytes())),
                (time, id)
            );
            assert!(last < Some(text));
            last = Some(text);
        }
    }

    #[test]
    fn block_id_of_other_texts_is_refused() {
        let long = "0".repeat(27);
        for text in [
            "",
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "0000000000000000000000000U",
            &long,
        ] {
            assert_eq!(text.parse::<BlockId>(), Err(InvalidBlockId), "{text}");
        }
    }
}
