//! Decodes the exemplars of points: trace and span ids, and further attributes.

use super::field::exemplar as field;
use super::point::{PointNumber, push_part};
use super::text::GeneratedTexts;
use super::trouble::OtlpDecodeError;
use super::value;
use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use crate::remote_write::WriteRejectionReason;
use firn_model::exemplar::{LABEL_CHARS_MAX, TimedExemplar};
use firn_model::labels::{Labels, LabelsBuilder};

/// The labels that contain the ids of trace and span.
const TRACE_ID: &str = "trace_id";
const SPAN_ID: &str = "span_id";

/// A decoded exemplar that is not yet in a batch, because its point may still be rejected.
#[derive(Debug)]
pub(super) struct OtlpExemplar {
    labels: Labels,
    /// The observed value.
    pub value: f64,
    time: i64,
}

impl OtlpExemplar {
    /// Returns the exemplar in the form that a batch accepts; zero means that it has no timestamp
    /// of its own.
    pub(super) fn to_timed(&self) -> TimedExemplar<'_> {
        TimedExemplar {
            labels: self.labels.as_ref(),
            value: self.value,
            time: self.time,
            has_own_time: self.time != 0,
        }
    }

    /// Returns the size of the encoded labels in bytes, for the accounting of memory.
    pub(super) fn label_bytes(&self) -> usize {
        self.labels.as_bytes().len()
    }
}

/// Decodes an `OtlpExemplar`. Its attributes are left out if the labels would have too many
/// characters with them.
pub(super) fn read(message: &[u8]) -> Result<OtlpExemplar, OtlpDecodeError> {
    let (mut time, mut number) = (0, None);
    let (mut trace, mut span): (&[u8], &[u8]) = (&[], &[]);
    let mut attributes = Vec::new();
    let mut cursor = ProtobufCursor::new(message);
    while let Some((field, wire_type)) = cursor.read_field()? {
        let want = |wanted| expect_wire_type(wire_type, wanted);
        match field {
            field::TIME => {
                want(WireType::Fixed64)?;
                time = cursor.read_fixed64()?;
            }
            field::AS_DOUBLE => {
                want(WireType::Fixed64)?;
                number = Some(PointNumber::Double(cursor.read_double()?));
            }
            field::AS_INT => {
                want(WireType::Fixed64)?;
                number = Some(PointNumber::Int(cursor.read_fixed64()? as i64));
            }
            field::TRACE_ID => {
                want(WireType::Bytes)?;
                trace = check_id(cursor.read_bytes()?, 16)?;
            }
            field::SPAN_ID => {
                want(WireType::Bytes)?;
                span = check_id(cursor.read_bytes()?, 8)?;
            }
            field::ATTRIBUTES => {
                want(WireType::Bytes)?;
                push_part(&mut attributes, cursor.read_bytes()?)?;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    let Some(number) = number else {
        let what = "unsupported exemplar value type: Empty";
        return Err(OtlpDecodeError::reject_point(
            WriteRejectionReason::Histogram,
            what,
        ));
    };
    Ok(OtlpExemplar {
        labels: labels(trace, span, &attributes)?,
        value: number.to_float(),
        time: time as i64 / 1_000_000,
    })
}

/// Validates the length of an id. An id of zeros counts as absent and gives an empty slice.
fn check_id(bytes: &[u8], length: usize) -> Result<&[u8], WireError> {
    if !bytes.is_empty() && bytes.len() != length {
        return Err(WireError::Protobuf(
            "wrong length of a trace's or span's id",
        ));
    }
    if bytes.iter().all(|byte| *byte == 0) {
        Ok(&[])
    } else {
        Ok(bytes)
    }
}

fn labels(trace: &[u8], span: &[u8], attributes: &[&[u8]]) -> Result<Labels, OtlpDecodeError> {
    let mut labels = LabelsBuilder::default();
    let mut characters = 0;
    for (name, id) in [(TRACE_ID, trace), (SPAN_ID, span)] {
        if !id.is_empty() {
            let hex = encode_hex(id);
            characters += name.len() + hex.len();
            labels.set(name, hex.as_bytes());
        }
    }
    let mut made = GeneratedTexts::default();
    let mut pairs = Vec::new();
    for attribute in attributes {
        let attribute = value::decode_attribute(attribute)?;
        // A character has at most four bytes.
        let text = match value::text(attribute.value, 4 * LABEL_CHARS_MAX, &mut made) {
            Err(OtlpDecodeError::Point(_)) => return Ok(labels.build()),
            text => text?,
        };
        let count = |bytes: &[u8]| bytes.iter().filter(|b| **b & 0xc0 != 0x80).count();
        characters += count(attribute.key) + count(made.get(text));
        if characters > LABEL_CHARS_MAX {
            return Ok(labels.build());
        }
        pairs.push((attribute.key, text));
    }
    for (key, text) in pairs {
        match std::str::from_utf8(key) {
            Ok(name) if !name.is_empty() => labels.set(name, made.get(text)),
            _ => {
                let what = "a label name of an exemplar is empty or not UTF-8";
                return Err(OtlpDecodeError::reject_point(
                    WriteRejectionReason::LabelName,
                    what,
                ));
            }
        };
    }
    Ok(labels.build())
}

fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
