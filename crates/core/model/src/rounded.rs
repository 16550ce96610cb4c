//! Numbers for people, rounded so that they are easy to read. Programs should get exact numbers.
//!
//! A count is exact up to 9999. Above, it has three digits and a unit: `13.4 k`, `1.34 M`. Sizes
//! have two digits and powers of 1024: `2.1 GiB`.

/// The units of counts. Each is a thousand times the previous one.
const COUNT_UNITS: [&str; 5] = ["", " k", " M", " G", " T"];

/// The units of sizes. Each is 1024 times the previous one.
const SIZE_UNITS: [&str; 7] = [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"];

/// The largest count that is printed exactly, without a unit.
const EXACT_MAX: u64 = 9_999;

/// Formats a count, rounded to three digits above 9999: `812`, `13.4 k`, `1.34 M`.
pub fn format_count(number: u64) -> String {
    match number {
        0..=EXACT_MAX => number.to_string(),
        _ => format_scaled(number as f64, 1000.0, &COUNT_UNITS, 3),
    }
}

/// Formats a count with its noun: `1 block`, `3 blocks`, `13.4 k samples`.
pub fn format_count_with_noun(number: u64, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{} {noun}", format_count(number))
}

/// Formats a rate per second, rounded to three digits: `1.34 M/s`, `0.5/s`.
pub fn format_rate(per_second: f64) -> String {
    format!("{}/s", format_scaled(per_second, 1000.0, &COUNT_UNITS, 3))
}

/// Formats a size in bytes: `512 B`, `2.1 GiB`.
pub fn format_bytes(number: u64) -> String {
    match number {
        0..1024 => format!("{number} B"),
        _ => format_scaled(number as f64, 1024.0, &SIZE_UNITS, 2),
    }
}

/// Formats `number` in the largest unit in which it is at least one, with the given number of
/// digits or all digits of the integer part.
fn format_scaled(number: f64, step: f64, units: &[&str], digits: usize) -> String {
    let (mut rest, mut unit) = (number, 0);
    let mut text = format_fixed(rest, digits);
    // A number that rounds up to the next unit is printed in it: 999.9 k is 1 M.
    while text.parse::<f64>().is_ok_and(|shown| shown >= step) && unit + 1 < units.len() {
        rest /= step;
        unit += 1;
        text = format_fixed(rest, digits);
    }
    format!("{text}{}", units[unit])
}

/// Formats a number with the given number of digits or all digits of the integer part, without
/// trailing zeros.
fn format_fixed(number: f64, digits: usize) -> String {
    let whole = format!("{:.0}", number.abs()).len();
    let text = format!("{number:.*}", digits.saturating_sub(whole));
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_while_they_are_short() {
        for (number, want) in [
            (0, "0"),
            (812, "812"),
            (9_999, "9999"),
            (10_000, "10 k"),
            (13_449, "13.4 k"),
            (812_160, "812 k"),
            (999_499, "999 k"),
            (999_500, "1 M"),
            (1_341_000, "1.34 M"),
            (7_500_000_000_000_000, "7500 T"),
        ] {
            assert_eq!(format_count(number), want, "{number}");
        }
        assert_eq!(format_count_with_noun(1, "block", "blocks"), "1 block");
        assert_eq!(format_count_with_noun(3, "block", "blocks"), "3 blocks");
        assert_eq!(format_count_with_noun(0, "block", "blocks"), "0 blocks");
    }

    #[test]
    fn rates_and_sizes_have_a_unit() {
        for (number, want) in [
            (0.0, "0/s"),
            (0.5, "0.5/s"),
            (12.34, "12.3/s"),
            (618_012.377, "618 k/s"),
            (1_341_000.0, "1.34 M/s"),
        ] {
            assert_eq!(format_rate(number), want, "{number}");
        }
        for (number, want) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1 KiB"),
            (1_536, "1.5 KiB"),
            (1_048_575, "1 MiB"),
            (23 << 20, "23 MiB"),
            (2_254_857_830, "2.1 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(format_bytes(number), want, "{number}");
        }
    }
}
