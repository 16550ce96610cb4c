//! Samples of each step, added up while the syntax tree is traversed.
//!
//! The lists have one place for each step of the evaluation. The traversal in [`super`] determines
//! which samples are added, and for which plan node. Invariant: the samples of the nodes add up to
//! those of the query, because both are changed in the same way.

use crate::eval::meter::node_address;
use crate::grid::StepGrid;
use crate::plan::PlanNode;

/// The samples of each step of one evaluation. A subquery is an evaluation of its own.
pub(super) struct StepSampleCounts {
    /// Samples of all nodes together.
    pub(super) all: StepSamples,
    /// Samples of each node, with its address, if they are requested.
    nodes: Option<Vec<(usize, StepSamples)>>,
}

/// Lists of samples, with one place for each step.
pub(super) struct StepSamples {
    /// Samples in the windows of each step.
    pub(super) total_at: Vec<u64>,
    /// Samples read for each step that no earlier step has read.
    pub(super) read_at: Vec<u64>,
}

impl StepSampleCounts {
    /// Returns no samples at any of `count` steps. Samples of each node are added up separately if
    /// `by_node` is set.
    pub(super) fn new(count: usize, by_node: bool) -> Self {
        Self {
            all: StepSamples::new(count),
            nodes: by_node.then(Vec::new),
        }
    }

    /// Returns the address of each node with samples, its samples of all steps, and those that the
    /// steps read.
    pub(super) fn of_nodes(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        let nodes = self.nodes.iter().flatten();
        nodes.map(|(node, samples)| (*node, samples.total(), samples.read()))
    }

    /// Adds samples of a node that are read at each step and have not been read before.
    pub(super) fn add(&mut self, node: &PlanNode, samples_at: &[u64]) {
        self.add_windows(node, samples_at, samples_at);
    }

    /// Adds the samples of a node in the windows of each step, and those of them that are new.
    pub(super) fn add_windows(&mut self, node: &PlanNode, held: &[u64], fresh: &[u64]) {
        self.all.add_windows(held, fresh);
        if let Some(nodes) = &mut self.nodes {
            let mut samples = StepSamples::new(held.len());
            samples.add_windows(held, fresh);
            nodes.push((node_address(node), samples));
        }
    }

    /// Adds the samples of an evaluation at the first step, whose value is used at all steps.
    pub(super) fn add_repeated(&mut self, first: StepSampleCounts) {
        self.merge(first, |own, first| {
            let total = first.total();
            own.total_at.iter_mut().for_each(|at| *at += total);
            own.read_at[0] += first.read();
        });
    }

    /// Adds the samples of a subquery whose value is the result.
    pub(super) fn add_subquery(&mut self, inner: StepSampleCounts, grids: (StepGrid, StepGrid)) {
        self.merge(inner, |own, inner| {
            if let Some(last) = own.total_at.last_mut() {
                *last += inner.total();
            }
            own.merge_read(inner, grids, 0, 0);
        });
    }

    /// Adds the samples that the steps of a subquery read; see [`StepSamples::merge_read`].
    pub(super) fn merge_read(
        &mut self,
        inner: StepSampleCounts,
        grids: (StepGrid, StepGrid),
        offset_ms: i64,
        range_ms: i64,
    ) {
        self.merge(inner, |own, inner| {
            own.merge_read(inner, grids, offset_ms, range_ms);
        });
    }

    /// Adds the samples of another evaluation, and those of each of its nodes, with `add`.
    fn merge(&mut self, other: StepSampleCounts, add: impl Fn(&mut StepSamples, &StepSamples)) {
        add(&mut self.all, &other.all);
        if let Some(nodes) = &mut self.nodes {
            for (node, samples) in other.nodes.into_iter().flatten() {
                let mut own = StepSamples::new(self.all.total_at.len());
                add(&mut own, &samples);
                nodes.push((node, own));
            }
        }
    }
}

impl StepSamples {
    fn new(count: usize) -> Self {
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

    fn add_windows(&mut self, held: &[u64], fresh: &[u64]) {
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
    fn merge_read(
        &mut self,
        inner: &StepSamples,
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
