//! The marks that relate the cut of the blocks to the log, for a log that is trimmed by blocks.
//!
//! [`super::coverage`] has marks, too, but only for as long as pages need them. A cut is hours
//! behind the newest sample, so this list keeps one mark for every ten seconds of data time.
//! Invariant: no record up to the position of a mark has a sample newer than its time.

use super::coverage::CoverageMark;
use firn_model::log::LogPosition;
use firn_model::sample::TimestampMs;
use std::collections::VecDeque;

/// Data time between two marks that are kept, in milliseconds.
const APART_MS: i64 = 10_000;

/// Marks between the cut and the newest sample.
#[derive(Debug)]
pub(crate) struct CutMarks {
    /// In ascending order of time and position. The first one is not newer than the cut.
    marks: VecDeque<CutMark>,
    /// The newest mark, which replaces the last one of `marks` until it is far enough after the one
    /// before.
    last: CutMark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CutMark {
    newest: TimestampMs,
    position: LogPosition,
}

impl CutMarks {
    /// Creates marks of a log that is not needed up to `start`.
    pub(crate) fn new(start: LogPosition) -> Self {
        let first = CutMark {
            newest: i64::MIN,
            position: start,
        };
        Self {
            marks: VecDeque::from([first]),
            last: first,
        }
    }

    /// Adds the mark of a tick, which is after all earlier ones.
    pub(crate) fn record_mark(&mut self, mark: CoverageMark) {
        let mark = CutMark {
            newest: mark.newest,
            position: mark.position,
        };
        assert!(
            self.last.newest <= mark.newest && self.last.position <= mark.position,
            "marks ascend: {:?}, then {mark:?}",
            self.last
        );
        let before = self.marks.back().map_or(i64::MIN, |m| m.newest);
        if self.last.newest > before && mark.newest.saturating_sub(before) >= APART_MS {
            self.marks.push_back(self.last);
        }
        self.last = mark;
    }

    /// Returns the position up to which all samples in the log are older than `cut`, and drops the
    /// marks before it. Cuts never decrease.
    pub(crate) fn advance_to_cut(&mut self, cut: TimestampMs) -> LogPosition {
        if self.last.newest < cut {
            self.marks.clear();
            self.marks.push_back(self.last);
        }
        while self.marks.get(1).is_some_and(|next| next.newest < cut) {
            self.marks.pop_front();
        }
        self.marks
            .front()
            .map_or(LogPosition(0), |mark| mark.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    fn mark(newest: i64, position: u64) -> CoverageMark {
        CoverageMark {
            newest,
            sequence: 0,
            position: LogPosition(position),
        }
    }

    #[test]
    fn covered_position_has_only_samples_before_the_cut_and_lags_by_seconds() {
        let rng = SimRng::new(1);
        let mut marks = CutMarks::new(LogPosition(3));
        assert_eq!(marks.advance_to_cut(i64::MIN), LogPosition(3));
        let mut all = vec![(i64::MIN, 3)];
        let (mut newest, mut position, mut cut) = (0, 3, i64::MIN);
        for _ in 0..20_000 {
            newest += rng.next_below(3_000) as i64;
            position += rng.next_below(3);
            marks.record_mark(mark(newest, position));
            all.push((newest, position));
            if rng.next_below(500) == 0 {
                cut = cut.max(newest - 7_200_000 + rng.next_below(7_300_000) as i64);
            }
            let covered = marks.advance_to_cut(cut);
            let before = all.iter().rev().find(|(time, _)| *time < cut);
            let exact = before.map_or(3, |(_, position)| *position);
            assert!(covered.0 <= exact, "{covered:?} with a cut at {cut}");
            let earlier = all
                .iter()
                .rev()
                .find(|(time, _)| *time < cut.saturating_sub(3 * APART_MS));
            let least = earlier.map_or(3, |(_, position)| *position);
            assert!(
                covered.0 >= least,
                "{covered:?} with a cut at {cut}, {least} expected"
            );
        }
        assert!(marks.marks.len() < 2_000, "{}", marks.marks.len());
    }
}
