//! Which samples of a time column each step sees. Worked out once for all series that share the
//! column.

use crate::grid::{Grid, Reach};
use crate::math::integers::nearest;
use firn_model::columns::COLUMNS_SHARED;
use firn_model::sample::{TimestampMs, count_at};
use multiversion::multiversion;
use std::ops::Range;

/// No sample.
const NONE: u32 = u32::MAX;

/// For each step, the samples in its window, as a half-open range of indexes.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    starts: Vec<u32>,
    ends: Vec<u32>,
    samples: u64,
    samples_min: u64,
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
        let reached = self.ends.last().map_or(0, |end| *end as usize);
        assert!(reached <= times.len(), "windows end within the samples");
        assert_eq!(self.starts.len(), self.ends.len(), "each step has a window");
        let (samples, least, most) = cap(&mut self.starts, &self.ends);
        (self.samples, self.samples_min, self.samples_max) = (samples, least, most);
    }

    /// The windows that hold samples: the step and the range of indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let ranges = self.starts.iter().zip(&self.ends).enumerate();
        ranges
            .filter(|(_, (start, end))| start < end)
            .map(|(step, (start, end))| (step, *start as usize, *end as usize))
    }

    /// The windows that hold samples, those together that move on by a sample from step to step.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = Stretch> {
        let (mut step, mut apart) = (0, 0);
        std::iter::from_fn(move || {
            while let (Some(start), Some(end)) = (self.starts.get(step), self.ends.get(step)) {
                let mut stretch = Stretch {
                    step,
                    len: 1,
                    start: *start as usize,
                    end: *end as usize,
                };
                // Where two windows do not, those behind them will not either.
                if step >= apart {
                    stretch.len += moves_by_one(&self.starts[step..], &self.ends[step..]);
                    apart = step + STEPS_AT_ONCE * usize::from(stretch.len == 1);
                }
                step += stretch.len;
                if start < end {
                    return Some(stretch);
                }
            }
            None
        })
    }

    /// The range of indexes that a step sees; empty if it sees none.
    pub(crate) fn at(&self, step: usize) -> (usize, usize) {
        (self.starts[step] as usize, self.ends[step] as usize)
    }

    /// Samples in all windows together.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Samples in the smallest window.
    pub(crate) fn samples_min(&self) -> u64 {
        self.samples_min
    }

    /// Samples in the largest window.
    pub(crate) fn samples_max(&self) -> u64 {
        self.samples_max
    }
}

/// Windows of consecutive steps, each of which begins and ends a sample later than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The first step.
    pub(crate) step: usize,
    /// How many steps.
    pub(crate) len: usize,
    /// The first sample of the first window.
    pub(crate) start: usize,
    /// The one behind its last.
    pub(crate) end: usize,
}

impl Stretch {
    /// The steps.
    pub(crate) fn steps(&self) -> Range<usize> {
        self.step..self.step + self.len
    }

    /// For each window the place so many behind its first sample.
    pub(crate) fn behind_start(&self, samples: usize) -> Range<usize> {
        let first = self.start + samples;
        first..first + self.len
    }

    /// Samples in each window.
    pub(crate) fn samples(&self) -> usize {
        self.end - self.start
    }
}

/// How many steps, after the first one, begin and end a sample later than the one before each;
/// found for [`STEPS_AT_ONCE`] at a time.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn moves_by_one(starts: &[u32], ends: &[u32]) -> usize {
    moves_by_one_plainly(starts, ends)
}

#[inline(always)]
fn moves_by_one_plainly(starts: &[u32], ends: &[u32]) -> usize {
    let (before, after) = (blocks(starts, 0), blocks(starts, 1));
    let of_ends = blocks(ends, 0).iter().zip(blocks(ends, 1));
    let mut blocks = before.iter().zip(after).zip(of_ends);
    let moves = |((s, s_next), (e, e_next)): ((&Block, &Block), (&Block, &Block))| {
        (0..STEPS_AT_ONCE).fold(true, |moves, i| {
            moves & (s_next[i].wrapping_sub(s[i]) == 1) & (e_next[i].wrapping_sub(e[i]) == 1)
        })
    };
    let ends = blocks.position(|block| !moves(block));
    ends.unwrap_or_else(|| after.len().min(before.len())) * STEPS_AT_ONCE
}

type Block = [u32; STEPS_AT_ONCE];

/// The whole blocks from a place on.
#[inline(always)]
fn blocks(steps: &[u32], from: usize) -> &[Block] {
    steps.get(from..).unwrap_or(&[]).as_chunks().0
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
/// hold, the smallest and the largest.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn cap(starts: &mut [u32], ends: &[u32]) -> (u64, u64, u64) {
    cap_plainly(starts, ends)
}

#[inline(always)]
fn cap_plainly(starts: &mut [u32], ends: &[u32]) -> (u64, u64, u64) {
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

/// Samples a step up to which each of them is asked for its step: a look at a sample is cheaper
/// where there are many.
const SAMPLES_ASKED: usize = 2;

/// Steps that are checked together for whether each moves on by one sample.
const STEPS_AT_ONCE: usize = 8;

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
    let times = &times[..count_at(times, last)];
    let seen = count_at(times, first);
    counts.resize(grid.count, seen as u32);
    let is_exact = last.checked_sub(first).is_some_and(|span| span < 1 << 50);
    match is_exact && is_even(grid, &bound) {
        true => count_evenly(times, seen, (first, grid.step_ms), counts),
        false => count_step_by_step(times, seen, bound, counts),
    }
}

/// Goes on from the first of `counts`, whose step sees `seen`.
fn count_step_by_step(
    times: &[TimestampMs],
    seen: usize,
    bound: impl Fn(usize) -> TimestampMs,
    counts: &mut [u32],
) {
    let mut count = seen;
    for (step, of_step) in counts.iter_mut().enumerate().skip(1) {
        let bound = bound(step);
        count += times[count..].iter().take_while(|t| **t <= bound).count();
        *of_step = count as u32;
    }
}

/// Like [`count_step_by_step`], for bounds that rise by `step_ms` from each step to the next.
/// `counts` are all `seen`, and the last step sees all of `times`.
///
/// Steps are often as long as the interval of a scrape: then each sees one sample more than the one
/// before, but where a scrape was late or failed.
fn count_evenly(
    times: &[TimestampMs],
    mut seen: usize,
    (mut first, step_ms): (TimestampMs, i64),
    mut counts: &mut [u32],
) {
    loop {
        let one_more = steps_of_one(&times[seen..], first, step_ms).min(counts.len() - 1);
        for (count, more) in counts[1..=one_more].iter_mut().zip(1..) {
            *count = seen as u32 + more;
        }
        first += step_ms * one_more as i64;
        seen += one_more;
        counts = &mut counts[one_more..];
        if one_more == 0 || counts.len() == 1 {
            break;
        }
        let others = STEPS_AT_ONCE.min(counts.len() - 1);
        let bound = |step: usize| first + step_ms * step as i64;
        count_step_by_step(times, seen, bound, &mut counts[..=others]);
        first = bound(others);
        seen = counts[others] as usize;
        counts = &mut counts[others..];
    }
    counts.fill(seen as u32);
    match (times.len() - seen).div_ceil(SAMPLES_ASKED) <= counts.len() {
        true => count_by_sample(times, seen, (first, step_ms), counts),
        false => {
            let bound = |step| first + step_ms * step as i64;
            count_step_by_step(times, seen, bound, counts);
        }
    }
}

/// How many steps after the one that ends at `first` see one more of `times` than the one before
/// them; found for [`STEPS_AT_ONCE`] at a time. The first of `times` are behind `first`.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn steps_of_one(times: &[TimestampMs], first: TimestampMs, step_ms: i64) -> usize {
    steps_of_one_plainly(times, first, step_ms)
}

#[inline(always)]
fn steps_of_one_plainly(times: &[TimestampMs], first: TimestampMs, step_ms: i64) -> usize {
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

/// Like [`count_evenly`], however many samples the steps see. Each sample says from which step on
/// it is seen: no branch depends on where samples lie, as some always come a little later than
/// others.
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
        let nearest = nearest(behind as f64 * steps_each_ms);
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
            let late = if rng.one_in(2) { interval } else { 1 };
            let mut time = below(50);
            let times: Vec<i64> = std::iter::repeat_with(|| {
                let gap = if rng.one_in(gaps) { below(100) } else { 0 };
                time += interval + gap;
                time + below(late)
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
            let of_stretch = |s: Stretch| {
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
    fn loops_of_this_processor_give_the_windows_of_the_portable_ones() {
        for seed in 0..500 {
            let rng = SimRng::new(seed);
            let ends: Vec<u32> = (0..rng.below(60) as u32).map(|end| end * 20).collect();
            let mut starts: Vec<u32> = ends.iter().map(|_| rng.below(900) as u32).collect();
            let mut plain_starts = starts.clone();
            let plain = cap_plainly(&mut plain_starts, &ends);
            assert_eq!(cap(&mut starts, &ends), plain, "seed {seed}");
            assert_eq!(starts, plain_starts, "seed {seed}");
            let late_from = rng.below(40) as i64;
            let late = |at: i64| {
                if at >= late_from {
                    rng.below(20) as i64
                } else {
                    0
                }
            };
            let times: Vec<i64> = (1..30).map(|at| at * 10 + late(at)).collect();
            let plain = steps_of_one_plainly(&times, 5, 10);
            assert_eq!(steps_of_one(&times, 5, 10), plain, "seed {seed}");
            let some = rng.below(90) as u32;
            let [starts, ends] = [10, 30].map(|from| {
                let late = |at: u32| at + u32::from(at >= some);
                (from..from + 60).map(late).collect::<Vec<u32>>()
            });
            let plain = moves_by_one_plainly(&starts, &ends);
            assert_eq!(moves_by_one(&starts, &ends), plain, "seed {seed}");
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
