//! Sorted sets of slots as runs of consecutive ones, with set operations.
//!
//! The series of one target are created one after the other, so the postings of a term consist
//! mostly of runs, and the cost of a set operation depends on the runs and not on the series.
//! Invariant: runs are sorted and not empty, and do not touch or overlap.

use crate::ids::SeriesRef;

/// A non-empty range of consecutive slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRun {
    /// The first slot of the run.
    pub(crate) start: u32,
    /// One past the last slot.
    pub(crate) end: u32,
}

impl SlotRun {
    /// Returns a run that contains one slot.
    #[inline]
    pub(crate) fn from_slot(slot: SeriesRef) -> Self {
        Self {
            start: slot.0,
            end: slot.0 + 1,
        }
    }
}

/// A set of slots, as disjoint runs in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotRunSet(Vec<SlotRun>);

impl SlotRunSet {
    /// Returns the set of the slots in `start..end`.
    pub(crate) fn from_range(start: u32, end: u32) -> Self {
        let mut runs = Self::default();
        runs.push(SlotRun { start, end });
        runs
    }

    /// Adds a run that starts at or after the end of the last one. Ignores an empty run.
    #[inline]
    pub(crate) fn push(&mut self, run: SlotRun) {
        if run.start >= run.end {
            return;
        }
        debug_assert!(self.0.last().is_none_or(|last| last.end <= run.start));
        match self.0.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => self.0.push(run),
        }
    }

    /// Returns the runs in ascending order.
    pub(crate) fn as_slice(&self) -> &[SlotRun] {
        &self.0
    }

    /// Returns whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of slots.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|r| (r.end - r.start) as usize).sum()
    }

    /// Returns the slots in ascending order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = SeriesRef> {
        self.0.iter().flat_map(|r| (r.start..r.end).map(SeriesRef))
    }

    /// Returns the slots that are in both sets.
    pub(crate) fn intersect(&self, other: &SlotRunSet) -> SlotRunSet {
        let mut both = Vec::new();
        let mut beside = self.cursor();
        for run in &other.0 {
            if !beside.intersect_run(*run, &mut both) {
                break;
            }
        }
        SlotRunSet::from_runs(both)
    }

    /// Returns the slots of this set that are not in `other`.
    pub(crate) fn subtract(&self, other: &SlotRunSet) -> SlotRunSet {
        let mut left = SlotRunSet::default();
        let mut holes = other.0.iter().peekable();
        for run in &self.0 {
            let mut start = run.start;
            while let Some(hole) = holes.peek() {
                if hole.start >= run.end {
                    break;
                }
                left.push(SlotRun {
                    start,
                    end: hole.start.max(start),
                });
                start = start.max(hole.end);
                if hole.end > run.end {
                    break;
                }
                holes.next();
            }
            left.push(SlotRun {
                start: start.min(run.end),
                end: run.end,
            });
        }
        left
    }

    /// Returns the union of `runs`, which may be in any order and overlap; cheapest if they are
    /// sorted.
    pub(crate) fn from_runs(mut runs: Vec<SlotRun>) -> SlotRunSet {
        runs.sort_unstable_by_key(|r| r.start);
        runs.dedup_by(|next, last| {
            let is_joined = next.start <= last.end;
            if is_joined {
                last.end = last.end.max(next.end);
            }
            is_joined
        });
        SlotRunSet(runs)
    }

    /// Returns a cursor that compares the set with ascending runs of another one.
    pub(crate) fn cursor(&self) -> SlotRunCursor<'_> {
        SlotRunCursor { runs: &self.0 }
    }

    /// Returns the slots for which `keep` returns true.
    pub(crate) fn filter<E>(
        &self,
        mut keep: impl FnMut(SeriesRef) -> Result<bool, E>,
    ) -> Result<SlotRunSet, E> {
        let mut kept = SlotRunSet::default();
        for slot in self.slots() {
            if keep(slot)? {
                kept.push(SlotRun::from_slot(slot));
            }
        }
        Ok(kept)
    }
}

/// The rest of a set while it is compared with ascending runs of another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRunCursor<'a> {
    runs: &'a [SlotRun],
}

impl SlotRunCursor<'_> {
    /// Adds the intersection of `run` and the set to `both`. Returns whether the set has slots
    /// after `run`.
    #[inline]
    pub(crate) fn intersect_run(&mut self, run: SlotRun, both: &mut Vec<SlotRun>) -> bool {
        self.skip_to(run.start);
        while let Some(own) = self.runs.first()
            && own.start < run.end
        {
            both.push(SlotRun {
                start: own.start.max(run.start),
                end: own.end.min(run.end),
            });
            if own.end > run.end {
                break;
            }
            self.runs = &self.runs[1..];
        }
        !self.runs.is_empty()
    }

    /// Returns whether the set has no slots at or after the last run.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns whether `run` overlaps the set.
    #[inline]
    pub(crate) fn overlaps(&mut self, run: SlotRun) -> bool {
        self.skip_to(run.start);
        self.runs.first().is_some_and(|own| own.start < run.end)
    }

    /// Skips the runs that end at or before `start`. Searches in steps that double, because the
    /// next run is usually near.
    #[inline]
    fn skip_to(&mut self, start: u32) {
        let mut step = 1;
        while let Some(far) = self.runs.get(step)
            && far.end <= start
        {
            self.runs = &self.runs[step..];
            step *= 2;
        }
        let near = &self.runs[..self.runs.len().min(step + 1)];
        let behind = near.partition_point(|own| own.end <= start);
        self.runs = &self.runs[behind..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;
    use std::collections::BTreeSet;

    fn random_set(rng: &SimRng) -> BTreeSet<u32> {
        let density = 1 + rng.next_u64() % 4;
        (0..40).filter(|_| rng.next_u64() % 5 < density).collect()
    }

    fn runs(set: &BTreeSet<u32>) -> SlotRunSet {
        let mut runs = SlotRunSet::default();
        for slot in set {
            runs.push(SlotRun::from_slot(SeriesRef(*slot)));
        }
        runs
    }

    #[test]
    fn runs_algebra_on_random_sets_equals_sets() {
        for seed in 0..3_000 {
            let rng = SimRng::new(seed);
            let (a, b, c) = (random_set(&rng), random_set(&rng), random_set(&rng));
            let check = |got: SlotRunSet, expected: BTreeSet<u32>, what: &str| {
                assert_eq!(got, runs(&expected), "{what}, seed {seed}");
                assert_eq!(got.len(), expected.len(), "{what}, seed {seed}");
            };
            check(runs(&a).intersect(&runs(&b)), &a & &b, "and");
            check(runs(&a).subtract(&runs(&b)), &a - &b, "and not");
            let sets = [&a, &b, &c].map(runs);
            let all = sets
                .iter()
                .flat_map(SlotRunSet::as_slice)
                .copied()
                .collect();
            check(SlotRunSet::from_runs(all), &(&a | &b) | &c, "union");
            let even = runs(&a).filter(|s| Ok::<_, ()>(s.0 % 2 == 0)).unwrap();
            check(
                even,
                a.iter().copied().filter(|s| s % 2 == 0).collect(),
                "filter",
            );
        }
    }

    #[test]
    fn runs_beside_ascending_ones_share_what_sets_share() {
        for seed in 0..3_000 {
            let rng = SimRng::new(seed);
            // One of them may be much longer than the other.
            let [a, b] = [1, 1 + rng.next_below(12) as u32].map(|stretch| {
                let set = random_set(&rng);
                set.iter()
                    .map(|slot| slot * stretch)
                    .collect::<BTreeSet<_>>()
            });
            let (own, others) = (runs(&a), runs(&b));
            let (mut beside, mut meeting) = (own.cursor(), own.cursor());
            let mut both = Vec::new();
            for run in others.as_slice() {
                let shared = both.len();
                let goes_on = beside.intersect_run(*run, &mut both);
                let is_left = a.iter().any(|slot| *slot >= run.end);
                assert!(goes_on || !is_left, "{run:?}, seed {seed}");
                let is_shared = both.len() > shared;
                assert_eq!(meeting.overlaps(*run), is_shared, "{run:?}, seed {seed}");
            }
            assert_eq!(SlotRunSet::from_runs(both), runs(&(&a & &b)), "seed {seed}");
        }
    }
}
