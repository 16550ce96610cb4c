//! Parses and formats numbers like Go's `strconv`.

use firn_model::quote::quote;
use std::borrow::Cow;

/// Powers of ten for [`parse_plain_decimal`], all of which a double represents exactly.
const TENS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// The power of ten from which on [`format_shortest`] writes an exponent.
const SHORTEST_EXPONENT_END: i32 = 6;

/// Parses the value of a sample: decimal notation only, like Go before version 1.13. The error text
/// is Go's.
#[inline]
pub(super) fn parse_value(word: &[u8]) -> Result<f64, String> {
    match parse_plain_decimal(word) {
        Some(value) => Ok(value),
        None => parse_any(word),
    }
}

/// Parses a number of at most 15 digits without an exponent. Digits and power of ten are exact
/// doubles, so that their quotient is rounded only once.
#[inline]
fn parse_plain_decimal(word: &[u8]) -> Option<f64> {
    let (is_negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let mut mantissa = 0u64;
    let mut point = None;
    for (i, c) in digits.iter().enumerate() {
        match c {
            b'0'..=b'9' => mantissa = mantissa * 10 + u64::from(c - b'0'),
            b'.' if point.is_none() => point = Some(i),
            _ => return None,
        }
    }
    let scale = match point {
        Some(_) if digits.len() == 1 => return None,
        Some(point) => digits.len() - point - 1,
        None if digits.len() == 16 => return None,
        None => 0,
    };
    let value = mantissa as f64 / TENS[scale];
    Some(if is_negative { -value } else { value })
}

#[cold]
fn parse_any(word: &[u8]) -> Result<f64, String> {
    if word.iter().any(|c| matches!(c, b'p' | b'P' | b'_')) {
        return Err("unsupported character in float".into());
    }
    let failed = |why: &str| {
        let word = quote(word);
        Err(format!("strconv.ParseFloat: parsing {word}: {why}"))
    };
    // Go does not accept a sign before a NaN.
    let has_signed_nan = matches!(word, [b'+' | b'-', b'n' | b'N', ..]);
    let text = std::str::from_utf8(word).ok().filter(|_| !has_signed_nan);
    match text.and_then(|text| text.parse::<f64>().ok()) {
        Some(value) if value.is_infinite() && word.iter().any(u8::is_ascii_digit) => {
            failed("value out of range")
        }
        Some(value) => Ok(value),
        None => failed("invalid syntax"),
    }
}

/// Parses a number in any notation of Go: decimal or hexadecimal, with underscores between digits.
/// Returns `None` if it is malformed.
pub(super) fn parse_any_notation(word: &[u8]) -> Option<f64> {
    let word = if word.contains(&b'_') {
        Cow::from(strip_underscores(word)?)
    } else {
        Cow::from(word)
    };
    let (sign, digits) = match &*word {
        [b'-', digits @ ..] => (-1.0, digits),
        [b'+', digits @ ..] => (1.0, digits),
        digits => (1.0, digits),
    };
    match digits {
        [b'0', b'x' | b'X', digits @ ..] => parse_hexadecimal(digits).map(|value| sign * value),
        _ => parse_value(&word).ok(),
    }
}

/// Removes underscores, each of which must be between two digits or after the prefix `0x`. Returns
/// `None` if one is not.
fn strip_underscores(word: &[u8]) -> Option<Vec<u8>> {
    let unsigned = word.strip_prefix(b"-").or(word.strip_prefix(b"+"));
    let unsigned = unsigned.unwrap_or(word);
    let is_hexadecimal = matches!(unsigned, [b'0', b'x' | b'X', ..]);
    let is_digit = |c: &u8| c.is_ascii_digit() || is_hexadecimal && c.is_ascii_hexdigit();
    let first = if is_hexadecimal { 2 } else { 0 };
    let mut out = word[..word.len() - unsigned.len() + first].to_vec();
    let mut before = if is_hexadecimal { b'0' } else { b' ' };
    for (i, c) in unsigned.iter().enumerate().skip(first) {
        if *c == b'_' {
            if !is_digit(&before) || !unsigned.get(i + 1).is_some_and(is_digit) {
                return None;
            }
        } else {
            out.push(*c);
        }
        before = *c;
    }
    Some(out)
}

/// Parses the hexadecimal notation `h.hhhp±d` without its prefix, rounded once; returns `None` if
/// it overflows.
fn parse_hexadecimal(word: &[u8]) -> Option<f64> {
    let at = word.iter().position(|c| matches!(c, b'p' | b'P'))?;
    let exponent = std::str::from_utf8(&word[at + 1..]).ok()?;
    // Beyond these limits every number is zero or infinite, because no body has enough digits to
    // compensate.
    let mut exponent = match exponent.parse::<i64>() {
        Ok(exponent) => exponent.clamp(-1 << 40, 1 << 40),
        Err(_) => return None,
    };
    let (mut mantissa, mut is_inexact, mut digits, mut has_point) = (0u64, false, 0, false);
    for c in &word[..at] {
        if *c == b'.' && !has_point {
            has_point = true;
            continue;
        }
        let digit = char::from(*c).to_digit(16)?;
        digits += 1;
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | u64::from(digit);
            exponent -= if has_point { 4 } else { 0 };
        } else {
            is_inexact |= digit != 0;
            exponent += if has_point { 0 } else { 4 };
        }
    }
    if digits == 0 {
        return None;
    }
    // The lowest bit is set if non-zero digits were cut off, so that rounding takes them into
    // account.
    let value = ldexp(mantissa | u64::from(is_inexact), exponent);
    value.is_finite().then_some(value)
}

/// Returns `mantissa * 2^exponent`, rounded once to the nearest double, ties to even.
fn ldexp(mantissa: u64, exponent: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let length = i64::from(64 - mantissa.leading_zeros());
    // The exponent of the lowest bit of a double of this size.
    let lowest = (exponent + length - 53).max(-1074);
    let cut = lowest - exponent;
    let kept = match cut {
        ..=0 => mantissa << -cut.max(-63),
        1..=63 => {
            let (kept, rest, half) = (mantissa >> cut, mantissa << (64 - cut), 1u64 << 63);
            kept + u64::from(rest > half || rest == half && kept & 1 == 1)
        }
        64 => u64::from(mantissa > 1 << 63),
        _ => 0,
    };
    let lowest = lowest.clamp(-1074, 1024) as i32;
    // In two steps, each of which is exact: a power of two below the normal range is itself
    // subnormal.
    let half = lowest / 2;
    kept as f64 * 2f64.powi(half) * 2f64.powi(lowest - half)
}

/// Parses a timestamp in whole milliseconds, which consists of digits only. The error text is Go's.
pub(super) fn parse_milliseconds(digits: &[u8]) -> Result<i64, String> {
    let parsed = std::str::from_utf8(digits)
        .ok()
        .and_then(|d| d.parse().ok());
    parsed.ok_or_else(|| {
        let digits = quote(digits);
        format!("strconv.ParseInt: parsing {digits}: value out of range")
    })
}

/// Truncates towards zero; values out of range become `i64::MIN`, as Go's conversion does on
/// x86-64.
pub(super) fn truncate_to_integer(value: f64) -> i64 {
    if value.abs() < i64::MAX as f64 {
        value as i64
    } else {
        i64::MIN
    }
}

/// Formats the shortest decimal that parses to the same value, always with a point or an exponent
/// as OpenMetrics requires.
pub(super) fn format_openmetrics_float(value: f64) -> String {
    if value == 0.0 {
        return "0.0".into();
    }
    let text = format_shortest(value);
    if text.contains(['e', '.', 'N', 'I']) {
        text
    } else {
        text + ".0"
    }
}

/// Formats the shortest decimal that parses to the same value, like Go's verb `%g`.
pub(super) fn format_shortest(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let mut buffer = zmij::Buffer::new();
    let (digits, exponent) = significant_digits(buffer.format_finite(value.abs()));
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if (-4..SHORTEST_EXPONENT_END).contains(&exponent) {
        return format!("{sign}{}", insert_point(&digits, exponent));
    }
    let (first, others) = digits.split_at(digits.len().min(1));
    let point = if others.is_empty() { "" } else { "." };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!(
        "{sign}{first}{point}{others}e{exponent_sign}{:02}",
        exponent.abs()
    )
}

/// Returns the digits of a formatted number without leading and trailing zeros, and the power of
/// ten of the first digit.
fn significant_digits(text: &str) -> (String, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0');
    let zeros = digits.len() - significant.len();
    if significant.is_empty() {
        return ("0".into(), 0);
    }
    let exponent = exponent.parse().unwrap_or(0) + whole.len() as i32 - 1 - zeros as i32;
    (significant.trim_end_matches('0').to_owned(), exponent)
}

/// Inserts the decimal point into `digits`, whose first digit has the power of ten `exponent`.
fn insert_point(digits: &str, exponent: i32) -> String {
    let Ok(whole) = usize::try_from(exponent + 1) else {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("0.{zeros}{digits}");
    };
    match digits.split_at_checked(whole) {
        Some((_, "")) => digits.to_owned(),
        Some(("", fraction)) => format!("0.{fraction}"),
        Some((whole, fraction)) => format!("{whole}.{fraction}"),
        None => format!("{digits}{}", "0".repeat(whole - digits.len())),
    }
}
