//! Which entries a source has: a table by the hash of its key, and chains of further entries.
//!
//! The table holds numbers of entries alone, four bytes each; the hash is in the entry. Few sources
//! have more than one entry: those that several rules take.

use super::{LANES, Slot};
use crate::aggregation::entries::{ENTRIES_MAX, Entries, Entry};
use crate::aggregation::failpoints::{self, Flaw};
use crate::aggregation::spec::GROUPS_MAX;
use firn_model::fingerprint::Fingerprint;
use hashbrown::HashTable;
use std::collections::HashMap;

const ENTRY_BITS: u32 = ENTRIES_MAX.trailing_zeros();

// Lane and entry fit in one number.
const _: () = assert!(GROUPS_MAX * LANES <= 1 << (u32::BITS - ENTRY_BITS));

/// Entries that [`warm`] reads.
pub(super) const WARM: usize = 12;

/// Lane and number of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reference(u32);

impl Reference {
    /// The entry `at` of the lane at `place`.
    pub(super) fn new(place: usize, at: u32) -> Self {
        Self((place as u32) << ENTRY_BITS | at)
    }

    /// Lane and number.
    #[inline]
    pub(super) fn split(self) -> (usize, u32) {
        let at = self.0 & (ENTRIES_MAX as u32 - 1);
        ((self.0 >> ENTRY_BITS) as usize, at)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sources {
    table: HashTable<Reference>,
    /// Behind an entry with [`Entry::HAS_NEXT`], the next one of the source.
    chains: HashMap<Reference, Reference>,
}

impl Sources {
    /// Makes the table of what `lanes` hold.
    pub(super) fn of(lanes: &mut [Option<Slot>]) -> Self {
        let mut sources = Self::default();
        for place in 0..lanes.len() {
            let Some(slot) = &lanes[place] else { continue };
            let all = slot.lane.entries.iter();
            let all: Vec<(u32, Fingerprint)> = all.map(|(at, entry)| (at, entry.print)).collect();
            for (at, print) in all {
                sources.link(lanes, Reference::new(place, at), print);
            }
        }
        sources
    }

    /// How many sources there are.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.table.allocation_size() + self.chains.capacity() * 2 * size_of::<Reference>()
    }

    /// The first entry of the source with this print.
    #[inline]
    pub(super) fn find(&self, lanes: &[Option<Slot>], print: Fingerprint) -> Option<Reference> {
        let is_it = |reference: &Reference| print_of(lanes, *reference) == print;
        self.table.find(print.low, is_it).copied()
    }

    /// The entry behind this one.
    pub(super) fn behind(&self, reference: Reference) -> Option<Reference> {
        self.chains.get(&reference).copied()
    }

    /// Adds an entry, which becomes the first of its source.
    pub(super) fn link(
        &mut self,
        lanes: &mut [Option<Slot>],
        reference: Reference,
        print: Fingerprint,
    ) {
        let is_it = |other: &Reference| print_of(lanes, *other) == print;
        match self.table.find_mut(print.low, is_it) {
            Some(first) => {
                let before = std::mem::replace(first, reference);
                self.chains.insert(reference, before);
                set(lanes, before, Entry::IS_BEHIND, true);
                set(lanes, reference, Entry::HAS_NEXT, true);
            }
            None => {
                let hash = |other: &Reference| print_of(lanes, *other).low;
                self.table.insert_unique(print.low, reference, hash);
            }
        }
    }

    /// Takes out an entry, which may be removed already and whose place is not taken again.
    pub(super) fn unlink(
        &mut self,
        lanes: &mut [Option<Slot>],
        reference: Reference,
        print: Fingerprint,
    ) {
        let next = self.chains.remove(&reference);
        let is_it = |other: &Reference| print_of(lanes, *other) == print;
        let Ok(mut first) = self.table.find_entry(print.low, is_it) else {
            return;
        };
        if *first.get() == reference {
            match next {
                Some(next) => {
                    *first.get_mut() = next;
                    set(lanes, next, Entry::IS_BEHIND, false);
                }
                None => drop(first.remove()),
            }
            return;
        }
        let mut before = *first.get();
        while let Some(other) = self.behind(before) {
            if other != reference {
                before = other;
                continue;
            }
            match next {
                Some(next) => drop(self.chains.insert(before, next)),
                None => {
                    self.chains.remove(&before);
                    set(lanes, before, Entry::HAS_NEXT, false);
                }
            }
            return;
        }
    }
}

/// Whether `reference` is the first entry of the source with this print, under the configuration
/// `generation`.
#[inline]
pub(super) fn is_first(
    lanes: &[Option<Slot>],
    reference: Reference,
    print: Fingerprint,
    generation: u8,
) -> bool {
    let entry = place_of(lanes, reference).and_then(|(entries, at)| entries.get(at));
    entry.is_some_and(|entry| {
        let is_it = entry.print == print || failpoints::has(Flaw::TrustsGuess);
        let is_behind = entry.has(Entry::IS_BEHIND) && !failpoints::has(Flaw::BeginsBehind);
        is_it && !is_behind && entry.generation == generation
    })
}

/// The table that `reference` is in, and its number there.
#[inline]
fn place_of(lanes: &[Option<Slot>], reference: Reference) -> Option<(&Entries, u32)> {
    let (place, at) = reference.split();
    let slot = lanes.get(place)?.as_ref()?;
    Some((&slot.lane.entries, at))
}

/// The entry that came behind `reference` the last time, perhaps gone by now.
#[inline]
pub(super) fn follower(lanes: &[Option<Slot>], reference: Reference) -> Reference {
    let place = place_of(lanes, reference);
    Reference(place.map_or(0, |(entries, at)| entries.follower(at)))
}

/// Reads `guess` and what followed it the last time, as many entries as the processor waits for at
/// a time: it waits for all of them together, instead of for one after the other.
#[inline]
pub(super) fn warm(lanes: &[Option<Slot>], mut guess: Reference) {
    let mut all = 0;
    for _ in 0..WARM {
        let Some((entries, at)) = place_of(lanes, guess) else {
            break;
        };
        all ^= entries.touch(at);
        guess = Reference(entries.follower(at));
    }
    std::hint::black_box(all);
}

/// Notes that `follower` came behind `reference`.
pub(super) fn set_follower(lanes: &mut [Option<Slot>], reference: Reference, follower: Reference) {
    let (place, at) = reference.split();
    if let Some(Some(slot)) = lanes.get_mut(place) {
        slot.lane.entries.set_follower(at, follower.0);
    }
}

/// The print at `reference`, also of an entry that was removed.
#[inline]
fn print_of(lanes: &[Option<Slot>], reference: Reference) -> Fingerprint {
    let place = place_of(lanes, reference);
    place.map_or(Fingerprint::default(), |(entries, at)| entries.print(at))
}

fn set(lanes: &mut [Option<Slot>], reference: Reference, flag: u8, is_set: bool) {
    let (place, at) = reference.split();
    if let Some(Some(slot)) = lanes.get_mut(place)
        && let Some(entry) = slot.lane.entries.get_mut(at)
    {
        entry.set(flag, is_set);
    }
}
