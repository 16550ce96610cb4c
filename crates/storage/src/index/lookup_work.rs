//! What look-ups count, and how often they look at the cancel flag.

use firn_model::metrics::Counter;

/// Values or series between two looks at the cancel flag: some 100 us.
pub(super) const CANCEL_EACH: usize = 1_024;

/// What look-ups went through.
#[derive(Debug, Default)]
pub(crate) struct LookupWork {
    /// Runs of postings that were read.
    pub(crate) runs: Counter,
    /// Values that were looked up or asked whether they match.
    pub(crate) values: Counter,
    /// Candidates whose terms were read.
    pub(crate) series: Counter,
}
