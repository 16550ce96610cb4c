//! The data that one append writes to a log, in columns.
//!
//! The batch defines the content of a record but not its encoding, which each engine chooses. Slots
//! are the numbers by which the store identifies its series within a folder.

use crate::exemplar::SeriesExemplars;
use crate::histogram::Histogram;
use crate::log::{CreatedSeries, JournalRecord};
use crate::sample::{START_UNKNOWN, TimeRange, TimestampMs};
use std::sync::Arc;

/// The series that one append created, and its accepted samples and exemplars.
///
/// A batch can be replayed with only the series of earlier batches or of the catalogue. Replay
/// results in the same head regardless of the order and number of repetitions of batches, because a
/// batch contains only accepted samples, and existing samples are skipped.
#[derive(Clone, Debug, Default)]
pub struct LogBatch {
    /// The series whose first sample this append wrote, with their labels.
    pub created: CreatedSeries,
    /// The float samples that were appended to their series in order.
    pub floats: FloatRows,
    /// The native histogram samples that were appended in order.
    pub histograms: Vec<HistogramRow>,
    /// The exemplars, each with the slot of its series.
    pub exemplars: SeriesExemplars,
    /// The late float samples, which could not be appended in order to their series. Unlike all
    /// other samples they may repeat a timestamp of the series.
    pub late_floats: FloatRows,
    /// The late native histogram samples, which could not be appended in order.
    pub late_histograms: Vec<HistogramRow>,
    /// The order of arrival of the late samples. Of two late samples with the same timestamp, the
    /// one in the batch with the larger number arrived later. Positions do not provide this order,
    /// because batches may reach the log in a different order. Unused if there are no late samples.
    pub late_order: u64,
    /// State of another component that is logged together with the samples.
    pub journal: JournalRecord,
    /// True if the record may be held until the caller appends the next one, to be written together
    /// with it. Not a part of the record.
    pub is_followed: bool,
}

impl LogBatch {
    /// Returns whether there is nothing to log: no samples, series, exemplars or journal.
    pub fn is_empty(&self) -> bool {
        let has_samples = !self.floats.is_empty() || !self.histograms.is_empty();
        let has_any = has_samples || self.has_late();
        !has_any && self.created.is_empty() && self.exemplars.is_empty() && self.journal.is_empty()
    }

    /// Returns whether there are late samples of any type.
    pub fn has_late(&self) -> bool {
        !self.late_floats.is_empty() || !self.late_histograms.is_empty()
    }

    /// Returns the slot and timestamp of every sample that was appended in order, floats first.
    pub fn samples(&self) -> impl Iterator<Item = (u64, TimestampMs)> {
        slots_and_times(&self.floats, &self.histograms)
    }

    /// Returns the slot and timestamp of every late sample, floats first.
    pub fn late_samples(&self) -> impl Iterator<Item = (u64, TimestampMs)> {
        slots_and_times(&self.late_floats, &self.late_histograms)
    }

    /// Returns the time range of the samples. Late samples are considered only if there are no
    /// others.
    pub fn time_range(&self) -> Option<TimeRange> {
        time_range_of(self.samples()).or_else(|| time_range_of(self.late_samples()))
    }

    /// Returns the memory of the batch in bytes, without unused capacity.
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

/// Returns the slot and timestamp of every row, floats first.
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

/// Returns the time range of the samples, or `None` if there are none.
fn time_range_of(samples: impl Iterator<Item = (u64, TimestampMs)>) -> Option<TimeRange> {
    let ranges = samples.map(|(_, time)| TimeRange::new(time, time));
    ranges.reduce(TimeRange::hull)
}

/// A hint about the decimal form of a float: the code of a power of ten that makes it an integer
/// (`docs/format/chunk.md`), or [`DecimalHint::NONE`]. It saves a search in engines that encode
/// floats as integers. Engines may ignore it and must not rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecimalHint(pub u8);

impl DecimalHint {
    /// The hint that no power of ten has been determined.
    pub const NONE: Self = Self(u8::MAX);
}

/// A float sample of one series, as a row.
#[derive(Clone, Copy, Debug)]
pub struct FloatRow {
    /// The slot of the series in the store's folder.
    pub slot: u64,
    /// The timestamp of the sample in milliseconds.
    pub time: TimestampMs,
    /// The start timestamp of the counter, or [`START_UNKNOWN`].
    pub start: TimestampMs,
    /// The value of the sample, any float including the staleness marker.
    pub value: f64,
}

/// Float samples in columns of equal length, in the order of the append.
#[derive(Clone, Debug, Default)]
pub struct FloatRows {
    /// The slots of the series; one for each sample.
    pub slots: Vec<u64>,
    /// The timestamps of the samples in milliseconds.
    pub times: Vec<TimestampMs>,
    /// The values of the samples; one for each slot.
    pub values: Vec<f64>,
    /// The start timestamps. Empty if no sample has one.
    pub starts: Vec<TimestampMs>,
    /// The hints about the values. Empty in a batch that was read from a log.
    pub hints: Vec<DecimalHint>,
}

impl FloatRows {
    /// Reserves capacity for `count` more samples without start timestamps.
    pub fn reserve(&mut self, count: usize) {
        self.slots.reserve(count);
        self.times.reserve(count);
        self.values.reserve(count);
        self.hints.reserve(count);
    }

    /// Adds a sample with a hint about its value.
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

    /// Returns the number of float samples.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether there are no float samples.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the samples in the order in which they were added.
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

/// A native histogram sample of one series, as a row.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramRow {
    /// The slot of the series in the store's folder.
    pub slot: u64,
    /// The timestamp of the sample in milliseconds.
    pub time: TimestampMs,
    /// The start timestamp of the counter, or [`START_UNKNOWN`].
    pub start: TimestampMs,
    /// The value of the sample, shared with the head.
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
