//! Costs of the steps of a lookup, for the planner.

/// Costs of the steps of a lookup, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookupCosts {
    /// Reading a run of postings and intersecting it with the candidates.
    pub(super) run: usize,
    /// Looking up a value in the table of its label, or starting to read the postings of a term:
    /// one or two cache misses.
    pub(super) term: usize,
    /// Matching one value in the dictionary of a label.
    pub(super) value: usize,
    /// Checking which of 64 slots of a run have a sample.
    pub(super) members: usize,
    /// Reading the terms of a series.
    pub(super) series: usize,
    /// Comparing one of its terms, if the result for its value is cached.
    pub(super) check: usize,
}

impl LookupCosts {
    /// Measured with `cargo bench -p firn-storage --bench lookups`. Only the ratios matter: a plan
    /// that is wrong by half costs half as much again.
    pub(super) const MEASURED: Self = Self {
        run: 3,
        term: 100,
        value: 30,
        members: 4,
        series: 45,
        check: 15,
    };
}
