//! The form of a record in the local log: each value as its distance from a prediction.
//!
//! ```text
//! record -> DeltaEncoder -> frame of kind 7 -> DeltaDecoder -> record that reads the same
//!            Context                             Context
//! ```
//!
//! A record measures values against each other, because a log that keeps single records elsewhere
//! has nothing but the record. A segment is read from its beginning, so here the encoder and the
//! decoder know the newest value of each series in the segment, as a compressor with a dictionary
//! would, and predict the next one from it. A record of an unknown version or without a float goes
//! through as it is.
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
use crate::log::record::{Outline, ROWS_MAX};
use crate::trial::{self, Flaw};
use firn_model::log::Position;
use number::{NUMBER_BYTES_MAX, Number, NumberReader, NumberWriter};
use predictor::{Context, SLAB_SLOTS};

/// Samples a series, on average, after which a context begins anew. It bounds what damage costs (a
/// quarter of an hour of scrapes every 15 s) and gives back the memory of series that ended; a
/// series costs some three bytes more in the first of its samples.
const ROUNDS: u64 = 64;

/// Rows for which an encoder keeps its memory; requests have 2,000.
const ROWS_KEPT: usize = 1 << 16;

/// Writes the records of one segment.
#[derive(Debug, Default)]
pub(crate) struct DeltaEncoder {
    context: Context,
    /// Where the context began; `None` before its first record.
    began: Option<Position>,
    /// Series in the context, and their samples.
    series: u64,
    rows: u64,
    slots: Vec<u32>,
    numbers: Vec<Number>,
    /// The values as the decoder will give them.
    plain: Vec<u8>,
    writer: NumberWriter,
}

impl DeltaEncoder {
    /// Begins a new context; the caller must do so with each segment.
    pub(crate) fn begin(&mut self) {
        self.context.clear();
        self.began = None;
        (self.series, self.rows) = (0, 0);
    }

    /// Writes to `into` what stands for `payload` at `position`. Returns false if nothing does:
    /// then the caller must write the payload itself.
    pub(crate) fn encode(
        &mut self,
        position: Position,
        payload: &[u8],
        bytes_max: usize,
        into: &mut Vec<u8>,
    ) -> bool {
        // Before the context is touched: of a payload that is written as it is, it knows nothing.
        let Ok(outline) = self.read(payload) else {
            return false;
        };
        if payload.len() + NUMBER_BYTES_MAX * (self.numbers.len() + 2) > bytes_max {
            return false;
        }
        if self.rows >= ROUNDS * self.series {
            self.begin();
        }
        let began = *self.began.get_or_insert(position);
        self.rows += self.numbers.len() as u64;
        self.write_numbers();
        into.clear();
        push_uvarint(into, position.0 - began.0);
        into.extend_from_slice(&crc32c::crc32c(&self.plain).to_le_bytes());
        outline.push_with_values(into, self.writer.finish());
        if self.numbers.capacity() > ROWS_KEPT {
            (self.slots, self.numbers, self.plain) = Default::default();
        }
        true
    }

    /// Reads slots and values of the payload.
    fn read<'a>(&mut self, payload: &'a [u8]) -> Result<Outline<'a>, Malformed> {
        let outline = Outline::of(payload)?;
        let rows = outline.rows()?;
        if rows == 0 {
            return Err(Malformed("log block without a float"));
        }
        self.slots.clear();
        self.numbers.clear();
        self.plain.clear();
        outline.slots(rows, &mut self.slots)?;
        outline.values(rows, |bits, known| {
            self.numbers.push(Number::new(bits, known));
            self.plain.extend_from_slice(&bits.to_le_bytes());
        })?;
        Ok(outline)
    }

    fn write_numbers(&mut self) {
        self.writer.begin();
        let mut numbers = &self.numbers[..];
        for slots in self.slots.chunk_by(|a, b| a / SLAB_SLOTS == b / SLAB_SLOTS) {
            let slab = self.context.slab(slots[0] / SLAB_SLOTS);
            let (of_slab, rest) = numbers.split_at(slots.len());
            for (slot, number) in slots.iter().zip(of_slab) {
                self.series += u64::from(self.writer.push(slab, slot % SLAB_SLOTS, *number));
            }
            numbers = rest;
        }
    }
}

/// Reads the records of one segment, from its beginning on.
#[derive(Debug, Default)]
pub(crate) struct DeltaDecoder {
    context: Context,
    began: Option<Position>,
    slots: Vec<u32>,
}

impl DeltaDecoder {
    /// The payload for which `bytes` stand at `position`, with values that are not coded; an error
    /// if what it is measured against was lost.
    pub(crate) fn decode(
        &mut self,
        position: Position,
        bytes: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let began = position.0.checked_sub(cursor.uvarint()?);
        let began = began.map(Position).ok_or(Malformed("context before all"))?;
        let sum = cursor.number(4)?;
        let outline = Outline::of(cursor.rest())?;
        let rows = outline.rows()?;
        if self.began != Some(began) && !trial::has(Flaw::MixesContexts) {
            self.context.clear();
            self.began = Some(began);
        }
        self.slots.clear();
        outline.slots(rows, &mut self.slots)?;
        let mut payload = outline.begin_plain(rows);
        let values_at = payload.len();
        payload.resize(values_at + rows * size_of::<u64>(), 0);
        let values = &mut payload[values_at..];
        self.read_numbers(outline.value_bytes(), values)?;
        if u64::from(crc32c::crc32c(values)) != sum && !trial::has(Flaw::TrustsContext) {
            return Err(Malformed("what the values are measured against was lost"));
        }
        outline.end_plain(&mut payload);
        Ok(payload)
    }

    fn read_numbers(&mut self, bytes: &[u8], into: &mut [u8]) -> Result<(), Malformed> {
        let mut reader = NumberReader::new(bytes);
        let mut values = into;
        for slots in self.slots.chunk_by(|a, b| a / SLAB_SLOTS == b / SLAB_SLOTS) {
            let slab = self.context.slab(slots[0] / SLAB_SLOTS);
            let (of_slab, rest) = values.split_at_mut(slots.len() * size_of::<u64>());
            let of_slab = of_slab.chunks_exact_mut(size_of::<u64>());
            for (slot, value) in slots.iter().zip(of_slab) {
                let number = reader.next(slab, slot % SLAB_SLOTS);
                value.copy_from_slice(&number.bits().to_le_bytes());
            }
            values = rest;
        }
        reader.finish()
    }
}

const _: () = assert!(ROWS_MAX * size_of::<u64>() <= super::PAYLOAD_BYTES_MAX / 4);
