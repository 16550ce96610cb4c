//! Parses numbers in the notation of Go: first as an integer (`0x1f`, `017`, `1_000`), then as a
//! float.

/// Parses a number with an optional sign. The error is the text of Go.
pub(crate) fn parse_signed(text: &str) -> Result<f64, &'static str> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned.starts_with(['+', '-']) {
        return Err("invalid syntax");
    }
    let value = parse_number(unsigned)?;
    Ok(if text.starts_with('-') { -value } else { value })
}

/// Parses a number without a sign, like Go. The error is the text of Go.
pub(crate) fn parse_number(text: &str) -> Result<f64, &'static str> {
    if let Some(integer) = parse_integer(text) {
        return Ok(integer as f64);
    }
    match text.to_ascii_lowercase().as_str() {
        "inf" => return Ok(f64::INFINITY),
        "nan" => return Ok(f64::NAN),
        _ => {}
    }
    // Rust parses the same floats as Go, except underscores and hexadecimal floats. The latter need
    // an exponent, which the lexer rejects.
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

/// Returns the text without underscores, or `None` if an underscore is not between two digits.
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
