//! The part of the log that the journal of another component needs, and its records found at
//! startup.
//!
//! See [`firn_model::log::JournalRecord`]. Records are registered in order, when they are durable
//! or are read at startup. Invariant: the log is not trimmed beyond the first record of the
//! journal, or beyond the newest record at which a replay of the journal may begin.

use crate::failpoints::{self, StoreFlaw};
use crate::sync::{Mutex, lock};
use firn_model::log::{JournalMark, JournalRecord, LogPosition};

/// The journal of one other component: the part of the log that must be kept for it.
#[derive(Debug, Default)]
pub(crate) struct JournalTracker(Mutex<JournalPositions>);

/// The registered positions of the journal, and the records found at startup.
#[derive(Debug, Default)]
struct JournalPositions {
    /// The first record that is needed; `None` if there is no journal.
    from: Option<LogPosition>,
    /// The newest record that starts a complete description of the state.
    begun: Option<LogPosition>,
    /// Records found at startup, from `from` on.
    found: Vec<(LogPosition, Vec<u8>)>,
}

impl JournalTracker {
    /// Registers a journal record at `position`, which is durable.
    pub(crate) fn register_record(&self, mark: JournalMark, position: LogPosition) {
        lock(&self.0).register_record(mark, position);
    }

    /// Registers a record read at startup, and keeps its bytes until they are taken.
    pub(crate) fn replay(&self, journal: JournalRecord, position: LogPosition) {
        let mut kept = lock(&self.0);
        kept.register_record(journal.mark, position);
        kept.found.push((position, journal.bytes));
        let from = kept.from.unwrap_or(LogPosition(u64::MAX));
        // Happens once per complete state, so each record is dropped once.
        if kept.found.first().is_some_and(|(first, _)| *first < from) {
            kept.found.retain(|(position, _)| *position >= from);
        }
    }

    /// Returns the records found at startup in order. Later calls return nothing.
    pub(crate) fn take_found(&self) -> Vec<Vec<u8>> {
        let found = std::mem::take(&mut lock(&self.0).found);
        found.into_iter().map(|(_, bytes)| bytes).collect()
    }

    /// Returns the position up to which the journal does not need the log.
    pub(crate) fn covered(&self) -> LogPosition {
        if failpoints::has(StoreFlaw::TrimsJournal) {
            return LogPosition(u64::MAX);
        }
        lock(&self.0)
            .from
            .map_or(LogPosition(u64::MAX), LogPosition::previous)
    }
}

impl JournalPositions {
    /// Registers a record: a complete state makes all earlier records unnecessary, an end makes all
    /// of them unnecessary.
    fn register_record(&mut self, mark: JournalMark, position: LogPosition) {
        if mark == JournalMark::Ends {
            (self.from, self.begun) = (None, None);
            return;
        }
        self.from.get_or_insert(position);
        if matches!(mark, JournalMark::Begins | JournalMark::Whole) {
            self.begun = Some(position);
        }
        if matches!(mark, JournalMark::Complete | JournalMark::Whole) {
            self.from = self.begun.or(self.from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use JournalMark::{Begins, Complete, Continues, Ends, Whole};

    fn check(marks: &[JournalMark], covered: u64, found: &[u8]) {
        let keeper = JournalTracker::default();
        for (i, mark) in marks.iter().enumerate() {
            let bytes = vec![i as u8 + 1];
            let journal = JournalRecord { mark: *mark, bytes };
            keeper.replay(journal, LogPosition(i as u64 + 1));
        }
        assert_eq!(keeper.covered(), LogPosition(covered), "{marks:?}");
        let bytes: Vec<u8> = keeper.take_found().concat();
        assert_eq!(bytes, found, "{marks:?}");
        assert!(keeper.take_found().is_empty());
    }

    #[test]
    fn journal_is_needed_from_where_the_newest_whole_state_begins() {
        check(&[], u64::MAX, &[]);
        check(&[Continues, Continues], 0, &[1, 2]);
        check(&[Whole, Continues], 0, &[1, 2]);
        check(&[Whole, Continues, Whole, Continues], 2, &[3, 4]);
        check(
            &[Whole, Begins, Continues, Complete, Continues],
            1,
            &[2, 3, 4, 5],
        );
        check(&[Whole, Begins, Continues], 0, &[1, 2, 3]);
        check(&[Begins, Begins, Complete], 1, &[2, 3]);
        check(&[Whole, Continues, Ends], u64::MAX, &[]);
        check(&[Whole, Ends, Whole], 2, &[3]);
    }
}
