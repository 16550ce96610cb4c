//! What lies in a segment instead of payloads: values measured against the newest value of the same
//! series in the segment, as a compressor with a dictionary would.
//!
//! ```text
//! payload of a batch -> Condenser -> block of kind 7 -> Expander -> payload that reads the same
//!                       Context                         Context
//! ```
//!
//! A payload measures values against each other, because whoever keeps it elsewhere has nothing but
//! the payload. A segment is read from its beginning, so here both sides know what stood before.
//! What is not a batch of a known version, or has no float, goes through as it is.
//!
//! Invariants: a [`Context`] begins anew with a segment, with a writer, and once its series have
//! [`ROUNDS`] samples each; a block names the position at which its context began. Every block has
//! a checksum of its values: where a block before it is lost and they were measured against that,
//! expanding is an error and never another value. `docs/format/log.md` draws the bytes.

mod bits;
mod context;
mod number;
#[cfg(test)]
mod tests;

use crate::encoding::cursor::Cursor;
use crate::encoding::{Malformed, push_uvarint};
use crate::log_block::{Outline, ROWS_MAX};
use crate::trial::{self, Flaw};
use context::{Context, PAGE_SLOTS};
use firn_model::log::Position;
use number::{NUMBER_BYTES_MAX, Number, NumberReader, NumberWriter};

/// Samples a series, on average, after which a context begins anew. It bounds what damage costs (a
/// quarter of an hour of scrapes every 15 s) and gives back the memory of series that ended; a
/// series costs some three bytes more in the first of its samples.
const ROUNDS: u64 = 64;

/// Rows for which a condenser keeps its memory; requests have 2,000.
const ROWS_KEPT: usize = 1 << 16;

/// The writing side.
#[derive(Debug, Default)]
pub(crate) struct Condenser {
    context: Context,
    /// Where the context began; `None` before its first block.
    began: Option<Position>,
    /// Series in the context, and their samples.
    series: u64,
    rows: u64,
    slots: Vec<u32>,
    numbers: Vec<Number>,
    /// The values as they will be expanded.
    plain: Vec<u8>,
    writer: NumberWriter,
}

impl Condenser {
    /// Begins a new context: what comes next is in another segment.
    pub(crate) fn begin(&mut self) {
        self.context.clear();
        self.began = None;
        (self.series, self.rows) = (0, 0);
    }

    /// Writes to `into` what stands for `payload` at `position`; false if nothing does and the
    /// payload itself is to be written.
    pub(crate) fn condense(
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
        self.number_all();
        into.clear();
        push_uvarint(into, position.0 - began.0);
        into.extend_from_slice(&crc32c::crc32c(&self.plain).to_le_bytes());
        outline.push_with_values(into, self.writer.finish());
        if self.numbers.capacity() > ROWS_KEPT {
            (self.slots, self.numbers, self.plain) = Default::default();
        }
        true
    }

    /// Reads slots and values of a payload that is to be condensed.
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

    fn number_all(&mut self) {
        self.writer.begin(self.numbers.len());
        let mut numbers = &self.numbers[..];
        for slots in self.slots.chunk_by(|a, b| a / PAGE_SLOTS == b / PAGE_SLOTS) {
            let page = self.context.page(slots[0] / PAGE_SLOTS);
            let (of_page, rest) = numbers.split_at(slots.len());
            for (slot, number) in slots.iter().zip(of_page) {
                self.series += u64::from(self.writer.push(page, slot % PAGE_SLOTS, *number));
            }
            numbers = rest;
        }
    }
}

/// The reading side of one segment, from its beginning on.
#[derive(Debug, Default)]
pub(crate) struct Expander {
    context: Context,
    began: Option<Position>,
    slots: Vec<u32>,
}

impl Expander {
    /// The payload for which `condensed` stands at `position`, with values that are not coded; an
    /// error if what it is measured against was lost.
    pub(crate) fn expand(
        &mut self,
        position: Position,
        condensed: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        let mut cursor = Cursor::new(condensed);
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
        let mut expanded = outline.begin_plain(rows);
        let values_at = expanded.len();
        expanded.resize(values_at + rows * size_of::<u64>(), 0);
        let values = &mut expanded[values_at..];
        self.read_all(outline.value_bytes(), values)?;
        if u64::from(crc32c::crc32c(values)) != sum && !trial::has(Flaw::TrustsContext) {
            return Err(Malformed("what the values are measured against was lost"));
        }
        outline.end_plain(&mut expanded);
        Ok(expanded)
    }

    fn read_all(&mut self, bytes: &[u8], into: &mut [u8]) -> Result<(), Malformed> {
        let mut reader = NumberReader::new(bytes);
        let mut values = into;
        for slots in self.slots.chunk_by(|a, b| a / PAGE_SLOTS == b / PAGE_SLOTS) {
            let page = self.context.page(slots[0] / PAGE_SLOTS);
            let (of_page, rest) = values.split_at_mut(slots.len() * size_of::<u64>());
            let of_page = of_page.chunks_exact_mut(size_of::<u64>());
            for (slot, value) in slots.iter().zip(of_page) {
                let number = reader.next(page, slot % PAGE_SLOTS);
                value.copy_from_slice(&number.bits().to_le_bytes());
            }
            values = rest;
        }
        reader.finish()
    }
}

const _: () = assert!(ROWS_MAX * size_of::<u64>() <= super::PAYLOAD_BYTES_MAX / 4);
