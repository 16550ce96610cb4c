//! Whether a counter was reset between two histograms.

use super::form::FloatHistogram;
use super::side::Side;
use crate::histogram::ResetHint;

impl FloatHistogram {
    /// Whether the counter started anew after `previous`: some count fell, or a change of the
    /// layout says so. A hint of a reset or of none decides; a gauge is treated as if it were a
    /// counter.
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
        self.side_fell(&self.positive, &previous.positive, by)
            || self.side_fell(&self.negative, &previous.negative, by)
    }

    /// Whether a bucket beyond the zero bucket lost observations. `before` is finer by `by`.
    fn side_fell(&self, now: &Side, before: &Side, by: u32) -> bool {
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
                // Upstream looks no further, even if this bucket is empty and a later one is not.
                None => return cell.sum != 0.0,
            };
            if fell {
                return true;
            }
        }
        false
    }
}
