//! Validates bcrypt hashes with the rules and messages of Go's library, and limits the cost of a
//! check.

/// Maximum bcrypt cost: a check takes about one second of one core. Each step doubles the time, and
/// every client that can connect to the server can cause a check.
pub const COST_MAX: u32 = 14;

/// Range of costs that bcrypt supports. Higher ones than [`COST_MAX`] are rejected separately.
const COSTS: std::ops::RangeInclusive<u32> = 4..=31;

/// Minimum length of a hash that Go accepts, in bytes.
const HASH_BYTES_MIN: usize = 59;

/// Length of version, cost, salt and hash, in bytes.
const HASH_BYTES: usize = 60;

/// Error of a bcrypt hash in the configuration, reported at load time. The messages are Go's where
/// it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BcryptHashError {
    /// The text is shorter than a hash.
    #[error("crypto/bcrypt: hashedSecret too short to be a bcrypted password")]
    TooShort,
    /// The text does not start with a dollar sign.
    #[error(
        "crypto/bcrypt: bcrypt hashes must start with '$', but hashedSecret started with '{0}'"
    )]
    Prefix(char),
    /// The hash has an unsupported algorithm version.
    #[error(
        "crypto/bcrypt: bcrypt algorithm version '{0}' requested is newer than current version '2'"
    )]
    Version(char),
    /// The cost is not a number.
    #[error("strconv.Atoi: parsing {0:?}: invalid syntax")]
    CostText(String),
    /// The cost is outside of the range that bcrypt supports.
    #[error("crypto/bcrypt: cost {0} is outside allowed inclusive range 4..31")]
    CostRange(u32),
    /// The cost exceeds [`COST_MAX`], so that a check would take too long.
    #[error("bcrypt cost is too high: {0}, limit {COST_MAX}")]
    CostTooHigh(u32),
    /// The text after the cost is not a valid salt and hash.
    #[error("bcrypt hash is malformed: {0} bytes, {HASH_BYTES} expected")]
    Malformed(usize),
}

/// Validates `hash` and returns its cost: the binary logarithm of the number of rounds.
pub fn check(hash: &str) -> Result<u32, BcryptHashError> {
    let bytes = hash.as_bytes();
    if bytes.len() < HASH_BYTES_MIN {
        return Err(BcryptHashError::TooShort);
    }
    if bytes[0] != b'$' {
        return Err(BcryptHashError::Prefix(char::from(bytes[0])));
    }
    if bytes[1] > b'2' {
        return Err(BcryptHashError::Version(char::from(bytes[1])));
    }
    // The version is `$2$` or `$2a$`; the cost has two digits.
    let start = if bytes[2] == b'$' { 3 } else { 4 };
    let digits = String::from_utf8_lossy(&bytes[start..start + 2]).into_owned();
    let Ok(cost) = digits.parse::<u32>() else {
        return Err(BcryptHashError::CostText(digits));
    };
    if !COSTS.contains(&cost) {
        return Err(BcryptHashError::CostRange(cost));
    }
    if cost > COST_MAX {
        return Err(BcryptHashError::CostTooHigh(cost));
    }
    // Go detects this only at the first login, which would then fail for every password.
    let is_digit = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'/');
    let is_whole = bytes.len() == HASH_BYTES
        && matches!(bytes[2], b'a' | b'b' | b'x' | b'y')
        && bytes[6] == b'$'
        && bytes[7..].iter().all(is_digit);
    if is_whole {
        Ok(cost)
    } else {
        Err(BcryptHashError::Malformed(bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_says_what_go_says_and_bounds_the_cost() {
        let rest = "X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";
        let hash = |start: &str| format!("{start}{rest}");
        let cases = [
            (hash("$2y$10$"), Ok(10)),
            (hash("$2a$04$"), Ok(4)),
            (hash("$2b$14$"), Ok(14)),
            (hash("$2b$15$"), Err(BcryptHashError::CostTooHigh(15))),
            (hash("$2b$03$"), Err(BcryptHashError::CostRange(3))),
            (hash("$2b$32$"), Err(BcryptHashError::CostRange(32))),
            (hash("$2b$1x$"), Err(BcryptHashError::CostText("1x".into()))),
            (hash("$3b$10$"), Err(BcryptHashError::Version('3'))),
            (hash("x2b$10$"), Err(BcryptHashError::Prefix('x'))),
            (hash("$2b$10$x"), Err(BcryptHashError::Malformed(61))),
            (hash("$2q$10$"), Err(BcryptHashError::Malformed(60))),
            ("$2b$10$short".into(), Err(BcryptHashError::TooShort)),
            (String::new(), Err(BcryptHashError::TooShort)),
        ];
        for (hash, want) in cases {
            assert_eq!(check(&hash), want, "{hash}");
        }
    }
}
