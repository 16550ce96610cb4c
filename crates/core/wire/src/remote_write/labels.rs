//! Decodes the labels of a series in any order and form: sorts, validates, and formats the error
//! for invalid ones.
//!
//! This is the reference implementation of labels in remote write; [`super::plain`] is the fast
//! path for labels in the usual form.

use super::field;
use super::refusal::WriteRejectionReason;
use crate::error::WireError;
use crate::limits::WireLimits;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use firn_model::labels::{METRIC_NAME, push_pair};

/// Largest excerpt of a label set in an error text, in bytes.
const SHOWN_BYTES_MAX: usize = 1024;

/// The reason why a series or point is rejected, with an error text for the response. Created
/// during validation and counted in `WriteRejections`.
#[derive(Debug)]
pub struct SeriesRejection {
    /// The category under which the rejection is counted.
    pub refusal: WriteRejectionReason,
    /// The error text, with the labels.
    pub message: String,
}

/// Decodes a label with its fields in any order; the last of each wins, and a missing one is empty.
pub(crate) fn name_and_value(label: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let (mut name, mut value): (&[u8], &[u8]) = (&[], &[]);
    let mut cursor = ProtobufCursor::new(label);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            field::LABEL_NAME => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                name = cursor.read_bytes()?;
            }
            field::LABEL_VALUE => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                value = cursor.read_bytes()?;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok((name, value))
}

/// Name and value of a label.
type Pair<'m> = (&'m [u8], &'m [u8]);

/// Appends the canonical form of labels, which may be in any order and include empty ones, to the
/// arena. Returns the reason if they are invalid.
pub fn push_checked(
    mut pairs: Vec<Pair<'_>>,
    limits: &WireLimits,
    arena: &mut Vec<u8>,
) -> Result<(), SeriesRejection> {
    let count = pairs.len();
    pairs.truncate(limits.label_count_max);
    push_counted(pairs, count, limits, arena)
}

fn push_counted(
    mut pairs: Vec<Pair<'_>>,
    count: usize,
    limits: &WireLimits,
    arena: &mut Vec<u8>,
) -> Result<(), SeriesRejection> {
    pairs.sort_by_key(|(name, _)| *name);
    if let Some(offence) = find_rejection(&pairs, count, limits) {
        return Err(offence);
    }
    for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
        push_pair(arena, name, value);
    }
    Ok(())
}

/// Decodes the labels of a series and appends their canonical form to the arena. The inner error is
/// for the series, the outer one for the message.
pub(super) fn decode_labels(
    series: &[u8],
    limits: &WireLimits,
    arena: &mut Vec<u8>,
) -> Result<Result<(), SeriesRejection>, WireError> {
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    let mut count = 0usize;
    let mut cursor = ProtobufCursor::new(series);
    while let Some((number, wire_type)) = cursor.read_field()? {
        if number != field::SERIES_LABEL {
            cursor.skip(wire_type)?;
            continue;
        }
        expect_wire_type(wire_type, WireType::Bytes)?;
        let pair = name_and_value(cursor.read_bytes()?)?;
        count += 1;
        if count <= limits.label_count_max {
            pairs.push(pair);
        }
    }
    Ok(push_counted(pairs, count, limits, arena))
}

/// Returns the error of the sorted `pairs`, of which there were `count` before they were truncated
/// to the limit.
fn find_rejection(
    pairs: &[Pair<'_>],
    count: usize,
    limits: &WireLimits,
) -> Option<SeriesRejection> {
    let (names_max, values_max) = (limits.label_name_bytes_max, limits.label_value_bytes_max);
    let bad = |refusal, what: String| {
        let message = format!("{what} for series {}", format_labels(pairs));
        Some(SeriesRejection { refusal, message })
    };
    let invalid = |refusal| {
        let message = format!(
            "invalid metric name or labels, got {}",
            format_labels(pairs)
        );
        Some(SeriesRejection { refusal, message })
    };
    if count > limits.label_count_max {
        let what = format!(
            "too many labels: {count}, limit {} (max_label_names_per_series)",
            limits.label_count_max
        );
        return bad(WriteRejectionReason::TooManyLabels, what);
    }
    for (name, value) in pairs {
        if name.len() > names_max {
            let what = format!(
                "label name too long: {} bytes, limit {names_max}",
                name.len()
            );
            return bad(WriteRejectionReason::LabelNameTooLong, what);
        }
        if value.len() > values_max {
            let what = format!(
                "label value too long: {} bytes, limit {values_max}",
                value.len()
            );
            return bad(WriteRejectionReason::LabelValueTooLong, what);
        }
        if name.is_empty() || std::str::from_utf8(name).is_err() {
            return invalid(WriteRejectionReason::LabelName);
        }
        let is_metric_name = *name == METRIC_NAME.as_bytes();
        if std::str::from_utf8(value).is_err() || is_metric_name && value.is_empty() {
            return invalid(if is_metric_name {
                WriteRejectionReason::MetricName
            } else {
                WriteRejectionReason::LabelValue
            });
        }
    }
    if !pairs
        .iter()
        .any(|(name, _)| *name == METRIC_NAME.as_bytes())
    {
        return invalid(WriteRejectionReason::MetricName);
    }
    let (name, _) = pairs.windows(2).find(|w| w[0].0 == w[1].0)?[0];
    let name = String::from_utf8_lossy(name);
    let message = format!(
        "invalid labels for series, labels {}, duplicated label {name}",
        format_labels(pairs)
    );
    Some(SeriesRejection {
        refusal: WriteRejectionReason::DuplicateLabel,
        message,
    })
}

/// Formats a label set like Prometheus, truncated if it is long.
fn format_labels(pairs: &[Pair<'_>]) -> String {
    let mut text = "{".to_owned();
    for (i, (name, value)) in pairs.iter().enumerate() {
        let cut = |bytes: &'_ [u8]| {
            let bytes = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes);
            String::from_utf8_lossy(bytes).into_owned()
        };
        if text.len() > SHOWN_BYTES_MAX {
            text.push_str(", ...");
            break;
        }
        let comma = if i == 0 { "" } else { ", " };
        text.push_str(&format!("{comma}{}={:?}", cut(name), cut(value)));
    }
    text.push('}');
    text
}
