//! The catalogue of a checkpoint: the series of a store as bytes, for a place outside of the
//! folder.
//!
//! ```text
//! checkpoint catalogue = { length u32 | payload }*      payload: see [`super::payload`]
//! ```
//!
//! The home of the blocks checks its bytes as a whole, so there is no checksum here. Invariant:
//! reading never allocates, and accepts only lengths within the bytes.

use super::CatalogueSeriesEncoder;
use super::payload::CataloguePayloadHeader;
use crate::error::StorageError;

/// The bytes before each payload.
const LENGTH_BYTES: usize = 4;

/// Encodes the series that `fill` passes, in ascending order of slots.
pub(crate) fn encode_catalogue(
    header: CataloguePayloadHeader,
    fill: &mut super::FillSeries<'_>,
) -> Result<Vec<u8>, StorageError> {
    let mut bytes = Vec::new();
    let mut append = |payload: &[u8]| {
        // A payload is closed at 32 KiB before its compression.
        let length = u32::try_from(payload.len()).expect("payloads are short");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(payload);
        Ok(())
    };
    // Readers take the highest slot of all headers, and all payloads arrive together.
    let mut encoder = CatalogueSeriesEncoder::new(header, &mut append);
    fill(&mut encoder)?;
    encoder.finish(header)?;
    Ok(bytes)
}

/// Calls `each` with the payloads in `bytes`. Returns whether all bytes belong to payloads.
#[must_use]
pub(crate) fn for_each_payload(mut bytes: &[u8], each: &mut super::EachPayload<'_>) -> bool {
    while let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((payload, after)) = rest.split_at_checked(length) else {
            return false;
        };
        each(payload);
        bytes = after;
    }
    bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::payload::{CataloguePayload, PayloadInflater};
    use crate::ids::SeriesSlot;
    use firn_model::labels::Labels;
    use firn_model::log::LogPosition;

    fn encode(count: u64) -> Vec<u8> {
        let header = CataloguePayloadHeader {
            trimmed: LogPosition(7),
            next_slot: SeriesSlot(count + 5),
        };
        let encoded = encode_catalogue(header, &mut |encoder| {
            for slot in 0..count {
                let labels = Labels::from_pairs([("a", format!("{slot}-{}", "x".repeat(99)))]);
                encoder.push(SeriesSlot(slot), labels.as_ref())?;
            }
            Ok(())
        });
        encoded.unwrap()
    }

    #[test]
    fn catalogue_of_any_size_reads_as_written() {
        for count in [0, 1, 300, 2_000] {
            let bytes = encode(count);
            let (mut payloads, mut next_slot) = (0, SeriesSlot(0));
            let is_whole = for_each_payload(&bytes, &mut |payload| {
                payloads += 1;
                let read = CataloguePayload::read(payload, &mut PayloadInflater::default());
                next_slot = next_slot.max(read.unwrap().header.next_slot);
            });
            assert!(is_whole);
            assert_eq!(next_slot, SeriesSlot(count + 5));
            assert!(payloads as u64 > count / 1_000, "{payloads} payloads");
        }
    }

    #[test]
    fn catalogue_that_was_cut_is_not_whole() {
        let bytes = encode(10);
        for at in 1..bytes.len() {
            assert!(!for_each_payload(&bytes[..at], &mut |_| {}), "{at}");
        }
    }
}
