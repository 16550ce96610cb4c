//! Floats as Go's `strconv.FormatFloat(value, 'e', -1, 64)` writes them, where texts are interface.

/// The shortest digits that read back, with an exponent of two digits at least: `1.5e+00`.
pub fn scientific(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scientific_reads_as_go_writes_it() {
        for (value, want) in [
            (0.0, "0e+00"),
            (-0.0, "-0e+00"),
            (1.5, "1.5e+00"),
            (123_456.0, "1.23456e+05"),
            (-1e-7, "-1e-07"),
            (1e300, "1e+300"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(scientific(value), want);
        }
    }
}
