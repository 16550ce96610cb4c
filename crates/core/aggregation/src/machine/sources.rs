//! The entries of each source: a hash table by key, and chains for sources with several entries.
//!
//! The table contains only references to entries, four bytes each; the hash is in the entry. Few
//! sources have more than one entry: those that several rules select.

use super::{LANES, LaneSlot};
use crate::entries::{ENTRIES_MAX, SourceEntry, SourceEntryTable};
use crate::failpoints::{self, AggregationFlaw};
use crate::spec::GROUPS_MAX;
use firn_model::fingerprint::Fingerprint;
use hashbrown::HashTable;
use std::collections::HashMap;

const ENTRY_BITS: u32 = ENTRIES_MAX.trailing_zeros();

// Lane and entry fit into one number.
const _: () = assert!(GROUPS_MAX * LANES <= 1 << (u32::BITS - ENTRY_BITS));

/// Number of entries that [`prefetch_followers`] reads.
pub(super) const WARM: usize = 12;

/// Lane index and entry number of a source, in four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SourceRef(u32);

impl SourceRef {
    /// Returns the reference of the entry `at` in the lane at index `place`.
    pub(super) fn new(place: usize, at: u32) -> Self {
        Self((place as u32) << ENTRY_BITS | at)
    }

    /// Returns the lane index and the entry number.
    #[inline]
    pub(super) fn lane_and_entry(self) -> (usize, u32) {
        let at = self.0 & (ENTRIES_MAX as u32 - 1);
        ((self.0 >> ENTRY_BITS) as usize, at)
    }
}

/// The table of all sources, with chains for those that several rules select.
#[derive(Debug, Default)]
pub(super) struct SourceTable {
    table: HashTable<SourceRef>,
    /// For an entry with [`SourceEntry::HAS_NEXT`], the next entry of the source.
    chains: HashMap<SourceRef, SourceRef>,
}

impl SourceTable {
    /// Builds the table from the entries in `lanes`.
    pub(super) fn from_lanes(lanes: &mut [Option<LaneSlot>]) -> Self {
        let mut sources = Self::default();
        for place in 0..lanes.len() {
            let Some(slot) = &lanes[place] else { continue };
            let all = slot.lane.entries.iter();
            let all: Vec<(u32, Fingerprint)> = all.map(|(at, entry)| (at, entry.print)).collect();
            for (at, print) in all {
                sources.link_entry(lanes, SourceRef::new(place, at), print);
            }
        }
        sources
    }

    /// Returns the number of sources.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.table.allocation_size() + self.chains.capacity() * 2 * size_of::<SourceRef>()
    }

    /// Returns the first entry of the source with this fingerprint. Returns `None` for an unknown
    /// one.
    #[inline]
    pub(super) fn find_source(
        &self,
        lanes: &[Option<LaneSlot>],
        print: Fingerprint,
    ) -> Option<SourceRef> {
        let is_it = |reference: &SourceRef| fingerprint_at(lanes, *reference) == print;
        self.table.find(print.low, is_it).copied()
    }

    /// Returns the next entry of the same source. Returns `None` for the last one.
    pub(super) fn next_of_source(&self, reference: SourceRef) -> Option<SourceRef> {
        self.chains.get(&reference).copied()
    }

    /// Adds an entry as the first of its source.
    pub(super) fn link_entry(
        &mut self,
        lanes: &mut [Option<LaneSlot>],
        reference: SourceRef,
        print: Fingerprint,
    ) {
        let is_it = |other: &SourceRef| fingerprint_at(lanes, *other) == print;
        match self.table.find_mut(print.low, is_it) {
            Some(first) => {
                let before = std::mem::replace(first, reference);
                self.chains.insert(reference, before);
                set(lanes, before, SourceEntry::IS_BEHIND, true);
                set(lanes, reference, SourceEntry::HAS_NEXT, true);
            }
            None => {
                let hash = |other: &SourceRef| fingerprint_at(lanes, *other).low;
                self.table.insert_unique(print.low, reference, hash);
            }
        }
    }

    /// Removes an entry from the table. The entry itself may be removed already, but its number
    /// must not be reused yet.
    pub(super) fn unlink_entry(
        &mut self,
        lanes: &mut [Option<LaneSlot>],
        reference: SourceRef,
        print: Fingerprint,
    ) {
        let next = self.chains.remove(&reference);
        let is_it = |other: &SourceRef| fingerprint_at(lanes, *other) == print;
        let Ok(mut first) = self.table.find_entry(print.low, is_it) else {
            return;
        };
        if *first.get() == reference {
            match next {
                Some(next) => {
                    *first.get_mut() = next;
                    set(lanes, next, SourceEntry::IS_BEHIND, false);
                }
                None => drop(first.remove()),
            }
            return;
        }
        let mut before = *first.get();
        while let Some(other) = self.next_of_source(before) {
            if other != reference {
                before = other;
                continue;
            }
            match next {
                Some(next) => drop(self.chains.insert(before, next)),
                None => {
                    self.chains.remove(&before);
                    set(lanes, before, SourceEntry::HAS_NEXT, false);
                }
            }
            return;
        }
    }
}

/// Returns whether `reference` is the first entry of the source with this fingerprint, and resolved
/// under the configuration `generation`.
#[inline]
pub(super) fn is_first(
    lanes: &[Option<LaneSlot>],
    reference: SourceRef,
    print: Fingerprint,
    generation: u8,
) -> bool {
    let entry = table_and_number(lanes, reference).and_then(|(entries, at)| entries.get(at));
    entry.is_some_and(|entry| {
        let is_it = entry.print == print || failpoints::has(AggregationFlaw::TrustsGuess);
        let is_behind = entry.has_flag(SourceEntry::IS_BEHIND)
            && !failpoints::has(AggregationFlaw::BeginsBehind);
        is_it && !is_behind && entry.generation == generation
    })
}

/// Returns the entry table of `reference`, and the entry number in it.
#[inline]
fn table_and_number(
    lanes: &[Option<LaneSlot>],
    reference: SourceRef,
) -> Option<(&SourceEntryTable, u32)> {
    let (place, at) = reference.lane_and_entry();
    let slot = lanes.get(place)?.as_ref()?;
    Some((&slot.lane.entries, at))
}

/// Returns the entry that followed `reference` in the previous batch; it may be removed.
#[inline]
pub(super) fn follower(lanes: &[Option<LaneSlot>], reference: SourceRef) -> SourceRef {
    let place = table_and_number(lanes, reference);
    SourceRef(place.map_or(0, |(entries, at)| entries.follower(at)))
}

/// Reads `guess` and its followers of the previous batch, so that their cache misses overlap
/// instead of occurring one after another.
#[inline]
pub(super) fn prefetch_followers(lanes: &[Option<LaneSlot>], mut guess: SourceRef) {
    let mut all = 0;
    for _ in 0..WARM {
        let Some((entries, at)) = table_and_number(lanes, guess) else {
            break;
        };
        all ^= entries.prefetch(at);
        guess = SourceRef(entries.follower(at));
    }
    std::hint::black_box(all);
}

/// Stores that `follower` followed `reference`.
pub(super) fn set_follower(
    lanes: &mut [Option<LaneSlot>],
    reference: SourceRef,
    follower: SourceRef,
) {
    let (place, at) = reference.lane_and_entry();
    if let Some(Some(slot)) = lanes.get_mut(place) {
        slot.lane.entries.set_follower(at, follower.0);
    }
}

/// Returns the fingerprint at `reference`, even if the entry was removed.
#[inline]
fn fingerprint_at(lanes: &[Option<LaneSlot>], reference: SourceRef) -> Fingerprint {
    let place = table_and_number(lanes, reference);
    place.map_or(Fingerprint::default(), |(entries, at)| {
        entries.fingerprint_at(at)
    })
}

fn set(lanes: &mut [Option<LaneSlot>], reference: SourceRef, flag: u8, is_set: bool) {
    let (place, at) = reference.lane_and_entry();
    if let Some(Some(slot)) = lanes.get_mut(place)
        && let Some(entry) = slot.lane.entries.get_mut(at)
    {
        entry.set_flag(flag, is_set);
    }
}
