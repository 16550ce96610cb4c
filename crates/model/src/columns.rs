//! The columnar form of a read: sample columns of many series, timestamps shared where equal.
//!
//! Series of one scrape target have the same timestamps; they point at one time column, so that
//! work that depends on times alone is done once for all of them.
//!
//! Invariant: times strictly increase in a column; a series has as many values as its column has
//! times. Where a sample is a histogram the value is [`HISTOGRAM_PLACEHOLDER`] and the histogram
//! stands in the side list; staleness markers are left in (float: the bits, histogram: its sum).

use crate::histogram::Histogram;
use crate::sample::{TimeRange, TimestampMs};
use std::ops::Range;
use std::sync::Arc;

/// The float value at a place where the sample is a histogram.
pub const HISTOGRAM_PLACEHOLDER: f64 = 0.0;

/// Time columns that a series may share, the newest ones: a request's targets come one after the
/// other in each shard of a store, and a column is told from another by its first time.
pub const COLUMNS_SHARED: usize = 16;

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

/// Where a batch keeps the times of a series, and which of its samples it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimesKept {
    column: usize,
    samples: Range<usize>,
}

/// One series of a [`SeriesBatch`].
#[derive(Clone, Copy, Debug)]
pub struct SeriesColumns<'a> {
    /// The number of the time column; equal numbers mean equal timestamps. One of the newest
    /// [`COLUMNS_SHARED`] that there were when the series was added.
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
    /// The timestamps are shared with one of the series before if they are equal.
    pub fn push(
        &mut self,
        times: &[TimestampMs],
        values: &[f64],
        start_times: &[TimestampMs],
        histograms: impl IntoIterator<Item = (u32, Arc<Histogram>)>,
    ) {
        assert_eq!(times.len(), values.len());
        assert!(start_times.is_empty() || start_times.len() == times.len());
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

    /// The column of values. The caller appends those of a series of floats, which need not be
    /// copied then, and must call [`SeriesBatch::end_floats`].
    pub fn values_mut(&mut self) -> &mut Vec<f64> {
        &mut self.values
    }

    /// Makes room for so many more series like the newest, and as many time columns as they may
    /// share.
    pub fn make_room(&mut self, series: usize) {
        let values = self.series.last().map_or(0, |last| last.values.len());
        self.values.reserve(series.saturating_mul(values));
        self.series.reserve(series);
        let columns = series.min(COLUMNS_SHARED);
        self.times.reserve(columns.saturating_mul(values));
        self.time_columns.reserve(columns);
    }

    /// Adds a series of floats whose values were appended to [`SeriesBatch::values_mut`]; `times`
    /// are as many. Of both the samples in `range` are kept.
    pub fn end_floats(&mut self, times: &[TimestampMs], range: TimeRange) -> TimesKept {
        let samples = range.indexes(times);
        let kept = TimesKept {
            column: self.time_column(&times[samples.clone()]),
            samples,
        };
        self.end_floats_as(&kept, times.len());
        kept
    }

    /// Like [`SeriesBatch::end_floats`], for `appended` values whose times are those of the series
    /// before; `kept` is what `end_floats` returned for that series.
    #[inline]
    pub fn end_floats_as(&mut self, kept: &TimesKept, appended: usize) {
        assert!(kept.samples.end <= appended, "values for all times");
        let first = self.values.len() - appended;
        let values = first + kept.samples.start..first + kept.samples.end;
        self.values.truncate(values.end);
        let (no_start, no_histogram) = (self.start_times.len(), self.histograms.len());
        self.series.push(SeriesRanges {
            time_column: kept.column,
            values,
            start_times: no_start..no_start,
            histograms: no_histogram..no_histogram,
        });
    }

    /// The column with these times: one of the newest that are there, or a new one.
    fn time_column(&mut self, times: &[TimestampMs]) -> usize {
        let columns = self.time_columns.iter().enumerate().rev();
        let mut newest = columns.take(COLUMNS_SHARED);
        // Columns of other targets differ in their first time already.
        let is_it = |at: &Range<usize>| {
            let known = &self.times[at.clone()];
            known.first() == times.first() && known == times
        };
        if let Some((known, _)) = newest.find(|(_, at)| is_it(at)) {
            return known;
        }
        debug_assert!(times.is_sorted_by(|a, b| a < b), "times strictly increase");
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

    /// Samples of the longest series.
    pub fn longest_series(&self) -> usize {
        let lens = self.series.iter().map(|ranges| ranges.values.len());
        lens.max().unwrap_or(0)
    }

    /// The histograms of all series, each with its index in the times of its series.
    pub fn histograms(&self) -> &[(u32, Arc<Histogram>)] {
        &self.histograms
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
    #[inline]
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

/// Bytes that a value of a [`LabelColumn`] takes beside its own, at most: its place, in a list that
/// may have room for as many again, what counts its holders and what the allocator adds.
pub const COLUMN_VALUE_BYTES: usize = 2 * size_of::<Arc<[u8]>>() + 32;

/// One label of all series of a selection, as numbers into a dictionary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelColumn {
    /// One number for each series; equal numbers mean equal values. Indexes `values`.
    pub ids: Vec<u32>,
    /// The distinct values; an absent label is the empty value.
    pub values: Vec<Arc<[u8]>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_series_with_equal_times_are_shared_across_others() {
        let mut batch = SeriesBatch::default();
        let (here, there) = ([1, 2, 3], [1, 2, 4]);
        for times in [here, there, here, there] {
            batch.push(&times, &[0.0; 3], &[], []);
        }
        let columns: Vec<usize> = (0..4).map(|i| batch.series(i).time_column).collect();
        assert_eq!(columns, [0, 1, 0, 1]);
        assert_eq!(batch.time_column_count(), 2);
    }

    #[test]
    fn floats_outside_of_the_range_are_not_in_the_series() {
        let mut batch = SeriesBatch::default();
        for (range, kept) in [
            ((2, 3), 1..3),
            ((0, 9), 0..4),
            ((7, 9), 4..4),
            ((5, 5), 4..4),
        ] {
            let (times, values) = ([1, 2, 3, 4], [10.0, 20.0, 30.0, 40.0]);
            batch.values_mut().extend_from_slice(&values);
            batch.end_floats(&times, TimeRange::new(range.0, range.1));
            let series = batch.series(batch.len() - 1);
            assert_eq!(series.times, &times[kept.clone()], "{range:?}");
            assert_eq!(series.values, &values[kept], "{range:?}");
        }
    }
}
