//! `anchored` and `smoothed` selectors: windows that end in a value at each edge.
//!
//! ```text
//!      lookback   |        range         |   lookback
//!   x     x       |x      x       x      |     x
//!         ^anchor                                ^ smoothed only
//! ```
//!
//! An anchored window takes the newest sample at or before its left edge along; a smoothed one
//! interpolates at both edges, so it sees samples of the lookback on both sides. The [`Reach`] of
//! such a selector covers all of that; an [`Overhang`] says how much of it lies outside the range.
//!
//! Follows `extendedRate` and `smoothSeries` of upstream's `promql` package.

mod histograms;
pub(crate) mod rows;

use crate::ast::Edges;
use crate::eval::kernels::over_time::events;
use crate::eval::kernels::samples::Samples;
use crate::functions::{Extrapolation, FUNCTIONS, Function, RangeFunction};
use crate::grid::{Reach, seconds};
use firn_model::sample::TimestampMs;

/// What a selector sees beyond its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overhang {
    /// Whether it interpolates; otherwise it is anchored.
    pub(crate) smoothed: bool,
    /// How far it looks beyond an edge.
    pub(crate) lookback_ms: i64,
}

impl Overhang {
    /// That of a selector with these edges; plain ones have none.
    pub(crate) fn of(edges: Edges, lookback_ms: i64) -> Option<Self> {
        let smoothed = match edges {
            Edges::Plain => return None,
            Edges::Anchored => false,
            Edges::Smoothed => true,
        };
        Some(Self {
            smoothed,
            lookback_ms,
        })
    }

    /// The modifier's name.
    pub(crate) fn name(self) -> &'static str {
        match self.smoothed {
            true => "smoothed",
            false => "anchored",
        }
    }

    /// Fails with upstream's text if `function` does not take such windows.
    pub(crate) fn check(self, function: &Function) -> Result<(), String> {
        let edges = match self.smoothed {
            true => Edges::Smoothed,
            false => Edges::Anchored,
        };
        if function.takes_edges(edges) {
            return Ok(());
        }
        let takers = FUNCTIONS.iter().filter(|f| f.takes_edges(edges));
        let takers: Vec<&str> = takers.map(|f| f.name).collect();
        let (name, takers, function) = (self.name(), takers.join(", "), function.name);
        Err(format!(
            "{name} modifier can only be used with: {takers} - not with {function}"
        ))
    }

    /// The reach of a selector whose range is `plain`.
    pub(crate) fn widen(self, plain: Reach) -> Reach {
        let right = self.right_ms();
        Reach {
            range_ms: plain
                .range_ms
                .saturating_add(self.lookback_ms)
                .saturating_add(right),
            offset_ms: plain.offset_ms.saturating_sub(right),
            at: plain.at,
        }
    }

    /// The range at a step of a widened reach: both edges.
    pub(crate) fn range_at(self, wide: &Reach, time: TimestampMs) -> Range {
        let end = wide.end(time);
        Range {
            start: end
                .saturating_sub(wide.range_ms)
                .saturating_add(self.lookback_ms),
            end: end.saturating_sub(self.right_ms()),
        }
    }

    fn right_ms(self) -> i64 {
        if self.smoothed { self.lookback_ms } else { 0 }
    }

    /// What `function` makes of the floats that a step sees, which are not none. Functions that do
    /// not take such windows give nothing.
    pub(crate) fn apply(
        self,
        function: RangeFunction,
        window: &Samples<'_>,
        range: Range,
    ) -> Option<f64> {
        match function {
            RangeFunction::Extrapolated(how) => self.change(how, window, range),
            RangeFunction::Resets | RangeFunction::Changes => {
                let from = anchor(window.times, range.start)?;
                let window = window.slice(from, window.times.len());
                Some(events(function, &window))
            }
            _ => None,
        }
    }

    /// The indexes of the samples at the edges; `None` if the range has no value at its end.
    fn ends(self, times: &[TimestampMs], range: Range) -> Option<(usize, usize)> {
        let newest = times.len().checked_sub(1)?;
        let before = &times[..newest];
        let first = before.partition_point(|t| *t <= range.start);
        let last = match self.smoothed {
            true => before.partition_point(|t| *t < range.end),
            false => newest,
        };
        (times[last] > range.start).then_some((first.saturating_sub(1), last))
    }

    /// The values at both edges.
    fn values(
        self,
        window: &Samples<'_>,
        (first, last): (usize, usize),
        range: Range,
        counter: bool,
    ) -> (f64, f64) {
        let (times, values) = (window.times, window.values);
        let left = match self.smoothed && times[first] < range.start {
            true => interpolate(window, first, range.start, counter),
            false => values[first],
        };
        let right = match self.smoothed && last > 0 && times[last] > range.end {
            true => interpolate(window, last - 1, range.end, counter),
            false => values[last],
        };
        (left, right)
    }

    /// `rate`, `increase`, `delta`.
    fn change(self, how: Extrapolation, window: &Samples<'_>, range: Range) -> Option<f64> {
        let (first, last) = self.ends(window.times, range)?;
        if self.smoothed && window.times[first] > range.end {
            return None;
        }
        let (left, right) = self.values(window, (first, last), range, how.counter);
        let mut change = right - left;
        if how.counter {
            let inside = range.inside(window.times, first, last);
            let values = window.values.get(inside).unwrap_or(&[]);
            change += lost_in_resets(left, right, values);
        }
        if how.per_second {
            change /= seconds(range.end - range.start);
        }
        Some(change)
    }

    /// The samples of a range vector: one at each edge and those between. None if the samples that
    /// a step sees end before the range begins.
    pub(crate) fn extend(self, window: &Samples<'_>, range: Range) -> Vec<(TimestampMs, f64)> {
        let Some((first, last)) = self.ends(window.times, range) else {
            return Vec::new();
        };
        let (left, right) = self.values(window, (first, last), range, false);
        let inside = range.inside(window.times, first, last);
        let times = window.times.get(inside.clone()).unwrap_or(&[]);
        let values = window.values.get(inside).unwrap_or(&[]);
        let mut out = vec![(range.start, left)];
        out.extend(times.iter().copied().zip(values.iter().copied()));
        out.push((range.end, right));
        out
    }
}

/// The range of a selector at a step, without what it sees beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// Left edge.
    pub(crate) start: TimestampMs,
    /// Right edge.
    pub(crate) end: TimestampMs,
}

impl Range {
    /// Those of the samples `first..=last` that do not stand at or beyond an edge.
    fn inside(self, times: &[TimestampMs], first: usize, last: usize) -> std::ops::Range<usize> {
        let from = first + usize::from(times[first] <= self.start);
        let to = last + usize::from(times[last] < self.end);
        from..to.max(from)
    }
}

/// The index of the newest sample at or before `start`, or of the first one if there is none;
/// nothing if no sample is later than `start`.
fn anchor(times: &[TimestampMs], start: TimestampMs) -> Option<usize> {
    let later = times.partition_point(|t| *t <= start);
    (later < times.len()).then_some(later.saturating_sub(1))
}

/// The value at `time` on the line from sample `at` to the next one. A counter that fell between
/// them is taken to have started at zero.
fn interpolate(window: &Samples<'_>, at: usize, time: TimestampMs, counter: bool) -> f64 {
    let (t1, t2) = (window.times[at], window.times[at + 1]);
    let (mut y1, y2) = (window.values[at], window.values[at + 1]);
    if counter && y2 < y1 {
        y1 = 0.0;
    }
    y1 + (y2 - y1) * (time - t1) as f64 / (t2 - t1) as f64
}

/// What a counter had counted when it fell, at each fall from `left` over `values` to `right`.
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

/// The value at `time` of a smoothed instant selector that sees `window`: the sample there, or on
/// the line between its neighbours, or the one before.
pub(crate) fn smoothed_at(window: &Samples<'_>, time: TimestampMs) -> Option<f64> {
    let next = window.times.partition_point(|t| *t < time);
    match window.times.get(next) {
        Some(at) if *at == time => Some(window.values[next]),
        Some(_) if next > 0 => Some(interpolate(window, next - 1, time, false)),
        Some(_) => None,
        None => window.values.last().copied(),
    }
}
