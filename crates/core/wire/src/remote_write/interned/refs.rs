//! References of a series to the symbols of its request: decoding, resolution, validation.

use super::symbols::MessageSymbols;
use crate::WireLimits;
use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use crate::remote_write::field::interned as field;
use crate::remote_write::labels::SeriesRejection;
use crate::remote_write::metadata;
use crate::remote_write::refusal::WriteRejectionReason;
use firn_model::metadata::MetricType;

/// Largest number of references in an error text.
const SHOWN_REFS_MAX: usize = 64;

/// The metadata of a series: the number of the type, and references to the symbols of help and
/// unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SeriesMetadataRefs {
    pub(super) kind: u64,
    pub(super) help: u32,
    pub(super) unit: u32,
}

/// Decodes a `Metadata` message; absent fields are zero, which refers to the empty symbol.
#[inline]
pub(super) fn decode_metadata(message: &[u8]) -> Result<SeriesMetadataRefs, WireError> {
    let mut said = SeriesMetadataRefs::default();
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            field::METADATA_TYPE => {
                expect_wire_type(wire_type, WireType::Varint)?;
                said.kind = cursor.read_varint()?;
            }
            field::METADATA_HELP => {
                expect_wire_type(wire_type, WireType::Varint)?;
                said.help = cursor.read_varint()? as u32;
            }
            field::METADATA_UNIT => {
                expect_wire_type(wire_type, WireType::Varint)?;
                said.unit = cursor.read_varint()? as u32;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(said)
}

/// Decodes the packed numbers in `refs`. Fails if a number is cut off.
pub(super) fn decode_packed(refs: &[u8]) -> Result<Vec<u32>, WireError> {
    let mut cursor = ProtobufCursor::new(refs);
    let mut numbers = Vec::new();
    while !cursor.rest().is_empty() {
        // Protobuf truncates numbers to 32 bits.
        numbers.push(cursor.read_varint()? as u32);
    }
    Ok(numbers)
}

/// Name and value of a label.
pub(super) type Pair<'m> = (&'m [u8], &'m [u8]);

/// Resolves and validates the labels and metadata of a series; returns the reason if it must be
/// rejected.
pub(super) fn validate_series<'m>(
    refs: &[u32],
    said: SeriesMetadataRefs,
    table: MessageSymbols<'m>,
    labels_types: bool,
) -> Result<Vec<Pair<'m>>, SeriesRejection> {
    let mut pairs = resolve(refs, table).map_err(|why| SeriesRejection {
        refusal: WriteRejectionReason::LabelRefs,
        message: format!("parsing labels for series {}: {why}", format_refs(refs)),
    })?;
    let text = |what: &str, number: u32| {
        table.get(number).ok_or_else(|| SeriesRejection {
            refusal: WriteRejectionReason::MetadataRefs,
            message: format!(
                "parsing metadata for series {}: metadata {what} {number} outside of symbols \
                 table (size {})",
                format_refs(refs),
                table.len()
            ),
        })
    };
    let unit = text("unit_ref", said.unit)?;
    text("help_ref", said.help)?;
    let kind = metadata::metric_type(said.kind);
    if labels_types && (kind != MetricType::Unknown || !unit.is_empty()) {
        const TYPE: &[u8] = b"__type__";
        const UNIT: &[u8] = b"__unit__";
        pairs.retain(|(name, _)| *name != TYPE && *name != UNIT);
        if kind != MetricType::Unknown {
            pairs.push((TYPE, kind.name().as_bytes()));
        }
        pairs.push((UNIT, unit));
    }
    Ok(pairs)
}

/// Returns the size of the labels within the limits in bytes; others are rejected.
pub(super) fn kept_bytes(pairs: &[Pair<'_>], limits: &WireLimits) -> usize {
    let (name_max, value_max) = (limits.label_name_bytes_max, limits.label_value_bytes_max);
    let kept = pairs.iter().take(limits.label_count_max);
    kept.map(|(name, value)| name.len().min(name_max) + value.len().min(value_max) + 4)
        .sum()
}

/// Resolves references to pairs of name and value, or returns why that is impossible.
pub(super) fn resolve<'m>(
    refs: &[u32],
    table: MessageSymbols<'m>,
) -> Result<Vec<Pair<'m>>, String> {
    let (pairs, rest) = refs.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(format!("invalid labelRefs length {}", refs.len()));
    }
    let resolved = pairs.iter().map(|[name, value]| {
        let pair = table.get(*name).zip(table.get(*value));
        pair.ok_or_else(|| {
            format!(
                "labelRefs {name} (name) = {value} (value) outside of symbols table (size {})",
                table.len()
            )
        })
    });
    resolved.collect()
}

/// Formats references like Go, truncated to [`SHOWN_REFS_MAX`].
fn format_refs(refs: &[u32]) -> String {
    let numbers: Vec<String> = refs
        .iter()
        .take(SHOWN_REFS_MAX)
        .map(u32::to_string)
        .collect();
    let cut = if refs.len() > SHOWN_REFS_MAX {
        " ..."
    } else {
        ""
    };
    format!("[{}{cut}]", numbers.join(" "))
}
