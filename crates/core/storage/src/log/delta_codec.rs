//! The delta codec of log records: each value is stored as its difference from a prediction.
//!
//! ```text
//! LogBatch -> DeltaRecordEncoder -> frame of kind 7 -> DeltaRecordDecoder -> LogBatch
//!              PredictorContext                       PredictorContext
//! ```
//!
//! A plain record encodes its values relative to each other, because a log that stores single
//! records elsewhere has no other context. A segment is always read from its beginning. Encoder and
//! decoder therefore both track the newest value of each series in the segment, like a compressor
//! with a dictionary, and predict the next value from it. Batches without floats and very large
//! ones are written as plain records.
//!
//! Invariants: a [`PredictorContext`] is reset at the start of each segment, with each new writer,
//! and after an average of [`ROUNDS`] samples per series; a frame contains the position at which
//! its context began. Every frame contains a checksum of its values: if an earlier frame is lost
//! that the values depend on, decoding returns an error and never a wrong value.
//! `docs/format/log.md` describes the bytes.

mod number;
mod predictor;
#[cfg(test)]
mod tests;

use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{DecodeError, push_uvarint};
use crate::failpoints::{self, StoreFlaw};
use crate::log::record::{self, LogRecordEncoder, RecordValueDecoder, decimal_of};
use firn_model::log::{FloatRows, LogBatch, LogPosition};
use number::{DeltaNumber, DeltaNumberReader, DeltaNumberWriter, NUMBER_BYTES_MAX};
use predictor::{PredictorContext, SLAB_SLOTS};

/// Maximum rows of a delta-coded record. Typical requests have thousands.
const ROWS_MAX: usize = 1 << 20;

/// Average number of samples per series after which the context is reset. It limits the effect of
/// damage to a quarter of an hour of scrapes at 15 s, and releases the memory of ended series.
/// After a reset the first sample of a series costs about three bytes more.
const ROUNDS: u64 = 64;

/// Number of values that are converted on the stack at a time for the checksum.
const SUMMED_VALUES: usize = 64;

/// Encodes the records of one segment. Created by the writer of the log.
#[derive(Debug, Default)]
pub(crate) struct DeltaRecordEncoder {
    context: PredictorContext,
    /// Position at which the context began; `None` before its first record.
    began: Option<LogPosition>,
    /// Number of series in the context and of their samples.
    series: u64,
    rows: u64,
    writer: DeltaNumberWriter,
}

impl DeltaRecordEncoder {
    /// Resets the context. The caller must do so at the start of each segment.
    pub(crate) fn begin(&mut self) {
        self.context.clear();
        self.began = None;
        (self.series, self.rows) = (0, 0);
    }

    /// Sets `into` to the encoding of `batch` at `position`, in at most `bytes_max` bytes. Returns
    /// false if the batch cannot be delta-coded; then the caller must write a plain record.
    pub(crate) fn encode(
        &mut self,
        position: LogPosition,
        batch: &LogBatch,
        bytes_max: usize,
        record: &mut LogRecordEncoder,
        into: &mut Vec<u8>,
    ) -> bool {
        // These checks precede any change of the context, which must not contain plainly written
        // batches.
        let rows = batch.floats.len();
        if rows == 0 || rows > ROWS_MAX {
            return false;
        }
        if record.begin(batch) + NUMBER_BYTES_MAX * (rows + 4) > bytes_max {
            return false;
        }
        if self.rows >= ROUNDS * self.series {
            self.begin();
        }
        let began = *self.began.get_or_insert(position);
        self.rows += rows as u64;
        self.write_numbers(&batch.floats);
        into.clear();
        push_uvarint(into, position.0 - began.0);
        into.extend_from_slice(&checksum_values(&batch.floats.values).to_le_bytes());
        record.finish(self.writer.finish(), into);
        true
    }

    fn write_numbers(&mut self, floats: &FloatRows) {
        self.writer.begin();
        let mut index = 0;
        for slots in floats
            .slots
            .chunk_by(|a, b| a / SLAB_SLOTS == b / SLAB_SLOTS)
        {
            let slab = self.context.slab(slots[0] / SLAB_SLOTS);
            for slot in slots {
                let bits = floats.values[index].to_bits();
                let number = DeltaNumber::new(bits, decimal_of(floats, index));
                self.series +=
                    u64::from(self.writer.push(slab, (slot % SLAB_SLOTS) as u32, number));
                index += 1;
            }
        }
    }
}

/// Returns the CRC-32C of the values, eight little-endian bytes each.
fn checksum_values(values: &[f64]) -> u32 {
    let mut sum = 0;
    let mut bytes = [0; SUMMED_VALUES * size_of::<f64>()];
    for values in values.chunks(SUMMED_VALUES) {
        let into = bytes.as_chunks_mut::<{ size_of::<f64>() }>().0;
        for (into, value) in into.iter_mut().zip(values) {
            *into = value.to_bits().to_le_bytes();
        }
        sum = crc32c::crc32c_append(sum, &bytes[..size_of_val(values)]);
    }
    sum
}

/// Decodes the records of one segment, in order from its first record.
#[derive(Debug, Default)]
pub(crate) struct DeltaRecordDecoder {
    context: PredictorContext,
    began: Option<LogPosition>,
}

impl DeltaRecordDecoder {
    /// Decodes the batch in `bytes`, the record at `position`. Returns an error if an earlier
    /// record is lost that its values depend on.
    pub(crate) fn decode(
        &mut self,
        position: LogPosition,
        bytes: &[u8],
    ) -> Result<LogBatch, DecodeError> {
        let mut cursor = DecodeCursor::new(bytes);
        let began = position.0.checked_sub(cursor.read_uvarint()?);
        let began = began
            .map(LogPosition)
            .ok_or(DecodeError("context before all"))?;
        let sum = cursor.read_number(4)?;
        let mut values = DeltaValueDecoder {
            decoder: self,
            began,
        };
        let batch = record::decode(cursor.rest(), &mut values)?;
        if u64::from(checksum_values(&batch.floats.values)) != sum
            && !failpoints::has(StoreFlaw::TrustsContext)
        {
            return Err(DecodeError(
                "the values that later ones are encoded against were lost",
            ));
        }
        Ok(batch)
    }
}

/// Decodes the values of one record, given the position at which its context began.
struct DeltaValueDecoder<'a> {
    decoder: &'a mut DeltaRecordDecoder,
    began: LogPosition,
}

impl RecordValueDecoder for DeltaValueDecoder<'_> {
    fn read(
        &mut self,
        slots: &[u64],
        codes: &[u8],
        into: &mut Vec<f64>,
    ) -> Result<(), DecodeError> {
        if slots.len() > ROWS_MAX {
            return Err(DecodeError("more rows than a log block has"));
        }
        let decoder = &mut *self.decoder;
        if decoder.began != Some(self.began) && !failpoints::has(StoreFlaw::MixesContexts) {
            decoder.context.clear();
            decoder.began = Some(self.began);
        }
        let mut reader = DeltaNumberReader::new(codes);
        into.reserve(slots.len());
        for slots in slots.chunk_by(|a, b| a / SLAB_SLOTS == b / SLAB_SLOTS) {
            let slab = decoder.context.slab(slots[0] / SLAB_SLOTS);
            into.extend(slots.iter().map(|slot| {
                let number = reader.next(slab, (slot % SLAB_SLOTS) as u32);
                f64::from_bits(number.bits())
            }));
        }
        reader.finish()
    }
}
