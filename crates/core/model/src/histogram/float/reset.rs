//! Detection of counter resets between two histograms.

use super::form::FloatHistogram;
use super::side::HistogramSide;
use crate::histogram::ResetHint;

impl FloatHistogram {
    /// Returns whether the counter was reset after `previous`: a count decreased, or the layout
    /// changed in a way that is only possible after a reset. A hint of this histogram decides.
    /// Gauges are treated like counters.
    pub fn is_reset_after(&self, previous: &Self) -> bool {
        match self.hint {
            ResetHint::Reset => return true,
            ResetHint::NotReset => return false,
            ResetHint::Unknown | ResetHint::Gauge => {}
        }
        if self.count < previous.count {
            return true;
        }
        if self.is_custom() {
            if !previous.is_custom() {
                return true;
            }
            if self.custom_values != previous.custom_values {
                return self.falls_between_shared_bounds(previous);
            }
        }
        if self.schema > previous.schema || self.zero_threshold < previous.zero_threshold {
            return true;
        }
        let (zero, threshold) = previous.zero_count_within(self.zero_threshold);
        if threshold != self.zero_threshold || self.zero_count < zero.sum {
            return true;
        }
        let by = (previous.schema - self.schema).unsigned_abs();
        self.has_side_decreased(&self.positive, &previous.positive, by)
            || self.has_side_decreased(&self.negative, &previous.negative, by)
    }

    /// Returns whether the count of a bucket outside of the zero bucket decreased. The schema of
    /// `before` is higher by `by`.
    fn has_side_decreased(&self, now: &HistogramSide, before: &HistogramSide, by: u32) -> bool {
        let coarse;
        let before = match by {
            0 => before,
            _ => {
                let mut side = before.clone();
                side.coarsen(by, false);
                coarse = side;
                &coarse
            }
        };
        let skipped = self.first_beyond_zero(now);
        let mut rest = now.cells().skip(skipped).peekable();
        let skipped = self.first_beyond_zero(before);
        for (index, cell) in before.cells().skip(skipped) {
            while rest.next_if(|(i, _)| *i < index).is_some() {}
            let fell = match rest.peek() {
                Some((i, now)) if *i == index => now.sum < cell.sum,
                Some(_) => cell.sum != 0.0,
                // Prometheus stops here, even if this bucket is empty and a later one is not.
                None => return cell.sum != 0.0,
            };
            if fell {
                return true;
            }
        }
        false
    }
}
