//! Samples of each step, added up while the syntax tree is traversed.
//!
//! The lists have one place for each step of the evaluation. The traversal in [`super`] determines
//! which samples are added.

use crate::grid::StepGrid;

/// The samples of each step of one evaluation. A subquery is an evaluation of its own.
pub(super) struct StepSampleCounts {
    /// Samples in the windows of each step.
    pub(super) total_at: Vec<u64>,
    /// Samples read for each step that no earlier step has read.
    pub(super) read_at: Vec<u64>,
}

impl StepSampleCounts {
    /// Returns no samples at any of `count` steps.
    pub(super) fn new(count: usize) -> Self {
        Self {
            total_at: vec![0; count],
            read_at: vec![0; count],
        }
    }

    /// Returns the samples of all steps.
    pub(super) fn total(&self) -> u64 {
        self.total_at.iter().sum()
    }

    /// Returns the samples that all steps read.
    pub(super) fn read(&self) -> u64 {
        self.read_at.iter().sum()
    }

    /// Adds samples that are read at each step and have not been read before.
    pub(super) fn add(&mut self, samples_at: &[u64]) {
        self.add_windows(samples_at, samples_at);
    }

    /// Adds the samples in the windows of each step, and those of them that are new.
    pub(super) fn add_windows(&mut self, held: &[u64], fresh: &[u64]) {
        assert_eq!(
            held.len(),
            fresh.len(),
            "steps with held samples, and with new ones"
        );
        assert_eq!(
            held.len(),
            self.total_at.len(),
            "steps of the windows, and of the query"
        );
        for (step, (held, fresh)) in held.iter().zip(fresh).enumerate() {
            self.total_at[step] += held;
            self.read_at[step] += fresh;
        }
    }

    /// Adds the samples read by the steps of a subquery, each at the first outer step whose window
    /// may contain it. If `range_ms` is positive, samples between two windows are not counted.
    pub(super) fn merge_read(
        &mut self,
        inner: &StepSampleCounts,
        grids: (StepGrid, StepGrid),
        offset_ms: i64,
        range_ms: i64,
    ) {
        let (grid, inner_grid) = grids;
        if grid.count <= 1 {
            self.read_at[0] += inner.read();
            return;
        }
        for (step, read) in inner.read_at.iter().enumerate() {
            let time = inner_grid.time(step).saturating_add(offset_ms);
            let behind = time.saturating_sub(grid.start).max(0);
            let first = behind / grid.step_ms + i64::from(behind % grid.step_ms != 0);
            let outer = (first as usize).min(grid.count - 1);
            let is_between = range_ms > 0 && time <= grid.time(outer).saturating_sub(range_ms);
            if !is_between {
                self.read_at[outer] += read;
            }
        }
    }
}
