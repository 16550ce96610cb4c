//! Postings: the slots of the series that have a term. One writer appends to them, and readers take
//! no lock.
//!
//! ```text
//! first run | more: sealed runs (bytes) | tail of runs (atomics, the last one grows in place)
//! ```
//!
//! Most terms belong to one run of series and use only `first`. Slots are always appended in
//! ascending order. A run is therefore one atomic word, which a reader sees before or after its
//! growth, never in between; slots at or above the limit of the reader are cut off. Sealed runs are
//! stored as varints, `gap << 1 | longer than one` and the length: two bytes per target whose
//! series have the term in one place each.

use super::runs::{SlotRun, SlotRunSet};
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::push_uvarint;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use arc_swap::ArcSwapOption;
use std::ops::Range;
use std::sync::Arc;

/// Number of runs in the tail before they are sealed. Sealing costs an allocation and a pointer
/// swap.
const TAIL_RUNS: usize = 32;

/// One list of postings. All changes are made by one writer at a time.
#[derive(Debug, Default)]
pub(crate) struct Postings {
    count: AtomicU32,
    first: AtomicU64,
    more: ArcSwapOption<PostingsOverflow>,
}

/// The runs after the first one, allocated when a term gets a second run.
#[derive(Debug)]
struct PostingsOverflow {
    /// Set by a rewrite: the first run is stored here too, and the field `first` is unused.
    is_whole: bool,
    sealed: Vec<EncodedRuns>,
    tail: Box<[AtomicU64]>,
    tail_len: AtomicU32,
}

/// Encoded runs, relative to the end of the runs before.
#[derive(Clone, Debug)]
struct EncodedRuns {
    runs: u32,
    /// End of the last run.
    end: u32,
    bytes: Arc<[u8]>,
}

/// Returns a run as one word, so that it can be stored atomically.
fn pack_run(run: SlotRun) -> u64 {
    u64::from(run.start) << 32 | u64::from(run.end)
}

fn unpack_run(word: u64) -> SlotRun {
    SlotRun {
        start: (word >> 32) as u32,
        end: word as u32,
    }
}

impl Postings {
    /// Returns the exact number of series in the list.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    /// Returns the maximum number of runs that a scan from slot `first` on reads, without reading
    /// them.
    pub(crate) fn count_runs_from(&self, first: u32) -> usize {
        self.more.load().as_ref().map_or(1, |more| {
            let sealed = more.sealed.iter().filter(|sealed| sealed.end > first);
            let sealed: u32 = sealed.map(|sealed| sealed.runs).sum();
            (1 + sealed + more.tail_len.load(Ordering::Relaxed)) as usize
        })
    }

    /// Appends runs, each of which must start after all existing ones.
    pub(crate) fn extend(&self, runs: impl IntoIterator<Item = SlotRun>) {
        let held = self.more.load();
        let mut fresh: Option<PostingsOverflow> = None;
        let mut slots = 0;
        for run in runs {
            slots += run.end - run.start;
            match fresh.as_ref().or(held.as_deref()) {
                Some(more) if more.try_append(run) => {}
                Some(more) => fresh = Some(more.with_appended_run(run)),
                None => fresh = self.append_to_first(run),
            }
        }
        if let Some(fresh) = fresh {
            self.more.store(Some(Arc::new(fresh)));
        }
        self.count.fetch_add(slots, Ordering::Relaxed);
    }

    /// Appends to a list with at most one run. Returns the further runs if there are two
    /// afterwards.
    fn append_to_first(&self, run: SlotRun) -> Option<PostingsOverflow> {
        let first = unpack_run(self.first.load(Ordering::Relaxed));
        assert!(first.end <= run.start, "runs are appended in order");
        if first.start == first.end {
            self.first.store(pack_run(run), Ordering::Release);
        } else if first.end == run.start {
            let grown = SlotRun {
                start: first.start,
                ..run
            };
            self.first.store(pack_run(grown), Ordering::Release);
        } else {
            return Some(PostingsOverflow::new(false, 2, run));
        }
        None
    }

    /// Returns the slots below `limit`, decoded into one set.
    pub(crate) fn read(&self, limit: u32) -> SlotRunSet {
        let mut runs = SlotRunSet::default();
        self.any_run(0..limit, |run| {
            runs.push(run);
            false
        });
        runs
    }

    /// Returns whether `is_it` returns true for any run that overlaps `slots`; stops at the first
    /// one. Runs may start before `slots` or be entirely before it.
    pub(crate) fn any_run(
        &self,
        slots: Range<u32>,
        mut is_it: impl FnMut(SlotRun) -> bool,
    ) -> bool {
        // Loaded before the first run, which must not be read any more once the list is whole.
        let more = self.more.load();
        let mut is_it_below = |run: SlotRun| {
            let end = run.end.min(slots.end);
            run.start < end && is_it(SlotRun { end, ..run })
        };
        let begins_before = more.as_ref().is_none_or(|m| !m.is_whole);
        if begins_before && is_it_below(unpack_run(self.first.load(Ordering::Acquire))) {
            return true;
        }
        more.as_ref()
            .is_some_and(|more| more.any_run(slots.start, is_it_below))
    }

    /// Removes the slots of `gone`. Readers see the list either before or after the removal.
    pub(crate) fn remove(&self, gone: &SlotRunSet) {
        let before = self.read(u32::MAX);
        let left = before.subtract(gone);
        let removed = (before.len() - left.len()) as u32;
        if removed == 0 {
            return;
        }
        self.more
            .store(Some(Arc::new(PostingsOverflow::from_runs(&left))));
        self.count.fetch_sub(removed, Ordering::Relaxed);
    }

    /// Returns the memory of the further runs in bytes, without the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.more.load().as_ref().map_or(0, |m| {
            let sealed: usize = m.sealed.iter().map(|s| s.bytes.len() + 40).sum();
            size_of::<PostingsOverflow>() + m.tail.len() * 8 + sealed
        })
    }
}

impl PostingsOverflow {
    fn new(is_whole: bool, capacity: usize, run: SlotRun) -> Self {
        let tail: Box<[AtomicU64]> = (0..capacity).map(|_| AtomicU64::new(0)).collect();
        tail[0].store(pack_run(run), Ordering::Relaxed);
        Self {
            is_whole,
            sealed: Vec::new(),
            tail,
            tail_len: AtomicU32::new(1),
        }
    }

    /// Returns a complete list of `runs`; an empty run represents an empty list.
    fn from_runs(runs: &SlotRunSet) -> Self {
        let none = SlotRun { start: 0, end: 0 };
        let mut runs = runs.as_slice().iter().copied();
        let mut more = Self::new(true, TAIL_RUNS, runs.next().unwrap_or(none));
        for run in runs {
            if !more.try_append(run) {
                more = more.with_appended_run(run);
            }
        }
        more
    }

    /// Appends a run in place. Returns false if the tail is full.
    fn try_append(&self, run: SlotRun) -> bool {
        let len = self.tail_len.load(Ordering::Relaxed) as usize;
        let last = unpack_run(self.tail[len - 1].load(Ordering::Relaxed));
        assert!(last.end <= run.start, "runs are appended in order");
        if last.end == run.start {
            let grown = SlotRun {
                start: last.start,
                ..run
            };
            self.tail[len - 1].store(pack_run(grown), Ordering::Release);
            return true;
        }
        let Some(free) = self.tail.get(len) else {
            return false;
        };
        free.store(pack_run(run), Ordering::Relaxed);
        self.tail_len.store(len as u32 + 1, Ordering::Release);
        true
    }

    /// Returns a copy of the list with `run` appended: in a longer tail, or in a new one after
    /// sealing the old one.
    fn with_appended_run(&self, run: SlotRun) -> Self {
        if self.tail.len() < TAIL_RUNS {
            let more = Self::new(self.is_whole, self.tail.len() * 2, run);
            for (to, from) in more.tail.iter().zip(&self.tail) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            more.tail[self.tail.len()].store(pack_run(run), Ordering::Relaxed);
            more.tail_len
                .store(self.tail.len() as u32 + 1, Ordering::Relaxed);
            return Self {
                sealed: self.sealed.clone(),
                ..more
            };
        }
        let mut sealed = self.sealed.clone();
        sealed.push(self.seal_tail());
        merge_similar_parts(&mut sealed);
        Self {
            sealed,
            ..Self::new(self.is_whole, TAIL_RUNS, run)
        }
    }

    /// Encodes the runs of the tail as bytes, relative to the end of the sealed runs.
    fn seal_tail(&self) -> EncodedRuns {
        let mut bytes = Vec::with_capacity(self.tail.len() * 3);
        let mut end = self.sealed.last().map_or(0, |sealed| sealed.end);
        for word in &self.tail {
            let run = unpack_run(word.load(Ordering::Relaxed));
            let len = run.end - run.start;
            push_uvarint(
                &mut bytes,
                u64::from(run.start - end) << 1 | u64::from(len != 1),
            );
            if len != 1 {
                push_uvarint(&mut bytes, u64::from(len));
            }
            end = run.end;
        }
        EncodedRuns {
            runs: self.tail.len() as u32,
            end,
            bytes: bytes.into(),
        }
    }

    /// Returns whether `is_it` returns true for any run that ends after `first`. May also call it
    /// for some runs that end before.
    fn any_run(&self, first: u32, mut is_it: impl FnMut(SlotRun) -> bool) -> bool {
        let mut end = 0u32;
        for sealed in &self.sealed {
            if sealed.end <= first {
                end = sealed.end;
                continue;
            }
            let mut cursor = DecodeCursor::new(&sealed.bytes);
            while let Ok(code) = cursor.read_uvarint() {
                let start = end + (code >> 1) as u32;
                let len = if code & 1 == 0 {
                    1
                } else {
                    cursor.read_uvarint().unwrap_or(0) as u32
                };
                end = start + len;
                if is_it(SlotRun { start, end }) {
                    return true;
                }
            }
        }
        let len = self.tail_len.load(Ordering::Acquire) as usize;
        let mut tail = self.tail[..len].iter();
        tail.any(|word| is_it(unpack_run(word.load(Ordering::Acquire))))
    }
}

/// Merges sealed parts of similar size, newest first, so that there are few parts and each run is
/// copied a logarithmic number of times.
fn merge_similar_parts(sealed: &mut Vec<EncodedRuns>) {
    while let [.., before, last] = sealed.as_slice()
        && before.runs <= last.runs
    {
        let joined = EncodedRuns {
            runs: before.runs + last.runs,
            end: last.end,
            bytes: [&before.bytes[..], &last.bytes[..]].concat().into(),
        };
        sealed.truncate(sealed.len() - 2);
        sealed.push(joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    #[test]
    fn postings_of_random_appends_and_removals_equal_runs() {
        for seed in 0..300 {
            let rng = SimRng::new(seed);
            let postings = Postings::default();
            let mut expected = SlotRunSet::default();
            let mut next = (rng.next_u64() % 3) as u32;
            let gap = 1 + rng.next_u64() % 400;
            let mut waiting = Vec::new();
            for _ in 0..1 + rng.next_u64() % 500 {
                let start = next + (rng.next_u64() % gap) as u32;
                let end = start + 1 + (rng.next_u64() % 8 / 6 * 300) as u32;
                waiting.push(SlotRun { start, end });
                expected.push(SlotRun { start, end });
                next = end;
                if !rng.next_u64().is_multiple_of(3) {
                    continue;
                }
                postings.extend(waiting.drain(..));
                if rng.next_u64().is_multiple_of(100) {
                    let start = (rng.next_u64() % u64::from(next)) as u32;
                    let gone = SlotRunSet::from_range(start, start + 200);
                    postings.remove(&gone);
                    expected = expected.subtract(&gone);
                }
            }
            postings.extend(waiting);
            assert_eq!(postings.read(u32::MAX), expected, "seed {seed}");
            assert_eq!(postings.count(), expected.len(), "seed {seed}");
            let (counted, runs) = (postings.count_runs_from(0), expected.as_slice().len());
            assert!(
                (runs..=runs + 2).contains(&counted),
                "{counted}, seed {seed}"
            );
            let limit = (rng.next_u64() % u64::from(next + 1)) as u32;
            let below = expected.intersect(&SlotRunSet::from_range(0, limit));
            assert_eq!(postings.read(limit), below, "limit {limit}, seed {seed}");
            let slot = (rng.next_u64() % u64::from(next + 1)) as u32;
            let has_slot = postings.any_run(0..limit, |run| (run.start..run.end).contains(&slot));
            let expected = below.slots().any(|s| s.0 == slot);
            assert_eq!(
                has_slot, expected,
                "slot {slot}, limit {limit}, seed {seed}"
            );
            let mut behind = SlotRunSet::default();
            let mut read = 0;
            postings.any_run(slot..limit, |run| {
                read += 1;
                let start = run.start.max(slot);
                behind.push(SlotRun { start, ..run });
                false
            });
            let expected = below.intersect(&SlotRunSet::from_range(slot, u32::MAX));
            assert_eq!(behind, expected, "slot {slot}, limit {limit}, seed {seed}");
            assert!(
                read <= postings.count_runs_from(slot),
                "slot {slot}, seed {seed}"
            );
        }
    }
}
