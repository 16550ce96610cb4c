//! Marks of the series that have late samples in the head, and the time range of those samples.
//!
//! A late sample may be older than every epoch whose bits are kept: its series would not be found,
//! or would be taken for a series without samples. The series therefore also has a bit here while
//! late samples are in the head. Lookups of times before the kept epochs add these bits to the
//! result. This may return series without a sample in the range, which the read filters out later.

use super::membership::{Leaves, set_bit};
use crate::ids::SeriesRef;
use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::{Mutex, lock};
use arc_swap::ArcSwap;
use firn_model::sample::{TimeRange, TimestampMs};
use std::sync::Arc;

/// One bit per series, and the time range of their late samples.
#[derive(Debug)]
struct LateMarks {
    leaves: ArcSwap<Leaves>,
    min: AtomicI64,
    max: AtomicI64,
}

impl Default for LateMarks {
    fn default() -> Self {
        Self {
            leaves: ArcSwap::default(),
            min: AtomicI64::new(i64::MAX),
            max: AtomicI64::new(i64::MIN),
        }
    }
}

impl LateMarks {
    fn set(&self, slot: SeriesRef, time: TimestampMs) {
        set_bit(&self.leaves, slot);
        self.min.fetch_min(time, Ordering::Relaxed);
        self.max.fetch_max(time, Ordering::Relaxed);
    }
}

/// The marks of series with late samples. Replaced as a whole when late samples leave the head.
#[derive(Debug, Default)]
pub(crate) struct LateMembers {
    current: ArcSwap<LateMarks>,
    /// Held to set a mark. Contains the marks that will replace the current ones while they are
    /// collected.
    next: Mutex<Option<LateMarks>>,
}

impl LateMembers {
    /// Records that a series has a late sample at `time`. Called before the sample is visible.
    pub(crate) fn set(&self, slot: SeriesRef, time: TimestampMs) {
        let next = lock(&self.next);
        self.current.load().set(slot, time);
        if let Some(next) = &*next {
            next.set(slot, time);
        }
    }

    /// Starts to collect marks that will replace the current ones.
    pub(super) fn begin_replacement(&self) {
        *lock(&self.next) = Some(LateMarks::default());
    }

    /// Adds to the collected marks that a series still has late samples from the start of `range`
    /// to its end.
    pub(super) fn keep_mark(&self, slot: SeriesRef, range: TimeRange) {
        if let Some(next) = &*lock(&self.next) {
            next.set(slot, range.min);
            next.set(slot, range.max);
        }
    }

    /// Replaces the current marks by the collected ones.
    pub(super) fn finish_replacement(&self) {
        if let Some(next) = lock(&self.next).take() {
            self.current.store(Arc::new(next));
        }
    }

    /// Returns the bits of the series that may have a late sample in `range`, if there are any.
    pub(super) fn find_overlapping(&self, range: TimeRange) -> Option<Arc<Leaves>> {
        let marks = self.current.load();
        let min = marks.min.load(Ordering::Relaxed);
        let max = marks.max.load(Ordering::Relaxed);
        let overlaps = min <= max && TimeRange::new(min, max).overlaps(&range);
        overlaps.then(|| marks.leaves.load_full())
    }
}
