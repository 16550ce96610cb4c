//! The index with its parts, counts, and marks of series with samples.

use super::costs::LookupCosts;
use super::generation::ReaderGeneration;
use super::id_table::IdTable;
use super::label_value_cache::LabelValueCache;
use super::lookup_work::LookupWork;
use super::matcher_cache::MatcherCache;
use super::membership::{EpochLeafCache, EpochMembership};
use super::terms::IndexTerms;
use super::writer::IndexWriterState;
use crate::ids::SeriesRef;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};
use arc_swap::ArcSwap;
use firn_model::fingerprint::HashKeys;
use firn_model::sample::{TimeRange, TimestampMs};
use std::sync::Arc;

/// The active index. Created by the store; shared by all readers and writers.
#[derive(Debug)]
pub(crate) struct Index {
    /// The terms and labels of all series.
    pub(crate) dictionary: IndexTerms,
    /// All slots below this number are fully indexed.
    pub(super) published: AtomicU32,
    /// Number of series that are not removed.
    pub(super) live: AtomicU32,
    /// Evicted series, which are not in the head, by the hash of their terms.
    pub(super) evicted: IdTable,
    pub(super) membership: EpochMembership,
    pub(super) generation: ArcSwap<ReaderGeneration>,
    pub(super) writer: Mutex<IndexWriterState>,
    pub(super) costs: LookupCosts,
    pub(super) matcher_cache: MatcherCache,
    pub(super) label_value_cache: LabelValueCache,
    pub(super) work: LookupWork,
}

impl Index {
    /// Returns an empty index. `keys` are the keys of its hashes.
    pub(crate) fn new(keys: Arc<HashKeys>) -> Self {
        Self {
            dictionary: IndexTerms::new(keys),
            published: AtomicU32::new(0),
            live: AtomicU32::new(0),
            evicted: IdTable::default(),
            membership: EpochMembership::default(),
            generation: ArcSwap::default(),
            writer: Mutex::default(),
            costs: LookupCosts::MEASURED,
            matcher_cache: MatcherCache::default(),
            label_value_cache: LabelValueCache::default(),
            work: LookupWork::default(),
        }
    }

    /// Returns the number of series in the index, evicted ones included.
    pub(crate) fn series_count(&self) -> usize {
        self.live.load(Ordering::Relaxed) as usize
    }

    /// Returns the counters of the work of all lookups.
    pub(crate) fn lookup_work(&self) -> &LookupWork {
        &self.work
    }

    /// Returns the slot below which all slots are indexed. Slots assigned later are not below it.
    pub(crate) fn published_end(&self) -> u32 {
        self.published.load(Ordering::Acquire)
    }

    /// Records that the series with `slot` has a sample in `epoch`.
    pub(crate) fn mark_sample(&self, slot: SeriesRef, epoch: i64) {
        self.membership.set(slot, epoch);
    }

    /// Like [`Index::mark_sample`], for one of several series of a batch. `marker` caches the leaf
    /// of the previous series.
    #[inline]
    pub(crate) fn mark_sample_cached(
        &self,
        marker: &mut EpochLeafCache,
        slot: SeriesRef,
        epoch: i64,
    ) {
        self.membership.set_cached(marker, slot, epoch);
    }

    /// Records that the series with `slot` has a late sample at `time` in the head.
    pub(crate) fn mark_late(
        &self,
        marker: &mut EpochLeafCache,
        slot: SeriesRef,
        time: TimestampMs,
    ) {
        self.membership.set_late(marker, slot, time);
    }

    /// Starts a new set of marks for late samples, before some of them leave the head. The caller
    /// marks the remaining ones again.
    pub(crate) fn begin_late_marks(&self) {
        self.membership.late.begin_replacement();
    }

    /// Marks again that the series with `slot` has late samples in the head, from the start to the
    /// end of `range`.
    pub(crate) fn keep_late_mark(&self, slot: SeriesRef, range: TimeRange) {
        self.membership.late.keep_mark(slot, range);
    }

    /// Replaces the marks of late samples by those set since [`Index::begin_late_marks`].
    pub(crate) fn end_late_marks(&self) {
        self.membership.late.finish_replacement();
    }

    /// Removes the marks of a series that is dropped before it is indexed.
    pub(crate) fn clear_marks(&self, slot: SeriesRef) {
        self.membership.clear(slot);
    }

    /// Returns the current generation. A reader holds it so that the series and terms that it reads
    /// are not freed.
    pub(crate) fn generation(&self) -> Arc<ReaderGeneration> {
        self.generation.load_full()
    }
}
