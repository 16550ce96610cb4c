//! The selectors `anchored` and `smoothed`, whose windows have a value at each edge.
//!
//! ```text
//!      lookback   |        range         |   lookback
//!   x     x       |x      x       x      |     x
//!         ^anchor                                ^ smoothed only
//! ```
//!
//! An anchored window includes the newest sample at or before its left edge. A smoothed window
//! interpolates at both edges, so it reads samples of the lookback on both sides. The
//! [`SelectorWindow`] of such a selector covers the whole interval; an [`SelectorOverhang`]
//! contains the part outside of the range.
//!
//! Follows `extendedRate` and `smoothSeries` of the `promql` package of Prometheus.

mod histograms;
pub(crate) mod rows;

use crate::ast::WindowEdges;
use crate::eval::kernels::over_time::count_events;
use crate::eval::kernels::samples::SampleSlices;
use crate::functions::{Extrapolation, FUNCTIONS, Function, RangeFunction};
use crate::grid::{SelectorWindow, seconds};
use firn_model::sample::TimestampMs;

/// The interval that a selector reads beyond its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelectorOverhang {
    /// True if the selector interpolates (`smoothed`), false if it is `anchored`.
    pub(crate) smoothed: bool,
    /// The distance in milliseconds that the selector reads beyond an edge.
    pub(crate) lookback_ms: i64,
}

impl SelectorOverhang {
    /// Returns the overhang of a selector with these edges, or `None` if they are plain.
    pub(crate) fn from_edges(edges: WindowEdges, lookback_ms: i64) -> Option<Self> {
        let smoothed = match edges {
            WindowEdges::Plain => return None,
            WindowEdges::Anchored => false,
            WindowEdges::Smoothed => true,
        };
        Some(Self {
            smoothed,
            lookback_ms,
        })
    }

    /// Returns the name of the modifier in PromQL, for error messages.
    pub(crate) fn name(self) -> &'static str {
        if self.smoothed {
            "smoothed"
        } else {
            "anchored"
        }
    }

    /// Checks whether `function` supports such windows. Fails with the text of Prometheus.
    pub(crate) fn check(self, function: &Function) -> Result<(), String> {
        let edges = if self.smoothed {
            WindowEdges::Smoothed
        } else {
            WindowEdges::Anchored
        };
        if function.supports_edges(edges) {
            return Ok(());
        }
        let takers = FUNCTIONS.iter().filter(|f| f.supports_edges(edges));
        let takers: Vec<&str> = takers.map(|f| f.name).collect();
        let (name, takers, function) = (self.name(), takers.join(", "), function.name);
        Err(format!(
            "{name} modifier can only be used with: {takers} - not with {function}"
        ))
    }

    /// Extends the reach of a selector, whose range is `plain`, by the overhang.
    pub(crate) fn widen(self, plain: SelectorWindow) -> SelectorWindow {
        let right = self.right_ms();
        SelectorWindow {
            range_ms: plain
                .range_ms
                .saturating_add(self.lookback_ms)
                .saturating_add(right),
            offset_ms: plain.offset_ms.saturating_sub(right),
            at: plain.at,
        }
    }

    /// Returns the range of a step, given the extended reach `wide`.
    pub(crate) fn range_at(self, wide: &SelectorWindow, time: TimestampMs) -> SelectorRange {
        let end = wide.end(time);
        SelectorRange {
            start: end
                .saturating_sub(wide.range_ms)
                .saturating_add(self.lookback_ms),
            end: end.saturating_sub(self.right_ms()),
        }
    }

    fn right_ms(self) -> i64 {
        if self.smoothed { self.lookback_ms } else { 0 }
    }

    /// Applies `function` to the floats of a step, of which there must be at least one. Returns
    /// `None` if there is no result or the function does not support such windows.
    pub(crate) fn apply_function(
        self,
        function: RangeFunction,
        window: &SampleSlices<'_>,
        range: SelectorRange,
    ) -> Option<f64> {
        match function {
            RangeFunction::Extrapolated(how) => self.compute_change(how, window, range),
            RangeFunction::Resets | RangeFunction::Changes => {
                let from = anchor_index(window.times, range.start)?;
                let window = window.slice(from, window.times.len());
                Some(count_events(function, &window))
            }
            _ => None,
        }
    }

    /// Returns the indexes of the samples at both edges, or `None` if the range has no value at its
    /// end.
    fn edge_indexes(self, times: &[TimestampMs], range: SelectorRange) -> Option<(usize, usize)> {
        let newest = times.len().checked_sub(1)?;
        let before = &times[..newest];
        let first = before.partition_point(|t| *t <= range.start);
        let last = if self.smoothed {
            before.partition_point(|t| *t < range.end)
        } else {
            newest
        };
        (times[last] > range.start).then_some((first.saturating_sub(1), last))
    }

    /// Returns the values at both edges, interpolated if the selector is smoothed.
    fn edge_values(
        self,
        window: &SampleSlices<'_>,
        first: usize,
        last: usize,
        range: SelectorRange,
        counter: bool,
    ) -> (f64, f64) {
        let (times, values) = (window.times, window.values);
        debug_assert!(first <= last, "edges at the samples {first} and {last}");
        let left = if self.smoothed && times[first] < range.start {
            interpolate(window, first, range.start, counter)
        } else {
            values[first]
        };
        let right = if self.smoothed && last > 0 && times[last] > range.end {
            interpolate(window, last - 1, range.end, counter)
        } else {
            values[last]
        };
        (left, right)
    }

    /// Computes `rate`, `increase` or `delta` of a window, without further extrapolation.
    fn compute_change(
        self,
        how: Extrapolation,
        window: &SampleSlices<'_>,
        range: SelectorRange,
    ) -> Option<f64> {
        let (first, last) = self.edge_indexes(window.times, range)?;
        if self.smoothed && window.times[first] > range.end {
            return None;
        }
        let (left, right) = self.edge_values(window, first, last, range, how.counter);
        let mut change = right - left;
        if how.counter {
            let inside = range.samples_inside(window.times, first, last);
            let values = window.values.get(inside).unwrap_or(&[]);
            change += lost_in_resets(left, right, values);
        }
        if how.per_second {
            change /= seconds(range.end - range.start);
        }
        Some(change)
    }

    /// Returns the samples of a range vector: one at each edge, and those between. Empty if all
    /// samples are before the range.
    pub(crate) fn extend(
        self,
        window: &SampleSlices<'_>,
        range: SelectorRange,
    ) -> Vec<(TimestampMs, f64)> {
        let Some((first, last)) = self.edge_indexes(window.times, range) else {
            return Vec::new();
        };
        let (left, right) = self.edge_values(window, first, last, range, false);
        let inside = range.samples_inside(window.times, first, last);
        let times = window.times.get(inside.clone()).unwrap_or(&[]);
        let values = window.values.get(inside).unwrap_or(&[]);
        let mut out = vec![(range.start, left)];
        out.extend(times.iter().copied().zip(values.iter().copied()));
        out.push((range.end, right));
        out
    }
}

/// The range of a selector at a step, without the overhang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelectorRange {
    /// The left edge in milliseconds. A sample exactly at it is outside of the range.
    pub(crate) start: TimestampMs,
    /// The right edge in milliseconds. A sample exactly at it is inside of the range.
    pub(crate) end: TimestampMs,
}

impl SelectorRange {
    /// Returns the samples of `first..=last` that are strictly between the edges.
    fn samples_inside(
        self,
        times: &[TimestampMs],
        first: usize,
        last: usize,
    ) -> std::ops::Range<usize> {
        let from = first + usize::from(times[first] <= self.start);
        let to = last + usize::from(times[last] < self.end);
        from..to.max(from)
    }
}

/// Returns the index of the newest sample at or before `start`, or of the first sample if there is
/// none. `None` if no sample is later than `start`.
fn anchor_index(times: &[TimestampMs], start: TimestampMs) -> Option<usize> {
    let later = times.partition_point(|t| *t <= start);
    (later < times.len()).then_some(later.saturating_sub(1))
}

/// Interpolates linearly between sample `at` and the next one. A counter that decreased between
/// them is assumed to have restarted at zero.
fn interpolate(window: &SampleSlices<'_>, at: usize, time: TimestampMs, counter: bool) -> f64 {
    let (t1, t2) = (window.times[at], window.times[at + 1]);
    let (mut y1, y2) = (window.values[at], window.values[at + 1]);
    if counter && y2 < y1 {
        y1 = 0.0;
    }
    y1 + (y2 - y1) * (time - t1) as f64 / (t2 - t1) as f64
}

/// Returns the sum of a counter's values before each decrease, from `left` over `values` to
/// `right`.
fn lost_in_resets(left: f64, right: f64, values: &[f64]) -> f64 {
    let mut lost = 0.0;
    let mut before = left;
    for value in values {
        if *value < before {
            lost += before;
        }
        before = *value;
    }
    if right < before {
        lost += before;
    }
    lost
}

/// Returns the value of a smoothed instant selector at `time`: the sample at this time, the value
/// interpolated between both neighbours, or else the last sample before.
pub(crate) fn smoothed_value(window: &SampleSlices<'_>, time: TimestampMs) -> Option<f64> {
    let next = window.times.partition_point(|t| *t < time);
    match window.times.get(next) {
        Some(at) if *at == time => Some(window.values[next]),
        Some(_) if next > 0 => Some(interpolate(window, next - 1, time, false)),
        Some(_) => None,
        None => window.values.last().copied(),
    }
}
