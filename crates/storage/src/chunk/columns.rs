//! Decoded samples, column by column.

use super::duplicates::Duplicates;
use firn_model::columns::{HISTOGRAM_PLACEHOLDER, SeriesBatch};
use firn_model::histogram::{Histogram, ResetHint};
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs};
use std::ops::Range;
use std::sync::Arc;

/// Decoded samples, in the shape of [`firn_model::columns::SeriesColumns`]. Reuse one to keep its
/// memory.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Timestamps.
    pub times: Vec<TimestampMs>,
    /// Values; as many as times.
    pub values: Vec<f64>,
    /// Start timestamps; as many as times, or none.
    pub start_times: Vec<TimestampMs>,
    /// Histograms with their index in `times`.
    pub histograms: Vec<(u32, Arc<Histogram>)>,
}

/// The value of one sample.
#[derive(Clone, Debug)]
pub enum Sample {
    /// A float.
    Float(f64),
    /// A histogram.
    Histogram(Arc<Histogram>),
}

impl Columns {
    /// Empties the columns and keeps their memory.
    pub fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.start_times.clear();
        self.histograms.clear();
    }

    /// Drops the samples from the one with number `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.times.truncate(len);
        self.values.truncate(len);
        self.start_times.truncate(len);
        let kept = self
            .histograms
            .partition_point(|(i, _)| (*i as usize) < len);
        self.histograms.truncate(kept);
    }

    /// Merges the samples from number `len` on, which must ascend as those before them do, into
    /// those before. Of two samples at one time the first stays. Costs one comparison where the
    /// later samples are newer, as they nearly always are.
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

    /// Merges the late samples from number `len` on into those before. Of equal times they stand in
    /// the order in which they arrived; which one stays is what `duplicates` says. A histogram that
    /// stands behind another sample than it was compared with says no more whether the counter was
    /// reset.
    pub(crate) fn merge_late(&mut self, len: usize, duplicates: Duplicates) {
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

    /// The value of a sample; histograms ascend.
    fn sample(&self, i: usize) -> Sample {
        let found = self
            .histograms
            .binary_search_by_key(&(i as u32), |(i, _)| *i);
        match found {
            Ok(found) => Sample::Histogram(self.histograms[found].1.clone()),
            Err(_) => Sample::Float(self.values[i]),
        }
    }

    /// Leaves the samples with these numbers, in this order. Those from number `late` on were
    /// compared with none before them.
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
        self.values = order.iter().map(|i| self.values[*i]).collect();
        if !self.start_times.is_empty() {
            self.start_times = order.iter().map(|i| self.start_times[*i]).collect();
        }
    }

    /// Adds a sample.
    pub fn push(&mut self, time: TimestampMs, start: TimestampMs, value: &Sample) {
        let at = self.times.len();
        if start != START_UNKNOWN || !self.start_times.is_empty() {
            self.start_times.resize(at, START_UNKNOWN);
            self.start_times.push(start);
        }
        self.times.push(time);
        self.values.push(match value {
            Sample::Float(value) => *value,
            Sample::Histogram(histogram) => {
                self.histograms.push((at as u32, histogram.clone()));
                HISTOGRAM_PLACEHOLDER
            }
        });
    }

    /// The samples one by one, as (time, start, value).
    pub fn samples(&self) -> impl Iterator<Item = (TimestampMs, TimestampMs, Sample)> {
        let mut histograms = self.histograms.iter().peekable();
        self.times.iter().enumerate().map(move |(i, time)| {
            let start = self.start_times.get(i).copied().unwrap_or(START_UNKNOWN);
            let sample = match histograms.next_if(|(at, _)| *at as usize == i) {
                Some((_, histogram)) => Sample::Histogram(histogram.clone()),
                None => Sample::Float(self.values[i]),
            };
            (*time, start, sample)
        })
    }

    /// Adds the samples that lie in `range` to `batch` as a series.
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

    /// Gives each sample before `end` that lacks one the start timestamp `start`.
    pub(super) fn fill_starts(&mut self, start: TimestampMs, end: usize) {
        if start != START_UNKNOWN || !self.start_times.is_empty() {
            self.start_times.resize(end, start);
        }
    }
}
