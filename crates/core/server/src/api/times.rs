//! Times and durations in request parameters, and formatting of times in responses.
//!
//! Accepted formats, rounding and errors follow upstream (`web/api/v1/api.go`: `parseTime`,
//! `parseDuration`; `common/model/time.go`).

use firn_model::go_time::parse_rfc3339;
use firn_model::sample::TimestampMs;
use firn_model::units;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Default start of a time range: upstream's `MinTime`, in milliseconds.
pub(crate) const TIME_MIN: TimestampMs = -9_223_309_901_257_974_000;

/// Default end of a time range: upstream's `MaxTime`, in milliseconds.
pub(crate) const TIME_MAX: TimestampMs = 9_223_309_901_257_974_999;

/// Textual forms of the two that upstream's clients send. Their years have too many digits for RFC
/// 3339.
const TIME_MIN_TEXT: &str = "-292273086-05-16T16:47:06Z";
const TIME_MAX_TEXT: &str = "292277025-08-18T07:12:54.999999999Z";

const NANOS_PER_SECOND: f64 = 1e9;

/// Parses a time: seconds since the epoch with a fraction, or RFC 3339.
pub(crate) fn parse_time(text: &str) -> Result<TimestampMs, String> {
    let cannot = || format!("cannot parse {text:?} to a valid timestamp");
    if let Some(seconds) = parse_float(text) {
        return seconds_to_ms(seconds).ok_or_else(cannot);
    }
    match text {
        TIME_MIN_TEXT => Ok(TIME_MIN),
        TIME_MAX_TEXT => Ok(TIME_MAX),
        _ => {
            let nanos = parse_rfc3339(text).ok_or_else(cannot)?;
            i64::try_from(nanos.div_euclid(1_000_000)).map_err(|_| cannot())
        }
    }
}

/// Rounds to milliseconds with the same floating-point operations as upstream, so that both select
/// the same millisecond.
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

/// Parses a duration into nanoseconds: seconds with a fraction, which may be negative, or a form
/// like `1h30m`.
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
    let duration = units::parse_duration(text).ok();
    let nanos = duration.and_then(|duration| i64::try_from(duration.as_nanos()).ok());
    nanos.ok_or_else(|| format!("cannot parse {text:?} to a valid duration"))
}

/// Parses a finite decimal number. Words like `inf`, which Rust accepts, are rejected.
fn parse_float(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(value)
}

/// Formats a time as `2026-11-20T19:04:05.678Z`, without a fraction if it is zero. Times outside of
/// the years 0 to 9999 are clamped.
pub(crate) fn format_rfc3339(time: TimestampMs) -> String {
    const FIRST: TimestampMs = -62_167_219_200_000;
    const LAST: TimestampMs = 253_402_300_799_999;
    format_nanos(i128::from(time.clamp(FIRST, LAST)) * 1_000_000)
}

/// Formats nanoseconds since the epoch like [`format_rfc3339`].
pub(crate) fn format_rfc3339_nanos(nanos: i64) -> String {
    format_nanos(nanos.into())
}

/// Formats nanoseconds since the epoch, which must be within the years 0 to 9999.
fn format_nanos(nanos: i128) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanos);
    let text = time.ok().and_then(|time| time.format(&Rfc3339).ok());
    text.expect("the years 0 to 9999 have four digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_time_reads_as_upstream() {
        let cases: [(&str, Option<i64>); 29] = [
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
            ("2015-06-03T13:21:58,5Z", Some(1_433_337_718_500)),
            ("2015-06-03T13:21:58Z", Some(1_433_337_718_000)),
            ("1969-12-31T23:59:59.5Z", Some(-500)),
            ("2024-02-29T00:00:00Z", Some(1_709_164_800_000)),
            ("2023-02-29T00:00:00Z", None),
            ("2015-06-03T13:21:58", None),
            ("2015-6-3T13:21:58Z", None),
            ("2015-06-03T24:00:00Z", None),
            ("2015-06-03t13:21:58Z", None),
            ("2015-06-03T13:21:58z", None),
            ("2015-06-03 13:21:58Z", None),
            ("2016-12-31T23:59:60Z", None),
            ("2015-06-03T13:21:58.9999Z", Some(1_433_337_718_999)),
            ("0000-01-01T00:00:00Z", Some(-62_167_219_200_000)),
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
        assert_eq!(format_rfc3339(i64::MIN), "0000-01-01T00:00:00Z");
        assert_eq!(format_rfc3339(i64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(format_rfc3339(1_433_337_718_550), "2015-06-03T13:21:58.55Z");
        assert_eq!(format_rfc3339(1_433_337_718_000), "2015-06-03T13:21:58Z");
    }
}
