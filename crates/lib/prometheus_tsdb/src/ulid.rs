//! Names of blocks: 128 bits in 26 letters, which sort by creation time.

use std::fmt;
use std::str::FromStr;

/// The alphabet of Crockford's base 32.
const LETTERS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Number of letters in a name.
const LETTERS_COUNT: usize = 26;

/// The name of a block. The caller creates it from 48 bits of milliseconds since the epoch,
/// followed by 80 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ulid(pub u128);

impl fmt::Display for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in (0..LETTERS_COUNT).rev() {
            let letter = LETTERS[(self.0 >> (5 * place)) as usize & 31];
            write!(f, "{}", char::from(letter))?;
        }
        Ok(())
    }
}

/// The error that a text is not a valid [`Ulid`], because of its length, a letter or its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a ULID has 26 letters of base 32 and 128 bits")]
pub struct InvalidUlid;

impl FromStr for Ulid {
    type Err = InvalidUlid;

    fn from_str(text: &str) -> Result<Self, InvalidUlid> {
        if text.len() != LETTERS_COUNT {
            return Err(InvalidUlid);
        }
        let mut bits = 0u128;
        for letter in text.bytes().map(|letter| letter.to_ascii_uppercase()) {
            let value = LETTERS.iter().position(|known| *known == letter);
            let value = value.ok_or(InvalidUlid)?;
            if bits >> (128 - 5) != 0 {
                return Err(InvalidUlid);
            }
            bits = bits << 5 | value as u128;
        }
        Ok(Self(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulid_written_reads_as_it_was() {
        for bits in [0, 1, u128::MAX, 0x0190_0000_0000_0000_0000_0000_0000_1234] {
            let text = Ulid(bits).to_string();
            assert_eq!(text.len(), LETTERS_COUNT);
            assert_eq!(text.parse(), Ok(Ulid(bits)));
            assert_eq!(text.to_lowercase().parse(), Ok(Ulid(bits)));
        }
        assert_eq!(Ulid(u128::MAX).to_string(), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    }

    #[test]
    fn ulid_of_other_letters_or_more_bits_is_refused() {
        for text in [
            "",
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "0ZZZZZZZZZZZZZZZZZZZZZZZZU",
            "0ZZZZZZZZZZZZZZZZZZZZZZZ\u{e9}",
            "01",
        ] {
            assert_eq!(text.parse::<Ulid>(), Err(InvalidUlid), "{text}");
        }
    }
}
