//! The samples of a series, or of one window, that a kernel reads.

use firn_model::sample::{START_UNKNOWN, TimestampMs};

/// A view of samples of one type in columns, without staleness markers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleSlices<'a> {
    /// The timestamps in strictly ascending order.
    pub(crate) times: &'a [TimestampMs],
    /// The values; one for each timestamp, or none if the samples are histograms.
    pub(crate) values: &'a [f64],
    /// The start timestamps of the counter, one per sample. Empty if there are none.
    pub(crate) starts: &'a [TimestampMs],
}

impl<'a> SampleSlices<'a> {
    /// Returns the samples `start..end`. Panics if the range is invalid.
    pub(crate) fn slice(&self, start: usize, end: usize) -> SampleSlices<'a> {
        SampleSlices {
            times: &self.times[start..end],
            values: self.values.get(start..end).unwrap_or(&[]),
            starts: self.starts.get(start..end).unwrap_or(&[]),
        }
    }

    /// Returns whether the start timestamps prove that the counter restarted between the previous
    /// sample and sample `at`.
    pub(crate) fn has_restarted(&self, at: usize) -> bool {
        let (Some(start), before) = (self.starts.get(at).copied(), self.times[at - 1]) else {
            return false;
        };
        if start == START_UNKNOWN || start >= self.times[at] || start < before {
            return false;
        }
        if start > before {
            return true;
        }
        // The start equals the time of the previous sample. This is a delta if the start of that
        // sample is known.
        let previous = self.starts[at - 1];
        previous <= before && previous != START_UNKNOWN && previous != before
    }

    /// Returns whether a start timestamp is before the previous sample and is not the start
    /// timestamp of that sample.
    pub(crate) fn has_overlapping_start(&self) -> bool {
        (1..self.starts.len()).any(|at| {
            let start = self.starts[at];
            start != START_UNKNOWN && start < self.times[at - 1] && start != self.starts[at - 1]
        })
    }

    /// Returns whether the start timestamps prove that the counter started from zero in the window
    /// that ends at `edge`, before its first sample.
    pub(crate) fn starts_within(&self, edge: TimestampMs, range: i64) -> bool {
        let (Some(start), Some(first)) = (self.starts.first(), self.times.first()) else {
            return false;
        };
        *start != START_UNKNOWN && *start > edge - range && start < first
    }
}
