//! Numbers, durations and label names: what their text means.
//!
//! Numbers follow Go: first an integer (`0x1f`, `017`, `1_000`), else a float. Durations are those
//! of Prometheus: `1h30m`, units from large to small, none twice.

use super::{Failure, Parsed, Parser, fail};
use crate::ast::NumberLiteral;
use crate::lexer::{Token, TokenKind};
use crate::quote::quote;

/// The units of durations in milliseconds, from large to small.
pub(crate) const UNITS_MS: [(&str, u64); 7] = [
    ("y", 365 * DAY_MS),
    ("w", 7 * DAY_MS),
    ("d", DAY_MS),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

const DAY_MS: u64 = 86_400_000;

/// The longest duration: what 63 bits of nanoseconds hold, as upstream.
const DURATION_MS_MAX: u64 = (i64::MAX / 1_000_000) as u64;

/// Reads a duration such as `1h30m`, or `0`; the error is for the user.
pub fn parse_duration_ms(text: &str) -> Result<i64, String> {
    if text == "0" {
        return Ok(0);
    }
    if text.is_empty() {
        return Err("empty duration string".into());
    }
    let invalid = || format!("not a valid duration string: {}", quote(text.as_bytes()));
    let mut total_ms: u64 = 0;
    let mut units_left = &UNITS_MS[..];
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit());
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let (unit, after) = split_while(after, |c| !c.is_ascii_digit());
        rest = after;
        if unit.is_empty() {
            return Err(invalid());
        }
        if !UNITS_MS.iter().any(|(name, _)| *name == unit) {
            let (unit, text) = (quote(unit.as_bytes()), quote(text.as_bytes()));
            return Err(format!("unknown unit {unit} in duration {text}"));
        }
        let Some(place) = units_left.iter().position(|(name, _)| *name == unit) else {
            return Err(invalid());
        };
        total_ms = number
            .checked_mul(units_left[place].1)
            .and_then(|ms| ms.checked_add(total_ms))
            .filter(|ms| *ms <= DURATION_MS_MAX)
            .ok_or("duration out of range")?;
        units_left = &units_left[place + 1..];
    }
    Ok(total_ms as i64)
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    let rest = text.trim_start_matches(keep);
    text.split_at(text.len() - rest.len())
}

impl Parser<'_> {
    /// What a number or duration token stands for.
    pub(super) fn number_literal(&self, token: Token) -> Parsed<NumberLiteral> {
        let text = self.text(token);
        if token.kind == TokenKind::Duration {
            let ms = parse_duration_ms(text).map_err(|e| Failure::new(token.start, e))?;
            return Ok(NumberLiteral {
                value: ms as f64 / 1000.0,
                is_duration: true,
            });
        }
        match parse_number(text) {
            Ok(value) => Ok(NumberLiteral {
                value,
                is_duration: false,
            }),
            Err(why) => fail(
                token.start,
                format!(
                    "error parsing number: strconv.ParseFloat: parsing {}: {why}",
                    quote(text.as_bytes())
                ),
            ),
        }
    }
}

/// Reads a number without a sign as Go does; the error is Go's.
pub(crate) fn parse_number(text: &str) -> Result<f64, &'static str> {
    if let Some(integer) = parse_integer(text) {
        return Ok(integer as f64);
    }
    match text.to_ascii_lowercase().as_str() {
        "inf" => return Ok(f64::INFINITY),
        "nan" => return Ok(f64::NAN),
        _ => {}
    }
    // Rust reads what Go reads, but for underscores and hexadecimal floats, which need an exponent
    // that the lexer does not let through.
    let digits = without_underscores(text).ok_or("invalid syntax")?;
    let value: f64 = digits.parse().map_err(|_| "invalid syntax")?;
    if value.is_infinite() {
        return Err("value out of range");
    }
    Ok(value)
}

fn parse_integer(text: &str) -> Option<i64> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    if let Some(digits) = hex {
        let digits = without_underscores(digits.strip_prefix('_').unwrap_or(digits))?;
        return i64::from_str_radix(&digits, 16).ok();
    }
    let digits = without_underscores(text)?;
    match digits.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => i64::from_str_radix(octal, 8).ok(),
        _ => digits.parse().ok(),
    }
}

/// The text without its underscores, if each stands between digits.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit_at = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_hexdigit);
    let well_placed = bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'_')
        .all(|(i, _)| i > 0 && digit_at(i - 1) && digit_at(i + 1));
    well_placed.then(|| text.replace('_', ""))
}
