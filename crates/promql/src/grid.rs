//! The steps of an evaluation, and which stretch of data time a selector sees at a step.

use firn_model::sample::{TimeRange, TimestampMs};

/// Evenly spaced moments at which an expression is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// The first moment.
    pub(crate) start: TimestampMs,
    /// Milliseconds from step to step; positive.
    pub(crate) step_ms: i64,
    /// How many steps.
    pub(crate) count: usize,
    /// Up to where steps were asked for.
    pub(crate) end: TimestampMs,
}

impl Grid {
    /// The steps from `start` to `end`, both included; none if `end < start`.
    pub(crate) fn between(start: TimestampMs, end: TimestampMs, step_ms: i64) -> Self {
        assert!(step_ms > 0, "steps go forward");
        let count = match end.checked_sub(start) {
            Some(span) if span >= 0 => (span / step_ms) as usize + 1,
            _ => 0,
        };
        Self {
            start,
            step_ms,
            count,
            end,
        }
    }

    /// Only the first step.
    pub(crate) fn first_only(self) -> Self {
        Self {
            count: self.count.min(1),
            end: self.start,
            ..self
        }
    }

    /// Whether it is one moment; a range of a single step is none.
    pub(crate) fn is_instant(&self) -> bool {
        self.start == self.end
    }

    /// The time of a step.
    pub(crate) fn time(&self, step: usize) -> TimestampMs {
        self.start
            .saturating_add(self.step_ms.saturating_mul(step as i64))
    }

    /// The time of the last step; of an empty grid, its start.
    pub(crate) fn last(&self) -> TimestampMs {
        self.time(self.count.saturating_sub(1))
    }

    /// The times of all steps.
    pub(crate) fn times(&self) -> impl Iterator<Item = TimestampMs> + use<> {
        let grid = *self;
        (0..grid.count).map(move |step| grid.time(step))
    }
}

/// A duration in seconds, whole ones and the rest apart, as Go converts it.
pub(crate) fn seconds(duration_ms: i64) -> f64 {
    (duration_ms / 1000) as f64 + (duration_ms % 1000 * 1_000_000) as f64 / 1e9
}

/// How far a selector's data time lies from the evaluation time, and how much of it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Length of the window, left edge excluded: a range, or the lookback.
    pub(crate) range_ms: i64,
    /// `offset`.
    pub(crate) offset_ms: i64,
    /// `@`.
    pub(crate) at: Option<TimestampMs>,
}

impl Reach {
    /// The newest data time seen from `time`.
    pub(crate) fn end(&self, time: TimestampMs) -> TimestampMs {
        self.at.unwrap_or(time).saturating_sub(self.offset_ms)
    }

    /// The data times that all steps of a non-empty grid see together.
    pub(crate) fn time_range(&self, grid: &Grid) -> TimeRange {
        let oldest = self.end(grid.start).saturating_sub(self.range_ms);
        TimeRange::new(oldest.saturating_add(1), self.end(grid.last()))
    }
}
