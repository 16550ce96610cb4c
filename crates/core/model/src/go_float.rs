//! Floats formatted like Go's `strconv.FormatFloat` in the forms `e` and `g`, for texts whose exact
//! form is part of the interface.

/// Formats a float in the form `g`: the shortest digits that parse back to the same value, with an
/// exponent below -4 or from 6 on.
pub fn format_shortest(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-4..1e6).contains(&magnitude) {
        value.to_string()
    } else {
        format_scientific(value)
    }
}

/// Formats a float with the shortest digits that parse back to the same value and an exponent of at
/// least two digits: `1.5e+00`.
pub fn format_scientific(value: f64) -> String {
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
    fn shortest_has_an_exponent_where_go_has_one() {
        for (value, want) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (-0.0001, "-0.0001"),
            (0.00001, "1e-05"),
            (999_999.5, "999999.5"),
            (1_000_000.0, "1e+06"),
            (-1_234_567.0, "-1.234567e+06"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(format_shortest(value), want);
        }
    }

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
            assert_eq!(format_scientific(value), want);
        }
    }
}
