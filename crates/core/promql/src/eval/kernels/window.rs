//! The samples of a time column in the window of each step. They are computed once for all series
//! that share the column.

use crate::grid::{SelectorWindow, StepGrid};
use crate::math::integers::round_to_integer;
use firn_model::columns::COLUMNS_SHARED;
use firn_model::sample::{TimestampMs, count_at};
use std::ops::Range;

/// The samples in the window of each step, as half-open ranges of indexes.
#[derive(Debug, Default)]
pub(crate) struct StepWindows {
    starts: Vec<u32>,
    ends: Vec<u32>,
    samples: u64,
    samples_min: u64,
    samples_max: u64,
}

impl StepWindows {
    /// Computes the windows of `reach` over `times` for all steps of `grid`.
    #[inline(always)]
    pub(crate) fn fill(&mut self, times: &[TimestampMs], grid: &StepGrid, reach: &SelectorWindow) {
        let newest = |time| reach.end(time);
        let oldest = |time| reach.end(time).saturating_sub(reach.range_ms);
        count_until(times, grid, newest, &mut self.ends);
        // If windows are adjacent, the start of a window is the end of an earlier one.
        let own = StepGrid {
            count: first_shared(grid, newest, oldest).unwrap_or(grid.count),
            ..*grid
        };
        count_until(times, &own, oldest, &mut self.starts);
        let shared = &self.ends[..grid.count - own.count];
        self.starts.extend_from_slice(shared);
        let reached = self.ends.last().map_or(0, |end| *end as usize);
        let samples = times.len();
        assert!(
            reached <= samples,
            "windows up to {reached} of {samples} samples"
        );
        let (starts, ends) = (self.starts.len(), self.ends.len());
        assert_eq!(starts, ends, "starts, and ends of windows");
        assert_eq!(ends, grid.count, "windows, and steps");
        let (samples, least, most) = clear_reversed(&mut self.starts, &self.ends);
        (self.samples, self.samples_min, self.samples_max) = (samples, least, most);
    }

    /// Returns the non-empty windows: the step and the range of indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let ranges = self.starts.iter().zip(&self.ends).enumerate();
        ranges
            .filter(|(_, (start, end))| start < end)
            .map(|(step, (start, end))| (step, *start as usize, *end as usize))
    }

    /// Returns the steps with a non-empty window, with the index of the newest sample.
    pub(crate) fn newest(&self) -> impl Iterator<Item = (usize, usize)> {
        self.iter().map(|(step, _, end)| (step, end - 1))
    }

    /// Writes the newest value in the window of each step. Steps with an empty window are not
    /// changed.
    pub(crate) fn gather_newest(&self, values: &[f64], into: &mut [f64]) {
        for ((out, start), end) in into.iter_mut().zip(&self.starts).zip(&self.ends) {
            if start < end {
                *out = values[*end as usize - 1];
            }
        }
    }

    /// Returns the non-empty windows, combined into stretches that advance by one sample per step.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = WindowStretch> {
        let mut step = 0;
        std::iter::from_fn(move || {
            while let (Some(start), Some(end)) = (self.starts.get(step), self.ends.get(step)) {
                let moves =
                    |((by, s), e): &((u32, &u32), &u32)| **s == start + by && **e == end + by;
                let windows = (0..).zip(&self.starts[step..]).zip(&self.ends[step..]);
                let stretch = WindowStretch {
                    step,
                    len: windows.take_while(moves).count(),
                    start: *start as usize,
                    end: *end as usize,
                };
                step += stretch.len;
                if start < end {
                    return Some(stretch);
                }
            }
            None
        })
    }

    /// Returns the range of indexes in the window of a step, which may be empty.
    pub(crate) fn window_at(&self, step: usize) -> (usize, usize) {
        (self.starts[step] as usize, self.ends[step] as usize)
    }

    /// Returns the number of samples in all windows together.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the number of samples in the smallest window.
    pub(crate) fn samples_min(&self) -> u64 {
        self.samples_min
    }

    /// Returns the number of samples in the largest window.
    pub(crate) fn samples_max(&self) -> u64 {
        self.samples_max
    }
}

/// Consecutive windows, each of which begins and ends one sample later than the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowStretch {
    /// The first step of the stretch.
    pub(crate) step: usize,
    /// The number of steps in the stretch.
    pub(crate) len: usize,
    /// Index of the first sample in the first window.
    pub(crate) start: usize,
    /// Index one past the last sample in the first window.
    pub(crate) end: usize,
}

impl WindowStretch {
    /// Returns the steps of the stretch as a range of indexes.
    pub(crate) fn steps(&self) -> Range<usize> {
        self.step..self.step + self.len
    }

    /// Returns, for all windows, the index that is `samples` after the first sample.
    pub(crate) fn behind_start(&self, samples: usize) -> Range<usize> {
        let first = self.start + samples;
        first..first + self.len
    }

    /// Returns the number of samples in each window; it is the same in all windows.
    pub(crate) fn samples(&self) -> usize {
        self.end - self.start
    }
}

/// Converts windows that end before their start to empty ones. Returns the number of samples in all
/// windows together, in the smallest window, and in the largest one.
#[inline(always)]
fn clear_reversed(starts: &mut [u32], ends: &[u32]) -> (u64, u64, u64) {
    let (mut all, mut least, mut most) = (0, u32::MAX, 0);
    for (start, end) in starts.iter_mut().zip(ends) {
        *start = u32::min(*start, *end);
        let samples = *end - *start;
        all += u64::from(samples);
        least = u32::min(least, samples);
        most = u32::max(most, samples);
    }
    (all, u64::from(least), u64::from(most))
}

/// Returns the first step whose window begins where the window of the first step ends, if this
/// relation also applies to all later steps.
#[inline(always)]
fn first_shared(
    grid: &StepGrid,
    newest: impl Fn(TimestampMs) -> TimestampMs,
    oldest: impl Fn(TimestampMs) -> TimestampMs,
) -> Option<usize> {
    let range_ms = newest(grid.start).checked_sub(oldest(grid.start))?;
    let is_whole = range_ms % grid.step_ms == 0;
    let step = usize::try_from(range_ms / grid.step_ms).ok()?;
    let shares = is_whole && step < grid.count;
    (shares && even_span(grid, newest).is_some() && even_span(grid, oldest).is_some())
        .then_some(step)
}

/// Returns the distance between the bounds of the first and the last step of `grid`, if bounds
/// increase by exactly a step each.
///
/// The bounds must be those of a reach: they never decrease and increase by at most a step, or by
/// less with `@` and at the limits of the timestamp range. Therefore they are evenly spaced if the
/// last one has the expected distance from the first.
#[inline(always)]
fn even_span(grid: &StepGrid, bound: impl Fn(TimestampMs) -> TimestampMs) -> Option<i64> {
    let span = grid.step_ms.checked_mul(grid.count as i64 - 1)?;
    let is_even = bound(grid.last()).checked_sub(bound(grid.start)) == Some(span);
    is_even.then_some(span)
}

/// The longest interval in milliseconds for which [`count_by_sample`] is exact.
const SPAN_MAX_MS: i64 = 1 << 50;

/// Number of steps that are checked together for whether each window contains one more sample.
const STEPS_AT_ONCE: usize = 8;

/// Writes, for each step of `grid`, the number of `times` that are not later than its `bound`,
/// which must be that of a reach.
#[inline(always)]
fn count_until(
    times: &[TimestampMs],
    grid: &StepGrid,
    bound: impl Fn(TimestampMs) -> TimestampMs,
    counts: &mut Vec<u32>,
) {
    counts.clear();
    let (first, last) = (bound(grid.start), bound(grid.last()));
    let times = &times[..count_at(times, last)];
    let mut count = count_at(times, first);
    counts.resize(grid.count, count as u32);
    let span = even_span(grid, &bound);
    if span.is_some_and(|span| span < SPAN_MAX_MS) {
        return count_evenly(&times[count..], first, grid.step_ms, counts);
    }
    for (of_step, time) in counts.iter_mut().zip(grid.times()) {
        let bound = bound(time);
        count += times[count..].iter().take_while(|t| **t <= bound).count();
        *of_step = count as u32;
    }
}

/// Adds `times` to `counts`. None of them is in the first step, which ends at `first`, and all are
/// in the last one.
///
/// The step often equals the scrape interval. Then each step has one more sample than the previous
/// one, until a scrape is late or fails.
#[inline(always)]
fn count_evenly(times: &[TimestampMs], first: TimestampMs, step_ms: i64, counts: &mut [u32]) {
    let seen = counts.first().copied().unwrap_or(0);
    let steps = count_single_steps(times, first, step_ms).min(counts.len().saturating_sub(1));
    let (of_one, others) = counts.split_at_mut(steps);
    for (of_step, count) in of_one.iter_mut().zip(seen..) {
        *of_step = count;
    }
    others.fill(seen + steps as u32);
    let first = first + step_ms * steps as i64;
    count_by_sample(&times[steps..], first, step_ms, others);
}

/// Returns the number of steps after the one that ends at `first` that each have one more sample
/// than the previous step. Checks [`STEPS_AT_ONCE`] steps at a time. The first of `times` must be
/// later than `first`.
#[inline(always)]
fn count_single_steps(times: &[TimestampMs], first: TimestampMs, step_ms: i64) -> usize {
    let mut bounds: [TimestampMs; STEPS_AT_ONCE] =
        std::array::from_fn(|i| first.wrapping_add(step_ms.wrapping_mul(i as i64 + 1)));
    let newest = times.as_chunks::<STEPS_AT_ONCE>().0;
    let next = times.get(1..).unwrap_or(&[]).as_chunks().0;
    let mut steps = 0;
    for (newest, next) in newest.iter().zip(next) {
        let next: &[TimestampMs; STEPS_AT_ONCE] = next;
        let sees_one = (0..STEPS_AT_ONCE).fold(true, |all, i| {
            all & (newest[i] <= bounds[i]) & (next[i] > bounds[i])
        });
        if !sees_one {
            break;
        }
        steps += STEPS_AT_ONCE;
        for bound in &mut bounds {
            *bound = bound.wrapping_add(step_ms.wrapping_mul(STEPS_AT_ONCE as i64));
        }
    }
    steps
}

/// Adds `times` to `counts`. None of them is in the first step, which ends at `first`, and all are
/// in the last one.
///
/// The first step of each sample is computed from its timestamp. No branch depends on the
/// timestamps, which would be unpredictable because scrapes have some jitter.
#[inline(always)]
fn count_by_sample(times: &[TimestampMs], first: TimestampMs, step_ms: i64, counts: &mut [u32]) {
    let mut most = counts.first().copied().unwrap_or(0);
    let steps_each_ms = 1.0 / step_ms as f64;
    for (time, count) in times.iter().zip(most + 1..) {
        // The quotient of small integers, rounded to the nearest integer, and corrected if it was
        // rounded up.
        let behind = time - first - 1;
        let nearest = round_to_integer(behind as f64 * steps_each_ms);
        let step = nearest + i64::from(nearest * step_ms <= behind);
        if let Some(of_step) = counts.get_mut(step as usize) {
            *of_step = count;
        }
    }
    for count in counts {
        most = most.max(*count);
        *count = most;
    }
}

/// The plans of the time columns that later series of the batch may refer to. Their memory is
/// reused.
#[derive(Debug, Default)]
pub(crate) struct WindowPlans<P> {
    plans: Vec<WindowPlan<P>>,
}

#[derive(Debug, Default)]
struct WindowPlan<P> {
    /// The time column of the plan. `None` if it belongs to an earlier batch.
    column: Option<usize>,
    plan: P,
}

impl<P: Default> WindowPlans<P> {
    /// Invalidates all plans, because the next batch has different columns.
    pub(crate) fn reset(&mut self) {
        self.plans.iter_mut().for_each(|plan| plan.column = None);
    }

    /// Returns the plan of a time column, and whether the caller must fill it because it contains a
    /// different column.
    #[inline(always)]
    pub(crate) fn plan_for_column(&mut self, column: usize) -> (&mut P, bool) {
        let place = column % COLUMNS_SHARED;
        if place >= self.plans.len() {
            self.plans.resize_with(place + 1, WindowPlan::default);
        }
        let planned = &mut self.plans[place];
        let is_new = planned.column != Some(column);
        planned.column = Some(column);
        (&mut planned.plan, is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    fn windows(times: &[i64], grid: StepGrid, reach: SelectorWindow) -> Vec<(usize, usize, usize)> {
        let mut plan = StepWindows::default();
        plan.fill(times, &grid, &reach);
        plan.iter().collect()
    }

    #[test]
    fn windows_exclude_their_left_edge_and_include_their_right_one() {
        let grid = StepGrid::from_bounds(10, 30, 10);
        let reach = SelectorWindow {
            range_ms: 10,
            offset_ms: 0,
            at: None,
        };
        let seen = windows(&[0, 5, 10, 20], grid, reach);
        assert_eq!(seen, [(0, 1, 3), (1, 3, 4)]);
        let pinned = SelectorWindow {
            at: Some(10),
            ..reach
        };
        let seen = windows(&[0, 5, 10, 20], grid, pinned);
        assert_eq!(seen, [(0, 1, 3), (1, 1, 3), (2, 1, 3)]);
    }

    /// Finds the samples of a column in the window of a step, one by one.
    fn seen(times: &[i64], newest: i64, range_ms: i64) -> std::ops::Range<usize> {
        let oldest = newest.saturating_sub(range_ms);
        let end = times.iter().filter(|t| **t <= newest).count();
        times.iter().filter(|t| **t <= oldest).count().min(end)..end
    }

    #[test]
    fn windows_of_any_times_hold_what_lies_between_their_edges() {
        for seed in 0..2_000 {
            let rng = SimRng::new(seed);
            let below = |n: i64| rng.next_below(n as u64) as i64;
            let (interval, gaps) = (1 + below(20), 1 + rng.next_below(60));
            let late = if rng.one_in(2) { interval } else { 1 };
            let mut time = below(50);
            let times: Vec<i64> = std::iter::repeat_with(|| {
                let gap = if rng.one_in(gaps) { below(100) } else { 0 };
                time += interval + gap;
                time + below(late)
            })
            .take(rng.next_below(80) as usize)
            .collect();
            let step_ms = [interval, 2 * interval, 1 + below(30), i64::MAX / 40][seed as usize % 4];
            let start = [
                below(200),
                i64::MIN + below(9),
                i64::MAX - 30 * step_ms.min(1 << 50),
            ];
            let grid = StepGrid {
                count: rng.next_below(60) as usize,
                ..StepGrid::from_bounds(start[seed as usize % 3], i64::MAX, step_ms)
            };
            let reach = SelectorWindow {
                range_ms: match rng.next_below(9) {
                    0 => i64::MAX,
                    1..5 => below(9).saturating_mul(step_ms),
                    _ => below(90),
                },
                offset_ms: [below(100) - 50, i64::MIN, i64::MAX - 9]
                    [rng.next_below(9) as usize / 4],
                at: rng.one_in(9).then(|| below(900)),
            };
            let mut windows = StepWindows::default();
            windows.fill(&times, &grid, &reach);
            let mut indexes = vec![None; grid.count];
            windows
                .newest()
                .for_each(|(step, at)| indexes[step] = Some(at));
            let (mut all, mut most) = (0, 0);
            for (step, index) in indexes.into_iter().enumerate() {
                let seen = seen(&times, reach.end(grid.time(step)), reach.range_ms);
                all += seen.len() as u64;
                most = most.max(seen.len() as u64);
                assert_eq!(
                    windows.window_at(step),
                    (seen.start, seen.end),
                    "seed {seed}"
                );
                assert_eq!(index, seen.last(), "seed {seed}");
            }
            let of_stretch = |s: WindowStretch| {
                let window = move |i: usize| (s.step + i, s.start + i, s.end + i);
                (0..s.len).map(window)
            };
            let stretched: Vec<_> = windows.stretches().flat_map(of_stretch).collect();
            assert_eq!(stretched, windows.iter().collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(
                (windows.samples(), windows.samples_max()),
                (all, most),
                "{seed}"
            );
        }
    }

    #[test]
    fn newest_sample_is_not_older_than_the_lookback() {
        let mut plan = StepWindows::default();
        let reach = SelectorWindow {
            range_ms: 10,
            offset_ms: 5,
            at: None,
        };
        plan.fill(&[0, 5, 7], &StepGrid::from_bounds(4, 24, 5), &reach);
        assert_eq!(plan.newest().collect::<Vec<_>>(), [(1, 0), (2, 2), (3, 2)]);
    }
}
