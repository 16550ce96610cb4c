//! The columnar batch: the one form in which samples travel from a decoder to the log and the head.
//!
//! It is built once (by remote write, a scrape, a rule) and consumed once. Label sets lie one
//! behind the other in canonical form; samples lie in columns, each series owning a run of them.
//!
//! Invariant: label sets are canonical; the columns of float samples have equal length, but for
//! `start_times`, which is empty while no sample has a start timestamp.

use crate::histogram::Histogram;
use crate::labels::LabelsRef;
use crate::sample::{START_UNKNOWN, TimestampMs};
use std::ops::Range;

/// A native histogram with its times.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSample {
    /// When it was taken.
    pub time: TimestampMs,
    /// Since when it counts, or [`START_UNKNOWN`].
    pub start_time: TimestampMs,
    /// The value.
    pub histogram: Histogram,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    labels: u32,
    floats: u32,
    histograms: u32,
}

/// Samples of many series, in columns. Reuse one with [`Batch::clear`] to keep its memory.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    label_bytes: Vec<u8>,
    times: Vec<TimestampMs>,
    values: Vec<f64>,
    start_times: Vec<TimestampMs>,
    histograms: Vec<HistogramSample>,
    ends: Vec<Ends>,
}

/// One series of a batch.
#[derive(Clone, Copy, Debug)]
pub struct SeriesSamples<'a> {
    /// The label set.
    pub labels: LabelsRef<'a>,
    /// Times of the float samples, in the order they arrived.
    pub times: &'a [TimestampMs],
    /// Values of the float samples; as many as times.
    pub values: &'a [f64],
    /// Start timestamps of the float samples; as many as times, or none at all.
    pub start_times: &'a [TimestampMs],
    /// Histogram samples.
    pub histograms: &'a [HistogramSample],
}

impl Batch {
    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.label_bytes.clear();
        self.times.clear();
        self.values.clear();
        self.start_times.clear();
        self.histograms.clear();
        self.ends.clear();
    }

    /// Adds a float sample to the series under way.
    pub fn push_float(&mut self, time: TimestampMs, value: f64) {
        self.times.push(time);
        self.values.push(value);
        if !self.start_times.is_empty() {
            self.start_times.push(START_UNKNOWN);
        }
    }

    /// Adds a float sample that counts since `start_time` to the series under way.
    pub fn push_float_with_start(
        &mut self,
        time: TimestampMs,
        value: f64,
        start_time: TimestampMs,
    ) {
        if self.start_times.is_empty() {
            self.start_times.resize(self.times.len(), START_UNKNOWN);
        }
        self.times.push(time);
        self.values.push(value);
        self.start_times.push(start_time);
    }

    /// Adds a histogram sample to the series under way.
    pub fn push_histogram(&mut self, sample: HistogramSample) {
        self.histograms.push(sample);
    }

    /// The arena of label bytes: a decoder appends the canonical pairs of the series under way.
    pub fn label_bytes(&mut self) -> &mut Vec<u8> {
        &mut self.label_bytes
    }

    /// Ends the series under way: the label bytes and samples added since the last end are its own.
    pub fn end_series(&mut self) {
        self.ends.push(Ends {
            labels: self.label_bytes.len() as u32,
            floats: self.times.len() as u32,
            histograms: self.histograms.len() as u32,
        });
    }

    /// Takes back everything added to the series under way.
    pub fn drop_series(&mut self) {
        let last = self.starts(self.ends.len());
        self.label_bytes.truncate(last.labels as usize);
        self.times.truncate(last.floats as usize);
        self.values.truncate(last.floats as usize);
        self.start_times.truncate(last.floats as usize);
        self.histograms.truncate(last.histograms as usize);
    }

    /// Adds a whole series of float samples.
    pub fn push_series(&mut self, labels: LabelsRef<'_>, samples: &[(TimestampMs, f64)]) {
        self.label_bytes.extend_from_slice(labels.as_bytes());
        for (time, value) in samples {
            self.push_float(*time, *value);
        }
        self.end_series();
    }

    /// Series in the batch.
    pub fn series_count(&self) -> usize {
        self.ends.len()
    }

    /// Samples in the batch, histograms included.
    pub fn sample_count(&self) -> usize {
        self.times.len() + self.histograms.len()
    }

    /// Whether there is no series.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of memory that the batch holds.
    pub fn memory_bytes(&self) -> usize {
        self.label_bytes.capacity()
            + self.times.capacity() * 8
            + self.values.capacity() * 8
            + self.start_times.capacity() * 8
            + self.histograms.capacity() * size_of::<HistogramSample>()
            + self.ends.capacity() * size_of::<Ends>()
    }

    /// The series with number `index`; panics past the end.
    #[inline]
    pub fn series(&self, index: usize) -> SeriesSamples<'_> {
        let start = self.starts(index);
        let end = self.ends[index];
        let floats: Range<usize> = start.floats as usize..end.floats as usize;
        let has_starts = !self.start_times.is_empty();
        SeriesSamples {
            labels: LabelsRef::from_canonical(
                &self.label_bytes[start.labels as usize..end.labels as usize],
            ),
            times: &self.times[floats.clone()],
            values: &self.values[floats.clone()],
            start_times: if has_starts {
                &self.start_times[floats]
            } else {
                &[]
            },
            histograms: &self.histograms[start.histograms as usize..end.histograms as usize],
        }
    }

    /// The series in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = SeriesSamples<'_>> {
        (0..self.ends.len()).map(|i| self.series(i))
    }

    #[inline]
    fn starts(&self, index: usize) -> Ends {
        match index.checked_sub(1) {
            Some(previous) => self.ends[previous],
            None => Ends {
                labels: 0,
                floats: 0,
                histograms: 0,
            },
        }
    }
}
