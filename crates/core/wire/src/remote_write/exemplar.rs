//! Decodes the exemplars of version 1.0.

use super::field;
use super::labels::name_and_value;
use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use firn_model::batch::Batch;
use firn_model::exemplar::TimedExemplar;
use firn_model::labels::LabelsBuilder;

/// Largest number of labels that are decoded: more labels would exceed the character limit in any
/// case.
const LABELS_MAX: usize = 129;

/// Adds the exemplar in `message` to the current series. Without a timestamp it gets timestamp
/// zero, as in upstream; with a label name that is empty or not UTF-8 it is left out.
pub(super) fn read(message: &[u8], batch: &mut Batch) -> Result<(), WireError> {
    let mut labels = LabelsBuilder::default();
    let (mut value, mut time) = (0.0, 0);
    let (mut count, mut is_readable) = (0, true);
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            field::EXEMPLAR_LABEL => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                let (name, value) = name_and_value(cursor.read_bytes()?)?;
                count += 1;
                match std::str::from_utf8(name) {
                    _ if count > LABELS_MAX => {}
                    Ok("") | Err(_) => is_readable = false,
                    Ok(name) => drop(labels.set(name, value)),
                }
            }
            field::EXEMPLAR_VALUE => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                value = cursor.read_double()?;
            }
            field::EXEMPLAR_TIME => {
                expect_wire_type(wire_type, WireType::Varint)?;
                time = cursor.read_varint()? as i64;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    if is_readable {
        batch.push_exemplar(TimedExemplar {
            labels: labels.build().as_ref(),
            value,
            time,
            has_own_time: time != 0,
        });
    }
    Ok(())
}
