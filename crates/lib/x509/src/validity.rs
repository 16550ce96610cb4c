//! Validity period of a certificate, in seconds since 1970.

use super::der::{DerReader, GENERALIZED_TIME, UTC_TIME};
use time::{Date, Month, UtcOffset};

/// First and last second of the validity period, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CertificateValidity {
    pub not_before: i64,
    pub not_after: i64,
}

impl CertificateValidity {
    pub(crate) fn read(mut der: DerReader<'_>) -> Result<Self, &'static str> {
        Ok(Self {
            not_before: read_time(&mut der)?,
            not_after: read_time(&mut der)?,
        })
    }
}

/// Formats a time in Unix seconds for error texts, such as `2024-01-02T03:04:05Z`.
pub(crate) fn format_rfc3339(seconds: i64) -> String {
    let Ok(at) = time::OffsetDateTime::from_unix_timestamp(seconds) else {
        return seconds.to_string();
    };
    let (date, time) = (at.date(), at.time());
    let (year, month, day) = date.to_calendar_date();
    let (hour, minute, second) = time.as_hms();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn read_time(der: &mut DerReader<'_>) -> Result<i64, &'static str> {
    if der.has(UTC_TIME) {
        let text = der.read(UTC_TIME);
        return text.and_then(parse_utc_time).ok_or("malformed UTCTime");
    }
    if der.has(GENERALIZED_TIME) {
        let text = der.read(GENERALIZED_TIME);
        return text
            .and_then(parse_generalized_time)
            .ok_or("malformed GeneralizedTime");
    }
    Err("unsupported time format")
}

/// Parses a UTCTime, whose two-digit year is in 1950 to 2049. Seconds may be missing.
fn parse_utc_time(text: &[u8]) -> Option<i64> {
    let (year, rest) = text.split_at_checked(2)?;
    let year = parse_digits(year)?;
    let century = if year < 50 { 2000 } else { 1900 };
    let with_seconds = |rest: &[u8]| parse_after_year(century + year, rest, true);
    with_seconds(rest).or_else(|| parse_after_year(century + year, rest, false))
}

fn parse_generalized_time(text: &[u8]) -> Option<i64> {
    let (year, rest) = text.split_at_checked(4)?;
    parse_after_year(parse_digits(year)?, rest, true)
}

fn parse_after_year(year: u32, text: &[u8], has_seconds: bool) -> Option<i64> {
    let mut rest = text;
    let mut two = || {
        let (field, after) = rest.split_at_checked(2)?;
        rest = after;
        parse_digits(field).and_then(|n| u8::try_from(n).ok())
    };
    let (month, day, hour, minute) = (two()?, two()?, two()?, two()?);
    let second = if has_seconds { two()? } else { 0 };
    let month = Month::try_from(month).ok()?;
    let date = Date::from_calendar_date(i32::try_from(year).ok()?, month, day).ok()?;
    let local = date.with_hms(hour, minute, second).ok()?;
    Some(local.assume_offset(parse_offset(rest)?).unix_timestamp())
}

/// Parses `Z`, or an offset from UTC in hours and minutes, which must not be zero.
fn parse_offset(text: &[u8]) -> Option<UtcOffset> {
    const HOURS_MAX: u32 = 24;
    if text == b"Z" {
        return Some(UtcOffset::UTC);
    }
    let (sign, clock) = text.split_first()?;
    let (hours, minutes) = clock.split_at_checked(2)?;
    let (hours, minutes) = (parse_digits(hours)?, parse_digits(minutes)?);
    let is_whole = clock.len() == 4 && hours <= HOURS_MAX && minutes < 60;
    let seconds = i32::try_from(hours * 3600 + minutes * 60).ok()?;
    if !is_whole || seconds == 0 {
        return None;
    }
    let seconds = match sign {
        b'+' => seconds,
        b'-' => -seconds,
        _ => return None,
    };
    UtcOffset::from_whole_seconds(seconds).ok()
}

fn parse_digits(text: &[u8]) -> Option<u32> {
    let all = text.iter().all(u8::is_ascii_digit) && !text.is_empty();
    let value = || text.iter().fold(0, |sum, c| sum * 10 + u32::from(c - b'0'));
    all.then(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tag: u8, text: &str, expected: Option<i64>) {
        let mut der = vec![tag, u8::try_from(text.len()).unwrap()];
        der.extend(text.bytes());
        let found = read_time(&mut DerReader::new(&der)).ok();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn times_are_read_as_go_reads_them() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "7001010000Z", Some(0)),
            (UTC_TIME, "700101010000+0100", Some(0)),
            (UTC_TIME, "691231230000-0100", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (UTC_TIME, "700101000000+0000", None),
            (UTC_TIME, "700101000000", None),
            (UTC_TIME, "700230000000Z", None),
            (UTC_TIME, "700101240000Z", None),
            (UTC_TIME, "700101000000.5Z", None),
            (UTC_TIME, "700101000000ZZ", None),
            (UTC_TIME, "70010100000éZ", None),
            (GENERALIZED_TIME, "19700101000000Z", Some(0)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (GENERALIZED_TIME, "197001010000Z", None),
            (GENERALIZED_TIME, "19700101000000.0Z", None),
            (GENERALIZED_TIME, "00000101000000Z", Some(-62_167_219_200)),
            (0x16, "700101000000Z", None),
        ] {
            check(tag, text, expected);
        }
    }

    #[test]
    fn instant_reads_as_text() {
        assert_eq!(format_rfc3339(0), "1970-01-01T00:00:00Z");
    }
}
