//! What another room logs beside a batch.
//!
//! A room whose state follows from samples (stream aggregation) keeps that state in the log of the
//! store: each append may carry bytes that mean something to that room alone. They are durable with
//! the batch or not at all. A start hands them back in the order in which they were appended, from
//! the newest record that a replay may begin at; the log forgets none of those.
//!
//! ```text
//! Begins .. Complete | .. Begins .. | crash      a replay begins at the first `Begins`
//! ```
//!
//! Invariant: the records from a `Begins` to the next `Complete` say all that was said before them.

/// What a record says about those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalMark {
    /// Nothing.
    #[default]
    Continues,
    /// The state is told anew from this record on.
    Begins,
    /// The state has been told: a replay may begin at the newest `Begins`.
    Complete,
    /// The record tells the whole state.
    Whole,
    /// The state is given up: no record is needed any more, this one included.
    Ends,
}

/// The bytes of one record, and their mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// See the type.
    pub mark: JournalMark,
    /// What the room wrote.
    pub bytes: Vec<u8>,
}

impl Journal {
    /// Whether there is nothing to log.
    pub fn is_none(&self) -> bool {
        self.bytes.is_empty() && self.mark == JournalMark::Continues
    }

    /// Whether the state may be told anew from here on.
    pub fn begins(&self) -> bool {
        matches!(self.mark, JournalMark::Begins | JournalMark::Whole)
    }

    /// Whether the state has been told with this record.
    pub fn completes(&self) -> bool {
        matches!(self.mark, JournalMark::Complete | JournalMark::Whole)
    }
}
