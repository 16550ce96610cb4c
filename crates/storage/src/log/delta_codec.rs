//! The form of a record in the local log: each value as its distance from a prediction.
//!
//! ```text
//! LogBatch -> DeltaEncoder -> frame of kind 7 -> DeltaDecoder -> LogBatch
//!              Context                             Context
//! ```
//!
//! A plain record measures values against each other, because a log that keeps single records
//! elsewhere has nothing but the record. A segment is read from its beginning, so here the encoder
//! and the decoder know the newest value of each series in the segment, as a compressor with a
//! dictionary would, and predict the next one from it. Batches without a float, and very large
//! ones, are written as plain records.
//!
//! Invariants: a [`Context`] begins anew with a segment, with a writer, and once its series have
//! [`ROUNDS`] samples each; a frame names the position at which its context began. Every frame has
//! a checksum of its values: where an earlier frame is lost and they were measured against that,
//! decoding is an error and never another value. `docs/format/log.md` draws the bytes.

mod number;
mod predictor;
#[cfg(test)]
mod tests;

use crate::encoding::cursor::Cursor;
use crate::encoding::{Malformed, push_uvarint};
use crate::failpoints::{self, Flaw};
use crate::log::record::{self, ReadValues, RecordEncoder, decimal_of};
use firn_model::log::{FloatRows, LogBatch, Position};
use number::{NUMBER_BYTES_MAX, Number, NumberReader, NumberWriter};
use predictor::{Context, SLAB_SLOTS};

/// Rows of a delta-coded record. Requests have thousands.
const ROWS_MAX: usize = 1 << 20;

/// Samples a series, on average, after which a context begins anew. It bounds what damage costs (a
/// quarter of an hour of scrapes every 15 s) and gives back the memory of series that ended; a
/// series costs some three bytes more in the first of its samples.
const ROUNDS: u64 = 64;

/// Values that go into a checksum at a time, by way of the stack.
const SUMMED_VALUES: usize = 64;

/// Writes the records of one segment.
#[derive(Debug, Default)]
pub(crate) struct DeltaEncoder {
    context: Context,
    /// Where the context began; `None` before its first record.
    began: Option<Position>,
    /// Series in the context, and their samples.
    series: u64,
    rows: u64,
    writer: NumberWriter,
}

impl DeltaEncoder {
    /// Begins a new context; the caller must do so with each segment.
    pub(crate) fn begin(&mut self) {
        self.context.clear();
        self.began = None;
        (self.series, self.rows) = (0, 0);
    }

    /// Sets `into` to what stands for `batch` at `position`, in `bytes_max` bytes at most. Returns
    /// false if the batch is none to delta-code: then the caller must write a plain record.
    pub(crate) fn encode(
        &mut self,
        position: Position,
        batch: &LogBatch,
        bytes_max: usize,
        (record, into): (&mut RecordEncoder, &mut Vec<u8>),
    ) -> bool {
        // Before the context is touched: of a batch that is written plainly it knows nothing.
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
        into.extend_from_slice(&sum_of(&batch.floats.values).to_le_bytes());
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
                let number = Number::new(bits, decimal_of(floats, index));
                self.series +=
                    u64::from(self.writer.push(slab, (slot % SLAB_SLOTS) as u32, number));
                index += 1;
            }
        }
    }
}

/// The checksum of values, eight bytes each.
fn sum_of(values: &[f64]) -> u32 {
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

/// Reads the records of one segment, from its beginning on.
#[derive(Debug, Default)]
pub(crate) struct DeltaDecoder {
    context: Context,
    began: Option<Position>,
}

impl DeltaDecoder {
    /// The batch for which `bytes` stand at `position`; an error if what its values are measured
    /// against was lost.
    pub(crate) fn decode(
        &mut self,
        position: Position,
        bytes: &[u8],
    ) -> Result<LogBatch, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let began = position.0.checked_sub(cursor.uvarint()?);
        let began = began.map(Position).ok_or(Malformed("context before all"))?;
        let sum = cursor.number(4)?;
        let mut values = DeltaValues {
            decoder: self,
            began,
        };
        let batch = record::decode(cursor.rest(), &mut values)?;
        if u64::from(sum_of(&batch.floats.values)) != sum && !failpoints::has(Flaw::TrustsContext) {
            return Err(Malformed(
                "the values that later ones are encoded against were lost",
            ));
        }
        Ok(batch)
    }
}

/// Reads the values of one record, whose context began at a position.
struct DeltaValues<'a> {
    decoder: &'a mut DeltaDecoder,
    began: Position,
}

impl ReadValues for DeltaValues<'_> {
    fn read(&mut self, slots: &[u64], codes: &[u8], into: &mut Vec<f64>) -> Result<(), Malformed> {
        if slots.len() > ROWS_MAX {
            return Err(Malformed("more rows than a log block has"));
        }
        let decoder = &mut *self.decoder;
        if decoder.began != Some(self.began) && !failpoints::has(Flaw::MixesContexts) {
            decoder.context.clear();
            decoder.began = Some(self.began);
        }
        let mut reader = NumberReader::new(codes);
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
