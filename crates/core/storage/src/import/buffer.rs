//! A buffer for samples in any order, which are sorted and written as blocks when it is flushed.

use super::{BlockImport, ImportSeriesWriter};
use crate::block::compare_block_order;
use crate::chunk::{ChunkSample, SampleColumns};
use crate::index::EPOCH_MS;
use firn_model::error::Error;
use firn_model::labels::{Labels, LabelsRef};
use firn_model::sample::{TimeRange, TimestampMs};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Memory of a sample in the buffer, in bytes.
const SAMPLE_BYTES: usize = size_of::<ImportRow>();

/// Memory of a series without its labels and samples, in bytes: its entries in table and list.
const SERIES_BYTES: usize = 96;

/// Maximum number of blocks of one cut's length in a flush. Samples that are further apart go into
/// blocks that are [`LARGER`] times as long.
const SMALL_MAX: usize = 4;

/// Length of a larger block in cuts: that of the third level of compaction.
const LARGER: i64 = 16;

/// Maximum number of blocks in a flush. Samples that are further apart share larger blocks.
const WINDOWS_MAX: usize = 64;

type ImportRow = (TimestampMs, TimestampMs, ChunkSample);

/// Buffered samples by series. Filled by [`ImportBuffer::push`], emptied by
/// [`ImportBuffer::flush`].
pub struct ImportBuffer {
    cut_ms: i64,
    /// Numbers of the series, by the canonical encoding of their labels.
    numbers: FxHashMap<Box<[u8]>, usize>,
    /// Samples by number of the series, in order of arrival.
    series: Vec<Vec<ImportRow>>,
    bytes: usize,
    samples: u64,
}

/// A buffer for cuts of the default length.
impl Default for ImportBuffer {
    fn default() -> Self {
        Self::new(EPOCH_MS)
    }
}

impl ImportBuffer {
    /// Returns an empty buffer. Blocks will cover windows of `cut_ms` of data time, or of several
    /// of those.
    pub fn new(cut_ms: i64) -> Self {
        Self {
            cut_ms: cut_ms.max(1),
            numbers: FxHashMap::default(),
            series: Vec::new(),
            bytes: 0,
            samples: 0,
        }
    }

    /// Adds a sample of the series with `labels`.
    pub fn push(
        &mut self,
        labels: LabelsRef<'_>,
        time: TimestampMs,
        start: TimestampMs,
        value: ChunkSample,
    ) {
        let known = self.numbers.get(labels.as_bytes()).copied();
        let number = known.unwrap_or_else(|| {
            self.bytes += labels.as_bytes().len() + SERIES_BYTES;
            self.numbers
                .insert(labels.as_bytes().into(), self.series.len());
            self.series.push(Vec::new());
            self.series.len() - 1
        });
        if let ChunkSample::Histogram(histogram) = &value {
            self.bytes += histogram.memory_bytes();
        }
        self.series[number].push((time, start, value));
        self.bytes += SAMPLE_BYTES;
        self.samples += 1;
    }

    /// Returns the approximate memory in bytes; vectors may have as much spare capacity.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of buffered samples.
    pub fn sample_count(&self) -> u64 {
        self.samples
    }

    /// Writes the samples as blocks of `import`, one for each window with samples, and empties the
    /// buffer. If a series has several samples at one time, the first one is kept.
    pub fn flush(&mut self, import: &mut BlockImport) -> Result<(), Error> {
        let Self {
            numbers, series, ..
        } = std::mem::replace(self, Self::new(self.cut_ms));
        let mut series: Vec<Option<Vec<ImportRow>>> = series.into_iter().map(Some).collect();
        let named = numbers.into_iter();
        let mut sorted: Vec<(Labels, Vec<ImportRow>)> = named
            .filter_map(|(labels, number)| {
                let labels = LabelsRef::from_canonical(&labels).to_owned();
                Some((labels, series[number].take()?))
            })
            .collect();
        sorted.sort_unstable_by(|a, b| compare_block_order(a.0.as_ref(), b.0.as_ref()));
        for (_, rows) in &mut sorted {
            rows.sort_by_key(|(time, ..)| *time);
            rows.dedup_by_key(|(time, ..)| *time);
        }
        for window in list_windows(&sorted, self.cut_ms) {
            let id = import.target.new_id(window.max.saturating_add(1));
            import.write_block(id, Some(window), |into| push_window(&sorted, window, into))?;
        }
        Ok(())
    }
}

/// Returns the windows that contain samples, oldest first.
fn list_windows(series: &[(Labels, Vec<ImportRow>)], cut_ms: i64) -> Vec<TimeRange> {
    let (mut length, mut max) = (cut_ms, SMALL_MAX);
    loop {
        if let Some(numbers) = window_numbers(series, length, max) {
            let windows = numbers.into_iter().map(|number| {
                let start = number.saturating_mul(length);
                TimeRange::new(start, start.saturating_add(length - 1))
            });
            return windows.collect();
        }
        length = length.saturating_mul(if max == SMALL_MAX { LARGER } else { 4 });
        max = WINDOWS_MAX;
    }
}

/// Returns the numbers of the windows of this length that contain samples; `None` if there are more
/// than `max`.
fn window_numbers(
    series: &[(Labels, Vec<ImportRow>)],
    length: i64,
    max: usize,
) -> Option<BTreeSet<i64>> {
    let mut numbers = BTreeSet::new();
    for (_, rows) in series {
        let mut last = None;
        for (time, ..) in rows {
            let number = time.div_euclid(length);
            if last.replace(number) != Some(number) {
                numbers.insert(number);
                if numbers.len() > max {
                    return None;
                }
            }
        }
    }
    Some(numbers)
}

fn push_window(
    series: &[(Labels, Vec<ImportRow>)],
    window: TimeRange,
    into: &mut ImportSeriesWriter<'_>,
) -> Result<(), Error> {
    let mut columns = SampleColumns::default();
    for (labels, rows) in series {
        let start = rows.partition_point(|(time, ..)| *time < window.min);
        let end = rows.partition_point(|(time, ..)| *time <= window.max);
        if start == end {
            continue;
        }
        columns.clear();
        for (time, start, value) in &rows[start..end] {
            columns.push(*time, *start, value);
        }
        into.push(labels.as_ref(), &columns)?;
    }
    Ok(())
}
