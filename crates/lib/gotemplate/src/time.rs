//! Times in UTC and durations, formatted like Go's `time` package.
//!
//! Invariant: a time is a 64-bit number of nanoseconds since the epoch, the range that templates
//! can produce. Layouts follow Go's package `time`.

use ::time::OffsetDateTime;

const NANOS: i64 = 1_000_000_000;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Elements of a layout. If one is a prefix of another, the longer one is first.
const CHUNKS: [&str; 33] = [
    "January",
    "Jan",
    "Monday",
    "Mon",
    "MST",
    "2006",
    "-070000",
    "-07:00:00",
    "-0700",
    "-07:00",
    "-07",
    "Z070000",
    "Z07:00:00",
    "Z0700",
    "Z07:00",
    "Z07",
    "01",
    "02",
    "03",
    "04",
    "05",
    "06",
    "002",
    "15",
    "__2",
    "_2",
    "PM",
    "pm",
    "1",
    "2",
    "3",
    "4",
    "5",
];

/// A time in UTC, in nanoseconds since the epoch, with the methods that Go's `time.GoTime` has in
/// templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GoTime {
    pub nanos: i64,
}

impl GoTime {
    fn date(self) -> OffsetDateTime {
        // 64 bits of nanoseconds cover the years 1677 to 2262, which the library supports.
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.nanos))
            .unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    pub fn seconds(self) -> i64 {
        self.nanos.div_euclid(NANOS)
    }

    pub fn nanosecond(self) -> i64 {
        self.nanos.rem_euclid(NANOS)
    }

    pub fn year(self) -> i64 {
        i64::from(self.date().year())
    }

    pub fn month(self) -> i64 {
        i64::from(u8::from(self.date().month()))
    }

    pub fn day(self) -> i64 {
        i64::from(self.date().day())
    }

    pub fn hour(self) -> i64 {
        i64::from(self.date().hour())
    }

    pub fn minute(self) -> i64 {
        i64::from(self.date().minute())
    }

    pub fn second(self) -> i64 {
        i64::from(self.date().second())
    }

    pub fn year_day(self) -> i64 {
        i64::from(self.date().ordinal())
    }

    /// Returns the day of the week; Sunday is 0.
    pub fn weekday(self) -> i64 {
        i64::from(self.date().weekday().number_days_from_sunday())
    }

    /// Formats the time according to `layout`, an example of Go's reference time.
    pub fn format(self, layout: &[u8]) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), layout);
        while let Some(byte) = rest.first() {
            let found = self
                .format_chunk(rest)
                .or_else(|| self.format_fraction(rest));
            let len = match found {
                Some((text, len)) => {
                    out.extend_from_slice(text.as_bytes());
                    len
                }
                None => {
                    out.push(*byte);
                    1
                }
            };
            rest = &rest[len..];
        }
        out
    }

    /// Formats the first element of `layout`, and returns its length in the layout.
    fn format_chunk(self, layout: &[u8]) -> Option<(String, usize)> {
        if layout.starts_with(b"_2006") {
            return Some((format!("_{:04}", self.year()), 5));
        }
        let is_word = |start: &str| {
            let is_short_name = matches!(start, "Jan" | "Mon");
            is_short_name && layout.get(3).is_some_and(u8::is_ascii_lowercase)
        };
        let starts = |start: &&&str| layout.starts_with(start.as_bytes()) && !is_word(start);
        let start = CHUNKS.iter().find(starts)?;
        Some((self.chunk_text(start), start.len()))
    }

    fn chunk_text(self, chunk: &str) -> String {
        let hour_of_12 = (self.hour() + 11) % 12 + 1;
        let is_morning = self.hour() < 12;
        match chunk {
            "January" => month_name(self.month()),
            "Jan" => month_name(self.month())[..3].to_owned(),
            "Monday" => weekday_name(self.weekday()),
            "Mon" => weekday_name(self.weekday())[..3].to_owned(),
            "MST" => "UTC".to_owned(),
            "2006" => format!("{:04}", self.year()),
            "002" => format!("{:03}", self.year_day()),
            "01" => format!("{:02}", self.month()),
            "02" => format!("{:02}", self.day()),
            "03" => format!("{hour_of_12:02}"),
            "04" => format!("{:02}", self.minute()),
            "05" => format!("{:02}", self.second()),
            "06" => format!("{:02}", self.year().rem_euclid(100)),
            "15" => format!("{:02}", self.hour()),
            "__2" => format!("{:3}", self.year_day()),
            "_2" => format!("{:2}", self.day()),
            "PM" => if is_morning { "AM" } else { "PM" }.to_owned(),
            "pm" => if is_morning { "am" } else { "pm" }.to_owned(),
            "1" => self.month().to_string(),
            "2" => self.day().to_string(),
            "3" => hour_of_12.to_string(),
            "4" => self.minute().to_string(),
            "5" => self.second().to_string(),
            zone if zone.starts_with('Z') => "Z".to_owned(),
            zone => zone.replace('7', "0").replace('-', "+"),
        }
    }

    /// Formats fractional seconds like `.000` or `.999`, and returns the length of the element in
    /// the layout.
    fn format_fraction(self, layout: &[u8]) -> Option<(String, usize)> {
        let (point, digits) = layout.split_first()?;
        let first = digits.first().filter(|b| matches!(b, b'0' | b'9'))?;
        let count = digits.iter().take_while(|b| *b == first).count();
        let ends = !digits.get(count).is_some_and(u8::is_ascii_digit);
        if !matches!(point, b'.' | b',') || !ends {
            return None;
        }
        let nanos = format!("{:09}", self.nanosecond());
        let shown = &nanos[..count.min(9)];
        let point = char::from(*point);
        let text = match first {
            b'0' => format!("{point}{shown}"),
            _ => match shown.trim_end_matches('0') {
                "" => String::new(),
                shown => format!("{point}{shown}"),
            },
        };
        Some((text, count + 1))
    }
}

impl std::fmt::Display for GoTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.format(b"2006-01-02 15:04:05.999999999 -0700 MST");
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// Returns the name of a month, or Go's text for an invalid number.
pub(super) fn month_name(month: i64) -> String {
    name(&MONTHS, month - 1).unwrap_or_else(|| format!("%!Month({month})"))
}

/// Returns the name of a day of the week, or Go's text for an invalid number.
pub(super) fn weekday_name(day: i64) -> String {
    name(&WEEKDAYS, day).unwrap_or_else(|| format!("%!Weekday({day})"))
}

fn name(names: &[&str], index: i64) -> Option<String> {
    let index = usize::try_from(index).ok()?;
    names.get(index).map(|name| (*name).to_owned())
}

/// Formats a duration in nanoseconds like Go's `time.QueryDuration`: `1h2m3.5s`, `1.5ms`, `0s`.
pub(super) fn format_duration(nanos: i64) -> String {
    let magnitude = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    let second = NANOS as u64;
    let (unit, unit_nanos) = match magnitude {
        0 => return "0s".to_owned(),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", second),
    };
    if unit != "s" {
        return format!("{sign}{}{unit}", format_decimal(magnitude, unit_nanos));
    }
    let (minutes, rest) = (magnitude / (60 * second), magnitude % (60 * second));
    let seconds = format_decimal(rest, second);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Formats `value` in units of `unit`, which is a power of ten, without trailing zeros.
fn format_decimal(value: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", value % unit);
    match fraction.trim_end_matches('0') {
        "" => (value / unit).to_string(),
        fraction => format!("{}.{fraction}", value / unit),
    }
}
