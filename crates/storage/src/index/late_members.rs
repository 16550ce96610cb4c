//! Which series have late samples in the head, and from when to when those lie.
//!
//! A late sample may be older than every epoch whose bits are kept: the series would not be found,
//! or would be taken for one without samples. So it has a bit here too, for as long as late samples
//! are in the head, and look-ups that reach back behind the epochs that are kept take these bits
//! with theirs. What they find beyond that has no sample in their range, which is seen later.

use super::membership::{Leaves, set_bit};
use crate::ids::SeriesRef;
use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::{Mutex, lock};
use arc_swap::ArcSwap;
use firn_model::sample::{TimeRange, TimestampMs};
use std::sync::Arc;

/// Bits of series, and the times that they stand for.
#[derive(Debug)]
struct Marks {
    leaves: ArcSwap<Leaves>,
    min: AtomicI64,
    max: AtomicI64,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            leaves: ArcSwap::default(),
            min: AtomicI64::new(i64::MAX),
            max: AtomicI64::new(i64::MIN),
        }
    }
}

impl Marks {
    fn set(&self, slot: SeriesRef, time: TimestampMs) {
        set_bit(&self.leaves, slot);
        self.min.fetch_min(time, Ordering::Relaxed);
        self.max.fetch_max(time, Ordering::Relaxed);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LateMembers {
    current: ArcSwap<Marks>,
    /// Held to set a mark. What takes the place of the current ones, while that is made.
    next: Mutex<Option<Marks>>,
}

impl LateMembers {
    /// Says that a series has a late sample at `time`, before it is visible.
    pub(crate) fn set(&self, slot: SeriesRef, time: TimestampMs) {
        let next = lock(&self.next);
        self.current.load().set(slot, time);
        if let Some(next) = &*next {
            next.set(slot, time);
        }
    }

    /// From here on marks are made that take the place of the current ones.
    pub(super) fn begin(&self) {
        *lock(&self.next) = Some(Marks::default());
    }

    /// Adds to the marks that are being made that a series still has late samples from the
    /// beginning of `range` to its end.
    pub(super) fn keep(&self, slot: SeriesRef, range: TimeRange) {
        if let Some(next) = &*lock(&self.next) {
            next.set(slot, range.min);
            next.set(slot, range.max);
        }
    }

    /// What was marked since the beginning takes the place of the current marks.
    pub(super) fn end(&self) {
        if let Some(next) = lock(&self.next).take() {
            self.current.store(Arc::new(next));
        }
    }

    /// The bits of series that may have a late sample in `range`, if there are any.
    pub(super) fn overlapping(&self, range: TimeRange) -> Option<Arc<Leaves>> {
        let marks = self.current.load();
        let min = marks.min.load(Ordering::Relaxed);
        let max = marks.max.load(Ordering::Relaxed);
        let overlaps = min <= max && TimeRange::new(min, max).overlaps(&range);
        overlaps.then(|| marks.leaves.load_full())
    }
}
