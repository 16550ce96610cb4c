//! Times of RFC 3339 as Go's `time.Parse` reads them.
//!
//! Go also takes a comma before the fraction, an hour of one digit, fractions of any length, of
//! which nine digits count, and offsets up to `24:60`. It takes no lower case and no leap seconds.

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Nanoseconds since the epoch of a time such as `2006-01-02T15:04:05.999Z`.
pub fn parse_rfc3339(text: &str) -> Option<i128> {
    let mut rest = text;
    let year = take_number(&mut rest, 4..=4)?;
    take(&mut rest, "-")?;
    let month = take_number(&mut rest, 2..=2)?;
    take(&mut rest, "-")?;
    let day = take_number(&mut rest, 2..=2)?;
    take(&mut rest, "T")?;
    let hour = take_number(&mut rest, 1..=2)?;
    take(&mut rest, ":")?;
    let minute = take_number(&mut rest, 2..=2)?;
    take(&mut rest, ":")?;
    let second = take_number(&mut rest, 2..=2)?;
    let nanos = take_fraction(&mut rest);
    let offset_seconds = take_offset(&mut rest)?;
    let is_date = (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
    let is_valid = is_date && hour < 24 && minute < 60 && second < 60 && rest.is_empty();
    let days = is_valid.then(|| days_since_epoch(year, month, day))?;
    let seconds = days * 86400 + hour * 3600 + minute * 60 + second - offset_seconds;
    Some(i128::from(seconds) * NANOS_PER_SECOND + i128::from(nanos))
}

fn take(rest: &mut &str, sign: &str) -> Option<()> {
    *rest = rest.strip_prefix(sign)?;
    Some(())
}

/// Takes a number with so many digits.
fn take_number(rest: &mut &str, digits: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let is_digit = |b: &u8| b.is_ascii_digit();
    let count = rest
        .bytes()
        .take(*digits.end())
        .take_while(is_digit)
        .count();
    let (number, after) = rest.split_at(count);
    *rest = after;
    digits
        .contains(&count)
        .then(|| number.parse().ok())
        .flatten()
}

/// Takes a fraction of a second, if one is there, as nanoseconds.
fn take_fraction(rest: &mut &str) -> i64 {
    let Some(behind) = rest.strip_prefix(['.', ',']) else {
        return 0;
    };
    let count = behind.bytes().take_while(u8::is_ascii_digit).count();
    if count == 0 {
        return 0;
    }
    let (digits, after) = behind.split_at(count);
    *rest = after;
    let digits: String = digits.chars().chain("000000000".chars()).take(9).collect();
    digits.parse().expect("nine digits")
}

/// Takes `Z` or an offset such as `+01:00`, as seconds.
fn take_offset(rest: &mut &str) -> Option<i64> {
    if take(rest, "Z").is_some() {
        return Some(0);
    }
    let sign = match rest.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    *rest = &rest[1..];
    let hours = take_number(rest, 2..=2)?;
    take(rest, ":")?;
    let minutes = take_number(rest, 2..=2)?;
    let is_valid = hours <= 24 && minutes <= 60;
    is_valid.then_some(sign * (hours * 3600 + minutes * 60))
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

/// Days from 1970-01-01 in the Gregorian calendar. Years begin in March here, so that a leap day
/// is the last of its year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days_of_months = (153 * month + 2) / 5;
    year * 365 + leap_days + days_of_months + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_rfc3339_reads_what_go_reads() {
        for (text, want_ms) in [
            ("2015-06-03T13:21:58,555Z", Some(1_433_337_718_555)),
            ("2015-06-03T13:21:58.555Z", Some(1_433_337_718_555)),
            ("2015-06-03T13:21:58,555+01:00", Some(1_433_334_118_555)),
            ("2015-06-03T13:21:58.Z", None),
            ("2015-06-03T13:21:58,Z", None),
            ("2015-06-03t13:21:58Z", None),
            ("2015-06-03T13:21:58z", None),
            ("2015-06-03 13:21:58Z", None),
            ("2015-06-03T13:21:60Z", None),
            ("2015-06-03T24:00:00Z", None),
            (
                "2015-06-03T13:21:58.5555555555555Z",
                Some(1_433_337_718_555),
            ),
            ("2015-06-03T13:21:58+24:00", Some(1_433_251_318_000)),
            ("2015-06-03T13:21:58+23:59", Some(1_433_251_378_000)),
            ("2015-06-03T13:21:58+00:60", Some(1_433_334_118_000)),
            ("2015-06-03T13:21:58+24:30", Some(1_433_249_518_000)),
            ("2015-06-03T13:21:58+25:00", None),
            ("2015-06-03T1:21:58Z", Some(1_433_294_518_000)),
            ("2015-6-3T13:21:58Z", None),
            ("2015-02-29T00:00:00Z", None),
            ("2024-02-29T00:00:00Z", Some(1_709_164_800_000)),
            ("2000-02-29T00:00:00Z", Some(951_782_400_000)),
            ("1900-02-29T00:00:00Z", None),
            ("1969-12-31T23:59:59.5Z", Some(-500)),
            ("0000-01-01T00:00:00Z", Some(-62_167_219_200_000)),
            ("9999-12-31T23:59:59Z", Some(253_402_300_799_000)),
            ("2015-06-03T13:21:58-00:00", Some(1_433_337_718_000)),
            ("2015-06-03T13:21:58", None),
            ("2015-06-03T13:21:58+0100", None),
            ("2015-06-03T13:21Z", None),
            ("-2015-06-03T13:21:58Z", None),
            ("12015-06-03T13:21:58Z", None),
            ("2015-06-03T13:21:58+1:00", None),
            ("2015-06-03T13:21:58,5.5Z", None),
            ("2015-13-03T13:21:58Z", None),
            ("2015-06-00T13:21:58Z", None),
            ("2015-06-03T13:21:58é", None),
            ("", None),
        ] {
            let ms = parse_rfc3339(text).map(|nanos| nanos.div_euclid(1_000_000));
            assert_eq!(ms, want_ms, "{text}");
        }
    }
}
