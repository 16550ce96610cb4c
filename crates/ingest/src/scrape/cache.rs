//! What the series of a target were called, so that their labels are made once.
//!
//! ```text
//! key (the series as it stands in the body) -> entry: labels once relabelled, when seen last
//! entry -> entry that followed it in the last body
//! ```
//!
//! A body mostly holds the series of the body before, in the same order. Each entry therefore knows
//! its follower, and the parser is told to expect that one: a series where it is expected costs a
//! comparison of bytes. Only one that is elsewhere is looked up, and only a new one is relabelled.
//!
//! Invariant: an entry of the table `by_key` has that key; followers are hints and may be wrong.

use super::anchors::Anchor;
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

/// No entry.
const NOWHERE: Slot = Slot(u32::MAX);

/// Bytes of an entry beside its key and labels: itself, its place in the table, two allocations.
const ENTRY_BYTES: usize = 176;

/// Entries that a target may have beyond twice those of its last good scrape: what failing scrapes
/// may leave behind before it is forgotten. Prometheus's number.
const SPARE_ENTRIES: usize = 1000;

/// A series that the target exposes.
#[derive(Debug)]
pub(super) struct Entry {
    key: Arc<[u8]>,
    /// The labels as they are stored; `None` if relabelling drops the series.
    pub(super) labels: Option<Labels>,
    /// The scrape that saw it last.
    pub(super) seen: u64,
    /// The scrape that saw it last in a way that lets it go stale, and the one before that.
    tracked: [u64; 2],
    /// The last start time of which a zero was made.
    pub(super) zero_made: TimestampMs,
    /// From where on its samples count, if the job wants that.
    anchor: Option<Box<Anchor>>,
    /// Whether a good scrape saw it: only then it was stored.
    is_stored: bool,
    /// Whether it was counted as added. A series is counted at its first sample that the store
    /// accepts.
    pub(super) is_counted: bool,
    follower: Slot,
}

impl Entry {
    /// Says that scrape `now` saw the series in a way that lets it go stale.
    pub(super) fn track(&mut self, now: u64) {
        if self.tracked[0] != now {
            self.tracked = [now, self.tracked[0]];
        }
    }

    /// Whether a scrape saw the series in a way that lets it go stale.
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

/// The series of one target.
#[derive(Debug)]
pub(super) struct SeriesCache {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_key: HashMap<Arc<[u8]>, u32>,
    bytes: usize,
    /// The first series of the last body.
    first: Slot,
    /// The series that was read last.
    last: Slot,
    /// Entries after the last good scrape.
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
    /// Goes back to the start of a body.
    pub(super) fn rewind(&mut self) {
        self.last = NOWHERE;
    }

    /// The series that should come next.
    pub(super) fn expected(&self) -> Option<(Slot, &[u8])> {
        let slot = match self.entry(self.last) {
            Some(last) => last.follower,
            None => self.first,
        };
        let entry = self.entry(slot)?;
        (!entry.key.is_empty()).then_some((slot, &entry.key))
    }

    /// The series with this key.
    pub(super) fn find(&self, key: &[u8]) -> Option<Slot> {
        self.by_key.get(key).map(|slot| Slot(*slot))
    }

    /// Says that the series at `slot` was read now.
    pub(super) fn follow(&mut self, slot: Slot) {
        let last = self.last;
        match self.entry_mut(last) {
            Some(entry) => entry.follower = slot,
            None => self.first = slot,
        }
        self.last = slot;
    }

    /// The entry at `slot`.
    pub(super) fn entry(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(slot.0 as usize)?.as_ref()
    }

    /// The entry at `slot`, to change it.
    pub(super) fn entry_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.entries.get_mut(slot.0 as usize)?.as_mut()
    }

    /// Adds a series that scrape `seen` saw first.
    pub(super) fn add(&mut self, key: &[u8], labels: Option<Labels>, seen: u64) -> Slot {
        let key: Arc<[u8]> = key.into();
        let entry = Entry {
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
        Slot(slot)
    }

    /// Has the anchor of the series at `slot` changed; none if the series is not stored.
    pub(super) fn change_anchor<T>(
        &mut self,
        slot: Slot,
        change: impl FnOnce(&mut Option<Box<Anchor>>, &Labels) -> T,
    ) -> Option<T> {
        let entry = self.entries.get_mut(slot.0 as usize)?.as_mut()?;
        let before = entry.anchor_bytes();
        let outcome = change(&mut entry.anchor, entry.labels.as_ref()?);
        self.bytes = self.bytes - before + entry.anchor_bytes();
        Some(outcome)
    }

    /// Memory of all entries.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets by which keys series are known, because the next body writes them in another way or
    /// other labels are to be made of them. What was tracked can still go stale.
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

    /// Labels of the series that scrape `before` tracked and the good scrape `now` did not. Two
    /// keys with the same labels are one series.
    pub(super) fn vanished(&self, before: u64, now: u64) -> Vec<Labels> {
        let gone = self.labels_of(|entry| entry.tracked[0] == before);
        if gone.is_empty() {
            return gone;
        }
        let present = self.labels_of(|entry| entry.tracked[0] == now);
        let present: HashSet<&Labels> = present.iter().collect();
        let is_gone = |labels: &Labels| !present.contains(labels);
        gone.into_iter().filter(is_gone).collect()
    }

    /// Labels of all series that scrape `before` tracked, when nothing of `now` was stored.
    pub(super) fn all_vanished(&self, before: u64, now: u64) -> Vec<Labels> {
        self.labels_of(|entry| entry.tracked[0] == before || entry.tracked == [now, before])
    }

    fn labels_of(&self, is_meant: impl Fn(&Entry) -> bool) -> Vec<Labels> {
        let entries = self.entries.iter().flatten();
        let meant = entries.filter(|entry| is_meant(entry));
        meant.filter_map(|entry| entry.labels.clone()).collect()
    }

    /// Ends the good scrape `now`: what it did not see is forgotten.
    pub(super) fn end_good(&mut self, now: u64) {
        self.retain(|entry| entry.seen == now);
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

    /// Ends a scrape without a good body. What such scrapes saw first was not stored; it is
    /// forgotten if it is much, or if its memory is needed.
    pub(super) fn end_failed(&mut self, needs_memory: bool) {
        for entry in self.entries.iter_mut().flatten() {
            // Zeros of this scrape were not stored; the store refuses those that it has.
            entry.zero_made = START_UNKNOWN;
        }
        if needs_memory {
            self.retain(|entry| entry.is_stored);
        }
        self.end_empty();
    }

    /// Ends a scrape with an empty body. Prometheus takes it for a failure of the target, so what
    /// is known of series stays, unless failed scrapes added much.
    pub(super) fn end_empty(&mut self) {
        if self.len() > 2 * self.good_count + SPARE_ENTRIES {
            self.retain(|entry| entry.is_stored);
        }
    }

    fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
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
