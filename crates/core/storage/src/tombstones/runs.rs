//! Deleted ranges of times, by runs of neighbouring series.
//!
//! Invariant: runs are disjoint and ascend; the ranges of a run ascend, and neither overlap nor
//! touch each other; two neighbouring runs differ in their ranges.

use crate::chunk::SampleColumns;
use firn_model::sample::{TimeRange, TimestampMs};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Neighbouring series with equal deleted times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeletedRun {
    /// Slot or ordinal of the first series.
    pub(crate) first: u64,
    /// Slot or ordinal of the last series, inclusive.
    pub(crate) last: u64,
    /// The deleted times; not empty. Equal ranges of several runs are shared.
    pub(crate) times: Arc<[TimeRange]>,
}

/// The deleted times of the series of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeletedRuns {
    runs: Vec<DeletedRun>,
    /// The range from the first deleted time to the last one.
    hull: Option<TimeRange>,
}

impl DeletedRuns {
    /// Returns the runs, in ascending order.
    pub(crate) fn runs(&self) -> &[DeletedRun] {
        &self.runs
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the deleted times of a series, usually none. Costs a binary search.
    #[inline]
    pub(crate) fn find(&self, id: u64) -> &[TimeRange] {
        if self.runs.is_empty() {
            return &[];
        }
        let at = self.runs.partition_point(|run| run.last < id);
        match self.runs.get(at).filter(|run| run.first <= id) {
            Some(run) => &run.times,
            None => &[],
        }
    }

    /// Returns whether the sample of a series at `time` is deleted.
    pub(crate) fn has(&self, id: u64, time: TimestampMs) -> bool {
        is_deleted(self.find(id), time)
    }

    /// Returns whether a sample in `range` may be deleted.
    pub(crate) fn overlaps(&self, range: TimeRange) -> bool {
        self.hull.is_some_and(|hull| hull.overlaps(&range))
    }

    /// Returns whether `is_it` is true for all deleted ranges.
    pub(crate) fn all_times(&self, is_it: impl Fn(&TimeRange) -> bool) -> bool {
        self.runs.iter().all(|run| run.times.iter().all(&is_it))
    }

    /// Removes the deleted ranges for which `is_kept` is false.
    pub(crate) fn retain_times(&mut self, is_kept: impl Fn(&TimeRange) -> bool) {
        let mut left = RunsBuilder::default();
        for run in &self.runs {
            if run.times.iter().all(&is_kept) {
                left.push(run.clone());
                continue;
            }
            let times: Arc<[TimeRange]> =
                run.times.iter().filter(|r| is_kept(r)).copied().collect();
            if !times.is_empty() {
                left.push(DeletedRun { times, ..*run });
            }
        }
        *self = left.finish();
    }

    /// Returns these runs with those of `other`.
    pub(crate) fn join(&self, other: &Self) -> Self {
        let mut joined = RunsBuilder::default();
        let (mut of_self, mut of_other) = (self.runs.iter().cloned(), other.runs.iter().cloned());
        let (mut a, mut b) = (of_self.next(), of_other.next());
        loop {
            (a, b) = match (a, b) {
                (None, None) => return joined.finish(),
                (Some(one), None) | (None, Some(one)) => {
                    joined.push(one);
                    (of_self.next(), of_other.next())
                }
                (Some(x), Some(y)) if x.last < y.first => {
                    joined.push(x);
                    (of_self.next(), Some(y))
                }
                (Some(x), Some(y)) if y.last < x.first => {
                    joined.push(y);
                    (Some(x), of_other.next())
                }
                (Some(mut x), Some(mut y)) => {
                    let first = x.first.max(y.first);
                    joined.push_before(&mut x, first);
                    joined.push_before(&mut y, first);
                    let last = x.last.min(y.last);
                    let times = joined.unite(&x.times, &y.times);
                    joined.push(DeletedRun { first, last, times });
                    let a = x.rest_after(last).or_else(|| of_self.next());
                    (a, y.rest_after(last).or_else(|| of_other.next()))
                }
            }
        }
    }
}

impl DeletedRun {
    /// Returns the part of the run after `last`, if there is one.
    fn rest_after(mut self, last: u64) -> Option<Self> {
        self.first = last.checked_add(1)?;
        (self.first <= self.last).then_some(self)
    }
}

/// Collects series with one deleted range each; they must ascend.
impl FromIterator<(u64, TimeRange)> for DeletedRuns {
    fn from_iter<T: IntoIterator<Item = (u64, TimeRange)>>(series: T) -> Self {
        let mut runs = RunsBuilder::default();
        // Series of one target end at the same time.
        let mut known: FxHashMap<(TimestampMs, TimestampMs), Arc<[TimeRange]>> =
            FxHashMap::default();
        for (id, range) in series {
            let times = known.entry((range.min, range.max));
            let times = times.or_insert_with(|| Arc::new([range])).clone();
            runs.push(DeletedRun {
                first: id,
                last: id,
                times,
            });
        }
        runs.finish()
    }
}

/// Collects runs in ascending order.
#[derive(Default)]
pub(super) struct RunsBuilder {
    runs: Vec<DeletedRun>,
    /// The last two lists that were united, with their union: usually the next ones are equal.
    newest: Option<[Arc<[TimeRange]>; 3]>,
}

impl RunsBuilder {
    /// Appends a run, which must be after all others.
    pub(super) fn push(&mut self, run: DeletedRun) {
        if let Some(last) = self.runs.last_mut() {
            assert!(last.last < run.first, "runs ascend");
            let is_same = Arc::ptr_eq(&last.times, &run.times) || last.times == run.times;
            if last.last + 1 == run.first && is_same {
                last.last = run.last;
                return;
            }
        }
        self.runs.push(run);
    }

    /// Appends the part of `run` before `first` and removes it from the run.
    fn push_before(&mut self, run: &mut DeletedRun, first: u64) {
        if run.first < first {
            self.push(DeletedRun {
                last: first - 1,
                ..run.clone()
            });
            run.first = first;
        }
    }

    /// Returns the times that are in either list.
    fn unite(&mut self, a: &Arc<[TimeRange]>, b: &Arc<[TimeRange]>) -> Arc<[TimeRange]> {
        if let Some([x, y, united]) = &self.newest
            && x == a
            && y == b
        {
            return united.clone();
        }
        let mut all: Vec<TimeRange> = a.iter().chain(b.iter()).copied().collect();
        all.sort_unstable_by_key(|range| (range.min, range.max));
        all.dedup_by(|next, last| {
            let touches = next.min <= last.max.saturating_add(1);
            if touches {
                last.max = last.max.max(next.max);
            }
            touches
        });
        let united: Arc<[TimeRange]> = all.into();
        self.newest = Some([a.clone(), b.clone(), united.clone()]);
        united
    }

    pub(super) fn finish(self) -> DeletedRuns {
        let times = self.runs.iter().flat_map(|run| run.times.iter().copied());
        DeletedRuns {
            hull: times.reduce(TimeRange::hull),
            runs: self.runs,
        }
    }
}

/// Returns whether `time` is in one of `times`, which ascend.
#[inline]
fn is_deleted(times: &[TimeRange], time: TimestampMs) -> bool {
    let at = times.partition_point(|range| range.max < time);
    times.get(at).is_some_and(|range| range.min <= time)
}

/// Removes the deleted ones of the samples from index `from` on.
pub(crate) fn hide_deleted(columns: &mut SampleColumns, from: usize, times: &[TimeRange]) {
    if !times.is_empty() {
        columns.remove_from(from, |time| is_deleted(times, time));
    }
}

/// Returns whether all of `range` is in one of `times`.
pub(crate) fn is_covered(times: &[TimeRange], range: TimeRange) -> bool {
    let covers = |deleted: &TimeRange| deleted.min <= range.min && range.max <= deleted.max;
    range.min > range.max || times.iter().any(covers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::seeds;
    use firn_model::env::sim::SimRng;
    use std::collections::BTreeSet;

    /// Returns random runs with all deleted pairs of series and time.
    fn random(rng: &SimRng) -> (DeletedRuns, BTreeSet<(u64, i64)>) {
        let (mut runs, mut all) = (Vec::new(), BTreeSet::new());
        for id in 0..20 {
            if rng.one_in(2) {
                let min = rng.next_below(4) as i64;
                let range = TimeRange::new(min, min + rng.next_below(3) as i64);
                runs.push((id, range));
                all.extend((range.min..=range.max).map(|time| (id, time)));
            }
        }
        (runs.into_iter().collect(), all)
    }

    #[track_caller]
    fn check(runs: &DeletedRuns, all: &BTreeSet<(u64, i64)>, context: &str) {
        for id in 0..22 {
            for time in -1..12 {
                let is_in = all.contains(&(id, time));
                assert_eq!(runs.has(id, time), is_in, "{id} at {time}, {context}");
            }
        }
        let is_neighbour = |pair: &[DeletedRun]| {
            pair[0].last < pair[1].first
                && (pair[0].last + 1 < pair[1].first || pair[0].times != pair[1].times)
        };
        assert!(runs.runs().windows(2).all(is_neighbour), "{context}");
    }

    #[test]
    fn runs_contain_the_pairs_of_all_deletes() {
        for seed in seeds(200) {
            let rng = SimRng::new(seed);
            let (mut runs, mut all) = (DeletedRuns::default(), BTreeSet::new());
            for _ in 0..1 + rng.next_below(5) {
                let (more, pairs) = random(&rng);
                runs = runs.join(&more);
                all.extend(pairs);
                check(&runs, &all, &format!("seed {seed}"));
            }
            let hull = all.iter().map(|(_, time)| *time);
            let (min, max) = (hull.clone().min(), hull.max());
            for time in -1..12 {
                let is_in = min <= Some(time) && Some(time) <= max;
                assert_eq!(runs.overlaps(TimeRange::new(time, time)), is_in);
            }
        }
    }

    #[test]
    fn retained_times_are_whole_ranges() {
        let runs: DeletedRuns = [(1, TimeRange::new(0, 5)), (2, TimeRange::new(0, 9))]
            .into_iter()
            .collect();
        let more = [(2, TimeRange::new(20, 30))].into_iter().collect();
        let mut runs = runs.join(&more);
        assert!(runs.all_times(|range| range.max >= 5));
        runs.retain_times(|range| range.max >= 10);
        assert_eq!(runs.find(1), []);
        assert_eq!(runs.find(2), [TimeRange::new(20, 30)]);
        assert!(!runs.overlaps(TimeRange::new(0, 19)));
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let first: DeletedRuns = [(7, TimeRange::new(i64::MIN, 5))].into_iter().collect();
        let runs = first.join(&[(7, TimeRange::new(6, i64::MAX))].into_iter().collect());
        assert_eq!(runs.find(7), [TimeRange::ALL]);
        assert!(is_covered(runs.find(7), TimeRange::ALL));
        assert!(!is_covered(first.find(7), TimeRange::new(0, 6)));
    }
}
