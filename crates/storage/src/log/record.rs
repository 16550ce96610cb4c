//! The unit of the log: a record holds what one append wrote.
//!
//! It holds the series that the append created and the samples that were accepted, in columns,
//! coded only against each other: a record replays from itself and the series of earlier records or
//! of the catalogue. `docs/format/log-record.md` draws it. Invariant: replay gives the same head
//! whatever the order of the records and however often one is read, because only accepted samples
//! are in it, and a sample that is there already is skipped.

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
use crate::ids::SeriesRef;
use firn_model::exemplar::{SeriesExemplars, TimedExemplar};
use firn_model::histogram::Histogram;
use firn_model::labels::LabelsRef;
use firn_model::sample::TimestampMs;
use rows::{PlainReader, ValueReader};
use std::sync::Arc;

/// The version of the layout without exemplars, its first byte.
const VERSION: u8 = 1;

/// The version of the layout with exemplars. Records without exemplars keep the other version.
const VERSION_WITH_EXEMPLARS: u8 = 2;

/// Set in the version of a record whose values are plain: see [`outline`].
const PLAIN: u8 = 0x80;

/// Builds a record. Reuse one to keep its memory.
#[derive(Debug, Default)]
pub(crate) struct RecordEncoder {
    created: Vec<u8>,
    created_count: u64,
    labels: LabelsEncoder,
    last_slot: u32,
    /// The accepted float samples.
    pub(crate) rows: Rows,
    histograms: Vec<u8>,
    histogram_count: u64,
    exemplars: Vec<u8>,
    exemplar: ExemplarEncoder,
}

impl RecordEncoder {
    /// Adds a series that the batch created; slots must ascend.
    pub(crate) fn push_created(&mut self, slot: u32, labels: LabelsRef<'_>) {
        push_uvarint(&mut self.created, u64::from(slot - self.last_slot));
        self.last_slot = slot;
        self.labels.push(&mut self.created, labels);
        self.created_count += 1;
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
        let slot = SeriesRef(slot);
        self.exemplar.push(&mut self.exemplars, slot, exemplar);
    }

    /// Whether there is nothing to log.
    pub(crate) fn is_empty(&self) -> bool {
        let has_samples = !self.rows.is_empty() || self.histogram_count > 0;
        self.created_count == 0 && !has_samples && self.exemplars.is_empty()
    }

    /// The record. Empties the encoder.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let columns = self.created.len() + self.rows.memory_bytes() + self.histograms.len();
        let mut out = Vec::with_capacity(columns + self.exemplars.len() + 64);
        if self.exemplars.is_empty() {
            out.push(VERSION);
        } else {
            out.push(VERSION_WITH_EXEMPLARS);
            push_prefixed(&mut out, &self.exemplars);
            self.exemplars.clear();
            self.exemplar.clear();
        }
        push_uvarint(&mut out, self.created_count);
        push_prefixed(&mut out, &self.created);
        self.rows.finish(&mut out);
        push_uvarint(&mut out, self.histogram_count);
        out.extend_from_slice(&self.histograms);
        self.created.clear();
        self.created_count = 0;
        self.labels.clear();
        self.last_slot = 0;
        self.histograms.clear();
        self.histogram_count = 0;
        out
    }
}

/// A histogram sample of a record.
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

/// A record, ready to be read in parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordReader<'a> {
    is_plain: bool,
    exemplars: &'a [u8],
    created_count: u64,
    created: &'a [u8],
    behind_created: Cursor<'a>,
}

impl<'a> RecordReader<'a> {
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
            created_count: cursor.uvarint()?,
            created: cursor.prefixed()?,
            behind_created: cursor,
        })
    }

    /// Whether the record creates series.
    pub(crate) fn creates_series(&self) -> bool {
        self.created_count > 0
    }

    /// Whether it holds exemplars.
    pub(crate) fn has_exemplars(&self) -> bool {
        !self.exemplars.is_empty()
    }

    /// Adds the exemplars to `into`, with the slots of their series.
    pub(crate) fn exemplars(&self, into: &mut SeriesExemplars) -> Result<(), Malformed> {
        read_exemplars(self.exemplars, into)
    }

    /// The series that the record creates.
    pub(crate) fn created_series(&self) -> SeriesRecords<'a> {
        SeriesRecords::new(self.created, Some(self.created_count))
    }

    /// Calls `row` for the float samples and appends the others to `histograms`.
    pub(crate) fn samples(
        &self,
        row: impl FnMut(Row),
        histograms: &mut Vec<HistogramRow>,
    ) -> Result<(), Malformed> {
        let mut cursor = self.behind_created;
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
