//! Membership: which series have samples in which two hours of data time, one bit each.
//!
//! A bit is set when a series is first written in an epoch, before the sample is visible. A lookup
//! keeps the slots that have a bit in any epoch of its range, so series that ended long ago cost
//! nothing, and a series without a bit in any epoch can be removed. The bits are stored in leaves
//! of 4,096 slots.

use super::late_members::LateMembers;
use super::runs::{SlotRun, SlotRunSet};
use crate::ids::SeriesRef;
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use arc_swap::ArcSwap;
use firn_model::sample::{TimeRange, TimestampMs};
use std::sync::Arc;

/// Length of an epoch in milliseconds: the length of a block of Prometheus, and about one chunk at
/// a scrape interval of 15 s.
pub(crate) const EPOCH_MS: i64 = 2 * 3_600_000;

const LEAF_WORDS: usize = 64;
const LEAF_SLOTS: u32 = 64 * LEAF_WORDS as u32;

type Leaf = [AtomicU64; LEAF_WORDS];
pub(super) type Leaves = Vec<Option<Arc<Leaf>>>;

/// Returns the epoch of a timestamp: its window of two hours, counted from 1970.
#[inline]
pub(crate) fn epoch_from_time(time: TimestampMs) -> i64 {
    time.div_euclid(EPOCH_MS)
}

/// The bits of one epoch, in leaves that are allocated on first use.
#[derive(Debug)]
struct EpochBits {
    number: i64,
    leaves: ArcSwap<Leaves>,
}

/// Cache of the leaf in which a bit was last set. Valid for one batch only, because a dropped epoch
/// that starts again has other leaves.
#[derive(Debug, Default)]
pub(crate) struct EpochLeafCache(Option<CachedEpochLeaf>);

/// A leaf with its epoch and its number, as cached by a [`EpochLeafCache`].
#[derive(Debug)]
struct CachedEpochLeaf {
    epoch: i64,
    number: usize,
    words: Arc<Leaf>,
}

/// The bits of all epochs, and the series whose late samples are in the head.
#[derive(Debug)]
pub(crate) struct EpochMembership {
    /// In ascending order of their numbers.
    epochs: ArcSwap<Vec<Arc<EpochBits>>>,
    /// Held to add epochs or leaves, but not to set a bit in an existing leaf.
    growing: Mutex<()>,
    /// Epochs before this one are dropped.
    first: AtomicI64,
    /// Series with late samples in the head, whatever their epochs.
    pub(super) late: LateMembers,
}

impl Default for EpochMembership {
    fn default() -> Self {
        Self {
            epochs: ArcSwap::default(),
            growing: Mutex::default(),
            first: AtomicI64::new(i64::MIN),
            late: LateMembers::default(),
        }
    }
}

impl EpochMembership {
    /// Records that `slot` has a sample in `epoch`.
    pub(crate) fn set(&self, slot: SeriesRef, epoch: i64) {
        self.set_cached(&mut EpochLeafCache::default(), slot, epoch);
    }

    /// Records that `slot` has a sample in `epoch`. `marker` caches the leaf, so that neighbours in
    /// one epoch search for it once.
    #[inline]
    pub(crate) fn set_cached(
        &self,
        marker: &mut EpochLeafCache,
        SeriesRef(slot): SeriesRef,
        epoch: i64,
    ) {
        let leaf = (slot / LEAF_SLOTS) as usize;
        let held = match &mut marker.0 {
            Some(held) if (held.epoch, held.number) == (epoch, leaf) => held,
            other => other.insert(CachedEpochLeaf {
                epoch,
                number: leaf,
                words: self.get_or_add_leaf(epoch, leaf),
            }),
        };
        let bit = slot % LEAF_SLOTS;
        // Relaxed: the watermark that makes the sample visible orders this too.
        held.words[(bit / 64) as usize].fetch_or(1 << (bit % 64), Ordering::Relaxed);
    }

    /// Returns a leaf of an epoch; allocates both if necessary.
    fn get_or_add_leaf(&self, epoch: i64, leaf: usize) -> Arc<Leaf> {
        loop {
            let epochs = self.epochs.load();
            if let Ok(at) = epochs.binary_search_by_key(&epoch, |e| e.number)
                && let Some(Some(words)) = epochs[at].leaves.load().get(leaf)
            {
                return words.clone();
            }
            self.allocate_leaf(epoch, leaf);
        }
    }

    /// Adds a leaf to an epoch, and the epoch if it does not exist.
    #[cold]
    fn allocate_leaf(&self, epoch: i64, leaf: usize) {
        let _growing = lock(&self.growing);
        let mut epochs = Vec::clone(&self.epochs.load());
        let at = match epochs.binary_search_by_key(&epoch, |e| e.number) {
            Ok(at) => at,
            Err(at) => {
                let fresh = EpochBits {
                    number: epoch,
                    leaves: ArcSwap::default(),
                };
                epochs.insert(at, Arc::new(fresh));
                at
            }
        };
        add_leaf(&epochs[at].leaves, leaf);
        self.epochs.store(Arc::new(epochs));
    }

    /// Records that `slot` has a late sample at `time` in the head. The epoch may be dropped before
    /// the sample leaves the head.
    pub(crate) fn set_late(&self, marker: &mut EpochLeafCache, slot: SeriesRef, time: TimestampMs) {
        self.late.set(slot, time);
        if epoch_from_time(time) >= self.first.load(Ordering::Relaxed) {
            self.set_cached(marker, slot, epoch_from_time(time));
        }
    }

    /// Drops the epochs before `epoch`. Returns whether there were any.
    pub(crate) fn drop_before(&self, epoch: i64) -> bool {
        let _growing = lock(&self.growing);
        // Set first: a reader that does not find the epochs sees that they are dropped.
        self.first.fetch_max(epoch, Ordering::Release);
        let epochs = self.epochs.load();
        let kept: Vec<_> = epochs
            .iter()
            .filter(|e| e.number >= epoch)
            .cloned()
            .collect();
        let any = kept.len() < epochs.len();
        if any {
            self.epochs.store(Arc::new(kept));
        }
        any
    }

    /// Clears all bits of `slot`, so that no lookup finds its series any more.
    pub(crate) fn clear(&self, SeriesRef(slot): SeriesRef) {
        for epoch in self.epochs.load().iter() {
            if let Some(Some(words)) = epoch.leaves.load().get((slot / LEAF_SLOTS) as usize) {
                let word = &words[(slot % LEAF_SLOTS / 64) as usize];
                word.fetch_and(!(1 << (slot % 64)), Ordering::Relaxed);
            }
        }
    }

    /// Returns the current bits of all epochs.
    pub(crate) fn snapshot_all(&self) -> EpochMembers {
        let epochs = self.epochs.load();
        EpochMembers(epochs.iter().map(|e| e.leaves.load_full()).collect())
    }

    /// Returns the current bits of the epochs that overlap `range`.
    pub(crate) fn snapshot_range(&self, range: TimeRange) -> EpochMembers {
        let (first, last) = (epoch_from_time(range.min), epoch_from_time(range.max));
        let epochs = self.epochs.load();
        let wanted = epochs
            .iter()
            .filter(|e| (first..=last).contains(&e.number))
            .map(|e| e.leaves.load_full());
        let mut members: Vec<_> = wanted.collect();
        let kept = self.first.load(Ordering::Acquire);
        if first < kept {
            let forgotten_max = kept.saturating_mul(EPOCH_MS).saturating_sub(1);
            let forgotten = TimeRange::new(range.min, range.max.min(forgotten_max));
            members.extend(self.late.find_overlapping(forgotten));
        }
        EpochMembers(members)
    }

    /// Returns the memory of the bits in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let leaf_bytes = |e: &Arc<EpochBits>| {
            let leaves = e.leaves.load();
            leaves.len() * 8 + leaves.iter().flatten().count() * (size_of::<Leaf>() + 16)
        };
        self.epochs.load().iter().map(leaf_bytes).sum()
    }
}

/// Adds the leaf with this number if it does not exist. The caller must hold the lock of the
/// leaves.
fn add_leaf(of: &ArcSwap<Leaves>, leaf: usize) {
    let mut leaves = Vec::clone(&of.load());
    if leaves.len() <= leaf {
        leaves.resize(leaf + 1, None);
    }
    leaves[leaf].get_or_insert_with(|| Arc::new([const { AtomicU64::new(0) }; LEAF_WORDS]));
    of.store(Arc::new(leaves));
}

/// Sets the bit of a slot. The caller must hold the lock of the leaves.
pub(super) fn set_bit(of: &ArcSwap<Leaves>, SeriesRef(slot): SeriesRef) {
    let (leaf, bit) = ((slot / LEAF_SLOTS) as usize, slot % LEAF_SLOTS);
    if !matches!(of.load().get(leaf), Some(Some(_))) {
        add_leaf(of, leaf);
    }
    if let Some(Some(words)) = of.load().get(leaf) {
        words[(bit / 64) as usize].fetch_or(1 << (bit % 64), Ordering::Relaxed);
    }
}

/// The series with a sample in some time range: a snapshot of the lists of leaves, whose bits may
/// still be set.
#[derive(Debug)]
pub(crate) struct EpochMembers(Vec<Arc<Leaves>>);

impl EpochMembers {
    /// Returns the bits of the 64 slots from `word * 64` on.
    fn word(&self, word: u32) -> u64 {
        let (leaf, at) = ((word / 64) as usize, (word % 64) as usize);
        let mut bits = 0;
        for leaves in &self.0 {
            if let Some(Some(words)) = leaves.get(leaf) {
                bits |= words[at].load(Ordering::Relaxed);
            }
        }
        bits
    }

    /// Returns whether `slot` has a sample in the time range of the snapshot.
    pub(crate) fn contains(&self, SeriesRef(slot): SeriesRef) -> bool {
        self.word(slot / 64) >> (slot % 64) & 1 == 1
    }

    /// Returns the slots of `runs` that have a sample.
    pub(crate) fn filter_slots(&self, runs: &SlotRunSet) -> SlotRunSet {
        let mut kept = SlotRunSet::default();
        for run in runs.as_slice() {
            let mut slot = run.start;
            while slot < run.end {
                let end = run.end.min((slot / 64 + 1) * 64);
                push_bits(&mut kept, self.word(slot / 64), slot, end);
                slot = end;
            }
        }
        kept
    }

    /// Returns whether any slot of `run` has a sample.
    pub(crate) fn has_any_in(&self, run: SlotRun) -> bool {
        let mut slot = run.start;
        while slot < run.end {
            let end = run.end.min((slot / 64 + 1) * 64);
            // At least one slot of the word, so the shift is less than its width.
            let wanted = u64::MAX >> (64 - (end - slot)) << (slot % 64);
            if self.word(slot / 64) & wanted != 0 {
                return true;
            }
            slot = end;
        }
        false
    }
}

/// Adds the slots in `start..end` whose bit is set; all of them are in one word.
fn push_bits(kept: &mut SlotRunSet, word: u64, start: u32, end: u32) {
    let mut slot = start;
    while slot < end {
        let bits = word >> (slot % 64);
        if bits == 0 {
            return;
        }
        slot += bits.trailing_zeros();
        let ones = (word >> (slot % 64)).trailing_ones();
        let run_end = (slot + ones).min(end);
        kept.push(SlotRun {
            start: slot.min(end),
            end: run_end,
        });
        slot = run_end.max(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    #[test]
    fn membership_of_random_bits_filters_as_sets_do() {
        for seed in 0..200 {
            let rng = SimRng::new(seed);
            let membership = EpochMembership::default();
            let mut expected = Vec::new();
            let slots = 1 + rng.next_u64() % 10_000;
            for _ in 0..rng.next_u64() % 3_000 {
                let slot = SeriesRef((rng.next_u64() % slots) as u32);
                let time = (rng.next_u64() % 5) as i64 * EPOCH_MS - EPOCH_MS;
                membership.set(slot, epoch_from_time(time));
                if (0..2 * EPOCH_MS).contains(&time) {
                    expected.push(slot);
                }
            }
            expected.sort_unstable();
            expected.dedup();
            let members = membership.snapshot_range(TimeRange::new(0, 2 * EPOCH_MS - 1));
            let all = members.filter_slots(&SlotRunSet::from_range(0, slots as u32 + 70));
            assert_eq!(all.slots().collect::<Vec<_>>(), expected, "seed {seed}");
            let (low, high) = (slots as u32 / 3, slots as u32 / 2);
            let some = members.filter_slots(&SlotRunSet::from_range(low, high));
            let in_span: Vec<SeriesRef> = expected
                .iter()
                .copied()
                .filter(|s| (low..high).contains(&s.0))
                .collect();
            assert_eq!(some.slots().collect::<Vec<_>>(), in_span, "seed {seed}");
            for start in low..high.min(low + 200) {
                let run = SlotRun {
                    start,
                    end: high.min(start + seed as u32),
                };
                let expected = in_span.iter().any(|s| (run.start..run.end).contains(&s.0));
                assert_eq!(members.has_any_in(run), expected, "{run:?}, seed {seed}");
            }
        }
    }

    #[test]
    fn membership_drop_before_forgets_whole_epochs() {
        let membership = EpochMembership::default();
        membership.set(SeriesRef(1), -1);
        membership.set(SeriesRef(2), 0);
        assert!(membership.drop_before(0));
        assert!(!membership.drop_before(0));
        let members = membership.snapshot_range(TimeRange::ALL);
        assert_eq!(
            members.filter_slots(&SlotRunSet::from_range(0, 9)),
            SlotRunSet::from_range(2, 3)
        );
    }
}
