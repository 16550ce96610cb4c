//! Meaning of scalars in YAML 1.1, as interpreted by Prometheus's parser.
//!
//! A quoted scalar is always text. An unquoted one may be null, a boolean, an integer (decimal,
//! hexadecimal, octal or binary, with underscores) or a float. Dates are text.

use super::node::{YamlNode, YamlValue};

/// Interpretation of a scalar by the rules of YAML 1.1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum YamlScalar {
    /// Null: an empty value, `~` or `null`.
    Null,
    /// A boolean: `true`, `yes`, `on` or their opposites.
    Bool(bool),
    /// An integer that fits into 64 bits, signed or unsigned.
    Whole(i128),
    /// Any other number, including infinities and NaN.
    Number(f64),
    /// Text without a special meaning, or a date, or any quoted scalar.
    Text,
}

/// Returns the interpretation of a node, or `None` if it is not a scalar.
pub fn interpret_scalar(node: &YamlNode) -> Option<YamlScalar> {
    match &node.value {
        YamlValue::Scalar { plain: false, .. } => Some(YamlScalar::Text),
        YamlValue::Scalar { text, plain: true } => Some(resolve(text)),
        _ => None,
    }
}

impl YamlScalar {
    /// Converts a number to a signed 64-bit integer. Fractions are truncated, as in upstream.
    pub fn to_integer(self) -> Option<i64> {
        match self {
            YamlScalar::Whole(whole) => i64::try_from(whole).ok(),
            YamlScalar::Number(number) => (number <= i64::MAX as f64).then_some(number as i64),
            _ => None,
        }
    }

    /// Converts a number to an unsigned 64-bit integer. Fractions are truncated, as in upstream.
    pub fn to_unsigned(self) -> Option<u64> {
        match self {
            YamlScalar::Whole(whole) => u64::try_from(whole).ok(),
            YamlScalar::Number(number) => (number <= u64::MAX as f64).then_some(number as u64),
            _ => None,
        }
    }

    /// Returns whether the scalar is an unsigned 64-bit integer without a fraction.
    pub fn is_unsigned(self) -> bool {
        matches!(self, YamlScalar::Whole(whole) if u64::try_from(whole).is_ok())
    }

    /// Converts a number to a float; integers can lose precision.
    pub fn to_float(self) -> Option<f64> {
        match self {
            YamlScalar::Whole(whole) => Some(whole as f64),
            YamlScalar::Number(number) => Some(number),
            _ => None,
        }
    }
}

/// Parses a boolean in any of the forms of YAML 1.1.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Some(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Some(false)
        }
        _ => None,
    }
}

/// Returns the interpretation of unquoted text by the rules of YAML 1.1.
pub fn resolve(text: &str) -> YamlScalar {
    if let Some(value) = parse_bool(text) {
        return YamlScalar::Bool(value);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return YamlScalar::Null,
        ".nan" | ".NaN" | ".NAN" => return YamlScalar::Number(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return YamlScalar::Number(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return YamlScalar::Number(f64::NEG_INFINITY),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return YamlScalar::Text;
    }
    let plain = text.replace('_', "");
    let whole = (!text.starts_with('.'))
        .then(|| parse_integer(&plain))
        .flatten();
    match (whole, parse_number(&plain)) {
        (Some(whole), _) => YamlScalar::Whole(whole),
        (None, Some(number)) => YamlScalar::Number(number),
        (None, None) => YamlScalar::Text,
    }
}

/// Parses an integer that fits into 64 bits, with the base prefixes of YAML 1.1 and Go.
fn parse_integer(text: &str) -> Option<i128> {
    let (is_negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, base).ok()?);
    let value = if is_negative { -magnitude } else { magnitude };
    (value >= i128::from(i64::MIN)).then_some(value)
}

/// Parses a decimal number, such as `1.5`, `.5`, `5.` or `1e3`.
fn parse_number(text: &str) -> Option<f64> {
    let is_decimal = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    let has_digit = text.starts_with(|c: char| c.is_ascii_digit())
        || text
            .trim_start_matches(['+', '-', '.'])
            .starts_with(|c: char| c.is_ascii_digit());
    if !has_digit || !text.chars().all(is_decimal) {
        return None;
    }
    // As in upstream, a number outside of the range of floats is text.
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_means_what_it_means_upstream() {
        let number = YamlScalar::Number;
        for (text, expected) in [
            ("", YamlScalar::Null),
            ("yes", YamlScalar::Bool(true)),
            ("Off", YamlScalar::Bool(false)),
            ("oN", YamlScalar::Text),
            ("5", YamlScalar::Whole(5)),
            ("-0x1f", YamlScalar::Whole(-31)),
            ("017", YamlScalar::Whole(15)),
            ("08", number(8.0)),
            ("1_000", YamlScalar::Whole(1000)),
            ("18446744073709551615", YamlScalar::Whole(u64::MAX.into())),
            ("18446744073709551616", number(18_446_744_073_709_551_616.0)),
            ("1e3", number(1000.0)),
            (".5", number(0.5)),
            ("5.", number(5.0)),
            ("+.inf", number(f64::INFINITY)),
            ("5s", YamlScalar::Text),
            ("2001-01-01", YamlScalar::Text),
            ("+-5", YamlScalar::Text),
            ("-", YamlScalar::Text),
            (".", YamlScalar::Text),
            ("e5", YamlScalar::Text),
        ] {
            assert_eq!(resolve(text), expected, "{text}");
        }
        assert_eq!(number(1.9).to_integer(), Some(1));
        assert_eq!(number(f64::INFINITY).to_unsigned(), None);
        assert_eq!(YamlScalar::Whole(-1).to_unsigned(), None);
    }
}
