//! Buffer of runs of slots on their way to the postings.
//!
//! A term that occurs in a few series of each target gets one run per target, which are many in a
//! batch. The runs are collected by term, so that each list is looked up and extended once for all
//! of its runs; otherwise this would be most of the cost of a creation. Invariant: the runs of a
//! list arrive in the order in which they were pushed.

use super::runs::SlotRun;
use super::terms::IndexTerms;
use crate::ids::TermId;

/// Maximum number of collected runs: a batch of some thousand new series has as many, and they take
/// less than 200 KB.
const RUNS_MAX: usize = 1 << 13;

/// Number of cells of the table that finds the group of a list.
const CELLS: usize = 1 << 10;

/// Marks the end of a chain of runs: the index of no run.
const END: u32 = u32::MAX;

/// A chain of runs of one list.
#[derive(Debug)]
struct RunChain {
    id: u32,
    first: u32,
    last: u32,
}

/// Runs grouped by the id of their list.
#[derive(Debug)]
pub(super) struct GroupedRuns {
    runs: Vec<(SlotRun, u32)>,
    groups: Vec<RunChain>,
    /// The newest group of the lists that map to each cell, if it still exists. Lists that collide
    /// have several groups, in order.
    cells: Box<[u32]>,
}

impl Default for GroupedRuns {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            groups: Vec::new(),
            cells: vec![END; CELLS].into(),
        }
    }
}

impl GroupedRuns {
    /// Adds a run to list `id`, after its earlier ones.
    #[inline]
    pub(super) fn push(&mut self, id: u32, run: SlotRun) {
        let at = self.runs.len() as u32;
        self.runs.push((run, END));
        let cell = &mut self.cells[id as usize % CELLS];
        match self.groups.get_mut(*cell as usize) {
            Some(group) if group.id == id => {
                self.runs[group.last as usize].1 = at;
                group.last = at;
            }
            _ => {
                *cell = self.groups.len() as u32;
                self.groups.push(RunChain {
                    id,
                    first: at,
                    last: at,
                });
            }
        }
    }

    fn chain_runs(&self, group: &RunChain) -> impl Iterator<Item = SlotRun> {
        let mut at = group.first;
        std::iter::from_fn(move || {
            let (run, next) = self.runs.get(at as usize)?;
            at = *next;
            Some(*run)
        })
    }

    fn clear(&mut self) {
        self.runs.clear();
        self.groups.clear();
    }
}

/// Collected runs of terms and of labels.
#[derive(Debug, Default)]
pub(super) struct PendingRuns {
    pub(super) of_terms: GroupedRuns,
    pub(super) of_labels: GroupedRuns,
}

impl PendingRuns {
    /// Appends all collected runs to the postings of their terms and labels.
    pub(super) fn flush(&mut self, index: &IndexTerms) {
        for group in &self.of_terms.groups {
            if let Some(term) = index.term(TermId(group.id)) {
                term.postings.extend(self.of_terms.chain_runs(group));
            }
        }
        for group in &self.of_labels.groups {
            if let Some(label) = index.labels.get(group.id) {
                label.present.extend(self.of_labels.chain_runs(group));
            }
        }
        self.of_terms.clear();
        self.of_labels.clear();
    }

    /// Calls [`PendingRuns::flush`] once [`RUNS_MAX`] runs of terms are pending.
    #[inline]
    pub(super) fn flush_if_long(&mut self, index: &IndexTerms) {
        if self.of_terms.runs.len() >= RUNS_MAX {
            self.flush(index);
        }
    }
}
