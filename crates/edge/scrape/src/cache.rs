//! The series cache of a target, which saves decoding and relabelling the same labels at each
//! scrape.
//!
//! ```text
//! key (the series as written in the body) -> entry: relabelled labels, its latest scrape
//! entry -> entry that followed it in the previous body
//! ```
//!
//! A body mostly contains the series of the previous body in the same order. Each entry therefore
//! stores its follower, which the parser gets as the expected series: at its expected position, a
//! series costs one comparison of bytes. Only a series at another position is looked up, and only a
//! new one is relabelled.
//!
//! Invariant: an entry in the table `by_key` has that key; followers are hints and may be wrong.

use super::anchors::SeriesAnchor;
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The position of an entry in the cache, valid until the entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeriesCacheSlot(u32);

/// The position of no entry.
const NOWHERE: SeriesCacheSlot = SeriesCacheSlot(u32::MAX);

/// Memory of an entry in bytes without its key and labels: the entry, its place in the table, two
/// allocations.
const ENTRY_BYTES: usize = 176;

/// Number of entries that a target may have in addition to twice those of its latest successful
/// scrape, before the remains of failed scrapes are dropped. Same number as in Prometheus.
const SPARE_ENTRIES: usize = 1000;

/// A series that the target exposes, identified by its bytes in the body.
#[derive(Debug)]
pub(super) struct SeriesCacheEntry {
    key: Arc<[u8]>,
    /// The labels as stored; `None` if relabelling drops the series.
    pub(super) labels: Option<Labels>,
    /// Number of the latest scrape that contained the series.
    pub(super) seen: u64,
    /// Numbers of the latest two scrapes after which the series can become stale.
    tracked: [u64; 2],
    /// The latest start time for which a zero sample was created.
    pub(super) zero_made: TimestampMs,
    /// Anchor of a counter, if the job synthesizes start times.
    anchor: Option<Box<SeriesAnchor>>,
    /// True if a successful scrape contained the series, because only then it was stored.
    is_stored: bool,
    /// True if the series was counted as added, which happens at its first sample that the store
    /// accepts.
    pub(super) is_counted: bool,
    follower: SeriesCacheSlot,
}

impl SeriesCacheEntry {
    /// Records that scrape `now` contained the series such that it can become stale.
    pub(super) fn track_scrape(&mut self, now: u64) {
        if self.tracked[0] != now {
            self.tracked = [now, self.tracked[0]];
        }
    }

    /// Returns whether any scrape contained the series such that it can become stale.
    pub(super) fn is_tracked(&self) -> bool {
        self.tracked[0] != 0
    }

    fn anchor_bytes(&self) -> usize {
        self.anchor.as_ref().map_or(0, |a| a.memory_bytes())
    }

    fn memory_bytes(&self) -> usize {
        let labels = self.labels.as_ref().map_or(0, |l| l.as_bytes().len());
        ENTRY_BYTES + self.key.len() + labels + self.anchor_bytes()
    }
}

/// The series of one target, with their stored labels and the scrapes that contained them. Its
/// memory is reserved from the budget of all targets.
#[derive(Debug)]
pub(super) struct SeriesCache {
    entries: Vec<Option<SeriesCacheEntry>>,
    free: Vec<u32>,
    by_key: HashMap<Arc<[u8]>, u32>,
    bytes: usize,
    /// The first series of the previous body.
    first: SeriesCacheSlot,
    /// The series that was read last in the current body.
    last: SeriesCacheSlot,
    /// Number of entries after the latest successful scrape.
    good_count: usize,
}

impl Default for SeriesCache {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            bytes: 0,
            first: NOWHERE,
            last: NOWHERE,
            good_count: 0,
        }
    }
}

impl SeriesCache {
    /// Moves to the start of a body.
    pub(super) fn rewind_order(&mut self) {
        self.last = NOWHERE;
    }

    /// Returns the series that is expected next, with its key. Returns `None` if there was no such
    /// series in the previous body, or its key was dropped.
    pub(super) fn expected_series(&self) -> Option<(SeriesCacheSlot, &[u8])> {
        let slot = match self.entry(self.last) {
            Some(last) => last.follower,
            None => self.first,
        };
        let entry = self.entry(slot)?;
        (!entry.key.is_empty()).then_some((slot, &entry.key))
    }

    /// Returns the series with this key, if an earlier body contained it.
    pub(super) fn find_key(&self, key: &[u8]) -> Option<SeriesCacheSlot> {
        self.by_key.get(key).map(|slot| SeriesCacheSlot(*slot))
    }

    /// Records that the series at `slot` was read at the current position.
    pub(super) fn record_position(&mut self, slot: SeriesCacheSlot) {
        let last = self.last;
        match self.entry_mut(last) {
            Some(entry) => entry.follower = slot,
            None => self.first = slot,
        }
        self.last = slot;
    }

    /// Returns the entry at `slot`. Returns `None` if it was removed.
    pub(super) fn entry(&self, slot: SeriesCacheSlot) -> Option<&SeriesCacheEntry> {
        self.entries.get(slot.0 as usize)?.as_ref()
    }

    /// Returns the entry at `slot` for modification. Returns `None` if it was removed.
    pub(super) fn entry_mut(&mut self, slot: SeriesCacheSlot) -> Option<&mut SeriesCacheEntry> {
        self.entries.get_mut(slot.0 as usize)?.as_mut()
    }

    /// Adds a series that was first seen in scrape `seen`.
    pub(super) fn add_series(
        &mut self,
        key: &[u8],
        labels: Option<Labels>,
        seen: u64,
    ) -> SeriesCacheSlot {
        let key: Arc<[u8]> = key.into();
        let entry = SeriesCacheEntry {
            key: key.clone(),
            labels,
            seen,
            tracked: [0; 2],
            zero_made: START_UNKNOWN,
            anchor: None,
            is_stored: false,
            is_counted: false,
            follower: NOWHERE,
        };
        self.bytes += entry.memory_bytes();
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = Some(entry);
                slot
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        };
        self.by_key.insert(key, slot);
        SeriesCacheSlot(slot)
    }

    /// Calls `change` with the anchor and labels of the series at `slot`; returns `None` if the
    /// series is not stored.
    pub(super) fn update_anchor<T>(
        &mut self,
        slot: SeriesCacheSlot,
        change: impl FnOnce(&mut Option<Box<SeriesAnchor>>, &Labels) -> T,
    ) -> Option<T> {
        let entry = self.entries.get_mut(slot.0 as usize)?.as_mut()?;
        let before = entry.anchor_bytes();
        let outcome = change(&mut entry.anchor, entry.labels.as_ref()?);
        self.bytes = self.bytes - before + entry.anchor_bytes();
        Some(outcome)
    }

    /// Returns the memory of all entries in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes the keys of all series, because the next body uses another syntax or the labels must
    /// be computed anew. Tracked series can still become stale.
    pub(super) fn forget_keys(&mut self) {
        self.by_key.clear();
        self.first = NOWHERE;
        self.last = NOWHERE;
        for entry in self.entries.iter_mut().flatten() {
            self.bytes -= entry.key.len();
            entry.key = Arc::new([]);
            entry.follower = NOWHERE;
        }
    }

    /// Returns the labels of series that scrape `before` tracked and the successful scrape `now`
    /// did not. Two keys with the same labels are the same series.
    pub(super) fn vanished_labels(&self, before: u64, now: u64) -> Vec<Labels> {
        let gone = self.collect_labels(|entry| entry.tracked[0] == before);
        if gone.is_empty() {
            return gone;
        }
        let present = self.collect_labels(|entry| entry.tracked[0] == now);
        let present: HashSet<&Labels> = present.iter().collect();
        let is_gone = |labels: &Labels| !present.contains(labels);
        gone.into_iter().filter(is_gone).collect()
    }

    /// Returns the labels of all series that scrape `before` tracked, for a scrape `now` from which
    /// nothing was stored.
    pub(super) fn all_tracked_labels(&self, before: u64, now: u64) -> Vec<Labels> {
        self.collect_labels(|entry| entry.tracked[0] == before || entry.tracked == [now, before])
    }

    fn collect_labels(&self, is_meant: impl Fn(&SeriesCacheEntry) -> bool) -> Vec<Labels> {
        let entries = self.entries.iter().flatten();
        let meant = entries.filter(|entry| is_meant(entry));
        meant.filter_map(|entry| entry.labels.clone()).collect()
    }

    /// Ends the successful scrape `now`: removes the series that it did not contain.
    pub(super) fn end_successful_scrape(&mut self, now: u64) {
        self.retain_entries(|entry| entry.seen == now);
        for entry in self.entries.iter_mut().flatten() {
            entry.is_stored = true;
        }
        self.good_count = self.len();
        assert!(
            self.by_key.len() <= self.good_count,
            "a key without an entry"
        );
        assert!(self.good_count > 0 || self.bytes == 0, "memory of no entry");
    }

    /// Ends a failed scrape. Series that only failed scrapes contained were not stored; they are
    /// removed if there are many of them, or if their memory is needed.
    pub(super) fn end_failed_scrape(&mut self, needs_memory: bool) {
        for entry in self.entries.iter_mut().flatten() {
            // Zeros of this scrape were not stored. The store rejects those that it already has.
            entry.zero_made = START_UNKNOWN;
        }
        if needs_memory {
            self.retain_entries(|entry| entry.is_stored);
        }
        self.end_empty_scrape();
    }

    /// Ends a scrape with an empty body. Prometheus treats it as a failure of the target, so that
    /// the series are kept, unless failed scrapes have added many.
    pub(super) fn end_empty_scrape(&mut self) {
        if self.len() > 2 * self.good_count + SPARE_ENTRIES {
            self.retain_entries(|entry| entry.is_stored);
        }
    }

    fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    fn retain_entries(&mut self, keep: impl Fn(&SeriesCacheEntry) -> bool) {
        for (slot, place) in self.entries.iter_mut().enumerate() {
            if place.as_ref().is_some_and(|entry| !keep(entry))
                && let Some(entry) = place.take()
            {
                self.bytes -= entry.memory_bytes();
                // Entries without a key are in no table.
                if !entry.key.is_empty() {
                    self.by_key.remove(&entry.key);
                }
                self.free.push(slot as u32);
            }
        }
    }
}
