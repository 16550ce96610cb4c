//! The civil calendar: year, month, day and time of day of a Unix time in UTC.
//!
//! Days are counted in eras of 400 years (Hinnant, "chrono-compatible low-level date algorithms").
//! Seconds outside the range of Go's clock wrap around like in Go, because the result of
//! `year(vector(NaN))` depends on it.

const DAY_SECONDS: i128 = 86_400;

/// The first second that Go can represent is March 1st of this year.
const EARLIEST_YEAR: i128 = -292_277_022_399;

/// A point in time in UTC, split into calendar fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UtcDate {
    /// The year. Year zero exists, and earlier years are negative.
    pub(crate) year: i64,
    /// The month of the year: 1 to 12.
    pub(crate) month: u32,
    /// The day of the month: 1 to 31.
    pub(crate) day: u32,
    /// The hour of the day: 0 to 23.
    pub(crate) hour: u32,
    /// The minute of the hour: 0 to 59.
    pub(crate) minute: u32,
    /// The second of the minute: 0 to 59.
    pub(crate) second: u32,
    /// The day of the week: 0 is Sunday, 6 is Saturday.
    pub(crate) weekday: u32,
    /// The day of the year: 1 to 365, or 366 in a leap year.
    pub(crate) day_of_year: u32,
}

impl UtcDate {
    /// Returns the date of a number of seconds since the Unix epoch.
    pub(crate) fn from_unix(seconds: i64) -> Self {
        let mut seconds = i128::from(seconds);
        if seconds < days_before(EARLIEST_YEAR, 3, 1) * DAY_SECONDS {
            seconds += 1 << 64;
        }
        let days = seconds.div_euclid(DAY_SECONDS);
        let second_of_day = seconds.rem_euclid(DAY_SECONDS) as u32;
        let (year, month, day) = civil_from_days(days);
        Self {
            year: year as i64,
            month,
            day,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            weekday: (days + 4).rem_euclid(7) as u32,
            day_of_year: (days - days_before(year, 1, 1)) as u32 + 1,
        }
    }

    /// Returns the date of a float, truncated to whole seconds like in Go. NaN and values out of
    /// range become the smallest `i64`.
    pub(crate) fn from_float(seconds: f64) -> Self {
        let fits = (-(2f64.powi(63))..2f64.powi(63)).contains(&seconds);
        Self::from_unix(if fits { seconds as i64 } else { i64::MIN })
    }

    /// Returns the number of days in the month, considering leap years.
    pub(crate) fn days_in_month(&self) -> u32 {
        match self.month {
            2 if is_leap(self.year) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Returns the number of days from the Unix epoch to a date, negative before it.
fn days_before(year: i128, month: u32, day: u32) -> i128 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = i128::from((month + 9) % 12);
    let day_of_year = (153 * month_from_march + 2) / 5 + i128::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns the year, month and day that is `days` after the Unix epoch.
fn civil_from_days(days: i128) -> (i128, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    } as u32;
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seconds: f64, date: (i64, u32, u32), clock: (u32, u32), days: (u32, u32, u32)) {
        let d = UtcDate::from_float(seconds);
        assert_eq!((d.year, d.month, d.day), date, "{seconds}");
        assert_eq!((d.hour, d.minute), clock, "{seconds}");
        let got = (d.weekday, d.day_of_year, d.days_in_month());
        assert_eq!(got, days, "{seconds}");
    }

    #[test]
    fn date_from_float_is_gos() {
        check(-1.0, (1969, 12, 31), (23, 59), (3, 365, 31));
        check(1e12, (33_658, 9, 27), (1, 46), (5, 270, 30));
        check(1e18, (31_688_740_476, 10, 23), (1, 46), (5, 297, 31));
        check(-1e18, (-31_688_736_537, 3, 10), (22, 13), (2, 69, 31));
        check(-62_135_596_801.0, (0, 12, 31), (23, 59), (0, 366, 31));
        check(-1e11, (-1199, 2, 15), (14, 13), (4, 46, 28));
        let wrapped = (292_277_026_596, 12, 4);
        check(f64::NAN, wrapped, (15, 30), (0, 339, 31));
        check(f64::INFINITY, wrapped, (15, 30), (0, 339, 31));
    }
}
