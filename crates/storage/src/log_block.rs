//! What the store says to its log: one block for each batch.
//!
//! A block holds the series of which it has the first sample and the samples that were accepted, in
//! columns, measured only against each other: it replays from itself and the series records of the
//! log before it or of the catalogue. `docs/format/log-block.md` draws it. Invariant: replay gives
//! the same head whatever the order of the blocks and however often one is read, because only
//! accepted samples are in it, and a sample that is there already is skipped.

mod outline;
mod records;
mod rows;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use outline::{Outline, ROWS_MAX};
pub(crate) use records::SeriesRecords;
pub(crate) use rows::{Row, Rows};

use crate::encoding::cursor::Cursor;
use crate::encoding::labels::LabelsEncoder;
use crate::encoding::{Malformed, histogram, push_prefixed, push_uvarint, unzigzag, zigzag};
use crate::exemplars::{ExemplarEncoder, read_exemplars};
use firn_model::exemplar::{SeriesExemplars, TimedExemplar};
use firn_model::histogram::Histogram;
use firn_model::labels::LabelsRef;
use firn_model::sample::TimestampMs;
use rows::{PlainReader, ValueReader};
use std::sync::Arc;

/// The version of the layout without exemplars, its first byte.
const VERSION: u8 = 1;

/// The version of the layout with exemplars. Most blocks have none, and are as they always were.
const VERSION_WITH_EXEMPLARS: u8 = 2;

/// Set in the version of a block whose values are plain: see [`outline`].
const PLAIN: u8 = 0x80;

/// Builds a block. Reuse one to keep its memory.
#[derive(Debug, Default)]
pub(crate) struct LogBlockEncoder {
    births: Vec<u8>,
    birth_count: u64,
    labels: LabelsEncoder,
    last_slot: u32,
    /// The accepted float samples.
    pub(crate) rows: Rows,
    histograms: Vec<u8>,
    histogram_count: u64,
    exemplars: Vec<u8>,
    exemplar: ExemplarEncoder,
}

impl LogBlockEncoder {
    /// Adds a series that was born; slots ascend.
    pub(crate) fn push_birth(&mut self, slot: u32, labels: LabelsRef<'_>) {
        push_uvarint(&mut self.births, u64::from(slot - self.last_slot));
        self.last_slot = slot;
        self.labels.push(&mut self.births, labels);
        self.birth_count += 1;
    }

    /// Adds a histogram sample.
    pub(crate) fn push_histogram(
        &mut self,
        slot: u32,
        time: TimestampMs,
        start: TimestampMs,
        value: &Histogram,
    ) {
        push_uvarint(&mut self.histograms, u64::from(slot));
        push_uvarint(&mut self.histograms, zigzag(time));
        push_uvarint(&mut self.histograms, zigzag(start));
        histogram::push(&mut self.histograms, None, value, value.reset_hint);
        self.histogram_count += 1;
    }

    /// Adds an exemplar.
    pub(crate) fn push_exemplar(&mut self, slot: u32, exemplar: &TimedExemplar<'_>) {
        self.exemplar.push(&mut self.exemplars, slot, exemplar);
    }

    /// Whether there is nothing to log.
    pub(crate) fn is_empty(&self) -> bool {
        let has_samples = !self.rows.is_empty() || self.histogram_count > 0;
        self.birth_count == 0 && !has_samples && self.exemplars.is_empty()
    }

    /// The block. Empties the encoder.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let columns = self.births.len() + self.rows.memory_bytes() + self.histograms.len();
        let mut out = Vec::with_capacity(columns + self.exemplars.len() + 64);
        if self.exemplars.is_empty() {
            out.push(VERSION);
        } else {
            out.push(VERSION_WITH_EXEMPLARS);
            push_prefixed(&mut out, &self.exemplars);
            self.exemplars.clear();
            self.exemplar.clear();
        }
        push_uvarint(&mut out, self.birth_count);
        push_prefixed(&mut out, &self.births);
        self.rows.finish(&mut out);
        push_uvarint(&mut out, self.histogram_count);
        out.extend_from_slice(&self.histograms);
        self.births.clear();
        self.birth_count = 0;
        self.labels.clear();
        self.last_slot = 0;
        self.histograms.clear();
        self.histogram_count = 0;
        out
    }
}

/// A histogram sample of a block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HistogramRow {
    /// Its series.
    pub(crate) slot: u32,
    /// Its time.
    pub(crate) time: TimestampMs,
    /// Its start timestamp.
    pub(crate) start: TimestampMs,
    /// Its value.
    pub(crate) value: Arc<Histogram>,
}

/// A block, ready to be read in parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogBlockReader<'a> {
    is_plain: bool,
    exemplars: &'a [u8],
    birth_count: u64,
    births: &'a [u8],
    behind_births: Cursor<'a>,
}

impl<'a> LogBlockReader<'a> {
    /// Looks at the outline of `payload`.
    pub(crate) fn new(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let version = cursor.byte()?;
        let exemplars = match version & !PLAIN {
            VERSION => &[],
            VERSION_WITH_EXEMPLARS => cursor.prefixed()?,
            _ => return Err(Malformed("log block of an unknown version")),
        };
        Ok(Self {
            is_plain: version & PLAIN != 0,
            exemplars,
            birth_count: cursor.uvarint()?,
            births: cursor.prefixed()?,
            behind_births: cursor,
        })
    }

    /// Whether series were born in it.
    pub(crate) fn has_births(&self) -> bool {
        self.birth_count > 0
    }

    /// Whether it holds exemplars.
    pub(crate) fn has_exemplars(&self) -> bool {
        !self.exemplars.is_empty()
    }

    /// Adds the exemplars to `into`, with the slots of their series.
    pub(crate) fn exemplars(&self, into: &mut SeriesExemplars) -> Result<(), Malformed> {
        read_exemplars(self.exemplars, into)
    }

    /// The series that were born.
    pub(crate) fn births(&self) -> SeriesRecords<'a> {
        SeriesRecords::new(self.births, Some(self.birth_count))
    }

    /// Calls `row` for the float samples and appends the others to `histograms`.
    pub(crate) fn samples(
        &self,
        row: impl FnMut(Row),
        histograms: &mut Vec<HistogramRow>,
    ) -> Result<(), Malformed> {
        let mut cursor = self.behind_births;
        match self.is_plain {
            true => rows::read::<PlainReader<'_>>(&mut cursor, row)?,
            false => rows::read::<ValueReader<'_>>(&mut cursor, row)?,
        }
        for _ in 0..cursor.uvarint()? {
            let slot = cursor.uvarint()?;
            histograms.push(HistogramRow {
                slot: u32::try_from(slot).map_err(|_| Malformed("slot out of range"))?,
                time: unzigzag(cursor.uvarint()?),
                start: unzigzag(cursor.uvarint()?),
                value: Arc::new(histogram::read(&mut cursor, None)?),
            });
        }
        if !cursor.is_empty() {
            return Err(Malformed("log block goes on behind its end"));
        }
        Ok(())
    }
}
