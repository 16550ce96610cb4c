//! Which samples of a time column each step sees. Worked out once for all series that share the
//! column.

use crate::eval::grid::{Grid, Reach};
use firn_model::columns::COLUMNS_SHARED;
use firn_model::sample::TimestampMs;
use multiversion::multiversion;

/// No sample.
const NONE: u32 = u32::MAX;

/// For each step, the samples in its window, as a half-open range of indexes.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    starts: Vec<u32>,
    ends: Vec<u32>,
    samples: u64,
    samples_max: u64,
}

impl Windows {
    /// Works out the windows of `reach` over `times` for all steps of `grid`.
    pub(crate) fn fill(&mut self, times: &[TimestampMs], grid: &Grid, reach: &Reach) {
        let newest = |step| reach.end(grid.time(step));
        let oldest = |step| reach.end(grid.time(step)).saturating_sub(reach.range_ms);
        count_until(times, grid, newest, &mut self.ends);
        let lag = lag(grid, reach, newest, oldest);
        // What a window leaves behind is what another one had seen that ended there.
        let own = Grid {
            count: lag.unwrap_or(grid.count),
            ..*grid
        };
        count_until(times, &own, oldest, &mut self.starts);
        self.starts
            .extend_from_slice(&self.ends[..grid.count - own.count]);
        (self.samples, self.samples_max) = cap(&mut self.starts, &self.ends);
    }

    /// The windows that hold samples: the step and the range of indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let ranges = self.starts.iter().zip(&self.ends).enumerate();
        ranges
            .filter(|(_, (start, end))| start < end)
            .map(|(step, (start, end))| (step, *start as usize, *end as usize))
    }

    /// Of each step the first sample that it sees and the one behind its last.
    pub(crate) fn bounds(&self) -> (&[u32], &[u32]) {
        (&self.starts, &self.ends)
    }

    /// The range of indexes that a step sees; empty if it sees none.
    pub(crate) fn at(&self, step: usize) -> (usize, usize) {
        (self.starts[step] as usize, self.ends[step] as usize)
    }

    /// Samples in all windows together.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Samples in the largest window.
    pub(crate) fn samples_max(&self) -> u64 {
        self.samples_max
    }
}

/// How many steps after the first a window begins where the first one ends, if each one after it
/// begins where another one ended.
fn lag(
    grid: &Grid,
    reach: &Reach,
    newest: impl Fn(usize) -> TimestampMs,
    oldest: impl Fn(usize) -> TimestampMs,
) -> Option<usize> {
    let last = grid.count.checked_sub(1)?;
    let steps = usize::try_from(reach.range_ms / grid.step_ms).ok()?;
    let meets = steps <= last && oldest(steps) == newest(0);
    (meets && is_even(grid, &newest) && is_even(grid, &oldest)).then_some(steps)
}

/// Whether bounds rise by a step from each step of `grid` to the next. They are those of a reach:
/// they never fall, and rise by a step at most; by less with `@` and at the ends of time, so that
/// they are even if the last one is where as many steps lead.
fn is_even(grid: &Grid, bound: impl Fn(usize) -> TimestampMs) -> bool {
    let last = grid.count.saturating_sub(1);
    let span = grid.step_ms.checked_mul(last as i64);
    span.and_then(|span| bound(0).checked_add(span)) == Some(bound(last))
}

/// Makes empty windows of those that end before they start; returns how many samples all windows
/// hold, and the largest.
#[multiversion(targets("x86_64+avx2"))]
fn cap(starts: &mut [u32], ends: &[u32]) -> (u64, u64) {
    cap_plainly(starts, ends)
}

#[inline(always)]
fn cap_plainly(starts: &mut [u32], ends: &[u32]) -> (u64, u64) {
    let (mut all, mut most) = (0, 0);
    for (start, end) in starts.iter_mut().zip(ends) {
        *start = u32::min(*start, *end);
        let samples = *end - *start;
        all += u64::from(samples);
        most = u32::max(most, samples);
    }
    (all, u64::from(most))
}

/// Samples a step up to which each of them is asked for its step: a look at a sample is cheaper
/// where there are many.
const SAMPLES_ASKED: usize = 2;

/// Its unit in the last place is one, so that what is added to it is rounded to an integer.
const ROUNDING: f64 = (1u64 << 52) as f64;

/// Writes for each step how many of `times` are not later than its `bound`, those of a reach over
/// `grid`.
fn count_until(
    times: &[TimestampMs],
    grid: &Grid,
    bound: impl Fn(usize) -> TimestampMs,
    counts: &mut Vec<u32>,
) {
    counts.clear();
    if grid.count == 0 {
        return;
    }
    let (first, last) = (bound(0), bound(grid.count - 1));
    let seen = times.partition_point(|t| *t <= first);
    let times = &times[..seen + times[seen..].partition_point(|t| *t <= last)];
    counts.resize(grid.count, seen as u32);
    let are_few = (times.len() - seen).div_ceil(SAMPLES_ASKED) <= grid.count;
    let is_exact = last.checked_sub(first).is_some_and(|span| span < 1 << 50);
    if are_few && is_exact && is_even(grid, &bound) {
        return count_by_sample(times, seen, (first, grid.step_ms), counts);
    }
    let mut count = seen;
    for (step, of_step) in counts.iter_mut().enumerate().skip(1) {
        let bound = bound(step);
        count += times[count..].iter().take_while(|t| **t <= bound).count();
        *of_step = count as u32;
    }
}

/// The same for bounds that rise by as much from each step to the next, the first of which sees
/// `seen` of `times`, and the last all. Each sample says from which step on it is seen: no branch
/// depends on where samples lie, as some always come a little later than others.
fn count_by_sample(
    times: &[TimestampMs],
    seen: usize,
    (first, step_ms): (TimestampMs, i64),
    counts: &mut [u32],
) {
    let steps_each_ms = 1.0 / step_ms as f64;
    for (time, count) in times[seen..].iter().zip(seen as u32 + 1..) {
        // The quotient of small integers, rounded to the nearest and, if that is up, down again.
        let behind = time - first - 1;
        let nearest = behind as f64 * steps_each_ms + ROUNDING;
        let nearest = (nearest.to_bits() - ROUNDING.to_bits()) as i64;
        let step = nearest + i64::from(nearest * step_ms <= behind);
        if let Some(of_step) = counts.get_mut(step as usize) {
            *of_step = count;
        }
    }
    let mut most = 0;
    for count in counts {
        most = most.max(*count);
        *count = most;
    }
}

/// For each step, the newest sample that an instant selector sees.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    windows: Windows,
    indexes: Vec<u32>,
}

impl Newest {
    /// Works out the newest samples within `reach` for all steps of `grid`.
    pub(crate) fn fill(&mut self, times: &[TimestampMs], grid: &Grid, reach: &Reach) {
        self.windows.fill(times, grid, reach);
        self.indexes.clear();
        let ends = self.windows.starts.iter().zip(&self.windows.ends);
        let newest = ends.map(|(start, end)| if start < end { end - 1 } else { NONE });
        self.indexes.extend(newest);
    }

    /// The steps that see a sample: the step and the sample's index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        let indexes = self.indexes.iter().enumerate();
        indexes
            .filter(|(_, index)| **index != NONE)
            .map(|(step, index)| (step, *index as usize))
    }

    /// Writes for each step the value it sees; a place that sees none is left as it is.
    pub(crate) fn gather(&self, values: &[f64], into: &mut [f64]) {
        for (out, index) in into.iter_mut().zip(&self.indexes) {
            if let Some(value) = values.get(*index as usize) {
                *out = *value;
            }
        }
    }
}

/// Plans of the time columns that a series may still point at, with the memory of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Plans<P> {
    plans: Vec<Planned<P>>,
}

#[derive(Debug, Default)]
struct Planned<P> {
    /// The time column; none if it is that of another batch.
    column: Option<usize>,
    plan: P,
}

impl<P: Default> Plans<P> {
    /// Forgets what was planned: another batch has other columns.
    pub(crate) fn reset(&mut self) {
        self.plans.iter_mut().for_each(|plan| plan.column = None);
    }

    /// The plan of a time column; `fill` makes it the first time.
    pub(crate) fn of(&mut self, column: usize, fill: impl FnOnce(&mut P)) -> &P {
        let place = column % COLUMNS_SHARED;
        if place >= self.plans.len() {
            self.plans.resize_with(place + 1, Planned::default);
        }
        let planned = &mut self.plans[place];
        if planned.column != Some(column) {
            fill(&mut planned.plan);
            planned.column = Some(column);
        }
        &planned.plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    fn windows(times: &[i64], grid: Grid, reach: Reach) -> Vec<(usize, usize, usize)> {
        let mut plan = Windows::default();
        plan.fill(times, &grid, &reach);
        plan.iter().collect()
    }

    #[test]
    fn windows_exclude_their_left_edge_and_include_their_right_one() {
        let grid = Grid::between(10, 30, 10);
        let reach = Reach {
            range_ms: 10,
            offset_ms: 0,
            at: None,
        };
        let seen = windows(&[0, 5, 10, 20], grid, reach);
        assert_eq!(seen, [(0, 1, 3), (1, 3, 4)]);
        let pinned = Reach {
            at: Some(10),
            ..reach
        };
        let seen = windows(&[0, 5, 10, 20], grid, pinned);
        assert_eq!(seen, [(0, 1, 3), (1, 1, 3), (2, 1, 3)]);
    }

    /// The samples of a column that a step sees, looked for one by one.
    fn seen(times: &[i64], newest: i64, range_ms: i64) -> std::ops::Range<usize> {
        let oldest = newest.saturating_sub(range_ms);
        let end = times.iter().filter(|t| **t <= newest).count();
        times.iter().filter(|t| **t <= oldest).count().min(end)..end
    }

    #[test]
    fn windows_of_any_times_hold_what_lies_between_their_edges() {
        for seed in 0..2_000 {
            let rng = SimRng::new(seed);
            let below = |n: i64| rng.below(n as u64) as i64;
            let (interval, gaps) = (1 + below(20), 1 + rng.below(60));
            let mut time = below(50);
            let times: Vec<i64> = std::iter::repeat_with(|| {
                let gap = if rng.one_in(gaps) { below(100) } else { 0 };
                time += interval + gap;
                time + below(interval)
            })
            .take(rng.below(80) as usize)
            .collect();
            let step_ms = [interval, 2 * interval, 1 + below(30), i64::MAX / 40][seed as usize % 4];
            let start = [
                below(200),
                i64::MIN + below(9),
                i64::MAX - 30 * step_ms.min(1 << 50),
            ];
            let grid = Grid {
                count: rng.below(60) as usize,
                ..Grid::between(start[seed as usize % 3], i64::MAX, step_ms)
            };
            let reach = Reach {
                range_ms: match rng.below(9) {
                    0 => i64::MAX,
                    1..5 => below(9).saturating_mul(step_ms),
                    _ => below(90),
                },
                offset_ms: [below(100) - 50, i64::MIN, i64::MAX - 9][rng.below(9) as usize / 4],
                at: rng.one_in(9).then(|| below(900)),
            };
            let (mut windows, mut newest) = (Windows::default(), Newest::default());
            windows.fill(&times, &grid, &reach);
            newest.fill(&times, &grid, &reach);
            let mut indexes = vec![None; grid.count];
            newest
                .iter()
                .for_each(|(step, at)| indexes[step] = Some(at));
            let (mut all, mut most) = (0, 0);
            for (step, index) in indexes.into_iter().enumerate() {
                let seen = seen(&times, reach.end(grid.time(step)), reach.range_ms);
                all += seen.len() as u64;
                most = most.max(seen.len() as u64);
                assert_eq!(windows.at(step), (seen.start, seen.end), "seed {seed}");
                assert_eq!(index, seen.last(), "seed {seed}");
            }
            assert_eq!(
                (windows.samples(), windows.samples_max()),
                (all, most),
                "{seed}"
            );
        }
    }

    #[test]
    fn loops_of_this_processor_give_the_windows_of_the_portable_ones() {
        for seed in 0..500 {
            let rng = SimRng::new(seed);
            let ends: Vec<u32> = (0..rng.below(60) as u32).map(|end| end * 20).collect();
            let mut starts: Vec<u32> = ends.iter().map(|_| rng.below(900) as u32).collect();
            let mut plain_starts = starts.clone();
            let plain = cap_plainly(&mut plain_starts, &ends);
            assert_eq!(cap(&mut starts, &ends), plain, "seed {seed}");
            assert_eq!(starts, plain_starts, "seed {seed}");
        }
    }

    #[test]
    fn newest_sample_is_not_older_than_the_lookback() {
        let mut plan = Newest::default();
        let reach = Reach {
            range_ms: 10,
            offset_ms: 5,
            at: None,
        };
        plan.fill(&[0, 5, 7], &Grid::between(4, 24, 5), &reach);
        assert_eq!(plan.iter().collect::<Vec<_>>(), [(1, 0), (2, 2), (3, 2)]);
    }
}
