//! Sorted sets of slots as runs of consecutive ones, and their algebra.
//!
//! Series of one target are born one after the other, so a term's postings are mostly runs: a set
//! operation costs the runs, not the series. Invariant: runs are sorted, not empty, and neither
//! touch nor overlap.

/// Consecutive slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first one.
    pub(crate) start: u32,
    /// One past the last one.
    pub(crate) end: u32,
}

/// A set of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    /// The slots from `start` to before `end`.
    pub(crate) fn span(start: u32, end: u32) -> Self {
        let mut runs = Self::default();
        runs.push(Run { start, end });
        runs
    }

    /// Adds a run that begins at or behind the end of the last one.
    #[inline]
    pub(crate) fn push(&mut self, run: Run) {
        if run.start >= run.end {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => self.0.push(run),
        }
    }

    /// The runs.
    pub(crate) fn as_slice(&self) -> &[Run] {
        &self.0
    }

    /// Whether there is no slot.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many slots.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|r| (r.end - r.start) as usize).sum()
    }

    /// The slots, ascending.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|r| r.start..r.end)
    }

    /// Slots in both sets.
    pub(crate) fn and(&self, other: &Runs) -> Runs {
        let mut both = Runs::default();
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            both.push(Run {
                start: x.start.max(y.start),
                end: x.end.min(y.end),
            });
            if x.end <= y.end {
                a.next();
            } else {
                b.next();
            }
        }
        both
    }

    /// Slots of this set that are not in the other.
    pub(crate) fn and_not(&self, other: &Runs) -> Runs {
        let mut left = Runs::default();
        let mut holes = other.0.iter().peekable();
        for run in &self.0 {
            let mut start = run.start;
            while let Some(hole) = holes.peek() {
                if hole.start >= run.end {
                    break;
                }
                left.push(Run {
                    start,
                    end: hole.start.max(start),
                });
                start = start.max(hole.end);
                if hole.end > run.end {
                    break;
                }
                holes.next();
            }
            left.push(Run {
                start: start.min(run.end),
                end: run.end,
            });
        }
        left
    }

    /// Slots of any of `sets`.
    pub(crate) fn union(sets: Vec<Runs>) -> Runs {
        let mut runs: Vec<Run> = sets.into_iter().flat_map(|s| s.0).collect();
        runs.sort_unstable_by_key(|r| r.start);
        let mut all = Runs::default();
        for run in runs {
            match all.0.last_mut() {
                Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                _ => all.0.push(run),
            }
        }
        all
    }

    /// The slots for which `keep` says so.
    pub(crate) fn filter<E>(
        &self,
        mut keep: impl FnMut(u32) -> Result<bool, E>,
    ) -> Result<Runs, E> {
        let mut kept = Runs::default();
        for slot in self.slots() {
            if keep(slot)? {
                kept.push(Run {
                    start: slot,
                    end: slot + 1,
                });
            }
        }
        Ok(kept)
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

    fn runs(set: &BTreeSet<u32>) -> Runs {
        let mut runs = Runs::default();
        for slot in set {
            runs.push(Run {
                start: *slot,
                end: slot + 1,
            });
        }
        runs
    }

    #[test]
    fn runs_algebra_on_random_sets_equals_sets() {
        for seed in 0..3_000 {
            let rng = SimRng::new(seed);
            let (a, b, c) = (random_set(&rng), random_set(&rng), random_set(&rng));
            let check = |got: Runs, expected: BTreeSet<u32>, what: &str| {
                assert_eq!(got, runs(&expected), "{what}, seed {seed}");
                assert_eq!(got.len(), expected.len(), "{what}, seed {seed}");
            };
            check(runs(&a).and(&runs(&b)), &a & &b, "and");
            check(runs(&a).and_not(&runs(&b)), &a - &b, "and not");
            let all = Runs::union(vec![runs(&a), runs(&b), runs(&c)]);
            check(all, &(&a | &b) | &c, "union");
            let even = runs(&a).filter(|s| Ok::<_, ()>(s % 2 == 0)).unwrap();
            check(
                even,
                a.iter().copied().filter(|s| s % 2 == 0).collect(),
                "filter",
            );
        }
    }
}
