//! Records the number of samples of each plan node at each step, for queries whose samples are
//! counted.
//!
//! The evaluation fills [`SampleTally`] while it processes rows, from any thread and in any order.
//! The tally is read after the evaluation. Prometheus reads the windows of one series after
//! another, so the windows of a part are recorded with the index of its first series and merged in
//! the order of series.
//!
//! Invariant: every node of a counted plan is evaluated once. A node is identified by its address.
//! The module [`counts`](super::counts) computes the totals.

use crate::eval::account::QueryAccount;
use crate::eval::meter::node_address;
use crate::eval::rows::row::{StepRow, histogram_samples, is_absent, passing_histogram_samples};
use crate::grid::{SelectorWindow, StepGrid};
use crate::plan::PlanNode;
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::columns::SeriesColumns;
use firn_model::sample::{TimestampMs, is_stale};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory of one step of a node in bytes: its rows, its windows, and the sums of an analysis.
const STEP_BYTES: usize = 7 * size_of::<u64>();

/// The recorded samples of all nodes of a plan, by address of the node.
#[derive(Debug, Default)]
pub(crate) struct SampleTally(Mutex<FxHashMap<usize, NodeTally>>);

/// The recorded samples of one node, and the reservation for their memory.
#[derive(Debug)]
struct NodeTally {
    rows: Arc<RowTally>,
    windows: Arc<WindowTally>,
    _memory: Reservation,
}

impl SampleTally {
    /// Returns the tallies for the rows of a node and for the windows that they are computed from.
    /// Creates them in the first call.
    pub(crate) fn node_tallies(
        &self,
        node: &PlanNode,
        steps: usize,
        account: &QueryAccount<'_>,
    ) -> Result<(Arc<RowTally>, Arc<WindowTally>), PromqlError> {
        let mut noted = lock(&self.0);
        if let Some(known) = noted.get(&node_address(node)) {
            return Ok((known.rows.clone(), known.windows.clone()));
        }
        let memory = account.reserve(steps.saturating_mul(STEP_BYTES))?;
        let new = NodeTally {
            rows: Arc::new(RowTally::new(node_address(node), steps)),
            windows: Arc::new(WindowTally::default()),
            _memory: memory,
        };
        let both = (new.rows.clone(), new.windows.clone());
        noted.insert(node_address(node), new);
        Ok(both)
    }

    /// Returns the rows of a node at `steps` steps. A value that is the same at all steps was
    /// recorded only once and is repeated.
    pub(crate) fn rows(&self, node: &PlanNode, steps: usize) -> StepSampleExtent {
        let noted = lock(&self.0);
        let Some(known) = noted.get(&node_address(node)) else {
            return StepSampleExtent::empty(steps);
        };
        let extent = known.rows.extent();
        if extent.counts.len() == steps {
            extent
        } else {
            extent.repeat(steps)
        }
    }

    /// Returns the number of rows of a node that have a value.
    pub(crate) fn row_count(&self, node: &PlanNode) -> usize {
        let noted = lock(&self.0);
        let known = noted.get(&node_address(node));
        known.map_or(0, |known| lock(&known.rows.passed).rows)
    }

    /// Returns the windows of a node at `steps` steps.
    pub(crate) fn windows(&self, node: &PlanNode, steps: usize) -> WindowExtent {
        let noted = lock(&self.0);
        let windows = noted
            .get(&node_address(node))
            .map(|known| known.windows.extent());
        let mut windows = windows.unwrap_or_default();
        let last = windows.held.last().copied().unwrap_or_default();
        windows.held.resize(steps, last);
        windows.fresh.resize(steps, 0);
        windows
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of samples of a value at each step. All lists have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepSampleExtent {
    /// Number of points at each step; a histogram is one point.
    pub(crate) counts: Vec<u64>,
    /// Number of samples that the points count for. A histogram counts for several.
    pub(crate) sizes: Vec<u64>,
    /// Number of samples that the points count for while an operator iterates over the steps.
    pub(crate) sizes_passing: Vec<u64>,
}

impl StepSampleExtent {
    /// Returns an extent without samples at any of `steps` steps.
    pub(crate) fn empty(steps: usize) -> Self {
        Self {
            counts: vec![0; steps],
            sizes: vec![0; steps],
            sizes_passing: vec![0; steps],
        }
    }

    /// Returns the extent of the given number of floats at each step.
    pub(crate) fn from_floats(counts: Vec<u64>) -> Self {
        Self {
            sizes: counts.clone(),
            sizes_passing: counts.clone(),
            counts,
        }
    }

    /// Returns the extent of one float at each step.
    pub(crate) fn from_scalar(steps: usize) -> Self {
        Self::from_floats(vec![1; steps])
    }

    /// Returns the extent of the first step, repeated `steps` times.
    pub(crate) fn repeat(&self, steps: usize) -> Self {
        let first = |list: &[u64]| vec![list.first().copied().unwrap_or_default(); steps];
        Self {
            counts: first(&self.counts),
            sizes: first(&self.sizes),
            sizes_passing: first(&self.sizes_passing),
        }
    }

    /// Returns the number of samples that all steps together count for.
    pub(crate) fn size(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// Adds the histograms of a row. Floats are counted separately.
    fn add_histograms(&mut self, row: StepRow<'_>) {
        for (step, histogram) in row.histograms {
            let step = *step as usize;
            self.counts[step] += 1;
            self.sizes[step] += histogram_samples(histogram);
            self.sizes_passing[step] += passing_histogram_samples(histogram);
        }
    }
}

/// The rows recorded so far: their floats, each of which counts for one sample, and their
/// histograms. Each thread records the rows of a part separately.
#[derive(Debug)]
pub(crate) struct RecordedRows {
    /// Number of rows with a value.
    rows: usize,
    floats: Vec<u64>,
    histograms: StepSampleExtent,
}

impl RecordedRows {
    /// Memory of one step in bytes.
    pub(crate) const STEP_BYTES: usize = 4 * size_of::<u64>();

    /// Returns the record of no rows with `steps` steps.
    pub(crate) fn empty(steps: usize) -> Self {
        Self {
            rows: 0,
            floats: vec![0; steps],
            histograms: StepSampleExtent::empty(steps),
        }
    }

    /// Records a row.
    pub(crate) fn add(&mut self, row: StepRow<'_>) {
        assert_eq!(
            row.values.len(),
            self.floats.len(),
            "places of a row, and steps"
        );
        let mut has_float = false;
        for (floats, value) in self.floats.iter_mut().zip(row.values) {
            let is_float = !is_absent(*value);
            has_float |= is_float;
            *floats += u64::from(is_float);
        }
        self.rows += usize::from(has_float || !row.histograms.is_empty());
        self.histograms.add_histograms(row);
    }

    fn append(&mut self, other: &RecordedRows) {
        self.rows += other.rows;
        add_lists(&mut self.floats, &other.floats);
        let (own, others) = (&mut self.histograms, &other.histograms);
        add_lists(&mut own.counts, &others.counts);
        add_lists(&mut own.sizes, &others.sizes);
        add_lists(&mut own.sizes_passing, &others.sizes_passing);
    }

    fn extent(&self) -> StepSampleExtent {
        let with_floats = |list: &[u64]| {
            let both = list.iter().zip(&self.floats);
            both.map(|(histograms, floats)| histograms + floats)
                .collect()
        };
        StepSampleExtent {
            counts: with_floats(&self.histograms.counts),
            sizes: with_floats(&self.histograms.sizes),
            sizes_passing: with_floats(&self.histograms.sizes_passing),
        }
    }
}

fn add_lists(own: &mut [u64], others: &[u64]) {
    own.iter_mut().zip(others).for_each(|(own, n)| *own += n);
}

/// Records the rows of one node: the number of floats and the sizes of histograms at each step.
#[derive(Debug)]
pub(crate) struct RowTally {
    /// The address of the node.
    pub(crate) node: usize,
    passed: Mutex<RecordedRows>,
    /// Number of samples at each step that operators use when they iterate over steps, if it is
    /// lower.
    seen: Mutex<Option<Vec<u64>>>,
    is_closed: AtomicBool,
}

impl RowTally {
    fn new(node: usize, steps: usize) -> Self {
        Self {
            node,
            passed: Mutex::new(RecordedRows::empty(steps)),
            seen: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Adds recorded rows of the node, unless recording was stopped.
    pub(crate) fn add(&self, rows: &RecordedRows) {
        if !self.is_closed.load(Ordering::Relaxed) {
            lock(&self.passed).append(rows);
        }
    }

    fn extent(&self) -> StepSampleExtent {
        let mut extent = lock(&self.passed).extent();
        if let Some(seen) = &*lock(&self.seen) {
            extent.counts.clone_from(seen);
        }
        extent
    }

    /// Stops recording: all rows of the node have been recorded.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Replaces the number of points at each step by that of `rows`.
    pub(crate) fn recount<'a>(&self, rows: impl Iterator<Item = StepRow<'a>>) {
        let mut seen = RecordedRows::empty(lock(&self.passed).floats.len());
        rows.for_each(|row| seen.add(row));
        *lock(&self.seen) = Some(seen.extent().counts);
    }
}

/// Records the windows of one node, which parts of the series add in any order.
#[derive(Debug, Default)]
pub(crate) struct WindowTally {
    parts: Mutex<Vec<(usize, WindowExtent)>>,
    is_closed: AtomicBool,
}

impl WindowTally {
    /// Records the windows of the part whose first series is `first`.
    pub(crate) fn add(&self, first: usize, part: WindowExtent) {
        if !self.is_closed.load(Ordering::Relaxed) {
            lock(&self.parts).push((first, part));
        }
    }

    /// Stops recording: the windows of all series have been recorded.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    fn extent(&self) -> WindowExtent {
        let mut parts = lock(&self.parts);
        parts.sort_by_key(|(first, _)| *first);
        let mut all = WindowExtent::default();
        parts.iter().for_each(|(_, part)| all.append(part));
        all
    }
}

/// The samples in windows, and the resulting changes in the number of samples that Prometheus
/// holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowExtent {
    /// Number of samples in all windows of a step.
    pub(crate) held: Vec<u64>,
    /// Number of those samples that the window of the previous step did not contain.
    pub(crate) fresh: Vec<u64>,
    /// Maximum increase of the held samples at any time.
    pub(crate) rise: u64,
    /// Number of samples that remain held after all series.
    pub(crate) left: u64,
}

/// The samples of a series that remain held while the next series is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldSamples {
    /// Results of a function, which count for this number of samples.
    Results(u64),
    /// The samples of the last window, for selectors whose samples are the result.
    Window,
}

/// The windows of one series at all steps, by the number of samples that they count for.
#[derive(Clone, Debug)]
pub(crate) struct SeriesWindows {
    held: Vec<u64>,
    fresh: Vec<u64>,
    most: u64,
}

impl SeriesWindows {
    /// Computes the windows of a series at the steps of `grid`.
    pub(crate) fn from_series(
        columns: &SeriesColumns<'_>,
        grid: &StepGrid,
        reach: &SelectorWindow,
    ) -> Self {
        let sums = SamplePrefixSums::from_columns(columns);
        let mut held = Vec::with_capacity(grid.count);
        let mut fresh = Vec::with_capacity(grid.count);
        for step in 0..grid.count {
            let end = reach.end(grid.time(step));
            let oldest = end.saturating_sub(reach.range_ms);
            let all = sums.sum_between(oldest, end);
            held.push(all);
            fresh.push(match (step, reach.at) {
                (0, _) => all,
                (_, Some(_)) => 0,
                (_, None) => sums.sum_between(oldest.max(end.saturating_sub(grid.step_ms)), end),
            });
        }
        let most = held.iter().copied().max().unwrap_or_default();
        Self { held, fresh, most }
    }
}

impl WindowExtent {
    /// Adds the windows of the next series. `stays` is the number of samples that it leaves behind.
    pub(crate) fn add_series(&mut self, windows: &SeriesWindows, stays: HeldSamples) {
        self.add(&windows.held, &windows.fresh);
        let last = windows.held.last().copied().unwrap_or_default();
        let (most, stays) = match stays {
            HeldSamples::Results(samples) => (windows.most.max(last + samples), samples),
            HeldSamples::Window => (windows.most, last),
        };
        self.rise = self.rise.max(self.left + most);
        self.left += stays;
    }

    fn add(&mut self, held: &[u64], fresh: &[u64]) {
        for (own, others) in [(&mut self.held, held), (&mut self.fresh, fresh)] {
            own.resize(own.len().max(others.len()), 0);
            own.iter_mut().zip(others).for_each(|(own, n)| *own += n);
        }
    }

    /// Adds the windows of later series, which are read after those in this extent.
    fn append(&mut self, later: &WindowExtent) {
        self.add(&later.held, &later.fresh);
        self.rise = self.rise.max(self.left + later.rise);
        self.left += later.left;
    }
}

/// Prefix sums of the number of samples that the samples of a series count for, without staleness
/// markers.
struct SamplePrefixSums {
    times: Vec<TimestampMs>,
    /// The sums before each sample and after the last one: one entry more than `times`.
    sums: Vec<u64>,
}

impl SamplePrefixSums {
    fn from_columns(columns: &SeriesColumns<'_>) -> Self {
        let (mut times, mut sums) = (Vec::with_capacity(columns.times.len()), vec![0]);
        let mut histograms = columns.histograms.iter().peekable();
        let mut sum = 0;
        for (index, time) in columns.times.iter().enumerate() {
            let size = match histograms.next_if(|(at, _)| *at as usize == index) {
                Some((_, histogram)) if histogram.is_stale() => continue,
                Some((_, histogram)) => histogram_samples(histogram),
                None if is_stale(columns.values[index]) => continue,
                None => 1,
            };
            sum += size;
            times.push(*time);
            sums.push(sum);
        }
        Self { times, sums }
    }

    /// Returns the sum over the samples after `oldest`, up to and including `end`.
    fn sum_between(&self, oldest: TimestampMs, end: TimestampMs) -> u64 {
        let up_to = |time| self.sums[self.times.partition_point(|t| *t <= time)];
        up_to(end).saturating_sub(up_to(oldest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the windows of two series with a float at every second, except a staleness marker at
    /// the third.
    fn windows(grid: StepGrid, reach: SelectorWindow, stays: HeldSamples) -> WindowExtent {
        let times: Vec<TimestampMs> = (1..=10).map(|s| s * 1000).collect();
        let mut values = vec![1.0; 10];
        values[2] = crate::eval::rows::row::ABSENT;
        let columns = SeriesColumns {
            times: &times,
            values: &values,
            start_times: &[],
            histograms: &[],
            time_column: 0,
        };
        let mut extent = WindowExtent::default();
        let of_series = SeriesWindows::from_series(&columns, &grid, &reach);
        extent.add_series(&of_series, stays);
        extent.add_series(&of_series, stays);
        extent
    }

    #[test]
    fn windows_of_two_series_rise_by_what_the_first_leaves() {
        let grid = StepGrid::from_bounds(4_000, 8_000, 2_000);
        let reach = SelectorWindow {
            range_ms: 3_000,
            offset_ms: 0,
            at: None,
        };
        // Two, three and three samples per series: the third second has none.
        let results = windows(grid, reach, HeldSamples::Results(3));
        assert_eq!(results.held, [4, 6, 6]);
        assert_eq!(results.fresh, [4, 4, 4]);
        assert_eq!((results.rise, results.left), (9, 6));
        let smoothed = windows(grid, reach, HeldSamples::Window);
        assert_eq!((smoothed.rise, smoothed.left), (6, 6));
        let pinned = SelectorWindow {
            at: Some(6_000),
            ..reach
        };
        let pinned = windows(grid, pinned, HeldSamples::Results(3));
        assert_eq!((pinned.held, pinned.fresh), (vec![6; 3], vec![6, 0, 0]));
    }

    #[test]
    fn windows_of_parts_are_put_together_in_the_order_of_series() {
        let grid = StepGrid::from_bounds(4_000, 8_000, 2_000);
        let reach = SelectorWindow {
            range_ms: 3_000,
            offset_ms: 0,
            at: None,
        };
        let one = windows(grid, reach, HeldSamples::Results(3));
        let tally = WindowTally::default();
        let mut wide = one.clone();
        wide.rise = 11;
        tally.add(5, wide);
        tally.add(0, one);
        let all = tally.extent();
        assert_eq!(all.held, [8, 12, 12]);
        assert_eq!((all.rise, all.left), (17, 12));
    }
}
