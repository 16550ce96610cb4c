//! Parses Go literals: numbers, characters and quoted strings.
//!
//! Invariant: a number keeps its source text and all types to which it can be converted. Messages
//! are those of Go's `strconv` and `text/template/parse/node.go`.

use firn_model::quote::quote;

/// Error of parsing a float, with the message of Go's `strconv` for syntax and range errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FloatParseError {
    #[error("invalid syntax")]
    Syntax,
    #[error("value out of range")]
    Range,
}

/// A numeric constant and its value in each Go type that can represent it. The type is chosen when
/// the constant is used.
#[derive(Clone, Debug)]
pub(super) struct NumberConstant {
    /// Source text of the constant.
    pub text: String,
    pub int: Option<i64>,
    pub uint: Option<u64>,
    pub float: Option<f64>,
    pub complex: Option<(f64, f64)>,
}

/// Result of Go on amd64 for a conversion to `int64` that overflows.
const INDEFINITE: i64 = i64::MIN;

/// Converts a float to an integer like Go on amd64, where an overflow yields the smallest integer.
pub(super) fn float_to_int(value: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&value) {
        value as i64
    } else {
        INDEFINITE
    }
}

impl NumberConstant {
    fn empty(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            int: None,
            uint: None,
            float: None,
            complex: None,
        }
    }

    /// Parses a character constant like `'x'`, including its quotes and escapes.
    pub fn parse_character(text: &str) -> Result<Self, String> {
        let inside = &text[1..];
        let (unit, rest) = unquote_unit(inside, '\'').ok_or("invalid syntax")?;
        if rest != "'" {
            return Err(format!("malformed character constant: {text}"));
        }
        let code = match unit {
            QuotedUnit::Char(c) => c as u32,
            QuotedUnit::Byte(byte) => u32::from(byte),
        };
        Ok(Self {
            int: Some(i64::from(code)),
            uint: Some(u64::from(code)),
            float: Some(f64::from(code)),
            ..Self::empty(text)
        })
    }

    /// Parses a complex constant like `1+2i`. The real and the imaginary part may have exponents.
    pub fn parse_complex(text: &str) -> Result<Self, String> {
        let body = text
            .strip_suffix('i')
            .ok_or("syntax error scanning complex number")?;
        let is_sign = |(at, b): (usize, u8)| {
            let after_exponent = at > 0 && matches!(body.as_bytes()[at - 1], b'e' | b'E' | b'p');
            at > 0 && matches!(b, b'+' | b'-') && !after_exponent
        };
        let split = body.bytes().enumerate().position(is_sign);
        let (real, imaginary) = body.split_at(split.unwrap_or(0));
        let real = parse_float(real).map_err(|_| "syntax error scanning complex number")?;
        let imaginary =
            parse_float(imaginary).map_err(|_| "syntax error scanning complex number")?;
        Ok(Self::from_complex(text, real, imaginary))
    }

    fn from_complex(text: &str, real: f64, imaginary: f64) -> Self {
        let is_real = imaginary == 0.0;
        let int = float_to_int(real);
        Self {
            float: is_real.then_some(real),
            int: (is_real && int as f64 == real).then_some(int),
            uint: (is_real && real as u64 as f64 == real).then_some(real as u64),
            complex: Some((real, imaginary)),
            ..Self::empty(text)
        }
    }

    /// Parses an integer, float or imaginary constant like `12`, `0x1f`, `1e3` or `2i`.
    pub fn parse_plain(text: &str) -> Result<Self, String> {
        if let Some(body) = text.strip_suffix('i')
            && let Ok(imaginary) = parse_float(body)
        {
            return Ok(Self::from_complex(text, 0.0, imaginary));
        }
        let mut number = Self {
            uint: parse_uint(text),
            int: parse_int(text),
            ..Self::empty(text)
        };
        if number.int == Some(0) {
            number.uint = number.uint.or(Some(0));
        }
        number.float = match (number.int, number.uint) {
            (Some(int), _) => Some(int as f64),
            (None, Some(uint)) => Some(uint as f64),
            (None, None) => None,
        };
        if number.float.is_none()
            && let Ok(float) = parse_float(text)
        {
            if !text.contains(['.', 'e', 'E', 'p', 'P']) {
                return Err(format!("integer overflow: {}", quote(text.as_bytes())));
            }
            number.float = Some(float);
            let int = float_to_int(float);
            number.int = (int as f64 == float).then_some(int);
            number.uint = (float as u64 as f64 == float).then_some(float as u64);
        }
        match number.float {
            Some(_) => Ok(number),
            None => Err(format!("illegal number syntax: {}", quote(text.as_bytes()))),
        }
    }

    /// Returns whether the source text is that of a float rather than an integer.
    pub fn is_written_as_float(&self) -> bool {
        let lower = self.text.to_ascii_lowercase();
        let is_hex_int = lower.len() > 2 && lower.starts_with("0x") && !lower.contains('p');
        self.float.is_some()
            && !is_hex_int
            && !self.text.starts_with('\'')
            && lower.contains(['.', 'e', 'p'])
    }
}

fn parse_int(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let magnitude = i128::from(parse_uint(digits)?);
    i64::try_from(if is_negative { -magnitude } else { magnitude }).ok()
}

/// Parses an unsigned integer with an optional base prefix. Underscores are only valid between
/// digits.
fn parse_uint(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (radix, digits, is_prefixed) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..], true),
        [b'0', b'b', ..] => (2, &lower[2..], true),
        [b'0', b'o', ..] => (8, &lower[2..], true),
        [b'0', _, ..] => (8, &lower[1..], true),
        _ => (10, &lower[..], false),
    };
    let digits = without_underscores(digits, is_prefixed)?;
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    u64::from_str_radix(&digits, radix).ok()
}

/// Removes underscores from digits. Each must be between digits or after a prefix; otherwise
/// returns `None`.
fn without_underscores(digits: &str, is_prefixed: bool) -> Option<String> {
    let is_misplaced =
        digits.contains("__") || digits.ends_with('_') || !is_prefixed && digits.starts_with('_');
    (!is_misplaced).then(|| digits.replace('_', ""))
}

/// Parses a float like Go's `strconv.ParseFloat`, including hexadecimal floats, infinities and NaN.
pub(super) fn parse_float(text: &str) -> Result<f64, FloatParseError> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    let lower = unsigned.to_ascii_lowercase();
    match lower.as_str() {
        "inf" | "infinity" => return Ok(sign * f64::INFINITY),
        "nan" => return Ok(f64::NAN),
        _ => {}
    }
    let value = match lower.strip_prefix("0x") {
        Some(hex) => parse_hex_float(hex).ok_or(FloatParseError::Syntax)?,
        None if !lower.bytes().any(|b| b.is_ascii_digit()) => return Err(FloatParseError::Syntax),
        None if lower.starts_with(['+', '-']) => return Err(FloatParseError::Syntax),
        None => {
            let plain = without_float_underscores(&lower).ok_or(FloatParseError::Syntax)?;
            plain.parse().map_err(|_| FloatParseError::Syntax)?
        }
    };
    if value.is_infinite() {
        Err(FloatParseError::Range)
    } else {
        Ok(sign * value)
    }
}

/// Removes underscores from a float. Each must be between digits; otherwise returns `None`.
fn without_float_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(u8::is_ascii_digit)
    };
    let is_fit =
        |at: usize| bytes[at] != b'_' || is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    (0..bytes.len()).all(is_fit).then(|| text.replace('_', ""))
}

/// Parses a hexadecimal float like `1.8p-3` without its prefix. The exponent is mandatory.
fn parse_hex_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let mantissa = without_underscores(mantissa, true)?;
    let exponent: i64 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((&mantissa, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    let (mut bits, mut scale) = (0u64, exponent.clamp(-5000, 5000));
    for (index, digit) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(digit.to_digit(16)?);
        let is_fraction = index >= whole.len();
        if bits >> 58 == 0 {
            bits = bits << 4 | digit;
            scale -= if is_fraction { 4 } else { 0 };
        } else {
            // Digits that no longer fit only affect the rounding of ties.
            bits |= u64::from(digit != 0);
            scale += if is_fraction { 0 } else { 4 };
        }
    }
    let half = (scale / 2) as i32;
    let rest = (scale - scale / 2) as i32;
    Some(bits as f64 * 2f64.powi(half) * 2f64.powi(rest))
}

/// A character or byte of a quoted string after escapes were decoded.
enum QuotedUnit {
    Char(char),
    Byte(u8),
}

/// Decodes a string in double or back quotes like Go's `strconv.Unquote`.
pub(super) fn unquote(text: &str) -> Option<Vec<u8>> {
    if let Some(raw) = text.strip_prefix('`') {
        let inside = raw.strip_suffix('`')?;
        return Some(inside.replace('\r', "").into_bytes());
    }
    let mut rest = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let (unit, after) = unquote_unit(rest, '"')?;
        match unit {
            QuotedUnit::Char(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            QuotedUnit::Byte(byte) => out.push(byte),
        }
        rest = after;
    }
    Some(out)
}

/// Decodes the first character or escape of a text in quotes. Returns it and the rest of the text.
fn unquote_unit(text: &str, quote: char) -> Option<(QuotedUnit, &str)> {
    let mut chars = text.chars();
    let first = chars.next()?;
    if first == quote || first == '\n' {
        return None;
    }
    if first != '\\' {
        return Some((QuotedUnit::Char(first), chars.as_str()));
    }
    let plain = match chars.next()? {
        'a' => '\u{07}',
        'b' => '\u{08}',
        'f' => '\u{0c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{0b}',
        '\\' => '\\',
        c if c == quote => c,
        'x' => return parse_code(chars.as_str(), 2, 16, true),
        'u' => return parse_code(chars.as_str(), 4, 16, false),
        'U' => return parse_code(chars.as_str(), 8, 16, false),
        '0'..='7' => return parse_code(&text[1..], 3, 8, true),
        _ => return None,
    };
    Some((QuotedUnit::Char(plain), chars.as_str()))
}

fn parse_code(text: &str, digits: usize, radix: u32, is_byte: bool) -> Option<(QuotedUnit, &str)> {
    let number = text.get(..digits)?;
    if !number.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let code = u32::from_str_radix(number, radix).ok()?;
    let unit = if is_byte {
        QuotedUnit::Byte(u8::try_from(code).ok()?)
    } else {
        QuotedUnit::Char(char::from_u32(code)?)
    };
    Some((unit, &text[digits..]))
}
