//! Functions that format numbers for people: SI prefixes, percentages, durations and times.

use super::table::{Called, TemplateFunction};
use crate::format::format_four_digits;
use crate::number::{float_to_int, parse_float};
use crate::time::GoTime;
use crate::value::{GoIntType, TemplateValue};
use firn_model::quote::quote;
use firn_model::units;

const NANOS: f64 = 1e9;

/// Calls one of the functions whose argument is a number, a numeric string or a duration.
pub(super) fn call(function: TemplateFunction, argument: &TemplateValue) -> Called {
    let value = to_float(argument)?;
    Ok(match function {
        TemplateFunction::Humanize => TemplateValue::string(humanize(value).as_bytes()),
        TemplateFunction::Humanize1024 => TemplateValue::string(humanize_1024(value).as_bytes()),
        TemplateFunction::HumanizeDuration => {
            TemplateValue::string(humanize_duration(value).as_bytes())
        }
        TemplateFunction::HumanizePercentage => {
            TemplateValue::string(format!("{}%", format_four_digits(value * 100.0)).as_bytes())
        }
        TemplateFunction::HumanizeTimestamp if !value.is_finite() => {
            TemplateValue::string(format_four_digits(value).as_bytes())
        }
        TemplateFunction::HumanizeTimestamp => {
            TemplateValue::string(to_time(value)?.to_string().as_bytes())
        }
        TemplateFunction::ToTime => {
            TemplateValue::Pointer(Box::new(TemplateValue::Time(to_time(value)?)))
        }
        _ => {
            let nanos = float_to_int(value * NANOS);
            TemplateValue::Pointer(Box::new(TemplateValue::Int(GoIntType::Duration, nanos)))
        }
    })
}

/// Converts floats, numeric strings, integers and durations (in seconds) to a float.
fn to_float(value: &TemplateValue) -> Result<f64, String> {
    match value.clone().unwrap_interface() {
        TemplateValue::Float(value) => Ok(value),
        TemplateValue::Int(GoIntType::Int | GoIntType::Int64, value) => Ok(value as f64),
        TemplateValue::Int(GoIntType::Duration, nanos) => {
            let (seconds, rest) = (nanos / NANOS as i64, nanos % NANOS as i64);
            Ok(seconds as f64 + rest as f64 / NANOS)
        }
        TemplateValue::String(text) => parse_float(&String::from_utf8_lossy(&text)).map_err(|e| {
            let text = quote(&text);
            format!("strconv.ParseFloat: parsing {text}: {e}")
        }),
        value => Err(format!("can't convert {} to float", value.type_name())),
    }
}

/// Divides by `step` until the value is below it or no prefix is left. Returns the value and its
/// prefix.
fn scale(mut value: f64, step: f64, prefixes: &'static [&'static str]) -> (f64, &'static str) {
    let mut prefix = "";
    for next in prefixes {
        if value.abs() < step {
            break;
        }
        prefix = next;
        value /= step;
    }
    (value, prefix)
}

/// Multiplies by a thousand until the value is at least one or no prefix is left.
fn scale_small(mut value: f64) -> (f64, &'static str) {
    let mut prefix = "";
    for next in ["m", "u", "n", "p", "f", "a", "z", "y"] {
        if value.abs() >= 1.0 {
            break;
        }
        prefix = next;
        value *= 1000.0;
    }
    (value, prefix)
}

fn humanize(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format_four_digits(value);
    }
    let (value, prefix) = if value.abs() >= 1.0 {
        scale(value, 1000.0, &["k", "M", "G", "T", "P", "E", "Z", "Y"])
    } else {
        scale_small(value)
    };
    format!("{}{prefix}", format_four_digits(value))
}

fn humanize_1024(value: f64) -> String {
    if value.abs() <= 1.0 || !value.is_finite() {
        return format_four_digits(value);
    }
    let prefixes = &["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];
    let (value, prefix) = scale(value, 1024.0, prefixes);
    format!("{}{prefix}", format_four_digits(value))
}

fn humanize_duration(value: f64) -> String {
    if !value.is_finite() {
        return format_four_digits(value);
    }
    if value == 0.0 {
        return format!("{}s", format_four_digits(value));
    }
    if value.abs() < 1.0 {
        let (value, prefix) = scale_small(value);
        return format!("{}{prefix}s", format_four_digits(value));
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let total = float_to_int(value.abs());
    let (seconds, minutes) = (total % 60, total / 60 % 60);
    let (hours, days) = (total / 3600 % 24, total / 86_400);
    if days != 0 {
        format!("{sign}{days}d {hours}h {minutes}m {seconds}s")
    } else if hours != 0 {
        format!("{sign}{hours}h {minutes}m {seconds}s")
    } else if minutes != 0 {
        format!("{sign}{minutes}m {seconds}s")
    } else {
        format!("{sign}{}s", format_four_digits(value.abs()))
    }
}

/// Converts seconds since the epoch to a time, truncated to milliseconds.
fn to_time(seconds: f64) -> Result<GoTime, String> {
    if !seconds.is_finite() {
        return Err("value is NaN or Inf".to_owned());
    }
    let nanos = seconds * NANOS;
    if nanos > i64::MAX as f64 || nanos < i64::MIN as f64 {
        let seconds = firn_model::go_float::format_shortest(seconds);
        return Err(format!(
            "{seconds} cannot be represented as a nanoseconds timestamp since it overflows int64"
        ));
    }
    let nanos = float_to_int(nanos);
    Ok(GoTime {
        nanos: nanos - nanos % 1_000_000,
    })
}

/// Parses a duration like `1h30m` or `-5m` into seconds, for the function `parseDuration`.
pub(super) fn parse_duration(text: &[u8]) -> Result<f64, String> {
    let text = String::from_utf8_lossy(text);
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, &text[..]),
    };
    let duration = units::parse_duration(rest).map_err(|e| e.to_string())?;
    Ok(sign * (duration.as_nanos() as f64 / NANOS))
}
