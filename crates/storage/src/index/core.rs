//! The index's parts, and what is said of it as a whole.

use super::costs::Costs;
use super::generation::Generation;
use super::id_table::IdTable;
use super::label_value_cache::LabelValueCache;
use super::lookup_work::LookupWork;
use super::matcher_cache::MatcherCache;
use super::membership::{Marker, Membership};
use super::terms::Terms;
use super::writer::Writer;
use crate::ids::SeriesRef;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};
use arc_swap::ArcSwap;
use firn_model::fingerprint::HashKeys;
use firn_model::sample::{TimeRange, TimestampMs};
use std::sync::Arc;

/// The index.
#[derive(Debug)]
pub(crate) struct Index {
    pub(super) dictionary: Terms,
    /// Slots below are fully indexed.
    pub(super) published: AtomicU32,
    /// Series that were not removed.
    pub(super) live: AtomicU32,
    /// Of those, series that the head does not keep, by the hash of their terms.
    pub(super) evicted: IdTable,
    pub(super) membership: Membership,
    pub(super) generation: ArcSwap<Generation>,
    pub(super) writer: Mutex<Writer>,
    pub(super) costs: Costs,
    pub(super) matcher_cache: MatcherCache,
    pub(super) label_value_cache: LabelValueCache,
    pub(super) work: LookupWork,
}

impl std::ops::Deref for Index {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.dictionary
    }
}

impl Index {
    /// An empty index.
    pub(crate) fn new(keys: Arc<HashKeys>) -> Self {
        Self {
            dictionary: Terms::new(keys),
            published: AtomicU32::new(0),
            live: AtomicU32::new(0),
            evicted: IdTable::default(),
            membership: Membership::default(),
            generation: ArcSwap::default(),
            writer: Mutex::default(),
            costs: Costs::MEASURED,
            matcher_cache: MatcherCache::default(),
            label_value_cache: LabelValueCache::default(),
            work: LookupWork::default(),
        }
    }

    /// Series in the index.
    pub(crate) fn series_count(&self) -> usize {
        self.live.load(Ordering::Relaxed) as usize
    }

    /// What look-ups went through so far.
    pub(crate) fn work(&self) -> &LookupWork {
        &self.work
    }

    /// Slots below this are indexed; the next slot that will be given is at least this.
    pub(crate) fn published(&self) -> u32 {
        self.published.load(Ordering::Acquire)
    }

    /// Says that the series with `slot` has a sample in `epoch`.
    pub(crate) fn mark(&self, slot: SeriesRef, epoch: i64) {
        self.membership.set(slot, epoch);
    }

    /// Like `mark`, for one of several series of a batch: `marker` keeps the leaf of the one
    /// before.
    #[inline]
    pub(crate) fn mark_with(&self, marker: &mut Marker, slot: SeriesRef, epoch: i64) {
        self.membership.set_with(marker, slot, epoch);
    }

    /// Says that the series with `slot` has a late sample at `time` in the head.
    pub(crate) fn mark_late(&self, marker: &mut Marker, slot: SeriesRef, time: TimestampMs) {
        self.membership.set_late(marker, slot, time);
    }

    /// Some late samples are about to leave the head: from here on the marks of those that stay are
    /// made anew.
    pub(crate) fn begin_late_marks(&self) {
        self.membership.late.begin();
    }

    /// Says that the series with `slot` keeps late samples in the head, the first and the last of
    /// which lie where `range` does.
    pub(crate) fn mark_late_again(&self, slot: SeriesRef, range: TimeRange) {
        self.membership.late.keep(slot, range);
    }

    /// All that stay were marked, or came since the beginning: only those are found now.
    pub(crate) fn end_late_marks(&self) {
        self.membership.late.end();
    }

    /// Takes back what was said of a series that is gone before it was indexed.
    pub(crate) fn unmark(&self, slot: SeriesRef) {
        self.membership.clear(slot);
    }

    /// What readers hold so that nothing they look at is forgotten.
    pub(crate) fn generation(&self) -> Arc<Generation> {
        self.generation.load_full()
    }
}
