//! State of another component that is logged with a batch.
//!
//! A component whose state depends on samples (stream aggregation) stores this state in the log of
//! the store: each append may include bytes that only this component can interpret. They are
//! durable together with the batch or not at all. During a start they are returned in the order in
//! which they were appended, from the newest record at which a replay may begin; the log does not
//! delete any of these records.
//!
//! ```text
//! Begins .. Complete | .. Begins .. | crash      a replay begins at the first `Begins`
//! ```
//!
//! Invariant: the records from a `Begins` to the next `Complete` contain the complete state, so
//! earlier records are not needed.

/// The relation of a record to those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalMark {
    /// The record continues the previous ones, which are still needed.
    #[default]
    Continues,
    /// A new description of the complete state starts with this record.
    Begins,
    /// The description of the complete state ends with this record. A replay may begin at the
    /// newest `Begins`.
    Complete,
    /// The record contains the complete state, so no earlier record is needed.
    Whole,
    /// The state is discarded: no record is needed any more, including this one.
    Ends,
}

/// The bytes of one record, and their mark. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalRecord {
    /// The relation of this record to earlier ones of the same component.
    pub mark: JournalMark,
    /// The bytes that the component wrote, which only it can interpret.
    pub bytes: Vec<u8>,
}

impl JournalRecord {
    /// Returns whether there is nothing to log: neither bytes nor a mark.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.mark == JournalMark::Continues
    }

    /// Returns whether a description of the complete state may start with this record.
    pub fn is_state_start(&self) -> bool {
        matches!(self.mark, JournalMark::Begins | JournalMark::Whole)
    }

    /// Returns whether the description of the complete state ends with this record.
    pub fn is_state_end(&self) -> bool {
        matches!(self.mark, JournalMark::Complete | JournalMark::Whole)
    }
}
