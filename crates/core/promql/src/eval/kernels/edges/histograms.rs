//! Histograms in the windows of `anchored` and `smoothed` selectors.
//!
//! Follows `extendedHistogramRate` and `smoothSeries` of the `promql` package of Prometheus.

use super::{SelectorOverhang, SelectorRange, anchor_index};
use crate::eval::annotations::Annotation;
use crate::eval::kernels::histogram_remarks::HistogramRemarks;
use crate::eval::kernels::mixed;
use crate::eval::kernels::samples::SampleSlices;
use crate::functions::Extrapolation;
use crate::functions::RangeFunction;
use crate::grid::seconds;
use firn_model::histogram::ResetHint;
use firn_model::histogram::float::FloatHistogram;
use firn_model::sample::TimestampMs;

/// The histograms in the window of a step, including the overhang.
#[derive(Clone, Copy)]
pub(super) struct WindowHistograms<'a> {
    /// The timestamps of the histograms in ascending order.
    pub(super) times: &'a [TimestampMs],
    /// The histograms, decoded for computations; one for each timestamp.
    pub(super) histograms: &'a [FloatHistogram],
    /// For each histogram, whether it is a reset or a change, depending on the function. Empty if
    /// the function does not need it.
    pub(super) events: &'a [bool],
}

impl WindowHistograms<'_> {
    /// Computes `rate`, `increase` or `delta` of a window that contains only histograms.
    pub(super) fn compute_change(
        &self,
        overhang: SelectorOverhang,
        how: Extrapolation,
        range: SelectorRange,
        remarks: &mut HistogramRemarks<'_>,
    ) -> Option<FloatHistogram> {
        let (first, last) = overhang.edge_indexes(self.times, range)?;
        if overhang.smoothed && self.times[first] > range.end {
            return None;
        }
        for histogram in &self.histograms[first..=last] {
            if histogram.is_custom() != self.histograms[first].is_custom() {
                remarks.add_named(Annotation::mixed_schemas);
                return None;
            }
            if how.counter && histogram.hint == ResetHint::Gauge {
                remarks.add_named(Annotation::not_a_counter);
            }
        }
        let before_range = overhang.smoothed && self.times[first] < range.start;
        let left = if before_range {
            self.interpolate_histograms(first, range.start, how.counter, remarks)?
        } else {
            self.histograms[first].clone()
        };
        let right = if overhang.smoothed && last > 0 && self.times[last] > range.end {
            self.interpolate_histograms(last - 1, range.end, how.counter, remarks)?
        } else {
            self.histograms[last].clone()
        };
        let gauges = [&left, &right].map(|histogram| histogram.hint == ResetHint::Gauge);
        if !how.counter && gauges.contains(&false) {
            remarks.add_named(Annotation::not_a_gauge);
        }
        let mut change = right.clone();
        remarks.subtract(&mut change, &left)?;
        if how.counter {
            let lost =
                self.sum_lost_in_resets(first, last, &left, &right, before_range, remarks)?;
            if let Some(lost) = lost {
                remarks.add(&mut change, &lost)?;
            }
        }
        if how.per_second {
            change.divide(seconds(range.end - range.start));
        }
        change.hint = ResetHint::Gauge;
        change.compact();
        Some(change)
    }

    /// Interpolates between histogram `at` and the next one. A counter that was reset between them
    /// is assumed to have restarted at zero.
    fn interpolate_histograms(
        &self,
        at: usize,
        time: TimestampMs,
        counter: bool,
        remarks: &mut HistogramRemarks<'_>,
    ) -> Option<FloatHistogram> {
        let (t1, t2) = (self.times[at], self.times[at + 1]);
        let (h1, h2) = (&self.histograms[at], &self.histograms[at + 1]);
        if time == t1 {
            return Some(h1.clone());
        }
        let mut out = h2.clone();
        if time == t2 {
            return Some(out);
        }
        let fraction = (time - t1) as f64 / (t2 - t1) as f64;
        if counter && h2.is_reset_after(h1) {
            out.multiply(fraction);
            return Some(out);
        }
        remarks.subtract(&mut out, h1)?;
        out.multiply(fraction);
        remarks.add(&mut out, h1)?;
        Some(out)
    }

    /// Returns the sum of the counter's values before each reset between the edges, if there was
    /// one. `interpolated` is true if the value at the left edge was interpolated between the first
    /// and the second histogram.
    fn sum_lost_in_resets(
        &self,
        first: usize,
        last: usize,
        left: &FloatHistogram,
        right: &FloatHistogram,
        interpolated: bool,
        remarks: &mut HistogramRemarks<'_>,
    ) -> Option<Option<FloatHistogram>> {
        let (mut from, mut before) = (first + 1, left);
        if interpolated && self.histograms[from].is_reset_after(&self.histograms[first]) {
            // The interpolation at the left edge has considered this reset already.
            before = &self.histograms[from];
            from += 1;
        }
        let Some(between) = self.histograms.get(from..last) else {
            return Some(None);
        };
        let mut lost: Option<FloatHistogram> = None;
        for histogram in between.iter().chain([right]) {
            if histogram.is_reset_after(before) {
                match &mut lost {
                    Some(lost) => remarks.add(lost, before)?,
                    none => *none = Some(before.clone()),
                }
            }
            before = histogram;
        }
        Some(lost)
    }

    /// Returns the number of resets or changes in an anchored window. It begins at the newest
    /// sample at or before the left edge, a float or a histogram. `None` if the window contains no
    /// sample.
    pub(super) fn count_events(
        &self,
        function: RangeFunction,
        floats: &SampleSlices<'_>,
        range: SelectorRange,
    ) -> Option<f64> {
        let later = |times: &[TimestampMs]| times.partition_point(|t| *t <= range.start);
        let (float, histogram) = (later(floats.times), later(self.times));
        if anchor_index(floats.times, range.start).is_none()
            && anchor_index(self.times, range.start).is_none()
        {
            return None;
        }
        let newest = |times: &[TimestampMs], later: usize| later.checked_sub(1).map(|at| times[at]);
        let anchors = (newest(floats.times, float), newest(self.times, histogram));
        let (float, histogram) = match anchors {
            (None, None) => (0, 0),
            (of_float, of_histogram) if of_float >= of_histogram => (float - 1, histogram),
            _ => (float, histogram - 1),
        };
        let floats = floats.slice(float, floats.times.len());
        let events = self.events.get(histogram..).unwrap_or(&[]);
        let times = &self.times[histogram..];
        Some(mixed::count_events(function, &floats, times, events))
    }

    /// Returns the histogram at `time`: the sample at this time, the interpolation between its
    /// neighbours, or the last one before. In the last case it has no counter reset hint.
    pub(super) fn smoothed_histogram(
        &self,
        time: TimestampMs,
        remarks: &mut HistogramRemarks<'_>,
    ) -> Option<FloatHistogram> {
        let next = self.times.partition_point(|t| *t < time);
        let Some(at) = self.times.get(next) else {
            let mut last = self.histograms.last()?.clone();
            last.hint = ResetHint::Unknown;
            return Some(last);
        };
        if *at == time {
            return Some(self.histograms[next].clone());
        }
        let before = next.checked_sub(1)?;
        let pair = [&self.histograms[before], &self.histograms[next]];
        if pair[0].is_custom() != pair[1].is_custom() {
            remarks.add_named(Annotation::mixed_schemas);
            return None;
        }
        let counter = pair
            .iter()
            .any(|histogram| histogram.hint != ResetHint::Gauge);
        self.interpolate_histograms(before, time, counter, remarks)
    }
}
