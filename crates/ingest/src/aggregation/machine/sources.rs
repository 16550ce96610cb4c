//! Which entries a source has: a table by the hash of its key, and chains of further entries.
//!
//! The table holds numbers of entries alone, four bytes each; the hash is in the entry. Few sources
//! have more than one entry: those that several rules take.

use super::{LANES, Slot};
use crate::aggregation::entries::{ENTRIES_MAX, Entry, Print};
use crate::aggregation::spec::GROUPS_MAX;
use hashbrown::HashTable;
use std::collections::HashMap;

const ENTRY_BITS: u32 = ENTRIES_MAX.trailing_zeros();

// Lane and entry fit in one number.
const _: () = assert!(GROUPS_MAX * LANES <= 1 << (u32::BITS - ENTRY_BITS));

/// Lane and number of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
            let all: Vec<(u32, Print)> = all.map(|(at, entry)| (at, entry.print)).collect();
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
    pub(super) fn find(&self, lanes: &[Option<Slot>], print: Print) -> Option<Reference> {
        let is_it = |reference: &Reference| print_of(lanes, *reference) == print;
        self.table.find(print.0[0], is_it).copied()
    }

    /// The entry behind this one.
    pub(super) fn behind(&self, reference: Reference) -> Option<Reference> {
        self.chains.get(&reference).copied()
    }

    /// Adds an entry, which becomes the first of its source.
    pub(super) fn link(&mut self, lanes: &mut [Option<Slot>], reference: Reference, print: Print) {
        let is_it = |other: &Reference| print_of(lanes, *other) == print;
        match self.table.find_mut(print.0[0], is_it) {
            Some(first) => {
                self.chains
                    .insert(reference, std::mem::replace(first, reference));
                set_next(lanes, reference, true);
            }
            None => {
                let hash = |other: &Reference| print_of(lanes, *other).0[0];
                self.table.insert_unique(print.0[0], reference, hash);
            }
        }
    }

    /// Takes out an entry, which may be removed already and whose place is not taken again.
    pub(super) fn unlink(
        &mut self,
        lanes: &mut [Option<Slot>],
        reference: Reference,
        print: Print,
    ) {
        let next = self.chains.remove(&reference);
        let is_it = |other: &Reference| print_of(lanes, *other) == print;
        let Ok(mut first) = self.table.find_entry(print.0[0], is_it) else {
            return;
        };
        if *first.get() == reference {
            match next {
                Some(next) => *first.get_mut() = next,
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
                    set_next(lanes, before, false);
                }
            }
            return;
        }
    }
}

/// The print at `reference`, also of an entry that was removed.
#[inline]
fn print_of(lanes: &[Option<Slot>], reference: Reference) -> Print {
    let (place, at) = reference.split();
    let slot = lanes.get(place).and_then(Option::as_ref);
    slot.map_or(Print::default(), |slot| slot.lane.entries.print(at))
}

fn set_next(lanes: &mut [Option<Slot>], reference: Reference, is_set: bool) {
    let (place, at) = reference.split();
    if let Some(Some(slot)) = lanes.get_mut(place)
        && let Some(entry) = slot.lane.entries.get_mut(at)
    {
        entry.set(Entry::HAS_NEXT, is_set);
    }
}
