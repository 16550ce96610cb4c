//! The columnar form of a read: columns of samples of many series. Series with equal timestamps
//! share them.
//!
//! The series of one scrape target have the same timestamps. They refer to one time column, so
//! computations that depend only on timestamps are done once for all of them.
//!
//! Invariants: the timestamps of a column strictly increase, and a series has as many values as its
//! column has timestamps. For a histogram sample the value is [`HISTOGRAM_PLACEHOLDER`], and the
//! histogram is in a separate list. Staleness markers are included: as a float with their bit
//! pattern, or as a histogram whose sum has it.

use crate::histogram::Histogram;
use crate::sample::{TimeRange, TimestampMs};
use std::ops::Range;
use std::sync::Arc;

/// The float value of samples that are histograms. Readers must ignore it.
pub const HISTOGRAM_PLACEHOLDER: f64 = 0.0;

/// Number of newest time columns with which a new series is compared. In each shard of a store the
/// targets of a selection follow one another, and their columns usually differ in the first
/// timestamp.
pub const COLUMNS_SHARED: usize = 16;

/// Samples of consecutive series of a selection. Reuse a batch with [`SeriesBatch::clear`] to keep
/// its memory.
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

/// The time column of a series in a batch, and the range of its samples that the batch contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeColumnRange {
    column: usize,
    samples: Range<usize>,
}

/// A view of one series in a [`SeriesBatch`], which borrows from its columns.
#[derive(Clone, Copy, Debug)]
pub struct SeriesColumns<'a> {
    /// The index of the time column. Equal indexes mean equal timestamps. It was one of the newest
    /// [`COLUMNS_SHARED`] columns when the series was added.
    pub time_column: usize,
    /// The timestamps in strictly ascending order, possibly shared with other series.
    pub times: &'a [TimestampMs],
    /// The float values; one for each timestamp, including those of histograms.
    pub values: &'a [f64],
    /// The start timestamps: one for each timestamp, or none at all.
    pub start_times: &'a [TimestampMs],
    /// The histograms, each with the index of its timestamp, in order of indexes.
    pub histograms: &'a [(u32, Arc<Histogram>)],
}

impl SeriesBatch {
    /// Removes all series and time columns and keeps the memory.
    pub fn clear(&mut self) {
        self.times.clear();
        self.time_columns.clear();
        self.values.clear();
        self.start_times.clear();
        self.histograms.clear();
        self.series.clear();
    }

    /// Adds a series. The columns have the form of [`SeriesColumns`]. If the timestamps equal those
    /// of a recent series, the time column is shared.
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

    /// Returns the column of values. The caller appends the values of a series of floats directly,
    /// which avoids a copy, and must then call [`SeriesBatch::end_floats`].
    pub fn values_mut(&mut self) -> &mut Vec<f64> {
        &mut self.values
    }

    /// Reserves capacity for `series` more series with the length of the newest one, and for the
    /// time columns that they may share.
    pub fn reserve_series(&mut self, series: usize) {
        let values = self.series.last().map_or(0, |last| last.values.len());
        self.values.reserve(series.saturating_mul(values));
        self.series.reserve(series);
        let columns = series.min(COLUMNS_SHARED);
        self.times.reserve(columns.saturating_mul(values));
        self.time_columns.reserve(columns);
    }

    /// Adds a series of floats whose values were appended to [`SeriesBatch::values_mut`]. `times`
    /// contains one timestamp for each value. Only samples in `range` are kept.
    pub fn end_floats(&mut self, times: &[TimestampMs], range: TimeRange) -> TimeColumnRange {
        let samples = range.indexes(times);
        let kept = TimeColumnRange {
            column: self.time_column(&times[samples.clone()]),
            samples,
        };
        self.end_floats_as(&kept, times.len());
        kept
    }

    /// Adds a series like [`SeriesBatch::end_floats`], for `appended` values whose timestamps equal
    /// those of the previous series. `kept` is the result of `end_floats` for that series.
    #[inline]
    pub fn end_floats_as(&mut self, kept: &TimeColumnRange, appended: usize) {
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

    /// Returns the column with these timestamps: one of the newest, or a new one.
    fn time_column(&mut self, times: &[TimestampMs]) -> usize {
        let columns = self.time_columns.iter().enumerate().rev();
        let mut newest = columns.take(COLUMNS_SHARED);
        // The columns of other targets usually differ in the first timestamp.
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

    /// Returns the number of series, including those without samples.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Returns whether the batch contains no series, not even one without samples.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Returns the number of distinct time columns, at most one per series.
    pub fn time_column_count(&self) -> usize {
        self.time_columns.len()
    }

    /// Returns the number of samples in the longest series.
    pub fn longest_series(&self) -> usize {
        let lens = self.series.iter().map(|ranges| ranges.values.len());
        lens.max().unwrap_or(0)
    }

    /// Returns the histograms of all series, each with the index of its timestamp within its
    /// series.
    pub fn histograms(&self) -> &[(u32, Arc<Histogram>)] {
        &self.histograms
    }

    /// Returns the number of samples of all series together.
    pub fn sample_count(&self) -> usize {
        self.values.len()
    }

    /// Returns the memory of the columns in bytes, including unused capacity, but not the
    /// histograms that they refer to.
    pub fn memory_bytes(&self) -> usize {
        self.times.capacity() * size_of::<TimestampMs>()
            + self.time_columns.capacity() * size_of::<Range<usize>>()
            + self.values.capacity() * size_of::<f64>()
            + self.start_times.capacity() * size_of::<TimestampMs>()
            + self.histograms.capacity() * size_of::<(u32, Arc<Histogram>)>()
            + self.series.capacity() * size_of::<SeriesRanges>()
    }

    /// Returns series `index`. Panics if `index` is out of range.
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

/// Maximum memory of a value in a [`LabelColumn`] in bytes, in addition to its text: its entry in a
/// list with capacity for twice as many, the reference counts, and the overhead of the allocator.
pub const COLUMN_VALUE_BYTES: usize = 2 * size_of::<Arc<[u8]>>() + 32;

/// The values of one label for all series of a selection, encoded as indexes into a dictionary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelColumn {
    /// One index into `values` for each series. Equal indexes mean equal values.
    pub ids: Vec<u32>,
    /// The distinct values. A missing label has the empty value.
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
