//! The samples of a series, or of one window, that a kernel reads.

use firn_model::sample::{START_UNKNOWN, TimestampMs};

/// Samples of one kind, without staleness markers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Samples<'a> {
    /// Timestamps.
    pub(crate) times: &'a [TimestampMs],
    /// Values; none if the samples are histograms.
    pub(crate) values: &'a [f64],
    /// When the counter started to count, as many as timestamps; or none.
    pub(crate) starts: &'a [TimestampMs],
}

impl<'a> Samples<'a> {
    /// Samples `start..end`.
    pub(crate) fn slice(&self, start: usize, end: usize) -> Samples<'a> {
        Samples {
            times: &self.times[start..end],
            values: self.values.get(start..end).unwrap_or(&[]),
            starts: self.starts.get(start..end).unwrap_or(&[]),
        }
    }

    /// Whether start timestamps are known to have started the counter anew between sample `at` and
    /// the one before.
    pub(crate) fn restarted(&self, at: usize) -> bool {
        let (Some(start), before) = (self.starts.get(at).copied(), self.times[at - 1]) else {
            return false;
        };
        if start == START_UNKNOWN || start >= self.times[at] || start < before {
            return false;
        }
        if start > before {
            return true;
        }
        // It starts where the sample before stands: a delta, if that one's own start is known.
        let previous = self.starts[at - 1];
        previous <= before && previous != START_UNKNOWN && previous != before
    }

    /// Whether a start lies before the sample before, and is not that one's start.
    pub(crate) fn overlaps(&self) -> bool {
        (1..self.starts.len()).any(|at| {
            let start = self.starts[at];
            start != START_UNKNOWN && start < self.times[at - 1] && start != self.starts[at - 1]
        })
    }

    /// Whether the counter is known to have started from zero inside the window that ends at
    /// `edge`, before its first sample.
    pub(crate) fn starts_within(&self, edge: TimestampMs, range: i64) -> bool {
        let (Some(start), Some(first)) = (self.starts.first(), self.times.first()) else {
            return false;
        };
        *start != START_UNKNOWN && *start > edge - range && start < first
    }
}
