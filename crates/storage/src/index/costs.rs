//! What parts of a look-up cost, for the planner.

/// What parts of a look-up take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// A run of postings read and laid beside the candidates.
    pub(super) run: usize,
    /// A value looked up in the label's table, or a term's postings begun: a wait or two for
    /// memory.
    pub(super) term: usize,
    /// A value asked in the label's dictionary.
    pub(super) value: usize,
    /// 64 slots of a run looked up among those with a sample.
    pub(super) members: usize,
    /// The terms of a series read.
    pub(super) series: usize,
    /// One of them compared, the verdict on it being known.
    pub(super) check: usize,
}

impl Costs {
    /// Measured with `cargo bench -p firn-storage --bench lookups`. Only their ratios matter: a
    /// plan that is off by half costs half more.
    pub(super) const MEASURED: Self = Self {
        run: 3,
        term: 100,
        value: 30,
        members: 4,
        series: 45,
        check: 15,
    };
}
