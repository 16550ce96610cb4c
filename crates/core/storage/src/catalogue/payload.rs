//! Contents of a frame of the catalogue: a header and deflated series.
//!
//! ```text
//! version 2 = 2 u8 | trimmed varint | next ref varint | bytes varint | deflate(series*)
//! version 1 = 1 u8 | trimmed varint | next ref varint | series*          (read, not written)
//! ```
//!
//! The series of a target have nearly the same labels, so compression reduces them to a twelfth.
//! Invariant: decompression takes no more memory than deflate can produce from the length of the
//! payload.

use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{DecodeError, push_uvarint};
use crate::ids::SeriesSlot;
use firn_model::label_code::SeriesRecords;
use firn_model::log::LogPosition;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::borrow::Cow;

const VERSION: u8 = 2;
const VERSION_PLAIN: u8 = 1;

/// Maximum number of bytes that deflate produces from one byte: 258 for every two bits, and a
/// margin.
const RATIO_MAX: usize = 1_040;

/// The header of a payload, which describes the log as of the write that added it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CataloguePayloadHeader {
    /// The log is covered by catalogue and pages up to this position.
    pub(crate) trimmed: LogPosition,
    /// All slots below this one were assigned, also those of removed series.
    pub(crate) next_slot: SeriesSlot,
}

/// A decompressed payload: its header and the encoded series, which [`CataloguePayload::records`]
/// decodes.
#[derive(Debug)]
pub(crate) struct CataloguePayload<'a> {
    pub(crate) header: CataloguePayloadHeader,
    series: Cow<'a, [u8]>,
}

impl<'a> CataloguePayload<'a> {
    /// Decompresses a payload. Returns an error for an unknown version or a corrupt stream.
    pub(crate) fn read(
        payload: &'a [u8],
        inflater: &mut PayloadInflater,
    ) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(payload);
        let version = cursor.read_byte()?;
        let header = read_header(&mut cursor)?;
        let series = match version {
            VERSION_PLAIN => Cow::Borrowed(cursor.rest()),
            VERSION => {
                let bytes = usize::try_from(cursor.read_uvarint()?);
                let bytes = bytes.map_err(|_| DecodeError("catalogue payload too long"))?;
                Cow::Owned(inflate(cursor.rest(), bytes, inflater)?)
            }
            _ => return Err(DecodeError("catalogue payload of an unknown version")),
        };
        Ok(Self { header, series })
    }

    /// Returns an iterator over the slots and labels of its series.
    pub(crate) fn records(&self) -> SeriesRecords<'_> {
        SeriesRecords::new(&self.series, None)
    }
}

/// Reads only the header of a payload.
pub(crate) fn decode_header(payload: &[u8]) -> Result<CataloguePayloadHeader, DecodeError> {
    let mut cursor = DecodeCursor::new(payload);
    match cursor.read_byte()? {
        VERSION | VERSION_PLAIN => read_header(&mut cursor),
        _ => Err(DecodeError("catalogue payload of an unknown version")),
    }
}

fn read_header(cursor: &mut DecodeCursor<'_>) -> Result<CataloguePayloadHeader, DecodeError> {
    let trimmed = LogPosition(cursor.read_uvarint()?);
    let next_slot = SeriesSlot(cursor.read_uvarint()?);
    Ok(CataloguePayloadHeader { trimmed, next_slot })
}

/// Compresses payloads, with one compressor for all of them.
#[derive(Debug)]
pub(crate) struct PayloadDeflater(Compress);

impl Default for PayloadDeflater {
    fn default() -> Self {
        // The fastest level: the others save only a tenth.
        Self(Compress::new(Compression::fast(), false))
    }
}

/// Decompresses payloads, with one decompressor for all of them.
#[derive(Debug)]
pub(crate) struct PayloadInflater(Decompress);

impl Default for PayloadInflater {
    fn default() -> Self {
        Self(Decompress::new(false))
    }
}

/// Encodes a payload from series in the format of [`SeriesRecords`].
pub(crate) fn write(
    header: CataloguePayloadHeader,
    series: &[u8],
    deflater: &mut PayloadDeflater,
) -> Vec<u8> {
    let mut payload = Vec::with_capacity(series.len() / 4 + 64);
    payload.push(VERSION);
    push_uvarint(&mut payload, header.trimmed.0);
    push_uvarint(&mut payload, header.next_slot.0);
    push_uvarint(&mut payload, series.len() as u64);
    deflate(series, &mut payload, &mut deflater.0);
    payload
}

fn deflate(mut input: &[u8], out: &mut Vec<u8>, deflater: &mut Compress) {
    deflater.reset();
    loop {
        out.reserve(input.len() / 4 + 64);
        let before = deflater.total_in();
        let status = deflater
            .compress_vec(input, out, FlushCompress::Finish)
            .expect("a state that only this function changes");
        input = &input[(deflater.total_in() - before) as usize..];
        if status == Status::StreamEnd {
            return;
        }
    }
}

/// Decompresses `input`, which must yield exactly `bytes` bytes.
fn inflate(
    input: &[u8],
    bytes: usize,
    inflater: &mut PayloadInflater,
) -> Result<Vec<u8>, DecodeError> {
    const DAMAGED: DecodeError = DecodeError("catalogue payload is not a valid deflate stream");
    if bytes > input.len().saturating_mul(RATIO_MAX) {
        return Err(DAMAGED);
    }
    let mut out = Vec::with_capacity(bytes);
    let inflater = &mut inflater.0;
    inflater.reset(false);
    let status = inflater.decompress_vec(input, &mut out, FlushDecompress::Finish);
    let is_whole = matches!(status, Ok(Status::StreamEnd))
        && out.len() == bytes
        && inflater.total_in() == input.len() as u64;
    if is_whole { Ok(out) } else { Err(DAMAGED) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    const HEADER: CataloguePayloadHeader = CataloguePayloadHeader {
        trimmed: LogPosition(300),
        next_slot: SeriesSlot(70_000),
    };

    #[track_caller]
    fn check(series: &[u8]) {
        let payload = write(HEADER, series, &mut PayloadDeflater::default());
        let read = CataloguePayload::read(&payload, &mut PayloadInflater::default()).unwrap();
        assert_eq!((read.header, &*read.series), (HEADER, series));
        assert_eq!(decode_header(&payload), Ok(HEADER));
    }

    #[test]
    fn payload_of_any_series_reads_as_written() {
        let rng = SimRng::new(1);
        check(b"");
        check(&[7; 100_000]);
        for _ in 0..200 {
            let letters = 1 + rng.next_below(255);
            let bytes: Vec<u8> = (0..rng.next_below(5_000))
                .map(|_| rng.next_below(letters) as u8)
                .collect();
            check(&bytes);
        }
    }

    #[test]
    fn payload_of_the_version_before_reads_as_written() {
        let payload = [1, 5, 9, b'a', b'b'];
        let read = CataloguePayload::read(&payload, &mut PayloadInflater::default()).unwrap();
        assert_eq!(read.header.trimmed, LogPosition(5));
        assert_eq!(
            (read.header.next_slot, &*read.series),
            (SeriesSlot(9), &b"ab"[..])
        );
    }

    #[test]
    fn payload_with_any_byte_changed_is_refused_or_of_the_same_length() {
        let series: Vec<u8> = (0..2_000u32).map(|i| (i % 7 * i % 11) as u8).collect();
        let payload = write(HEADER, &series, &mut PayloadDeflater::default());
        let mut inflater = PayloadInflater::default();
        for at in 0..payload.len() {
            for bit in 0..8 {
                let mut changed = payload.clone();
                changed[at] ^= 1 << bit;
                // Damage that deflate does not detect is detected by the checksum of the frame.
                if let Ok(read) = CataloguePayload::read(&changed, &mut inflater) {
                    assert!(read.series.len() <= payload.len() * RATIO_MAX);
                }
            }
            assert!(
                CataloguePayload::read(&payload[..at], &mut inflater).is_err() || at < 2,
                "{at}"
            );
        }
    }
}
