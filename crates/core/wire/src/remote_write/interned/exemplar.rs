//! Decodes the exemplars of version 2.0.

use super::refs::{decode_packed, resolve};
use super::symbols::MessageSymbols;
use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use crate::remote_write::field::{self, interned};
use crate::remote_write::labels::SeriesRejection;
use crate::remote_write::refusal::WriteRejectionReason;
use firn_model::batch::Batch;
use firn_model::exemplar::{LABEL_CHARS_MAX, TimedExemplar};
use firn_model::labels::LabelsBuilder;

/// Largest number of labels that are decoded: more labels would exceed the character limit in any
/// case.
const LABELS_MAX: usize = LABEL_CHARS_MAX + 1;

/// Largest size of the decoded labels in bytes: four for each allowed character.
pub(super) const LABEL_BYTES_MAX: usize = 4 * LABELS_MAX;

/// Adds the exemplar in `message` to the current series, or returns why it is invalid. Without a
/// timestamp it gets timestamp zero, as in upstream.
pub(super) fn read(
    message: &[u8],
    table: MessageSymbols<'_>,
    batch: &mut Batch,
) -> Result<Result<(), SeriesRejection>, WireError> {
    let (mut value, mut time) = (0.0, 0);
    let mut refs = Vec::new();
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match (number, wire_type) {
            (interned::EXEMPLAR_LABEL_REFS, WireType::Varint) => {
                refs.push(cursor.read_varint()? as u32)
            }
            (interned::EXEMPLAR_LABEL_REFS, _) => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                refs.extend(decode_packed(cursor.read_bytes()?)?);
            }
            (field::EXEMPLAR_VALUE, _) => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                value = cursor.read_double()?;
            }
            (field::EXEMPLAR_TIME, _) => {
                expect_wire_type(wire_type, WireType::Varint)?;
                time = cursor.read_varint()? as i64;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    let pairs = match resolve(&refs, table) {
        Ok(pairs) => pairs,
        Err(message) => {
            return Ok(Err(SeriesRejection {
                refusal: WriteRejectionReason::LabelRefs,
                message,
            }));
        }
    };
    let mut labels = LabelsBuilder::default();
    let mut bytes = 0;
    for (name, value) in pairs.into_iter().take(LABELS_MAX) {
        let Some(name) = std::str::from_utf8(name)
            .ok()
            .filter(|name| !name.is_empty())
        else {
            return Ok(Err(SeriesRejection {
                refusal: WriteRejectionReason::LabelName,
                message: "a label name is empty or not UTF-8".to_owned(),
            }));
        };
        bytes += name.len() + value.len();
        if bytes > LABEL_BYTES_MAX {
            return Ok(Err(SeriesRejection {
                refusal: WriteRejectionReason::LabelValueTooLong,
                message: format!(
                    "label length for exemplar exceeds maximum of {LABEL_CHARS_MAX} UTF-8 \
                     characters"
                ),
            }));
        }
        labels.set(name, value);
    }
    batch.push_exemplar(TimedExemplar {
        labels: labels.build().as_ref(),
        value,
        time,
        has_own_time: time != 0,
    });
    Ok(Ok(()))
}
