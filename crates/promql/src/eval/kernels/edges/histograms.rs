//! Histograms in `anchored` and `smoothed` windows.
//!
//! Follows `extendedHistogramRate` and `smoothSeries` of upstream's `promql` package.

use super::{Overhang, Range, anchor};
use crate::eval::annotations::Annotation;
use crate::eval::kernels::histogram_remarks::Remarks;
use crate::eval::kernels::mixed;
use crate::eval::kernels::samples::Samples;
use crate::functions::Extrapolation;
use crate::functions::RangeFunction;
use crate::grid::seconds;
use firn_model::histogram::ResetHint;
use firn_model::histogram::float::FloatHistogram;
use firn_model::sample::TimestampMs;

/// The histograms that a step sees, beyond its range too.
#[derive(Clone, Copy)]
pub(super) struct Points<'a> {
    /// Their times.
    pub(super) times: &'a [TimestampMs],
    /// The histograms.
    pub(super) histograms: &'a [FloatHistogram],
    /// For each whether it differs from the one before, as the function asks; or none.
    pub(super) events: &'a [bool],
}

impl Points<'_> {
    /// `rate`, `increase`, `delta` of a window of histograms alone.
    pub(super) fn change(
        &self,
        (overhang, how): (Overhang, Extrapolation),
        range: Range,
        remarks: &mut Remarks<'_>,
    ) -> Option<FloatHistogram> {
        let (first, last) = overhang.ends(self.times, range)?;
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
        let left = match before_range {
            true => self.between(first, range.start, how.counter, remarks)?,
            false => self.histograms[first].clone(),
        };
        let right = match overhang.smoothed && last > 0 && self.times[last] > range.end {
            true => self.between(last - 1, range.end, how.counter, remarks)?,
            false => self.histograms[last].clone(),
        };
        let gauges = [&left, &right].map(|histogram| histogram.hint == ResetHint::Gauge);
        if !how.counter && gauges.contains(&false) {
            remarks.add_named(Annotation::not_a_gauge);
        }
        let mut change = right.clone();
        remarks.subtract(&mut change, &left)?;
        if how.counter {
            let lost = self.lost((first, last), (&left, &right), before_range, remarks)?;
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

    /// The histogram at `time` between number `at` and the next one. A counter that was reset
    /// between them is taken to have started at zero.
    fn between(
        &self,
        at: usize,
        time: TimestampMs,
        counter: bool,
        remarks: &mut Remarks<'_>,
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

    /// What a counter had reached before each reset between the values at the edges, if there was
    /// one. `interpolated`: the left one lies between the first histogram and the next.
    fn lost(
        &self,
        (first, last): (usize, usize),
        (left, right): (&FloatHistogram, &FloatHistogram),
        interpolated: bool,
        remarks: &mut Remarks<'_>,
    ) -> Option<Option<FloatHistogram>> {
        let (mut from, mut before) = (first + 1, left);
        if interpolated && self.histograms[from].is_reset_after(&self.histograms[first]) {
            // The line to the left edge has that reset already.
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

    /// Resets or changes in an anchored window, beginning at the newest sample at or before its
    /// left edge, be it a float or a histogram; `None` if there is no sample in the window.
    pub(super) fn events_among(
        &self,
        function: RangeFunction,
        floats: &Samples<'_>,
        range: Range,
    ) -> Option<f64> {
        let later = |times: &[TimestampMs]| times.partition_point(|t| *t <= range.start);
        let (float, histogram) = (later(floats.times), later(self.times));
        if anchor(floats.times, range.start).is_none() && anchor(self.times, range.start).is_none()
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
        Some(mixed::events(function, &floats, (times, events)))
    }

    /// The histogram at `time`: the one there, or between its neighbours, or the one before. One
    /// that is carried on says nothing of resets.
    pub(super) fn smoothed_at(
        &self,
        time: TimestampMs,
        remarks: &mut Remarks<'_>,
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
        self.between(before, time, counter, remarks)
    }
}
