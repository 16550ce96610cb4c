//! Numbers and times formatted as Go prints them, for texts whose exact form is part of the
//! interface.

use crate::math::dates::UtcDate;
use firn_model::sample::TimestampMs;

/// Formats like Go's `%g`: with `precision` significant digits, or in the shortest form that parses
/// back to the same value.
pub(crate) fn format_g(value: f64, precision: Option<usize>) -> String {
    // Go uses exponents from the precision on, or from six for the shortest form.
    format_general(
        value,
        precision,
        precision.map_or(6, |digits| digits as i32),
    )
}

/// Formats like Go's `%v`: the shortest form that parses back to the same value, with an exponent
/// from 1e21 on and below 1e-4.
pub(crate) fn format_v(value: f64) -> String {
    format_general(value, None, 21)
}

fn format_general(value: f64, precision: Option<usize>, exponent_end: i32) -> String {
    if let Some(text) = format_special(value) {
        return text.into();
    }
    let scientific = match precision {
        None => format!("{value:e}"),
        Some(digits) => format!("{value:.*e}", digits.saturating_sub(1)),
    };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mantissa = if mantissa.contains('.') {
        mantissa.trim_end_matches('0').trim_end_matches('.')
    } else {
        mantissa
    };
    if exponent < -4 || exponent >= exponent_end.max(1) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count() as i32;
    let decimals = (digits - 1 - exponent).max(0) as usize;
    format!("{value:.decimals$}")
}

/// Formats like Go's `strconv.FormatFloat(value, 'f', -1, 64)`: the shortest form without an
/// exponent.
pub(crate) fn format_f(value: f64) -> String {
    match format_special(value) {
        Some(text) => text.into(),
        None => format!("{value}"),
    }
}

/// Formats like Go's `%f`, with six decimals. Infinite values and NaN are written as `+Inf`, `-Inf`
/// and `NaN`.
pub(crate) fn format_fixed(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.6}")
    } else {
        format_f(value)
    }
}

fn format_special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value == f64::INFINITY {
        Some("+Inf")
    } else if value == f64::NEG_INFINITY {
        Some("-Inf")
    } else if value == 0.0 && value.is_sign_negative() {
        Some("-0")
    } else if value == 0.0 {
        Some("0")
    } else {
        None
    }
}

/// Formats a time in UTC as RFC 3339, in whole seconds.
pub(crate) fn format_rfc3339(time: TimestampMs) -> String {
    let date = UtcDate::from_unix(time / 1000);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        date.year, date.month, date.day, date.hour, date.minute, date.second
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_g_prints_as_go() {
        for (value, shortest, two_digits) in [
            (1e5, "100000", "1e+05"),
            (123_456.0, "123456", "1.2e+05"),
            (1e6, "1e+06", "1e+06"),
            (0.0001, "0.0001", "0.0001"),
            (0.00001, "1e-05", "1e-05"),
            (123_456_789.25, "1.2345678925e+08", "1.2e+08"),
            (-3.0, "-3", "-3"),
            (1.5, "1.5", "1.5"),
            (f64::INFINITY, "+Inf", "+Inf"),
            (f64::NAN, "NaN", "NaN"),
            (-0.0, "-0", "-0"),
        ] {
            assert_eq!(format_g(value, None), shortest);
            assert_eq!(format_g(value, Some(2)), two_digits);
        }
    }

    #[test]
    fn format_v_has_exponents_for_large_and_small_numbers_alone() {
        for (value, text) in [
            (123_456_789.25, "123456789.25"),
            (1e20, "100000000000000000000"),
            (-1.5e21, "-1.5e+21"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (-0.0, "-0"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(format_v(value), text);
        }
    }

    #[test]
    fn format_f_has_no_exponent() {
        assert_eq!(format_f(1e21), "1000000000000000000000");
        assert_eq!(format_f(-0.00000125), "-0.00000125");
        assert_eq!(format_f(f64::NEG_INFINITY), "-Inf");
    }

    #[test]
    fn format_rfc3339_is_in_utc() {
        assert_eq!(format_rfc3339(1_700_000_000_123), "2023-11-14T22:13:20Z");
    }
}
