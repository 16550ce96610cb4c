//! Times and durations as request parameters, and times in status documents.
//!
//! What is accepted, how fractions round and what an error says is upstream's
//! (`web/api/v1/api.go`: `parseTime`, `parseDuration`; `common/model/time.go`).

use firn_model::sample::TimestampMs;

/// Start of a time range that is not stated: upstream's `MinTime`.
pub(crate) const TIME_MIN: TimestampMs = -9_223_309_901_257_974_000;

/// End of a time range that is not stated: upstream's `MaxTime`.
pub(crate) const TIME_MAX: TimestampMs = 9_223_309_901_257_974_999;

/// The two as upstream's clients write them; their years have too many digits for RFC 3339.
const TIME_MIN_TEXT: &str = "-292273086-05-16T16:47:06Z";
const TIME_MAX_TEXT: &str = "292277025-08-18T07:12:54.999999999Z";

const NANOS_PER_SECOND: f64 = 1e9;

/// Reads a time: float seconds since the epoch, or RFC 3339.
pub(crate) fn parse_time(text: &str) -> Result<TimestampMs, String> {
    let cannot = || format!("cannot parse {text:?} to a valid timestamp");
    if let Some(seconds) = parse_float(text) {
        return seconds_to_ms(seconds).ok_or_else(cannot);
    }
    match text {
        TIME_MIN_TEXT => Ok(TIME_MIN),
        TIME_MAX_TEXT => Ok(TIME_MAX),
        _ => parse_rfc3339(text).ok_or_else(cannot),
    }
}

/// Rounds the fraction to milliseconds with upstream's floating-point steps, so that both stores
/// are asked about the same millisecond.
fn seconds_to_ms(seconds: f64) -> Option<TimestampMs> {
    if seconds.abs() >= i64::MAX as f64 / 1000.0 {
        return None;
    }
    let whole = seconds.trunc();
    let fraction = ((seconds - whole) * 1000.0).round() / 1000.0;
    let nanos = (fraction * NANOS_PER_SECOND) as i64;
    (whole as i64)
        .checked_mul(1000)?
        .checked_add(nanos.div_euclid(1_000_000))
}

/// Reads a duration in nanoseconds: float seconds, which may be negative, or `1h30m`.
pub(crate) fn parse_duration_nanos(text: &str) -> Result<i64, String> {
    if let Some(seconds) = parse_float(text) {
        let nanos = seconds * NANOS_PER_SECOND;
        if nanos.abs() > i64::MAX as f64 {
            return Err(format!(
                "cannot parse {text:?} to a valid duration. It overflows int64"
            ));
        }
        return Ok(nanos as i64);
    }
    parse_units(text).ok_or_else(|| format!("cannot parse {text:?} to a valid duration"))
}

/// A finite decimal number. Words like `inf`, which Rust reads too, are none.
fn parse_float(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(value)
}

/// Units from the greatest to the smallest, in nanoseconds. Each may come once, in this order.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000_000_000),
    ("w", 7 * 86_400_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

fn parse_units(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut nanos = 0u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(|b| !b.is_ascii_digit()).count();
        let (unit, tail) = tail.split_at(letters);
        let number: u64 = number.parse().ok()?;
        let (_, size) = units.find(|(name, _)| *name == unit)?;
        nanos = nanos.checked_add(number.checked_mul(*size)?)?;
        rest = tail;
    }
    i64::try_from(nanos).ok()
}

/// Reads `2006-01-02T15:04:05.999Z` or with an offset like `+01:00`.
fn parse_rfc3339(text: &str) -> Option<TimestampMs> {
    let (date, time) = text.split_once('T')?;
    let [year, month, day] = fixed_fields::<3>(date, '-', &[4, 2, 2])?;
    let zone_at = time.find(['Z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = fixed_fields::<3>(clock, ':', &[2, 2, 2])?;
    let valid = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !valid {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some((seconds - parse_zone(zone)?) * 1000 + parse_fraction_ms(fraction)?)
}

fn fixed_fields<const N: usize>(
    text: &str,
    separator: char,
    widths: &[usize; N],
) -> Option<[i64; N]> {
    let mut fields = [0; N];
    let mut parts = text.split(separator);
    for (field, width) in fields.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != *width || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *field = part.parse().ok()?;
    }
    parts.next().is_none().then_some(fields)
}

fn parse_zone(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = if zone.starts_with('+') { 1 } else { -1 };
    let [hours, minutes] = fixed_fields::<2>(zone.get(1..)?, ':', &[2, 2])?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn parse_fraction_ms(digits: &str) -> Option<i64> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let padded = digits.bytes().chain([b'0'; 2]).take(3);
    Some(padded.fold(0, |ms, digit| ms * 10 + i64::from(digit - b'0')))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since the epoch. Years are counted from March, so that the leap day comes last
/// (<https://howardhinnant.github.io/date_algorithms.html>).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Writes a time as `2026-11-20T19:04:05.678Z`, without a fraction if there is none.
pub(crate) fn format_rfc3339(time: TimestampMs) -> String {
    let days = time.div_euclid(86_400_000);
    let ms_of_day = time.rem_euclid(86_400_000);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute) = (ms_of_day / 3_600_000, ms_of_day / 60_000 % 60);
    let (second, fraction) = (ms_of_day / 1000 % 60, ms_of_day % 1000);
    let fraction = match fraction {
        0 => String::new(),
        ms => format!(".{ms:03}").trim_end_matches('0').to_owned(),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_time_reads_as_upstream() {
        let cases: [(&str, Option<i64>); 22] = [
            ("", None),
            ("abc", None),
            ("30s", None),
            ("inf", None),
            ("NaN", None),
            ("1e300", None),
            ("123", Some(123_000)),
            ("123.123", Some(123_123)),
            ("-1.5", Some(-1500)),
            ("1543578564.705", Some(1_543_578_564_705)),
            ("1e3", Some(1_000_000)),
            ("2015-06-03T13:21:58.555Z", Some(1_433_337_718_555)),
            ("2015-06-03T14:21:58.555+01:00", Some(1_433_337_718_555)),
            ("2015-06-03T13:21:58Z", Some(1_433_337_718_000)),
            ("1969-12-31T23:59:59.5Z", Some(-500)),
            ("2024-02-29T00:00:00Z", Some(1_709_164_800_000)),
            ("2023-02-29T00:00:00Z", None),
            ("2015-06-03T13:21:58", None),
            ("2015-6-3T13:21:58Z", None),
            ("2015-06-03T24:00:00Z", None),
            (TIME_MIN_TEXT, Some(TIME_MIN)),
            (TIME_MAX_TEXT, Some(TIME_MAX)),
        ];
        for (text, want) in cases {
            let cannot = format!("cannot parse {text:?} to a valid timestamp");
            assert_eq!(parse_time(text), want.ok_or(cannot), "{text}");
        }
    }

    #[test]
    fn parse_duration_reads_as_upstream() {
        let cases: [(&str, Option<i64>); 17] = [
            ("", None),
            ("abc", None),
            ("123", Some(123_000_000_000)),
            ("-1", Some(-1_000_000_000)),
            ("123.333", Some(123_333_000_000)),
            ("15s", Some(15_000_000_000)),
            ("5m", Some(300_000_000_000)),
            ("1h30m", Some(5_400_000_000_000)),
            ("1y", Some(31_536_000_000_000_000)),
            ("250ms", Some(250_000_000)),
            ("1m1h", None),
            ("1m1m", None),
            ("1.5h", None),
            ("-5m", None),
            ("m", None),
            ("300y", None),
            ("99999999999999999999s", None),
        ];
        for (text, want) in cases {
            let cannot = format!("cannot parse {text:?} to a valid duration");
            assert_eq!(parse_duration_nanos(text), want.ok_or(cannot), "{text}");
        }
        assert_eq!(
            parse_duration_nanos("1e20"),
            Err("cannot parse \"1e20\" to a valid duration. It overflows int64".into())
        );
    }

    #[test]
    fn format_rfc3339_reads_back() {
        let cases = [
            0,
            1,
            -1,
            1_433_337_718_555,
            951_782_400_000,
            -62_135_596_800_000,
            1_700,
        ];
        for time in cases {
            let text = format_rfc3339(time);
            assert_eq!(parse_time(&text), Ok(time), "{text}");
        }
        assert_eq!(format_rfc3339(1_433_337_718_550), "2015-06-03T13:21:58.55Z");
        assert_eq!(format_rfc3339(1_433_337_718_000), "2015-06-03T13:21:58Z");
    }
}
