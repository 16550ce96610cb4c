//! The columnar form of a read: sample columns of many series, timestamps shared where equal.
//!
//! Series of one scrape target have the same timestamps; they point at one time column, so that
//! whoever computes on them does the work that depends on times alone once.
//!
//! Invariant: times strictly increase in a column; a series has as many values as its column has
//! times. Where a sample is a histogram the value is [`HISTOGRAM_PLACEHOLDER`] and the histogram
//! stands in the side list; staleness markers are left in (float: the bits, histogram: its sum).

use crate::histogram::Histogram;
use crate::sample::TimestampMs;
use std::ops::Range;
use std::sync::Arc;

/// The float value at a place where the sample is a histogram.
pub const HISTOGRAM_PLACEHOLDER: f64 = 0.0;

/// Samples of consecutive series of a selection. Reuse one with [`SeriesBatch::clear`].
#[derive(Clone, Debug, Default)]
pub struct SeriesBatch {
    times: Vec<TimestampMs>,
    time_columns: Vec<Range<usize>>,
    values: Vec<f64>,
    start_times: Vec<TimestampMs>,
    histograms: Vec<(u32, Arc<Histogram>)>,
    series: Vec<SeriesRanges>,
}

#[derive(Clone, Debug)]
struct SeriesRanges {
    time_column: usize,
    values: Range<usize>,
    start_times: Range<usize>,
    histograms: Range<usize>,
}

/// One series of a [`SeriesBatch`].
#[derive(Clone, Copy, Debug)]
pub struct SeriesColumns<'a> {
    /// The number of the time column; equal numbers mean equal timestamps.
    pub time_column: usize,
    /// The timestamps.
    pub times: &'a [TimestampMs],
    /// The float values, as many as times.
    pub values: &'a [f64],
    /// The start timestamps, as many as times, or none at all.
    pub start_times: &'a [TimestampMs],
    /// Histogram samples as (index in times, histogram), in index order.
    pub histograms: &'a [(u32, Arc<Histogram>)],
}

impl SeriesBatch {
    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.times.clear();
        self.time_columns.clear();
        self.values.clear();
        self.start_times.clear();
        self.histograms.clear();
        self.series.clear();
    }

    /// Adds a series. The columns are those of [`SeriesColumns`]; `histograms` is in index order.
    /// The timestamps are shared with the series before if they are equal.
    pub fn push(
        &mut self,
        times: &[TimestampMs],
        values: &[f64],
        start_times: &[TimestampMs],
        histograms: impl IntoIterator<Item = (u32, Arc<Histogram>)>,
    ) {
        assert_eq!(times.len(), values.len());
        let time_column = self.time_column(times);
        let values_start = self.values.len();
        self.values.extend_from_slice(values);
        let starts_start = self.start_times.len();
        self.start_times.extend_from_slice(start_times);
        let histograms_start = self.histograms.len();
        self.histograms.extend(histograms);
        self.series.push(SeriesRanges {
            time_column,
            values: values_start..self.values.len(),
            start_times: starts_start..self.start_times.len(),
            histograms: histograms_start..self.histograms.len(),
        });
    }

    fn time_column(&mut self, times: &[TimestampMs]) -> usize {
        if let Some(last) = self.time_columns.last()
            && self.times[last.clone()] == *times
        {
            return self.time_columns.len() - 1;
        }
        let start = self.times.len();
        self.times.extend_from_slice(times);
        self.time_columns.push(start..self.times.len());
        self.time_columns.len() - 1
    }

    /// Series in the batch.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there is no series.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Distinct time columns in the batch.
    pub fn time_column_count(&self) -> usize {
        self.time_columns.len()
    }

    /// Samples of all series together.
    pub fn sample_count(&self) -> usize {
        self.values.len()
    }

    /// Memory that the columns take, unused capacity included, what histograms point to not.
    pub fn memory_bytes(&self) -> usize {
        self.times.capacity() * size_of::<TimestampMs>()
            + self.time_columns.capacity() * size_of::<Range<usize>>()
            + self.values.capacity() * size_of::<f64>()
            + self.start_times.capacity() * size_of::<TimestampMs>()
            + self.histograms.capacity() * size_of::<(u32, Arc<Histogram>)>()
            + self.series.capacity() * size_of::<SeriesRanges>()
    }

    /// The series with number `index`; panics past the end.
    pub fn series(&self, index: usize) -> SeriesColumns<'_> {
        let ranges = &self.series[index];
        SeriesColumns {
            time_column: ranges.time_column,
            times: &self.times[self.time_columns[ranges.time_column].clone()],
            values: &self.values[ranges.values.clone()],
            start_times: &self.start_times[ranges.start_times.clone()],
            histograms: &self.histograms[ranges.histograms.clone()],
        }
    }
}

/// One label of all series of a selection, as numbers into a dictionary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelColumn {
    /// One number for each series; equal numbers mean equal values. Indexes `values`.
    pub ids: Vec<u32>,
    /// The distinct values; an absent label is the empty value.
    pub values: Vec<Arc<[u8]>>,
}
