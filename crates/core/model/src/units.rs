//! Durations and sizes in the notation of Prometheus, for flags, the config and PromQL.
//!
//! Invariant: the printed form of a value parses to the same value. A year has 365 days, a day has
//! 24 hours, and a KB has 1024 bytes. No value is negative.

use crate::quote::quote;
use std::time::Duration;

/// The units of durations in milliseconds, largest first. A year has 365 days.
const DURATION_UNITS_MS: [(&str, u64); 7] = [
    ("y", 365 * 24 * 3_600_000),
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// The units of sizes in bytes. `KiB` is the same as `KB`: both are powers of two.
const SIZE_UNITS_BYTES: [(&str, u64); 7] = [
    ("EB", 1 << 60),
    ("PB", 1 << 50),
    ("TB", 1 << 40),
    ("GB", 1 << 30),
    ("MB", 1 << 20),
    ("KB", 1 << 10),
    ("B", 1),
];

/// The longest duration in milliseconds: Prometheus stores nanoseconds in 63 bits.
const DURATION_MS_MAX: u64 = i64::MAX as u64 / 1_000_000;

/// The reasons why a text is not a duration or size. The texts about durations are those of
/// Prometheus.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text is empty, which is not a duration.
    #[error("empty duration string")]
    EmptyDuration,
    /// The text is not a sequence of numbers and units with the largest unit first.
    #[error("not a valid duration string: {}", quote(.0.as_bytes()))]
    Duration(String),
    /// The text contains a unit that durations do not have.
    #[error("unknown unit {} in duration {}", quote(unit.as_bytes()), quote(text.as_bytes()))]
    DurationUnit {
        /// The unknown unit, as it was written.
        unit: String,
        /// The whole text that was parsed.
        text: String,
    },
    /// The duration is longer than about 290 years, the limit of Prometheus.
    #[error("duration out of range")]
    DurationRange,
    /// The text is not a number with a unit.
    #[error("not a valid size: {0:?}, expected a number and one of B, KB, MB, GB, TB, PB, EB")]
    Size(String),
}

/// Parses a duration such as `1h30m`, `500ms` or `0`. Units must be in descending order, each at
/// most once.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    match text {
        "" => return Err(UnitError::EmptyDuration),
        "0" => return Ok(Duration::ZERO),
        _ => {}
    }
    let malformed = || UnitError::Duration(text.to_owned());
    let (mut rest, mut total_ms, mut units) = (text, 0u64, &DURATION_UNITS_MS[..]);
    while !rest.is_empty() {
        let (digits, after) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_where(after, |c| c.is_ascii_digit());
        let number: u64 = digits.parse().map_err(|_| malformed())?;
        if unit.is_empty() {
            return Err(malformed());
        }
        if !DURATION_UNITS_MS.iter().any(|(name, _)| *name == unit) {
            return Err(UnitError::DurationUnit {
                unit: unit.to_owned(),
                text: text.to_owned(),
            });
        }
        let place = units.iter().position(|(name, _)| *name == unit);
        let place = place.ok_or_else(malformed)?;
        total_ms = number
            .checked_mul(units[place].1)
            .and_then(|ms| ms.checked_add(total_ms))
            .filter(|ms| *ms <= DURATION_MS_MAX)
            .ok_or(UnitError::DurationRange)?;
        units = &units[place + 1..];
        rest = after;
    }
    Ok(Duration::from_millis(total_ms))
}

/// Formats a duration like Prometheus: `1h30m`, `90d`. Years and weeks are used only if they fit
/// exactly, because `90d` is easier to read than `12w6d`.
pub fn format_duration(duration: Duration) -> String {
    let mut rest_ms = duration.as_millis() as u64;
    if rest_ms == 0 {
        return "0s".into();
    }
    let mut out = String::new();
    for (name, unit_ms) in DURATION_UNITS_MS {
        let only_exact = matches!(name, "y" | "w");
        if rest_ms < unit_ms || only_exact && !rest_ms.is_multiple_of(unit_ms) {
            continue;
        }
        out += &format!("{}{name}", rest_ms / unit_ms);
        rest_ms %= unit_ms;
    }
    out
}

/// Formats a number of nanoseconds like Go's `time.QueryDuration`: `1h0m0s`, `1.5s`, `-2ms`.
pub fn format_go_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let fraction = |unit: u64| {
        let (whole, rest) = (nanos / unit, nanos % unit);
        let width = unit.ilog10() as usize;
        let digits = format!("{rest:0width$}");
        match digits.trim_end_matches('0') {
            "" => whole.to_string(),
            digits => format!("{whole}.{digits}"),
        }
    };
    match nanos {
        0 => "0s".into(),
        1..1_000 => format!("{sign}{nanos}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", fraction(1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", fraction(1_000_000)),
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = (nanos % 60_000_000_000) as f64 / 1e9;
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// Parses a size such as `512MB`, `1.5GiB`, `1GB512MB` or `0`. Returns bytes.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let malformed = || UnitError::Size(text.to_owned());
    if text == "0" {
        return Ok(0);
    }
    let (mut rest, mut total_bytes) = (text, 0u64);
    let is_long = text.contains("iB");
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !(c.is_ascii_digit() || c == '.'));
        let (name, after) = split_where(after, |c| c.is_ascii_digit());
        // Prometheus does not permit both kinds of units in one text.
        if is_long && name != "B" && !name.ends_with("iB") {
            return Err(malformed());
        }
        let unit = name.replace("iB", "B");
        let (_, unit_bytes) = SIZE_UNITS_BYTES
            .iter()
            .find(|(n, _)| *n == unit)
            .ok_or_else(malformed)?;
        let bytes = number.parse::<f64>().map_err(|_| malformed())? * *unit_bytes as f64;
        if bytes > i64::MAX as f64 {
            return Err(malformed());
        }
        total_bytes = total_bytes
            .checked_add(bytes as u64)
            .ok_or_else(malformed)?;
        rest = after;
    }
    if text.is_empty() {
        return Err(malformed());
    }
    Ok(total_bytes)
}

/// Formats a size like Prometheus, as integers with units, largest first: `1GiB512MiB`.
pub fn format_size(bytes: u64) -> String {
    let mut rest_bytes = bytes;
    let mut out = String::new();
    for (name, unit_bytes) in SIZE_UNITS_BYTES {
        let count = rest_bytes / unit_bytes;
        rest_bytes %= unit_bytes;
        let unit = match unit_bytes {
            1 => name.to_owned(),
            _ => name.replace('B', "iB"),
        };
        if count > 0 {
            out += &format!("{count}{unit}");
        }
    }
    if out.is_empty() { "0B".to_owned() } else { out }
}

/// Splits `text` before the first character for which `ends` returns true.
fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_duration_reads_and_refuses_as_prometheus() {
        let good = [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("1ms", 1, "1ms"),
            ("90s", 90_000, "1m30s"),
            ("1h30m", 5_400_000, "1h30m"),
            ("15d", 1_296_000_000, "15d"),
            ("14d", 1_209_600_000, "2w"),
            ("90d", 7_776_000_000, "90d"),
            ("36h", 129_600_000, "1d12h"),
            ("365d", 31_536_000_000, "1y"),
            ("1y2w3d4h5m6s7ms", 33_019_506_007, "382d4h5m6s7ms"),
        ];
        for (text, ms, printed) in good {
            let read = parse_duration(text).unwrap();
            assert_eq!(read, Duration::from_millis(ms), "{text}");
            let again = parse_duration(&format_duration(read)).unwrap();
            assert_eq!(again, read, "{text} as {}", format_duration(read));
            assert_eq!(format_duration(read), printed);
        }
        let bad = [
            ("", "empty duration string"),
            ("1", "not a valid duration string: \"1\""),
            ("s", "not a valid duration string: \"s\""),
            ("-1s", "not a valid duration string: \"-1s\""),
            ("1m1h", "not a valid duration string: \"1m1h\""),
            ("1s1s", "not a valid duration string: \"1s1s\""),
            ("1x", "unknown unit \"x\" in duration \"1x\""),
            ("m", "not a valid duration string: \"m\""),
            ("1\u{7}", "unknown unit \"\\a\" in duration \"1\\a\""),
            ("300y", "duration out of range"),
            (
                "99999999999999999999d",
                "not a valid duration string: \"99999999999999999999d\"",
            ),
        ];
        for (text, message) in bad {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn format_go_duration_reads_as_go_writes_it() {
        for (nanos, want) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (-2_000_000, "-2ms"),
            (2_050_000, "2.05ms"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (90_061_250_000_000, "25h1m1.25s"),
        ] {
            assert_eq!(format_go_duration(nanos), want);
        }
    }

    #[test]
    fn parse_size_reads_and_refuses_as_prometheus() {
        let good = [
            ("0", 0),
            ("0B", 0),
            ("512MB", 512 << 20),
            ("512MiB", 512 << 20),
            ("1.5GB", 3 << 29),
            ("1GB512MB", 3 << 29),
        ];
        for (text, bytes) in good {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for (bytes, printed) in [
            (0, "0B"),
            (100, "100B"),
            (512 << 20, "512MiB"),
            (3 << 29, "1GiB512MiB"),
            ((1 << 40) + 7, "1TiB7B"),
        ] {
            assert_eq!(format_size(bytes), printed);
            assert_eq!(parse_size(printed), Ok(bytes));
        }
        for text in [
            "", "1", "MB", "-1MB", "1mb", "1e3B", "9EB", "1.2.3MB", "1 MB",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
