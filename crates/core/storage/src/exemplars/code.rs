//! Encoding of sequences of exemplars, in the log and in the file.
//!
//! ```text
//! exemplar = slot varint | time zigzag varint, from the one before | value, 8 bytes
//!            | own time u8, 0 or 1 | labels, relative to those before
//! ```

use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{DecodeError, push_uvarint, unzigzag, zigzag};
use crate::ids::SeriesSlot;
use firn_model::exemplar::{SeriesExemplars, TimedExemplar};
use firn_model::label_code::{LabelsDecoder, LabelsEncoder};

/// Encodes exemplars, each relative to the previous one.
#[derive(Debug, Default)]
pub(crate) struct ExemplarEncoder {
    labels: LabelsEncoder,
    last_time: i64,
}

impl ExemplarEncoder {
    /// Appends an exemplar of the series at `slot` to `out`.
    pub(crate) fn push(
        &mut self,
        out: &mut Vec<u8>,
        slot: SeriesSlot,
        exemplar: &TimedExemplar<'_>,
    ) {
        push_uvarint(out, slot.0);
        push_uvarint(out, zigzag(exemplar.time.wrapping_sub(self.last_time)));
        self.last_time = exemplar.time;
        out.extend_from_slice(&exemplar.value.to_bits().to_le_bytes());
        out.push(u8::from(exemplar.has_own_time));
        self.labels.push(out, exemplar.labels);
    }

    /// Resets the encoder, so that the next exemplars can be decoded without the earlier ones.
    pub(crate) fn clear(&mut self) {
        self.labels.clear();
        self.last_time = 0;
    }
}

/// Decodes the exemplars in `bytes` and adds them to `into`.
pub(crate) fn read_exemplars(bytes: &[u8], into: &mut SeriesExemplars) -> Result<(), DecodeError> {
    for_each_exemplar(bytes, |slot, exemplar| {
        into.push(slot, exemplar);
        Ok(())
    })
}

/// Decodes the exemplars in `bytes`, and calls `each` with the number of the series and the
/// exemplar until it fails.
pub(crate) fn for_each_exemplar(
    bytes: &[u8],
    mut each: impl FnMut(u64, TimedExemplar<'_>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut cursor = DecodeCursor::new(bytes);
    let mut labels = LabelsDecoder::default();
    let mut time = 0i64;
    while !cursor.is_empty() {
        let slot = cursor.read_uvarint()?;
        time = time.wrapping_add(unzigzag(cursor.read_uvarint()?));
        let value = f64::from_bits(cursor.read_u64()?);
        let has_own_time = match cursor.read_byte()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError("exemplar with an unknown mark")),
        };
        let exemplar = TimedExemplar {
            labels: labels
                .read(cursor.rest_mut())
                .map_err(DecodeError::from_labels)?,
            value,
            time,
            has_own_time,
        };
        each(slot, exemplar)?;
    }
    Ok(())
}
