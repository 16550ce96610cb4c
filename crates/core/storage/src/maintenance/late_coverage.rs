//! The position up to which the log is not needed for late samples.
//!
//! A late row is in the log and in the head until a block contains it. Marks, one per tick, relate
//! sequence numbers of batches to positions: every record up to the position of a mark belongs to a
//! batch up to its sequence number. The log is therefore not needed for late rows up to the newest
//! mark whose sequence number is less than that of every late row in the head.

use super::coverage::CoverageMark;
use firn_model::log::LogPosition;
use firn_model::sample::TimestampMs;
use std::collections::VecDeque;

/// Maximum number of marks; above it every second one is dropped. A window has about 2,000 marks at
/// one per second.
const MARKS_MAX: usize = 8_192;

/// Tracks the position up to which the log is not needed for late rows.
#[derive(Debug)]
pub(crate) struct LateCoverage {
    covered: LogPosition,
    /// Marks that are not covered yet, in ascending order: a row in the head precedes them.
    marks: VecDeque<CoverageMark>,
}

impl LateCoverage {
    /// Returns a coverage in which the records up to `covered` have no late row that is in
    /// the head.
    pub(crate) fn new(covered: LogPosition) -> Self {
        Self {
            covered,
            marks: VecDeque::new(),
        }
    }

    /// Leaves a mark. `oldest` is the smallest sequence number of a late row in the head, read
    /// after the mark.
    pub(crate) fn record_mark(&mut self, mark: CoverageMark, oldest: Option<u64>) {
        let before = self.marks.back();
        assert!(
            before.is_none_or(|before| before.is_before(&mark)),
            "marks of late samples ascend: {before:?}, then {mark:?}"
        );
        match self.marks.back_mut() {
            Some(last) if last.newest == mark.newest => *last = mark,
            _ => self.marks.push_back(mark),
        }
        self.advance_covered(oldest);
        if self.marks.len() > MARKS_MAX {
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 0
            });
        }
    }

    /// Advances the covered position to the newest mark that precedes all late rows.
    pub(crate) fn advance_covered(&mut self, oldest: Option<u64>) {
        let is_before =
            |mark: &mut CoverageMark| oldest.is_none_or(|oldest| mark.sequence < oldest);
        while let Some(mark) = self.marks.pop_front_if(is_before) {
            self.covered = self.covered.max(mark.position);
        }
    }

    /// Returns the position up to which every late row in the log is in a block.
    pub(crate) fn covered_position(&self) -> LogPosition {
        self.covered
    }

    /// Returns the approximate newest time of the store when the oldest late row in the head
    /// arrived.
    pub(crate) fn oldest_row_time(&self) -> Option<TimestampMs> {
        self.marks.front().map(|mark| mark.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(sequence: u64) -> CoverageMark {
        CoverageMark {
            newest: sequence as i64 * 1_000,
            sequence,
            position: LogPosition(sequence * 10),
        }
    }

    #[test]
    fn late_coverage_follows_marks_before_all_late_rows() {
        let mut coverage = LateCoverage::new(LogPosition(3));
        // Sequence number of each tick's mark, the oldest late row, the expected covered position
        // and time.
        let ticks = [
            (1, None, 10, None),
            (2, Some(2), 10, Some(2_000)),
            (3, Some(2), 10, Some(2_000)),
            (4, Some(4), 30, Some(4_000)),
            (5, Some(6), 50, None),
            (6, Some(6), 50, Some(6_000)),
            (7, None, 70, None),
        ];
        for (sequence, oldest, covered, since) in ticks {
            coverage.record_mark(mark(sequence), oldest);
            let found = (coverage.covered_position(), coverage.oldest_row_time());
            assert_eq!(found, (LogPosition(covered), since), "tick {sequence}");
        }
    }

    #[test]
    fn late_coverage_of_many_marks_keeps_every_second_one() {
        let mut coverage = LateCoverage::new(LogPosition(0));
        for sequence in 1..3 * MARKS_MAX as u64 {
            coverage.record_mark(mark(sequence), Some(1));
            assert!(coverage.marks.len() <= MARKS_MAX, "{sequence}");
        }
        assert_eq!(coverage.covered_position(), LogPosition(0));
        coverage.advance_covered(Some(100));
        assert!((LogPosition(900)..LogPosition(1_000)).contains(&coverage.covered_position()));
    }
}
