//! Removes the buckets of histograms, for functions that need only the count and the sum.
//!
//! Counter resets that are visible only in buckets are detected before the buckets are removed, by
//! comparing each histogram with the one that was read before it. The latter depends on the steps,
//! because samples between two windows are skipped.
//!
//! Follows `HistogramStatsIterator` of Prometheus on top of its `BufferedSeriesIterator` and
//! `MemoizedSeriesIterator`.

use crate::grid::{SelectorWindow, StepGrid};
use firn_model::columns::SeriesColumns;
use firn_model::histogram::float::FloatHistogram;
use firn_model::histogram::{Histogram, ResetHint};
use firn_model::sample::{TimestampMs, is_stale};
use std::sync::Arc;

/// The order in which the samples of a series are read, step by step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleReadOrder<'a> {
    /// The steps of the evaluation, which determine the order of reading.
    pub(crate) grid: &'a StepGrid,
    /// The window of a step, relative to its evaluation time.
    pub(crate) reach: &'a SelectorWindow,
    /// Samples that are older than this, relative to the end of a step's window, are skipped. In
    /// milliseconds.
    pub(crate) behind_ms: i64,
    /// The same limit for the steps after the first one whose window contains a sample.
    pub(crate) later_behind_ms: i64,
}

impl SampleReadOrder<'_> {
    /// Returns the histograms of a series without buckets, with the counter reset hints that result
    /// from this order of reading.
    pub(crate) fn strip_buckets(&self, columns: &SeriesColumns<'_>) -> Vec<(u32, Arc<Histogram>)> {
        let leaps = self.find_read_starts(columns);
        let mut leaps = leaps.iter().peekable();
        let mut before: Option<FloatHistogram> = None;
        let mut out = Vec::with_capacity(columns.histograms.len());
        for (index, histogram) in columns.histograms {
            while leaps.next_if(|leap| **leap <= *index as usize).is_some() {
                before = None;
            }
            let mut plain = FloatHistogram::from_statistics(histogram);
            if !histogram.is_stale() {
                let whole = FloatHistogram::from(&**histogram);
                if let Some(before) = before.filter(|_| plain.reset_hint == ResetHint::Unknown) {
                    plain.reset_hint = if whole.is_reset_after(&before) {
                        ResetHint::Reset
                    } else {
                        ResetHint::NotReset
                    };
                }
                before = Some(whole);
            }
            out.push((*index, Arc::new(plain)));
        }
        out
    }

    /// Returns the indexes of the samples at which reading starts: initially and each time that
    /// samples were skipped.
    fn find_read_starts(&self, columns: &SeriesColumns<'_>) -> Vec<usize> {
        let times = columns.times;
        let oldest = self
            .reach
            .end(self.grid.start)
            .saturating_sub(self.reach.range_ms);
        let mut next = times.partition_point(|t| *t <= oldest);
        let mut leaps = vec![next];
        let (mut seen_up_to, mut behind_ms) = (TimestampMs::MIN, self.behind_ms);
        for time in self.grid.times() {
            let end = self.reach.end(time);
            let oldest = end.saturating_sub(behind_ms);
            if next < times.len() && oldest > seen_up_to {
                if oldest > times[next] {
                    next += times[next..].partition_point(|t| *t < oldest);
                    leaps.push(next);
                }
                seen_up_to = times.get(next).copied().unwrap_or(seen_up_to);
            }
            while next < times.len() && seen_up_to < end {
                next += 1;
                seen_up_to = times.get(next).copied().unwrap_or(seen_up_to);
            }
            if behind_ms != self.later_behind_ms && self.has_sample_in_window(columns, end) {
                behind_ms = self.later_behind_ms;
            }
        }
        leaps
    }

    /// Returns whether the window that ends at `end` contains a sample other than a staleness
    /// marker.
    fn has_sample_in_window(&self, columns: &SeriesColumns<'_>, end: TimestampMs) -> bool {
        let start = end.saturating_sub(self.reach.range_ms);
        let from = columns.times.partition_point(|t| *t <= start);
        let to = columns.times.partition_point(|t| *t <= end);
        (from..to).any(|at| {
            let place = |(index, _): &(u32, _)| *index as usize;
            match columns.histograms.binary_search_by_key(&at, place) {
                Ok(found) => !columns.histograms[found].1.is_stale(),
                Err(_) => !is_stale(columns.values[at]),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a series with a sample every 10 s. The limits `behind` are in seconds: initially and
    /// later.
    fn check(step_s: i64, range_s: i64, behind: (i64, i64), leaps: &[usize]) {
        let times: Vec<TimestampMs> = (0..20).map(|i| i * 10_000).collect();
        let columns = SeriesColumns {
            time_column: 0,
            times: &times,
            values: &[0.0; 20],
            start_times: &[],
            histograms: &[],
        };
        let reading = SampleReadOrder {
            grid: &StepGrid::from_bounds(30_000, 190_000, step_s * 1000),
            reach: &SelectorWindow {
                range_ms: range_s * 1000,
                offset_ms: 0,
                at: None,
            },
            behind_ms: behind.0 * 1000,
            later_behind_ms: behind.1 * 1000,
        };
        let context = format!("step {step_s}, range {range_s}, {behind:?}");
        assert_eq!(reading.find_read_starts(&columns), leaps, "{context}");
    }

    #[test]
    fn reading_passes_over_samples_between_windows_only() {
        // Windows that overlap, are adjacent, and have gaps between them.
        check(10, 30, (30, 10), &[1]);
        check(20, 30, (30, 20), &[1]);
        check(30, 30, (30, 30), &[1]);
        check(40, 30, (30, 30), &[1, 4, 8, 12, 16]);
        check(50, 15, (15, 15), &[2, 7, 12, 17]);
        // Samples older than a step are in the previous window already.
        check(20, 60, (60, 20), &[0]);
        check(80, 20, (i64::MAX / 2000, i64::MAX / 2000), &[2]);
    }
}
