//! Durations as command lines and data files have them: `1h30m`, `15s`, `100ms`.

/// Milliseconds of `text`; `None` if it is no duration.
pub fn parse_duration_ms(text: &str) -> Option<i64> {
    let mut total: i64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !is_numeric(c))?);
        let (unit, tail) = tail.split_at(tail.find(is_numeric).unwrap_or(tail.len()));
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let ms = match number.split_once('.') {
            None => number.parse::<i64>().ok()?.checked_mul(unit_ms)?,
            Some(_) => (number.parse::<f64>().ok()? * unit_ms as f64).round() as i64,
        };
        total = total.checked_add(ms)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

fn is_numeric(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_text_is_read_or_refused() {
        let cases = [
            ("15s", Some(15_000)),
            ("1h30m", Some(5_400_000)),
            ("39m0.417s", Some(2_340_417)),
            ("0s", Some(0)),
            ("", None),
            ("15", None),
            ("s", None),
            ("5x", None),
            ("99999999999999999d", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_duration_ms(text), expected, "{text:?}");
        }
    }
}
