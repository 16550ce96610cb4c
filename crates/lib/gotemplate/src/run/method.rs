//! Methods of times, durations, histograms and URL parameters, with Go's names and types.

use crate::escape;
use crate::format::own_text;
use crate::signature::{FunctionSignature, ParameterType};
use crate::time::GoTime;
use crate::value::{Bytes, GoIntType, TemplateValue};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A method that templates may call on a value. The set is closed: other methods of Go's types do
/// not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateMethod {
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

impl TemplateMethod {
    /// Returns the method of `receiver` called `name`; `None` if its type has no such method.
    pub fn from_name(receiver: &TemplateValue, name: &str) -> Option<Self> {
        match receiver {
            TemplateValue::Time(_) => Self::time_method(name),
            TemplateValue::Int(GoIntType::Duration, _) => Self::duration_method(name),
            TemplateValue::Params(_) => Self::params_method(name),
            TemplateValue::Int(GoIntType::Month | GoIntType::Weekday, _)
            | TemplateValue::Histogram(_) => (name == "String").then_some(Self::String),
            _ => None,
        }
    }

    fn time_method(name: &str) -> Option<Self> {
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

    fn duration_method(name: &str) -> Option<Self> {
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

    fn params_method(name: &str) -> Option<Self> {
        Some(match name {
            "Get" => Self::Get,
            "Has" => Self::Has,
            "Encode" => Self::Encode,
            _ => return None,
        })
    }

    /// Returns the parameter types of the method.
    pub fn signature(self) -> FunctionSignature {
        FunctionSignature::fixed(match self {
            Self::Format | Self::Get | Self::Has => &[ParameterType::String],
            Self::Add | Self::Truncate | Self::Round => &[ParameterType::Duration],
            Self::Sub | Self::Before | Self::After | Self::Equal | Self::Compare => {
                &[ParameterType::Time]
            }
            _ => &[],
        })
    }

    /// Calls the method on `receiver`. `arguments` must already match its signature.
    pub fn call(self, receiver: &TemplateValue, arguments: &[TemplateValue]) -> TemplateValue {
        match receiver {
            TemplateValue::Time(time) => self.call_time(*time, arguments.first()),
            TemplateValue::Int(GoIntType::Duration, nanos) if self != Self::String => {
                self.call_duration(*nanos, arguments.first())
            }
            TemplateValue::Params(params) => self.call_params(params, arguments.first()),
            _ => TemplateValue::string(own_text(receiver).unwrap_or_default().as_bytes()),
        }
    }

    fn call_params(self, params: &Params, argument: Option<&TemplateValue>) -> TemplateValue {
        match (self, argument) {
            (Self::Get, Some(TemplateValue::String(name))) => {
                let first = params.get(name).and_then(|values| values.first());
                TemplateValue::String(first.cloned().unwrap_or_default())
            }
            (Self::Has, Some(TemplateValue::String(name))) => {
                TemplateValue::Bool(params.contains_key(name))
            }
            _ => TemplateValue::string(encode_params(params)),
        }
    }

    fn call_time(self, time: GoTime, argument: Option<&TemplateValue>) -> TemplateValue {
        let int = |value| TemplateValue::Int(GoIntType::Int, value);
        let long = |value| TemplateValue::Int(GoIntType::Int64, value);
        let other = match argument {
            Some(TemplateValue::Time(other)) => *other,
            _ => time,
        };
        match (self, argument) {
            (Self::Format, Some(TemplateValue::String(layout))) => {
                TemplateValue::string(time.format(layout))
            }
            (Self::Add, Some(TemplateValue::Int(_, nanos))) => TemplateValue::Time(GoTime {
                nanos: time.nanos.saturating_add(*nanos),
            }),
            (Self::Sub, _) => {
                let nanos = time.nanos.saturating_sub(other.nanos);
                TemplateValue::Int(GoIntType::Duration, nanos)
            }
            (Self::Unix, _) => long(time.seconds()),
            (Self::UnixMilli, _) => long(time.nanos.div_euclid(1_000_000)),
            (Self::UnixMicro, _) => long(time.nanos.div_euclid(1_000)),
            (Self::UnixNano, _) => long(time.nanos),
            (Self::Year, _) => int(time.year()),
            (Self::Month, _) => TemplateValue::Int(GoIntType::Month, time.month()),
            (Self::Day, _) => int(time.day()),
            (Self::Hour, _) => int(time.hour()),
            (Self::Minute, _) => int(time.minute()),
            (Self::Second, _) => int(time.second()),
            (Self::Nanosecond, _) => int(time.nanosecond()),
            (Self::YearDay, _) => int(time.year_day()),
            (Self::Weekday, _) => TemplateValue::Int(GoIntType::Weekday, time.weekday()),
            (Self::Utc, _) => TemplateValue::Time(time),
            // Go's zero time is in the year 1, which no time in a template can represent.
            (Self::IsZero, _) => TemplateValue::Bool(false),
            (Self::Before, _) => TemplateValue::Bool(time < other),
            (Self::After, _) => TemplateValue::Bool(time > other),
            (Self::Equal, _) => TemplateValue::Bool(time == other),
            (Self::Compare, _) => int(time.cmp(&other) as i64),
            _ => TemplateValue::string(time.to_string().as_bytes()),
        }
    }

    fn call_duration(self, nanos: i64, argument: Option<&TemplateValue>) -> TemplateValue {
        let duration = |nanos| TemplateValue::Int(GoIntType::Duration, nanos);
        let unit = match argument {
            Some(TemplateValue::Int(_, unit)) => *unit,
            _ => 0,
        };
        // Like Go, converts whole units and the remainder separately to reduce rounding errors.
        let float = |unit: i64| (nanos / unit) as f64 + (nanos % unit) as f64 / unit as f64;
        match self {
            Self::Hours => TemplateValue::Float(float(3600 * NANOS)),
            Self::Minutes => TemplateValue::Float(float(60 * NANOS)),
            Self::Seconds => TemplateValue::Float(float(NANOS)),
            Self::Milliseconds => TemplateValue::Int(GoIntType::Int64, nanos / 1_000_000),
            Self::Microseconds => TemplateValue::Int(GoIntType::Int64, nanos / 1_000),
            Self::Nanoseconds => TemplateValue::Int(GoIntType::Int64, nanos),
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
    if is_down {
        down
    } else if nanos < 0 {
        down.saturating_sub(unit)
    } else {
        down.saturating_add(unit)
    }
}

/// Encodes parameters as a URL query, sorted by name, like Go's `url.Values.Encode`.
fn encode_params(params: &Params) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, values) in params {
        for value in values.iter() {
            if !out.is_empty() {
                out.push(b'&');
            }
            out.extend_from_slice(&escape::escape_url_query(name));
            out.push(b'=');
            out.extend_from_slice(&escape::escape_url_query(value));
        }
    }
    out
}
