//! What an evaluation that is counted notes of its nodes: how many samples each has at each step.
//!
//! [`Tally`] is filled while the rows pass, by any thread and in any order, and read when all have
//! passed. Upstream looks at the windows of one series after the other, so those of a part are
//! noted with the part's place, and put together in the order of the series.
//!
//! Invariant: every node of a counted plan is evaluated once, and a node is known by where it lies.
//! What the numbers are added up to is the business of [`counts`](super::counts).

use crate::eval::account::Account;
use crate::eval::rows::row::{Row, is_absent, samples_of, samples_of_passing};
use crate::grid::{Grid, Reach};
use crate::plan::Node;
use crate::value::QueryError;
use firn_model::budget::Reservation;
use firn_model::columns::SeriesColumns;
use firn_model::sample::{TimestampMs, is_stale};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a step of a node takes here, its windows included.
const STEP_BYTES: usize = 5 * size_of::<u64>();

/// The notes on all nodes of a plan.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<FxHashMap<usize, Noted>>);

/// The notes on a node.
#[derive(Debug)]
struct Noted {
    rows: Arc<RowTally>,
    windows: Arc<WindowTally>,
    _memory: Reservation,
}

impl Tally {
    /// Where the rows of a node are noted, and the windows that they are made of.
    pub(crate) fn of(
        &self,
        node: &Node,
        steps: usize,
        account: &Account<'_>,
    ) -> Result<(Arc<RowTally>, Arc<WindowTally>), QueryError> {
        let mut noted = lock(&self.0);
        if let Some(known) = noted.get(&place(node)) {
            return Ok((known.rows.clone(), known.windows.clone()));
        }
        let memory = account.reserve(steps.saturating_mul(STEP_BYTES))?;
        let new = Noted {
            rows: Arc::new(RowTally::new(steps)),
            windows: Arc::new(WindowTally::default()),
            _memory: memory,
        };
        let both = (new.rows.clone(), new.windows.clone());
        noted.insert(place(node), new);
        Ok(both)
    }

    /// The rows of a node over `steps` steps; those of one that is the same at all steps were noted
    /// at one.
    pub(crate) fn rows(&self, node: &Node, steps: usize) -> Extent {
        let noted = lock(&self.0);
        let Some(known) = noted.get(&place(node)) else {
            return Extent::none(steps);
        };
        let extent = known.rows.extent();
        match extent.counts.len() == steps {
            true => extent,
            false => extent.repeated(steps),
        }
    }

    /// The windows of a node over `steps` steps.
    pub(crate) fn windows(&self, node: &Node, steps: usize) -> WindowExtent {
        let noted = lock(&self.0);
        let windows = noted.get(&place(node)).map(|known| known.windows.extent());
        let mut windows = windows.unwrap_or_default();
        let last = windows.held.last().copied().unwrap_or_default();
        windows.held.resize(steps, last);
        windows.fresh.resize(steps, 0);
        windows
    }
}

fn place(node: &Node) -> usize {
    std::ptr::from_ref(node).addr()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The samples of a value, step by step. Lists of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// How many there are at a step.
    pub(crate) counts: Vec<u64>,
    /// For how many they count.
    pub(crate) sizes: Vec<u64>,
    /// For how many they count while an operator goes step by step.
    pub(crate) sizes_passing: Vec<u64>,
}

impl Extent {
    /// No sample at any step.
    pub(crate) fn none(steps: usize) -> Self {
        Self {
            counts: vec![0; steps],
            sizes: vec![0; steps],
            sizes_passing: vec![0; steps],
        }
    }

    /// So many floats at each step.
    pub(crate) fn of_floats(counts: Vec<u64>) -> Self {
        Self {
            sizes: counts.clone(),
            sizes_passing: counts.clone(),
            counts,
        }
    }

    /// One float at each step.
    pub(crate) fn of_scalar(steps: usize) -> Self {
        Self::of_floats(vec![1; steps])
    }

    /// The first step, again and again.
    pub(crate) fn repeated(&self, steps: usize) -> Self {
        let first = |list: &[u64]| vec![list.first().copied().unwrap_or_default(); steps];
        Self {
            counts: first(&self.counts),
            sizes: first(&self.sizes),
            sizes_passing: first(&self.sizes_passing),
        }
    }

    /// For how many samples all steps count.
    pub(crate) fn size(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// Adds the histograms of a row; floats are counted apart.
    fn add_histograms(&mut self, row: Row<'_>) {
        for (step, histogram) in row.histograms {
            let step = *step as usize;
            self.counts[step] += 1;
            self.sizes[step] += samples_of(histogram);
            self.sizes_passing[step] += samples_of_passing(histogram);
        }
    }
}

/// Rows that passed: their floats, each of which counts for one, and their histograms.
#[derive(Debug)]
struct Passed {
    floats: Vec<u64>,
    histograms: Extent,
}

impl Passed {
    fn none(steps: usize) -> Self {
        Self {
            floats: vec![0; steps],
            histograms: Extent::none(steps),
        }
    }

    fn add(&mut self, row: Row<'_>) {
        for (floats, value) in self.floats.iter_mut().zip(row.values) {
            *floats += u64::from(!is_absent(*value));
        }
        self.histograms.add_histograms(row);
    }

    fn extent(&self) -> Extent {
        let with_floats = |list: &[u64]| {
            let both = list.iter().zip(&self.floats);
            both.map(|(histograms, floats)| histograms + floats)
                .collect()
        };
        Extent {
            counts: with_floats(&self.histograms.counts),
            sizes: with_floats(&self.histograms.sizes),
            sizes_passing: with_floats(&self.histograms.sizes_passing),
        }
    }
}

/// Where the rows of a node are noted.
#[derive(Debug)]
pub(crate) struct RowTally {
    passed: Mutex<Passed>,
    /// How many samples of each step operators see that go step by step, if those are fewer.
    seen: Mutex<Option<Vec<u64>>>,
    is_closed: AtomicBool,
}

impl RowTally {
    fn new(steps: usize) -> Self {
        Self {
            passed: Mutex::new(Passed::none(steps)),
            seen: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Notes a row.
    pub(crate) fn add(&self, row: Row<'_>) {
        if !self.is_closed.load(Ordering::Relaxed) {
            lock(&self.passed).add(row);
        }
    }

    fn extent(&self) -> Extent {
        let mut extent = lock(&self.passed).extent();
        if let Some(seen) = &*lock(&self.seen) {
            extent.counts.clone_from(seen);
        }
        extent
    }

    /// Notes no row any more: those that pass are noted.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Sets how many samples there are at each step to those of `rows`.
    pub(crate) fn recount<'a>(&self, rows: impl Iterator<Item = Row<'a>>) {
        let mut seen = Passed::none(lock(&self.passed).floats.len());
        rows.for_each(|row| seen.add(row));
        *lock(&self.seen) = Some(seen.extent().counts);
    }
}

/// Where the windows of a node are noted.
#[derive(Debug, Default)]
pub(crate) struct WindowTally {
    parts: Mutex<Vec<(usize, WindowExtent)>>,
    is_closed: AtomicBool,
}

impl WindowTally {
    /// Notes the windows of the part that begins with the series `first`.
    pub(crate) fn add(&self, first: usize, part: WindowExtent) {
        if !self.is_closed.load(Ordering::Relaxed) {
            lock(&self.parts).push((first, part));
        }
    }

    /// Notes no window any more: those of all series are noted.
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

/// The samples that windows hold, and how upstream's count of what it holds goes up with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowExtent {
    /// What all windows of a step hold.
    pub(crate) held: Vec<u64>,
    /// What of that the step before did not hold.
    pub(crate) fresh: Vec<u64>,
    /// The most that was held at one time.
    pub(crate) rise: u64,
    /// What is held when all series are done.
    pub(crate) left: u64,
}

/// What stays of a series when the next one is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stays {
    /// Results that count for so many samples.
    Results(u64),
    /// The last window.
    Window,
}

/// The windows of one series.
#[derive(Clone, Debug)]
pub(crate) struct SeriesWindows {
    held: Vec<u64>,
    fresh: Vec<u64>,
    most: u64,
}

impl SeriesWindows {
    /// The windows of the steps of `grid`.
    pub(crate) fn of(columns: &SeriesColumns<'_>, grid: &Grid, reach: &Reach) -> Self {
        let sums = Sums::of(columns);
        let mut held = Vec::with_capacity(grid.count);
        let mut fresh = Vec::with_capacity(grid.count);
        for step in 0..grid.count {
            let end = reach.end(grid.time(step));
            let oldest = end.saturating_sub(reach.range_ms);
            let all = sums.between(oldest, end);
            held.push(all);
            fresh.push(match (step, reach.at) {
                (0, _) => all,
                (_, Some(_)) => 0,
                (_, None) => sums.between(oldest.max(end.saturating_sub(grid.step_ms)), end),
            });
        }
        let most = held.iter().copied().max().unwrap_or_default();
        Self { held, fresh, most }
    }
}

impl WindowExtent {
    /// Adds the windows of the next series.
    pub(crate) fn add_series(&mut self, windows: &SeriesWindows, stays: Stays) {
        self.add(&windows.held, &windows.fresh);
        let last = windows.held.last().copied().unwrap_or_default();
        let (most, stays) = match stays {
            Stays::Results(samples) => (windows.most.max(last + samples), samples),
            Stays::Window => (windows.most, last),
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

    /// Adds the windows of later series.
    fn append(&mut self, later: &WindowExtent) {
        self.add(&later.held, &later.fresh);
        self.rise = self.rise.max(self.left + later.rise);
        self.left += later.left;
    }
}

/// For how many samples those of a series count up to each, staleness markers left out.
struct Sums {
    times: Vec<TimestampMs>,
    /// One more than times.
    sums: Vec<u64>,
}

impl Sums {
    fn of(columns: &SeriesColumns<'_>) -> Self {
        let (mut times, mut sums) = (Vec::with_capacity(columns.times.len()), vec![0]);
        let mut histograms = columns.histograms.iter().peekable();
        let mut sum = 0;
        for (index, time) in columns.times.iter().enumerate() {
            let size = match histograms.next_if(|(at, _)| *at as usize == index) {
                Some((_, histogram)) if histogram.is_stale() => continue,
                Some((_, histogram)) => samples_of(histogram),
                None if is_stale(columns.values[index]) => continue,
                None => 1,
            };
            sum += size;
            times.push(*time);
            sums.push(sum);
        }
        Self { times, sums }
    }

    /// Those after `oldest`, up to and with `end`.
    fn between(&self, oldest: TimestampMs, end: TimestampMs) -> u64 {
        let up_to = |time| self.sums[self.times.partition_point(|t| *t <= time)];
        up_to(end).saturating_sub(up_to(oldest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Floats at every second, of which the third is a staleness marker.
    fn windows(grid: Grid, reach: Reach, stays: Stays) -> WindowExtent {
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
        let of_series = SeriesWindows::of(&columns, &grid, &reach);
        extent.add_series(&of_series, stays);
        extent.add_series(&of_series, stays);
        extent
    }

    #[test]
    fn windows_of_two_series_rise_by_what_the_first_leaves() {
        let grid = Grid::between(4_000, 8_000, 2_000);
        let reach = Reach {
            range_ms: 3_000,
            offset_ms: 0,
            at: None,
        };
        // Two, three and three samples: the third second has none.
        let results = windows(grid, reach, Stays::Results(3));
        assert_eq!(results.held, [4, 6, 6]);
        assert_eq!(results.fresh, [4, 4, 4]);
        assert_eq!((results.rise, results.left), (9, 6));
        let smoothed = windows(grid, reach, Stays::Window);
        assert_eq!((smoothed.rise, smoothed.left), (6, 6));
        let pinned = Reach {
            at: Some(6_000),
            ..reach
        };
        let pinned = windows(grid, pinned, Stays::Results(3));
        assert_eq!((pinned.held, pinned.fresh), (vec![6; 3], vec![6, 0, 0]));
    }

    #[test]
    fn windows_of_parts_are_put_together_in_the_order_of_series() {
        let grid = Grid::between(4_000, 8_000, 2_000);
        let reach = Reach {
            range_ms: 3_000,
            offset_ms: 0,
            at: None,
        };
        let one = windows(grid, reach, Stays::Results(3));
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
