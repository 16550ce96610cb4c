//! Decoded samples of a series, in columns.

use super::duplicates::DuplicatePolicy;
use firn_model::columns::{HISTOGRAM_PLACEHOLDER, SeriesBatch};
use firn_model::histogram::{Histogram, ResetHint};
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs};
use std::ops::Range;
use std::sync::Arc;

/// Decoded samples, in the shape of [`firn_model::columns::SeriesColumns`]. Reuse an instance to
/// keep its memory.
#[derive(Clone, Debug, Default)]
pub struct SampleColumns {
    /// Timestamps in milliseconds since 1970, in strictly ascending order.
    pub times: Vec<TimestampMs>,
    /// Values, one per timestamp; a placeholder for a histogram.
    pub values: Vec<f64>,
    /// Start timestamps, one per timestamp, or empty if no sample has one.
    pub start_times: Vec<TimestampMs>,
    /// Histograms with their index in `times`.
    pub histograms: Vec<(u32, Arc<Histogram>)>,
}

/// The value of one sample: a float, or a native histogram that is shared.
#[derive(Clone, Debug)]
pub enum ChunkSample {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<Histogram>),
}

impl SampleColumns {
    /// Removes all samples and keeps the memory of the columns.
    pub fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.start_times.clear();
        self.histograms.clear();
    }

    /// Drops the samples from index `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.times.truncate(len);
        self.values.truncate(len);
        self.start_times.truncate(len);
        let kept = self
            .histograms
            .partition_point(|(i, _)| (*i as usize) < len);
        self.histograms.truncate(kept);
    }

    /// Removes the samples at index `from` and later for whose time `is_removed` returns true.
    pub(crate) fn remove_from(&mut self, from: usize, is_removed: impl Fn(TimestampMs) -> bool) {
        let Some(first) = self.times[from..].iter().position(|time| is_removed(*time)) else {
            return;
        };
        let first = from + first;
        let mut kept = first;
        // The new index of each sample from `first` on.
        let mut moved = Vec::with_capacity(self.times.len() - first);
        for i in first..self.times.len() {
            let is_kept = !is_removed(self.times[i]);
            moved.push(is_kept.then_some(kept as u32));
            if is_kept {
                self.times[kept] = self.times[i];
                self.values[kept] = self.values[i];
                if let Some(start) = self.start_times.get(i).copied() {
                    self.start_times[kept] = start;
                }
                kept += 1;
            }
        }
        self.histograms.retain_mut(|(i, _)| {
            let Some(at) = (*i as usize).checked_sub(first) else {
                return true;
            };
            let place = moved[at];
            *i = place.unwrap_or(*i);
            place.is_some()
        });
        self.times.truncate(kept);
        self.values.truncate(kept);
        self.start_times.truncate(kept);
    }

    /// Marks the counter reset hints of all histograms as unknown, because samples before them were
    /// removed.
    pub(crate) fn forget_reset_hints(&mut self) {
        for (_, histogram) in &mut self.histograms {
            if !matches!(histogram.reset_hint, ResetHint::Gauge | ResetHint::Unknown) {
                Arc::make_mut(histogram).reset_hint = ResetHint::Unknown;
            }
        }
    }

    /// Merges the samples from index `len` on into those before. Both parts must be sorted by time.
    /// If two samples have the same time, the first one is kept. Costs one comparison if all later
    /// samples are newer, which is nearly always the case.
    pub(crate) fn merge_from(&mut self, len: usize) {
        let last = len.checked_sub(1).and_then(|i| self.times.get(i));
        let is_newer = |last: &TimestampMs| self.times.get(len).is_none_or(|next| last < next);
        if last.is_none_or(is_newer) {
            return;
        }
        let mut order: Vec<usize> = (0..self.times.len()).collect();
        order.sort_by_key(|i| self.times[*i]);
        order.dedup_by_key(|i| self.times[*i]);
        self.put_in_order(&order, usize::MAX);
    }

    /// Merges the late samples from index `len` on into those before. Samples with equal times must
    /// be in order of arrival; `duplicates` determines which one is kept. A histogram whose
    /// predecessor changes loses its counter reset hint, because it was compared with another
    /// sample.
    pub(crate) fn merge_late(&mut self, len: usize, duplicates: DuplicatePolicy) {
        let mut order: Vec<usize> = (0..self.times.len()).collect();
        order.sort_by_key(|i| self.times[*i]);
        let mut histograms = std::mem::take(&mut self.histograms);
        histograms.sort_by_key(|(i, _)| *i);
        self.histograms = histograms;
        order.dedup_by(|later, kept| {
            let is_repeated = self.times[*later] == self.times[*kept];
            if is_repeated && duplicates.replaces(&self.sample(*kept), &self.sample(*later)) {
                *kept = *later;
            }
            is_repeated
        });
        self.put_in_order(&order, len);
    }

    /// Returns the value of the sample at index `i`. The histograms must be sorted.
    fn sample(&self, i: usize) -> ChunkSample {
        let found = self
            .histograms
            .binary_search_by_key(&(i as u32), |(i, _)| *i);
        match found {
            Ok(found) => ChunkSample::Histogram(self.histograms[found].1.clone()),
            Err(_) => ChunkSample::Float(self.values[i]),
        }
    }

    /// Keeps the samples with the indices in `order`, in this order. The hints of samples from
    /// index `late` on are not valid for their new predecessors.
    fn put_in_order(&mut self, order: &[usize], late: usize) {
        let mut histograms = std::mem::take(&mut self.histograms);
        histograms.sort_by_key(|(i, _)| *i);
        for (place, i) in order.iter().enumerate() {
            let found = histograms.binary_search_by_key(&(*i as u32), |(i, _)| *i);
            if let Ok(found) = found {
                let mut histogram = histograms[found].1.clone();
                let before = place.checked_sub(1).map(|before| order[before]);
                let is_moved = *i >= late || before.is_some_and(|before| before + 1 != *i);
                if late != usize::MAX && is_moved && histogram.reset_hint != ResetHint::Gauge {
                    Arc::make_mut(&mut histogram).reset_hint = ResetHint::Unknown;
                }
                self.histograms.push((place as u32, histogram));
            }
        }
        self.times = order.iter().map(|i| self.times[*i]).collect();
        debug_assert!(self.times.is_sorted_by(|a, b| a < b));
        self.values = order.iter().map(|i| self.values[*i]).collect();
        if !self.start_times.is_empty() {
            self.start_times = order.iter().map(|i| self.start_times[*i]).collect();
        }
    }

    /// Appends a sample without a check of its time. `START_UNKNOWN` is the start of a sample
    /// without one.
    pub fn push(&mut self, time: TimestampMs, start: TimestampMs, value: &ChunkSample) {
        let at = self.times.len();
        if start != START_UNKNOWN || !self.start_times.is_empty() {
            self.start_times.resize(at, START_UNKNOWN);
            self.start_times.push(start);
        }
        self.times.push(time);
        self.values.push(match value {
            ChunkSample::Float(value) => *value,
            ChunkSample::Histogram(histogram) => {
                self.histograms.push((at as u32, histogram.clone()));
                HISTOGRAM_PLACEHOLDER
            }
        });
    }

    /// Returns the samples one by one, as (time, start, value).
    pub fn samples(&self) -> impl Iterator<Item = (TimestampMs, TimestampMs, ChunkSample)> {
        let mut histograms = self.histograms.iter().peekable();
        self.times.iter().enumerate().map(move |(i, time)| {
            let start = self.start_times.get(i).copied().unwrap_or(START_UNKNOWN);
            let sample = match histograms.next_if(|(at, _)| *at as usize == i) {
                Some((_, histogram)) => ChunkSample::Histogram(histogram.clone()),
                None => ChunkSample::Float(self.values[i]),
            };
            (*time, start, sample)
        })
    }

    /// Adds the samples in `range` to `batch` as one series.
    pub fn push_range(&self, range: TimeRange, batch: &mut SeriesBatch) {
        let Range { start, end } = range.indexes(&self.times);
        let in_range = self.histograms.iter().filter_map(|(i, histogram)| {
            let is_in = (start..end).contains(&(*i as usize));
            is_in.then(|| (*i - start as u32, histogram.clone()))
        });
        batch.push(
            &self.times[start..end],
            &self.values[start..end],
            self.start_times.get(start..end).unwrap_or(&[]),
            in_range,
        );
    }

    /// Sets the start timestamp of each sample before `end` that has none to `start`.
    pub(super) fn fill_starts(&mut self, start: TimestampMs, end: usize) {
        if start != START_UNKNOWN || !self.start_times.is_empty() {
            self.start_times.resize(end, start);
        }
    }
}
