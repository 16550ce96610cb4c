//! Methods of times, durations, histograms and URL parameters, with Go's names and types.

use crate::template::escape;
use crate::template::format::own_text;
use crate::template::signature::{Parameter, Signature};
use crate::template::time::Time;
use crate::template::value::{Bytes, IntType, Value};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A method that templates may call on a value. The set is closed: other methods of Go's types do
/// not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::template) enum Method {
    String,
    Format,
    Unix,
    UnixMilli,
    UnixMicro,
    UnixNano,
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Nanosecond,
    YearDay,
    Weekday,
    Utc,
    IsZero,
    Add,
    Sub,
    Before,
    After,
    Equal,
    Compare,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
    Abs,
    Truncate,
    Round,
    Get,
    Has,
    Encode,
}

const NANOS: i64 = 1_000_000_000;

/// URL parameters: lists of values by name, each list in the order of the request.
type Params = BTreeMap<Bytes, Rc<[Bytes]>>;

impl Method {
    /// Returns the method of `receiver` called `name`; `None` if its type has no such method.
    pub fn of(receiver: &Value, name: &str) -> Option<Self> {
        match receiver {
            Value::Time(_) => Self::of_time(name),
            Value::Int(IntType::Duration, _) => Self::of_duration(name),
            Value::Params(_) => Self::of_params(name),
            Value::Int(IntType::Month | IntType::Weekday, _) | Value::Histogram(_) => {
                (name == "String").then_some(Self::String)
            }
            _ => None,
        }
    }

    fn of_time(name: &str) -> Option<Self> {
        Some(match name {
            "String" => Self::String,
            "Format" => Self::Format,
            "Unix" => Self::Unix,
            "UnixMilli" => Self::UnixMilli,
            "UnixMicro" => Self::UnixMicro,
            "UnixNano" => Self::UnixNano,
            "Year" => Self::Year,
            "Month" => Self::Month,
            "Day" => Self::Day,
            "Hour" => Self::Hour,
            "Minute" => Self::Minute,
            "Second" => Self::Second,
            "Nanosecond" => Self::Nanosecond,
            "YearDay" => Self::YearDay,
            "Weekday" => Self::Weekday,
            "UTC" => Self::Utc,
            "IsZero" => Self::IsZero,
            "Add" => Self::Add,
            "Sub" => Self::Sub,
            "Before" => Self::Before,
            "After" => Self::After,
            "Equal" => Self::Equal,
            "Compare" => Self::Compare,
            _ => return None,
        })
    }

    fn of_duration(name: &str) -> Option<Self> {
        Some(match name {
            "String" => Self::String,
            "Hours" => Self::Hours,
            "Minutes" => Self::Minutes,
            "Seconds" => Self::Seconds,
            "Milliseconds" => Self::Milliseconds,
            "Microseconds" => Self::Microseconds,
            "Nanoseconds" => Self::Nanoseconds,
            "Abs" => Self::Abs,
            "Truncate" => Self::Truncate,
            "Round" => Self::Round,
            _ => return None,
        })
    }

    fn of_params(name: &str) -> Option<Self> {
        Some(match name {
            "Get" => Self::Get,
            "Has" => Self::Has,
            "Encode" => Self::Encode,
            _ => return None,
        })
    }

    /// Returns the parameter types of the method.
    pub fn signature(self) -> Signature {
        Signature::fixed(match self {
            Self::Format | Self::Get | Self::Has => &[Parameter::String],
            Self::Add | Self::Truncate | Self::Round => &[Parameter::Duration],
            Self::Sub | Self::Before | Self::After | Self::Equal | Self::Compare => {
                &[Parameter::Time]
            }
            _ => &[],
        })
    }

    /// Calls the method on `receiver`. `arguments` must already match its signature.
    pub fn call(self, receiver: &Value, arguments: &[Value]) -> Value {
        match receiver {
            Value::Time(time) => self.call_time(*time, arguments.first()),
            Value::Int(IntType::Duration, nanos) if self != Self::String => {
                self.call_duration(*nanos, arguments.first())
            }
            Value::Params(params) => self.call_params(params, arguments.first()),
            _ => Value::string(own_text(receiver).unwrap_or_default().as_bytes()),
        }
    }

    fn call_params(self, params: &Params, argument: Option<&Value>) -> Value {
        match (self, argument) {
            (Self::Get, Some(Value::String(name))) => {
                let first = params.get(name).and_then(|values| values.first());
                Value::String(first.cloned().unwrap_or_default())
            }
            (Self::Has, Some(Value::String(name))) => Value::Bool(params.contains_key(name)),
            _ => Value::string(encoded(params)),
        }
    }

    fn call_time(self, time: Time, argument: Option<&Value>) -> Value {
        let int = |value| Value::Int(IntType::Int, value);
        let long = |value| Value::Int(IntType::Int64, value);
        let other = match argument {
            Some(Value::Time(other)) => *other,
            _ => time,
        };
        match (self, argument) {
            (Self::Format, Some(Value::String(layout))) => Value::string(time.format(layout)),
            (Self::Add, Some(Value::Int(_, nanos))) => Value::Time(Time {
                nanos: time.nanos.saturating_add(*nanos),
            }),
            (Self::Sub, _) => {
                let nanos = time.nanos.saturating_sub(other.nanos);
                Value::Int(IntType::Duration, nanos)
            }
            (Self::Unix, _) => long(time.seconds()),
            (Self::UnixMilli, _) => long(time.nanos.div_euclid(1_000_000)),
            (Self::UnixMicro, _) => long(time.nanos.div_euclid(1_000)),
            (Self::UnixNano, _) => long(time.nanos),
            (Self::Year, _) => int(time.year()),
            (Self::Month, _) => Value::Int(IntType::Month, time.month()),
            (Self::Day, _) => int(time.day()),
            (Self::Hour, _) => int(time.hour()),
            (Self::Minute, _) => int(time.minute()),
            (Self::Second, _) => int(time.second()),
            (Self::Nanosecond, _) => int(time.nanosecond()),
            (Self::YearDay, _) => int(time.year_day()),
            (Self::Weekday, _) => Value::Int(IntType::Weekday, time.weekday()),
            (Self::Utc, _) => Value::Time(time),
            // Go's zero time is in the year 1, which no time in a template can represent.
            (Self::IsZero, _) => Value::Bool(false),
            (Self::Before, _) => Value::Bool(time < other),
            (Self::After, _) => Value::Bool(time > other),
            (Self::Equal, _) => Value::Bool(time == other),
            (Self::Compare, _) => int(time.cmp(&other) as i64),
            _ => Value::string(time.to_string().as_bytes()),
        }
    }

    fn call_duration(self, nanos: i64, argument: Option<&Value>) -> Value {
        let duration = |nanos| Value::Int(IntType::Duration, nanos);
        let unit = match argument {
            Some(Value::Int(_, unit)) => *unit,
            _ => 0,
        };
        // Like Go, converts whole units and the remainder separately to reduce rounding errors.
        let float = |unit: i64| (nanos / unit) as f64 + (nanos % unit) as f64 / unit as f64;
        match self {
            Self::Hours => Value::Float(float(3600 * NANOS)),
            Self::Minutes => Value::Float(float(60 * NANOS)),
            Self::Seconds => Value::Float(float(NANOS)),
            Self::Milliseconds => Value::Int(IntType::Int64, nanos / 1_000_000),
            Self::Microseconds => Value::Int(IntType::Int64, nanos / 1_000),
            Self::Nanoseconds => Value::Int(IntType::Int64, nanos),
            Self::Abs => duration(nanos.saturating_abs()),
            Self::Truncate if unit > 0 => duration(nanos - nanos % unit),
            Self::Round if unit > 0 => duration(round(nanos, unit)),
            _ => duration(nanos),
        }
    }
}

/// Rounds to the nearest multiple of `unit`; halves are rounded away from zero.
fn round(nanos: i64, unit: i64) -> i64 {
    let rest = nanos % unit;
    let down = nanos - rest;
    let is_down = i128::from(rest.unsigned_abs()) * 2 < i128::from(unit);
    match is_down {
        true => down,
        false if nanos < 0 => down.saturating_sub(unit),
        false => down.saturating_add(unit),
    }
}

/// Encodes parameters as a URL query, sorted by name, like Go's `url.Values.Encode`.
fn encoded(params: &Params) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, values) in params {
        for value in values.iter() {
            if !out.is_empty() {
                out.push(b'&');
            }
            out.extend_from_slice(&escape::url_query(name));
            out.push(b'=');
            out.extend_from_slice(&escape::url_query(value));
        }
    }
    out
}
