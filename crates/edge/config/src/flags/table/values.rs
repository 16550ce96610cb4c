//! Parses the values of flags into settings.

use crate::{LogFormat, Settings};
use firn_model::units::{parse_duration, parse_size};
use firn_wire::remote_write::RemoteWriteVersion;
use std::time::Duration;

/// `--query.lookback-delta` if it is not set, or zero.
pub(super) const DEFAULT_LOOKBACK: Duration = Duration::from_secs(300);

/// `--alertmanager.notification-batch-size` if it is not set, or zero.
pub(super) const DEFAULT_BATCH_ALERTS: usize = 256;

/// Adds the versions of remote write whose messages `text` names.
pub(super) fn add_write_versions(settings: &mut Settings, text: &str) -> Result<(), String> {
    for name in text.split(',') {
        let version = RemoteWriteVersion::from_message_name(name).ok_or_else(|| {
            let supported = RemoteWriteVersion::join_message_names(&RemoteWriteVersion::ALL);
            format!("unknown type for remote write protobuf message {name}, supported: {supported}")
        })?;
        let known = &mut settings.write_versions;
        if known.contains(&version) {
            let got = RemoteWriteVersion::join_message_names(known);
            return Err(format!("duplicated {name} flag value, got {got} already"));
        }
        known.push(version);
    }
    Ok(())
}

pub(super) fn set<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

/// A size with or without a sign. One below zero is no limit.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let bytes = parse_size(unsigned).map_err(|e| e.to_string())?;
    if text.starts_with('-') {
        Ok(0)
    } else {
        Ok(bytes)
    }
}

pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        d if d.is_zero() => Err(format!("must be greater than 0: {text:?}")),
        d => Ok(d),
    }
}

/// Zero means the default, as in Prometheus's engine.
pub(super) fn or_default_lookback(lookback: Duration) -> Duration {
    if lookback.is_zero() {
        DEFAULT_LOOKBACK
    } else {
        lookback
    }
}

pub(super) fn or_default_batch(alerts: usize) -> usize {
    match alerts {
        0 => DEFAULT_BATCH_ALERTS,
        alerts => alerts,
    }
}

/// A whole number as Go's flags read it: as a float, whose fraction is cut off.
fn integer(text: &str) -> Result<i64, String> {
    let is_divided = !text.starts_with('_') && !text.ends_with('_') && !text.contains("__");
    let digits = if is_divided {
        text.replace('_', "")
    } else {
        text.to_owned()
    };
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number as i64),
        _ => Err(format!("not a whole number: {text:?}")),
    }
}

/// A whole number from one on. Zero would refuse every query or connection.
pub(super) fn count<T: TryFrom<i64>>(text: &str) -> Result<T, String> {
    let number = integer(text).ok().filter(|number| *number >= 1);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("not a whole number greater than 0: {text:?}"))
}

/// A whole number. Below zero it means what zero means.
pub(super) fn number<T: TryFrom<i64>>(text: &str) -> Result<T, String> {
    let number = T::try_from(integer(text)?.max(0));
    number.map_err(|_| format!("number too large: {text:?}"))
}

pub(super) fn not_negative<T: TryFrom<i64>>(text: &str) -> Result<T, String> {
    match integer(text)? {
        ..0 => Err(format!("must not be negative: {text:?}")),
        _ => number(text),
    }
}

pub(super) fn level(text: &str) -> Result<tracing::Level, String> {
    match text.to_lowercase().as_str() {
        "debug" => Ok(tracing::Level::DEBUG),
        "info" => Ok(tracing::Level::INFO),
        "warn" => Ok(tracing::Level::WARN),
        "error" => Ok(tracing::Level::ERROR),
        _ => Err(format!("not one of debug, info, warn, error: {text:?}")),
    }
}

pub(super) fn format(text: &str) -> Result<LogFormat, String> {
    match text {
        "logfmt" => Ok(LogFormat::Logfmt),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("not one of logfmt, json: {text:?}")),
    }
}
