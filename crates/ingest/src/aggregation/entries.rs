//! The sources of a lane: 44 bytes each, in a table that grows in leaves.
//!
//! Invariant: an entry keeps its number from its creation to its removal.

use firn_model::fingerprint::Fingerprint;

/// Entries of a leaf: a table never has more to spare than one.
const LEAF: usize = 256;

/// Entries that a lane may have; their numbers fit in [`super::machine`]'s references.
pub(super) const ENTRIES_MAX: usize = 1 << 20;

/// The output of a place that is free.
const FREE: u32 = u32::MAX;

/// A source as one rule sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Which series it is.
    pub(super) print: Fingerprint,
    /// When its value was taken: of a counter the newest, of a gauge the newest of the intervals
    /// that were written; the least number there is before the first.
    pub(super) time: i64,
    /// The value, if it is a float.
    pub(super) value: f64,
    /// Which output it counts in.
    pub(super) output: u32,
    /// Samples of it that wait for the end of their interval.
    pub(super) waiting: u16,
    /// The configuration under which it was resolved.
    pub(super) generation: u8,
    /// Of [`Entry::HAS_NEXT`], [`Entry::DROPS`] and [`Entry::IS_BEHIND`].
    pub(super) flags: u8,
}

impl Entry {
    /// The source has another entry.
    pub(super) const HAS_NEXT: u8 = 1;
    /// The rule wants the source dropped.
    pub(super) const DROPS: u8 = 2;
    /// Another entry of the source comes first.
    pub(super) const IS_BEHIND: u8 = 4;

    /// A source without a sample yet.
    pub(super) fn new(print: Fingerprint, output: u32) -> Self {
        Self {
            print,
            time: i64::MIN,
            value: 0.0,
            output,
            waiting: 0,
            generation: 0,
            flags: 0,
        }
    }

    /// Whether it has one of the flags.
    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Sets or clears a flag.
    pub(super) fn set(&mut self, flag: u8, is_set: bool) {
        match is_set {
            true => self.flags |= flag,
            false => self.flags &= !flag,
        }
    }
}

/// A part of the table.
#[derive(Debug)]
struct Leaf {
    entries: Vec<Entry>,
    /// For each entry, which one of any lane came behind it the last time; perhaps it is gone.
    followers: Box<[u32; LEAF]>,
}

impl Leaf {
    fn new() -> Self {
        Self {
            entries: Vec::with_capacity(LEAF),
            followers: Box::new([0; LEAF]),
        }
    }
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Entries {
    leaves: Vec<Leaf>,
    free: Vec<u32>,
    count: usize,
}

impl Entries {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.leaves.len() * LEAF * (size_of::<Entry>() + size_of::<u32>())
            + self.leaves.capacity() * size_of::<Leaf>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// The entry with the number `at`.
    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&Entry> {
        let leaf = self.leaves.get(at as usize / LEAF)?;
        let entry = leaf.entries.get(at as usize % LEAF);
        entry.filter(|entry| entry.output != FREE)
    }

    /// Something of the entry `at` that takes both ends of it from memory.
    #[inline]
    pub(super) fn touch(&self, at: u32) -> u64 {
        let entry = self.get(at);
        entry.map_or(0, |entry| entry.print.low ^ u64::from(entry.flags))
    }

    /// What came behind the entry `at` the last time, as [`Entries::set_follower`] was told; zero
    /// before.
    #[inline]
    pub(super) fn follower(&self, at: u32) -> u32 {
        let leaf = self.leaves.get(at as usize / LEAF);
        leaf.map_or(0, |leaf| leaf.followers[at as usize % LEAF])
    }

    /// Notes what came behind the entry `at`.
    pub(super) fn set_follower(&mut self, at: u32, follower: u32) {
        if let Some(leaf) = self.leaves.get_mut(at as usize / LEAF) {
            leaf.followers[at as usize % LEAF] = follower;
        }
    }

    /// The print in the place `at`, were it of an entry that was removed.
    #[inline]
    pub(super) fn print(&self, at: u32) -> Fingerprint {
        let leaf = self.leaves.get(at as usize / LEAF);
        let entry = leaf.and_then(|leaf| leaf.entries.get(at as usize % LEAF));
        entry.map_or(Fingerprint::default(), |entry| entry.print)
    }

    /// See [`Entries::get`].
    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Entry> {
        let leaf = self.leaves.get_mut(at as usize / LEAF)?;
        let entry = leaf.entries.get_mut(at as usize % LEAF);
        entry.filter(|entry| entry.output != FREE)
    }

    /// The number that the next entry gets; none if the table is full.
    pub(super) fn next(&self) -> Option<u32> {
        let end = self.end() as usize;
        let grown = (end < ENTRIES_MAX).then_some(end as u32);
        self.free.last().copied().or(grown)
    }

    /// Puts `entry` in the place `at`, which is free.
    pub(super) fn insert(&mut self, at: u32, entry: Entry) {
        while self.end() <= at {
            if self.end() < at {
                self.free.push(self.end());
            }
            self.push(Entry::new(Fingerprint::default(), FREE));
        }
        if self.free.last() == Some(&at) {
            self.free.pop();
        } else {
            self.free.retain(|free| *free != at);
        }
        let place = &mut self.leaves[at as usize / LEAF].entries[at as usize % LEAF];
        self.count += usize::from(place.output == FREE);
        *place = entry;
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, at: u32) -> Option<Entry> {
        let entry = self.get_mut(at)?;
        let removed = *entry;
        entry.output = FREE;
        self.free.push(at);
        self.count -= 1;
        Some(removed)
    }

    /// All entries with their numbers, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        let all = self
            .leaves
            .iter()
            .flat_map(|leaf| &leaf.entries)
            .enumerate();
        all.filter(|(_, entry)| entry.output != FREE)
            .map(|(at, entry)| (at as u32, entry))
    }

    /// See [`Entries::iter`].
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Entry)> {
        let all = self.leaves.iter_mut().flat_map(|leaf| &mut leaf.entries);
        let all = all.enumerate();
        all.filter(|(_, entry)| entry.output != FREE)
            .map(|(at, entry)| (at as u32, entry))
    }

    /// One more than the greatest number that was given.
    fn end(&self) -> u32 {
        let last = self.leaves.last().map_or(0, |leaf| leaf.entries.len());
        (self.leaves.len().saturating_sub(1) * LEAF + last) as u32
    }

    fn push(&mut self, entry: Entry) {
        let is_full = |leaf: &Leaf| leaf.entries.len() == LEAF;
        if self.leaves.last().is_none_or(is_full) {
            self.leaves.push(Leaf::new());
        }
        if let Some(leaf) = self.leaves.last_mut() {
            leaf.entries.push(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(low: u64) -> Fingerprint {
        Fingerprint { high: 0, low }
    }

    #[test]
    fn entries_keep_their_numbers_and_free_ones_are_given_again() {
        let mut entries = Entries::default();
        for number in 0..600 {
            assert_eq!(entries.next(), Some(number));
            entries.insert(number, Entry::new(print(number.into()), 1));
        }
        for number in [5, 599, 300] {
            assert_eq!(entries.remove(number).unwrap().print.low, u64::from(number));
            assert!(entries.get(number).is_none() && entries.remove(number).is_none());
        }
        assert_eq!(entries.len(), 597);
        assert_eq!(entries.iter().count(), 597);
        assert_eq!(entries.next(), Some(300));
        entries.insert(5, Entry::new(print(7), 1));
        assert_eq!(entries.get(5).unwrap().print, print(7));
        assert_eq!(entries.next(), Some(300));
        assert_eq!(size_of::<Entry>(), 40);
    }

    #[test]
    fn entries_inserted_out_of_order_leave_the_places_between_free() {
        let mut entries = Entries::default();
        for number in [3, 1] {
            entries.insert(number, Entry::new(Fingerprint::default(), 0));
        }
        let numbers: Vec<u32> = entries.iter().map(|(at, _)| at).collect();
        assert_eq!(numbers, [1, 3]);
        for number in [2, 0, 4] {
            assert_eq!(entries.next(), Some(number));
            entries.insert(number, Entry::new(Fingerprint::default(), 0));
        }
        assert_eq!(entries.len(), 5);
    }
}
