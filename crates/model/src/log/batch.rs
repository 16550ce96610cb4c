//! What one append writes to a log, in columns.
//!
//! The batch says what happened and not how it is stored: each engine chooses its own coding.
//! Slots are the numbers by which the store's folder names its series.

use crate::exemplar::SeriesExemplars;
use crate::histogram::Histogram;
use crate::log::{CreatedSeries, Journal};
use crate::sample::{START_UNKNOWN, TimeRange, TimestampMs};
use std::sync::Arc;

/// The series that one append created and the samples and exemplars of it that were accepted.
///
/// A batch replays from itself and the series of earlier batches or of the catalogue. Replay gives
/// the same head whatever the order of the batches and however often one is read, because only
/// accepted samples are in it, and a sample that is there already is skipped.
#[derive(Clone, Debug, Default)]
pub struct LogBatch {
    /// The series of which this append wrote the first sample.
    pub created: CreatedSeries,
    /// The float samples.
    pub floats: FloatRows,
    /// The native histogram samples.
    pub histograms: Vec<HistogramRow>,
    /// The exemplars, each with the slot of its series.
    pub exemplars: SeriesExemplars,
    /// The late float samples: those that their series could not append in order. Unlike the
    /// others they may repeat a time that the series has already.
    pub late_floats: FloatRows,
    /// The late native histogram samples.
    pub late_histograms: Vec<HistogramRow>,
    /// When the late samples arrived: of two at one time, that of the batch with the greater number
    /// arrived later. Positions do not say so, because batches reach the log in any order. Nothing
    /// is said by it where there are no late samples.
    pub late_order: u64,
    /// What another room logs beside the samples.
    pub journal: Journal,
    /// Whether the record may wait for the next one of the same caller, to be written with it.
    /// Not a part of the record.
    pub is_followed: bool,
}

impl LogBatch {
    /// Whether there is nothing to log.
    pub fn is_empty(&self) -> bool {
        let has_samples = !self.floats.is_empty() || !self.histograms.is_empty();
        let has_any = has_samples || self.has_late();
        !has_any && self.created.is_empty() && self.exemplars.is_empty() && self.journal.is_none()
    }

    /// Whether there are late samples.
    pub fn has_late(&self) -> bool {
        !self.late_floats.is_empty() || !self.late_histograms.is_empty()
    }

    /// Slot and time of every sample that its series appended in order, floats first.
    pub fn samples(&self) -> impl Iterator<Item = (u64, TimestampMs)> {
        slots_and_times(&self.floats, &self.histograms)
    }

    /// Slot and time of every late sample, floats first.
    pub fn late_samples(&self) -> impl Iterator<Item = (u64, TimestampMs)> {
        slots_and_times(&self.late_floats, &self.late_histograms)
    }

    /// From the oldest sample to the newest, if there is one; late ones count where there are no
    /// others.
    pub fn time_range(&self) -> Option<TimeRange> {
        range_of(self.samples()).or_else(|| range_of(self.late_samples()))
    }

    /// Bytes that the batch takes in memory, what its vectors have to spare left out.
    pub fn memory_bytes(&self) -> usize {
        let histograms = self.histograms.iter().chain(&self.late_histograms);
        self.created.memory_bytes()
            + self.floats.memory_bytes()
            + self.late_floats.memory_bytes()
            + histograms.map(HistogramRow::memory_bytes).sum::<usize>()
            + self.exemplars.memory_bytes()
            + self.journal.bytes.len()
    }
}

/// Slot and time of every row, floats first.
fn slots_and_times(
    floats: &FloatRows,
    histograms: &[HistogramRow],
) -> impl Iterator<Item = (u64, TimestampMs)> {
    let of_floats = floats.slots.iter().zip(&floats.times);
    let of_histograms = histograms.iter().map(|row| (row.slot, row.time));
    of_floats
        .map(|(slot, time)| (*slot, *time))
        .chain(of_histograms)
}

/// From the oldest of these to the newest.
fn range_of(samples: impl Iterator<Item = (u64, TimestampMs)>) -> Option<TimeRange> {
    let ranges = samples.map(|(_, time)| TimeRange::new(time, time));
    ranges.reduce(TimeRange::hull)
}

/// What the appender knows of the decimal form of a float: the code of a power of ten that makes it
/// an integer (`docs/format/chunk.md`), or [`DecimalHint::NONE`]. It saves an engine that codes
/// floats as integers a search. An engine may ignore it, and must not rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecimalHint(pub u8);

impl DecimalHint {
    /// No power of ten is known.
    pub const NONE: Self = Self(u8::MAX);
}

/// A float sample.
#[derive(Clone, Copy, Debug)]
pub struct FloatRow {
    /// Its series.
    pub slot: u64,
    /// Its time.
    pub time: TimestampMs,
    /// Its start timestamp, or [`START_UNKNOWN`].
    pub start: TimestampMs,
    /// Its value.
    pub value: f64,
}

/// Float samples in columns of equal length.
#[derive(Clone, Debug, Default)]
pub struct FloatRows {
    /// The series.
    pub slots: Vec<u64>,
    /// The times.
    pub times: Vec<TimestampMs>,
    /// The values.
    pub values: Vec<f64>,
    /// The start timestamps; empty if no sample has one.
    pub starts: Vec<TimestampMs>,
    /// What is known of the values; empty in a batch that was read from a log.
    pub hints: Vec<DecimalHint>,
}

impl FloatRows {
    /// Makes room for `count` more samples without start timestamps.
    pub fn reserve(&mut self, count: usize) {
        self.slots.reserve(count);
        self.times.reserve(count);
        self.values.reserve(count);
        self.hints.reserve(count);
    }

    /// Adds a sample.
    #[inline]
    pub fn push(&mut self, row: FloatRow, hint: DecimalHint) {
        if row.start != START_UNKNOWN || !self.starts.is_empty() {
            self.starts.resize(self.slots.len(), START_UNKNOWN);
            self.starts.push(row.start);
        }
        self.slots.push(row.slot);
        self.times.push(row.time);
        self.values.push(row.value);
        self.hints.push(hint);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The samples in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = FloatRow> {
        let columns = self.slots.iter().zip(&self.times).zip(&self.values);
        columns
            .enumerate()
            .map(|(i, ((slot, time), value))| FloatRow {
                slot: *slot,
                time: *time,
                start: self.starts.get(i).copied().unwrap_or(START_UNKNOWN),
                value: *value,
            })
    }

    fn memory_bytes(&self) -> usize {
        self.slots.len() * (size_of::<u64>() + size_of::<TimestampMs>() + size_of::<f64>())
            + self.starts.len() * size_of::<TimestampMs>()
            + self.hints.len()
    }
}

/// A native histogram sample.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramRow {
    /// Its series.
    pub slot: u64,
    /// Its time.
    pub time: TimestampMs,
    /// Its start timestamp, or [`START_UNKNOWN`].
    pub start: TimestampMs,
    /// Its value.
    pub value: Arc<Histogram>,
}

impl HistogramRow {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.value.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_rows_with_a_late_first_start_have_one_for_each() {
        let mut rows = FloatRows::default();
        for (slot, start) in [(1, 0), (2, 0), (3, 7), (4, 0)] {
            let row = FloatRow {
                slot,
                time: 5,
                start,
                value: 1.0,
            };
            rows.push(row, DecimalHint::NONE);
        }
        assert_eq!(rows.starts, [0, 0, 7, 0]);
        let starts: Vec<_> = rows.iter().map(|row| row.start).collect();
        assert_eq!(starts, rows.starts);
    }
}
