//! Samples in any order, held until they are many: sorted then, and written as blocks.

use super::{Import, Series};
use crate::block::block_order;
use crate::chunk::{Columns, Sample};
use crate::index::EPOCH_MS;
use firn_model::error::Error;
use firn_model::labels::{Labels, LabelsRef};
use firn_model::sample::{TimeRange, TimestampMs};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// What a sample takes in the buffer.
const SAMPLE_BYTES: usize = size_of::<Row>();

/// What a series takes beside its labels and samples: its places in table and list.
const SERIES_BYTES: usize = 96;

/// Blocks of one cut's length that a flush makes, at most: samples that lie further apart go into
/// blocks that are [`LARGER`] times as long.
const SMALL_MAX: usize = 4;

/// How many cuts a larger block is long: that of the third level of compaction.
const LARGER: i64 = 16;

/// Blocks that one flush makes, at most: samples that lie further apart share larger ones.
const WINDOWS_MAX: usize = 64;

type Row = (TimestampMs, TimestampMs, Sample);

/// See the module.
pub struct Buffer {
    cut_ms: i64,
    /// By canonical bytes of labels.
    numbers: FxHashMap<Box<[u8]>, usize>,
    /// By number; samples in the order in which they came.
    series: Vec<Vec<Row>>,
    bytes: usize,
    samples: u64,
}

/// One for cuts of the usual length.
impl Default for Buffer {
    fn default() -> Self {
        Self::new(EPOCH_MS)
    }
}

impl Buffer {
    /// An empty one; blocks are made for windows of `cut_ms` of data time, or of several of those.
    pub fn new(cut_ms: i64) -> Self {
        Self {
            cut_ms: cut_ms.max(1),
            numbers: FxHashMap::default(),
            series: Vec::new(),
            bytes: 0,
            samples: 0,
        }
    }

    /// Adds a sample.
    pub fn push(
        &mut self,
        labels: LabelsRef<'_>,
        time: TimestampMs,
        start: TimestampMs,
        value: Sample,
    ) {
        let known = self.numbers.get(labels.as_bytes()).copied();
        let number = known.unwrap_or_else(|| {
            self.bytes += labels.as_bytes().len() + SERIES_BYTES;
            self.numbers
                .insert(labels.as_bytes().into(), self.series.len());
            self.series.push(Vec::new());
            self.series.len() - 1
        });
        if let Sample::Histogram(histogram) = &value {
            self.bytes += histogram.memory_bytes();
        }
        self.series[number].push((time, start, value));
        self.bytes += SAMPLE_BYTES;
        self.samples += 1;
    }

    /// Bytes of memory, about; vectors may have as much again to spare.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Samples that it holds.
    pub fn sample_count(&self) -> u64 {
        self.samples
    }

    /// Writes the samples as blocks of `import`, one for each window that they touch, and is empty
    /// then. Of two samples of a series at one time the one that came first stays.
    pub fn flush(&mut self, import: &mut Import) -> Result<(), Error> {
        let Self {
            numbers, series, ..
        } = std::mem::replace(self, Self::new(self.cut_ms));
        let mut series: Vec<Option<Vec<Row>>> = series.into_iter().map(Some).collect();
        let named = numbers.into_iter();
        let mut sorted: Vec<(Labels, Vec<Row>)> = named
            .filter_map(|(labels, number)| {
                let labels = LabelsRef::from_canonical(&labels).to_owned();
                Some((labels, series[number].take()?))
            })
            .collect();
        sorted.sort_unstable_by(|a, b| block_order(a.0.as_ref(), b.0.as_ref()));
        for (_, rows) in &mut sorted {
            rows.sort_by_key(|(time, ..)| *time);
            rows.dedup_by_key(|(time, ..)| *time);
        }
        for window in windows_of(&sorted, self.cut_ms) {
            let id = import.target.new_id(window.max.saturating_add(1));
            import.block(id, Some(window), |into| push_window(&sorted, window, into))?;
        }
        Ok(())
    }
}

/// The windows that have a sample, oldest first.
fn windows_of(series: &[(Labels, Vec<Row>)], cut_ms: i64) -> Vec<TimeRange> {
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

/// Which windows of this length have a sample; none if they are more than `max`.
fn window_numbers(series: &[(Labels, Vec<Row>)], length: i64, max: usize) -> Option<BTreeSet<i64>> {
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
    series: &[(Labels, Vec<Row>)],
    window: TimeRange,
    into: &mut Series<'_>,
) -> Result<(), Error> {
    let mut columns = Columns::default();
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
