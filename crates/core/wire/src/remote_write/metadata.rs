//! Decodes metric metadata: type numbers, and the `MetricMetadata` message of version 1.0.

use super::charges::RequestMemoryAccount;
use super::field;
use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use firn_model::metadata::{MetadataBatch, MetricMetadata, MetricType};

/// Memory of a metric's metadata in a batch, without its texts, in bytes.
const METADATA_BYTES: usize = 32;

/// Returns the type with this number in both versions; unknown numbers give the unknown type.
pub(super) fn metric_type(number: u64) -> MetricType {
    match number {
        1 => MetricType::Counter,
        2 => MetricType::Gauge,
        3 => MetricType::Histogram,
        4 => MetricType::GaugeHistogram,
        5 => MetricType::Summary,
        6 => MetricType::Info,
        7 => MetricType::Stateset,
        _ => MetricType::Unknown,
    }
}

/// Returns the number of a type in both versions.
pub(super) fn metric_type_number(kind: MetricType) -> u64 {
    match kind {
        MetricType::Unknown => 0,
        MetricType::Counter => 1,
        MetricType::Gauge => 2,
        MetricType::Histogram => 3,
        MetricType::GaugeHistogram => 4,
        MetricType::Summary => 5,
        MetricType::Info => 6,
        MetricType::Stateset => 7,
    }
}

/// Metadata of a metric as it was received: its texts may be invalid UTF-8.
pub(crate) struct ReceivedMetadata<'m> {
    pub(crate) name: &'m [u8],
    pub(crate) kind: MetricType,
    pub(crate) help: &'m [u8],
    pub(crate) unit: &'m [u8],
}

/// Adds `metadata` to `into`, unless the name is empty or not UTF-8. Fails if the batch exceeds its
/// limit.
pub(crate) fn push(
    metadata: ReceivedMetadata<'_>,
    charges: &mut RequestMemoryAccount<'_>,
    into: &mut MetadataBatch,
) -> Result<(), WireError> {
    let ReceivedMetadata {
        name,
        kind,
        help,
        unit,
    } = metadata;
    // The replacement character of an invalid byte has three bytes.
    let texts = name.len() + 3 * (help.len() + unit.len());
    charges.add(METADATA_BYTES + texts)?;
    if let Ok(name) = std::str::from_utf8(name)
        && !name.is_empty()
    {
        into.push(MetricMetadata {
            name,
            kind,
            help: &String::from_utf8_lossy(help),
            unit: &String::from_utf8_lossy(unit),
        });
    }
    Ok(())
}

/// Decodes a `MetricMetadata` message into `into`. Fails if the message is malformed.
pub(super) fn read(
    message: &[u8],
    charges: &mut RequestMemoryAccount<'_>,
    into: &mut MetadataBatch,
) -> Result<(), WireError> {
    let (mut name, mut help, mut unit): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
    let mut kind = 0;
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        let text = match number {
            field::METADATA_TYPE => {
                expect_wire_type(wire_type, WireType::Varint)?;
                kind = cursor.read_varint()?;
                continue;
            }
            field::METADATA_NAME => &mut name,
            field::METADATA_HELP => &mut help,
            field::METADATA_UNIT => &mut unit,
            _ => {
                cursor.skip(wire_type)?;
                continue;
            }
        };
        expect_wire_type(wire_type, WireType::Bytes)?;
        *text = cursor.read_bytes()?;
    }
    let kind = metric_type(kind);
    let metadata = ReceivedMetadata {
        name,
        kind,
        help,
        unit,
    };
    push(metadata, charges, into)
}
