//! Counters of the work of lookups, and the interval at which they check the cancel flag.

use firn_model::metrics::Counter;

/// Number of values or series between two checks of the cancel flag: about 100 us.
pub(super) const CANCEL_EACH: usize = 1_024;

/// Work of all lookups since the start.
#[derive(Debug, Default)]
pub(crate) struct LookupWork {
    /// Number of runs of postings that were read.
    pub(crate) runs: Counter,
    /// Number of values that were looked up or matched.
    pub(crate) values: Counter,
    /// Number of candidates whose terms were read.
    pub(crate) series: Counter,
}
