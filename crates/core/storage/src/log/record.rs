//! Encoding of a record of the local log.
//!
//! ```text
//! LogBatch -> RecordEncoder -> bytes -> decode -> LogBatch
//! ```
//!
//! The columns of a record are encoded relative to each other. In a plain record this includes the
//! values; [`super::delta_codec`] encodes them differently. `docs/format/log-record.md` describes
//! the bytes.

mod columns;
#[cfg(test)]
pub(crate) mod tests;

use crate::encoding::cursor::DecodeCursor;
use crate::encoding::decimal::DecimalScale;
use crate::encoding::{DecodeError, histogram, push_prefixed, push_uvarint, unzigzag, zigzag};
use crate::exemplars::{ExemplarEncoder, read_exemplars};
use crate::ids::SeriesSlot;
use columns::{IntegerColumnReader, ValueColumnReader, push_numbers, push_values};
use firn_model::log::{CreatedSeries, DecimalHint, FloatRows, HistogramRow, JournalMark, LogBatch};
use std::sync::Arc;

/// First byte of a record without exemplars.
const VERSION: u8 = 1;

/// First byte of a record with exemplars. Records without exemplars keep the version before.
const VERSION_WITH_EXEMPLARS: u8 = 2;

/// First byte of a record with late samples, which may also have exemplars. Records without late
/// samples keep the versions before.
const VERSION_WITH_LATE: u8 = 3;

/// First byte of a record with a journal, which may also have all other parts. Records without a
/// journal keep the versions before.
const VERSION_WITH_JOURNAL: u8 = 4;

/// Encodes batches, and reuses its memory from one to the next.
#[derive(Debug, Default)]
pub(crate) struct LogRecordEncoder {
    exemplars: ExemplarEncoder,
    column: Vec<u8>,
    /// Encoded parts of the record before and after the values.
    before: Vec<u8>,
    behind: Vec<u8>,
}

impl LogRecordEncoder {
    /// Encodes all of `batch` except its values. Returns the number of bytes.
    pub(crate) fn begin(&mut self, batch: &LogBatch) -> usize {
        let floats = &batch.floats;
        let columns = [floats.slots.len(), floats.times.len(), floats.values.len()];
        assert!(
            columns == [floats.len(); 3],
            "columns of unequal length: {columns:?}"
        );
        self.before.clear();
        self.behind.clear();
        self.begin_version(batch);
        push_uvarint(&mut self.before, batch.created.len() as u64);
        push_prefixed(&mut self.before, batch.created.as_bytes());
        push_uvarint(&mut self.before, floats.len() as u64);
        let slots = floats.slots.iter().map(|slot| *slot as i64);
        push_numbers(slots, &mut self.column, &mut self.before);
        let times = floats.times.iter().copied();
        push_numbers(times, &mut self.column, &mut self.before);
        let starts = floats.starts.iter().copied();
        push_numbers(starts, &mut self.column, &mut self.behind);
        push_histograms(&batch.histograms, &mut self.behind);
        if batch.has_late() || !batch.journal.is_empty() {
            self.push_late(batch);
        }
        self.before.len() + self.behind.len()
    }

    /// Appends the record started by [`LogRecordEncoder::begin`] to `into`, with `values` as its
    /// encoded values.
    pub(crate) fn finish(&mut self, values: &[u8], into: &mut Vec<u8>) {
        into.extend_from_slice(&self.before);
        push_prefixed(into, values);
        into.extend_from_slice(&self.behind);
    }

    /// Sets `into` to the plain record of `batch`, with values that are encoded relative to each
    /// other.
    pub(crate) fn encode(&mut self, batch: &LogBatch, into: &mut Vec<u8>) {
        self.begin(batch);
        let mut values = std::mem::take(&mut self.column);
        push_values(&batch.floats, &mut values);
        into.clear();
        self.finish(&values, into);
        self.column = values;
    }

    /// Writes the start of the record: its version, and the exemplars and the journal if the
    /// version has them.
    fn begin_version(&mut self, batch: &LogBatch) {
        let has_journal = !batch.journal.is_empty();
        let version = match (has_journal, batch.has_late(), batch.exemplars.is_empty()) {
            (true, _, _) => VERSION_WITH_JOURNAL,
            (false, true, _) => VERSION_WITH_LATE,
            (false, false, false) => VERSION_WITH_EXEMPLARS,
            (false, false, true) => return self.before.push(VERSION),
        };
        self.exemplars.clear();
        self.column.clear();
        for (slot, exemplar) in batch.exemplars.iter() {
            self.exemplars
                .push(&mut self.column, SeriesSlot(slot), &exemplar);
        }
        self.before.push(version);
        push_prefixed(&mut self.before, &self.column);
        if has_journal {
            self.before.push(encode_mark(batch.journal.mark));
            push_prefixed(&mut self.before, &batch.journal.bytes);
        }
    }

    /// Adds the late samples. Their values are always encoded relative to each other: the newest
    /// value of a series is a bad prediction for an older one, and an older one must not replace
    /// it.
    fn push_late(&mut self, batch: &LogBatch) {
        let (floats, out) = (&batch.late_floats, &mut self.behind);
        push_uvarint(out, batch.late_order);
        push_uvarint(out, floats.len() as u64);
        let slots = floats.slots.iter().map(|slot| *slot as i64);
        push_numbers(slots, &mut self.column, out);
        push_numbers(floats.times.iter().copied(), &mut self.column, out);
        push_values(floats, &mut self.column);
        push_prefixed(out, &self.column);
        push_numbers(floats.starts.iter().copied(), &mut self.column, out);
        push_histograms(&batch.late_histograms, out);
    }
}

/// The marks of a journal, in order of their codes.
const MARKS: [JournalMark; 5] = [
    JournalMark::Continues,
    JournalMark::Begins,
    JournalMark::Complete,
    JournalMark::Whole,
    JournalMark::Ends,
];

fn encode_mark(mark: JournalMark) -> u8 {
    let code = MARKS.iter().position(|known| *known == mark);
    code.map_or(0, |code| code as u8)
}

fn decode_mark(code: u8) -> Option<JournalMark> {
    MARKS.get(usize::from(code)).copied()
}

/// Appends histogram samples, each relative to the previous one.
fn push_histograms(rows: &[HistogramRow], out: &mut Vec<u8>) {
    push_uvarint(out, rows.len() as u64);
    for row in rows {
        push_uvarint(out, row.slot);
        push_uvarint(out, zigzag(row.time));
        push_uvarint(out, zigzag(row.start));
        histogram::push_histogram(out, None, &row.value, row.value.reset_hint);
    }
}

/// Returns scale and integer of the value at `index`, if its hint is correct.
#[inline]
pub(crate) fn decimal_of(floats: &FloatRows, index: usize) -> Option<(DecimalScale, i64)> {
    let hint = floats.hints.get(index).unwrap_or(&DecimalHint::NONE);
    let scale = DecimalScale::from_code(hint.0)?;
    Some((scale, scale.to_int(floats.values[index])?))
}

/// Decodes the values of rows. Takes the slots of the rows and the encoded values, and appends one
/// value per slot.
pub(crate) trait RecordValueDecoder {
    /// Appends the decoded values to `into`; see the trait.
    fn read(&mut self, slots: &[u64], codes: &[u8], into: &mut Vec<f64>)
    -> Result<(), DecodeError>;
}

/// Decodes values that are encoded relative to each other.
pub(crate) struct PlainValueDecoder;

impl RecordValueDecoder for PlainValueDecoder {
    fn read(
        &mut self,
        slots: &[u64],
        codes: &[u8],
        into: &mut Vec<f64>,
    ) -> Result<(), DecodeError> {
        let mut reader = ValueColumnReader::new(codes);
        for _ in slots {
            into.push(reader.next()?);
        }
        reader.finish()
    }
}

/// Decodes a record into a batch. Memory grows with the decoded content, never by an unchecked
/// length.
pub(crate) fn decode(
    bytes: &[u8],
    values: &mut impl RecordValueDecoder,
) -> Result<LogBatch, DecodeError> {
    let mut batch = LogBatch::default();
    let mut cursor = DecodeCursor::new(bytes);
    let version = cursor.read_byte()?;
    match version {
        VERSION => {}
        VERSION_WITH_EXEMPLARS | VERSION_WITH_LATE | VERSION_WITH_JOURNAL => {
            read_exemplars(cursor.read_prefixed()?, &mut batch.exemplars)?;
        }
        _ => return Err(DecodeError("log block of an unknown version")),
    }
    if version == VERSION_WITH_JOURNAL {
        let code = cursor.read_byte()?;
        batch.journal.mark = decode_mark(code).ok_or(DecodeError("mark of a journal"))?;
        batch.journal.bytes = cursor.read_prefixed()?.to_vec();
    }
    let created_count = cursor.read_uvarint()?;
    batch.created = CreatedSeries::from_bytes(created_count, cursor.read_prefixed()?)
        .map_err(DecodeError::from_labels)?;
    decode_floats(&mut cursor, values, &mut batch.floats)?;
    decode_histograms(&mut cursor, &mut batch.histograms)?;
    if version >= VERSION_WITH_LATE {
        batch.late_order = cursor.read_uvarint()?;
        decode_floats(&mut cursor, &mut PlainValueDecoder, &mut batch.late_floats)?;
        decode_histograms(&mut cursor, &mut batch.late_histograms)?;
    }
    if cursor.is_empty() {
        Ok(batch)
    } else {
        Err(DecodeError("log block continues beyond its end"))
    }
}

fn decode_histograms(
    cursor: &mut DecodeCursor<'_>,
    into: &mut Vec<HistogramRow>,
) -> Result<(), DecodeError> {
    for _ in 0..cursor.read_uvarint()? {
        into.push(HistogramRow {
            slot: cursor.read_uvarint()?,
            time: unzigzag(cursor.read_uvarint()?),
            start: unzigzag(cursor.read_uvarint()?),
            value: Arc::new(histogram::read_histogram(cursor, None)?),
        });
    }
    Ok(())
}

fn decode_floats(
    cursor: &mut DecodeCursor<'_>,
    values: &mut impl RecordValueDecoder,
    floats: &mut FloatRows,
) -> Result<(), DecodeError> {
    let count = cursor.read_uvarint()?;
    let mut slots = IntegerColumnReader::new(cursor.read_prefixed()?);
    slots.read(count, &mut floats.slots, |number| {
        u64::try_from(number).map_err(|_| DecodeError("slot out of range"))
    })?;
    IntegerColumnReader::new(cursor.read_prefixed()?).read(count, &mut floats.times, Ok)?;
    values.read(&floats.slots, cursor.read_prefixed()?, &mut floats.values)?;
    let starts = cursor.read_prefixed()?;
    if !starts.is_empty() {
        IntegerColumnReader::new(starts).read(count, &mut floats.starts, Ok)?;
    }
    Ok(())
}
