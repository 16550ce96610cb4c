//! Decodes the float samples of both versions.

use super::field;
use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use firn_model::sample::START_UNKNOWN;

/// Field keys of a sample.
const VALUE_KEY: u8 = 0x09;
const TIME_KEY: u8 = 0x10;

/// A decoded float sample of either version. Version 1.0 has no start timestamps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WriteSample {
    pub(crate) time: i64,
    pub(crate) value: f64,
    pub(super) start_time: i64,
}

/// Returns timestamp and value of a sample in the usual form of Go's encoder: a time between the
/// years 1971 and 2109, which is a varint of six bytes, and no start timestamp. Returns `None` for
/// any other form.
#[inline]
pub(super) fn parse_plain(message: &[u8]) -> Option<(i64, f64)> {
    let (value, time) = match *message {
        [
            VALUE_KEY,
            v0,
            v1,
            v2,
            v3,
            v4,
            v5,
            v6,
            v7,
            TIME_KEY,
            ref time @ ..,
        ] => (f64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]), time),
        // A value of zero is omitted.
        [TIME_KEY, ref time @ ..] => (0.0, time),
        _ => return None,
    };
    let &[b0, b1, b2, b3, b4, b5] = time else {
        return None;
    };
    if b0 & b1 & b2 & b3 & b4 & 0x80 == 0 || b5 & 0x80 != 0 {
        return None;
    }
    let bits = |byte: u8, shift: u32| i64::from(byte & 0x7f) << shift;
    let low = bits(b0, 0) | bits(b1, 7) | bits(b2, 14);
    let high = bits(b3, 21) | bits(b4, 28) | bits(b5, 35);
    Some((low | high, value))
}

/// Decodes a sample in any form. A start timestamp of zero means unknown, as in the model. Fails if
/// the message is malformed.
pub(crate) fn read(message: &[u8]) -> Result<WriteSample, WireError> {
    let mut sample = WriteSample {
        time: 0,
        value: 0.0,
        start_time: START_UNKNOWN,
    };
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            field::SAMPLE_VALUE => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                sample.value = cursor.read_double()?;
            }
            field::SAMPLE_TIME => {
                expect_wire_type(wire_type, WireType::Varint)?;
                sample.time = cursor.read_varint()? as i64;
            }
            field::SAMPLE_START if wire_type == WireType::Varint => {
                sample.start_time = cursor.read_varint()? as i64;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(sample)
}
