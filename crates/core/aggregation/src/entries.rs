//! The table of a lane's sources: 44 bytes each, in leaves of a fixed size so that growth copies
//! nothing.
//!
//! Invariant: an entry keeps its number from its creation to its removal.

use firn_model::fingerprint::Fingerprint;

/// Number of entries in a leaf, which is also the largest number of unused entries in a table.
const LEAF: usize = 256;

/// Largest number of entries in a lane, so that their numbers fit the references of
/// [`super::machine`].
pub(super) const ENTRIES_MAX: usize = 1 << 20;

/// The output number of a free entry.
const FREE: u32 = u32::MAX;

/// A source as seen by one rule: the series, its latest value, and the output that it contributes
/// to.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceEntry {
    /// Fingerprint that identifies the series.
    pub(super) print: Fingerprint,
    /// Timestamp of its value: for a counter the newest sample, for a gauge the newest of the
    /// written intervals. `i64::MIN` before the first.
    pub(super) time: i64,
    /// The value, if it is a float.
    pub(super) value: f64,
    /// Number of the output that the source contributes to.
    pub(super) output: u32,
    /// Number of samples that wait for the end of their interval.
    pub(super) waiting: u16,
    /// Generation of the configuration under which it was resolved.
    pub(super) generation: u8,
    /// Bit set of [`SourceEntry::HAS_NEXT`], [`SourceEntry::DROPS`] and [`SourceEntry::IS_BEHIND`].
    pub(super) flags: u8,
}

impl SourceEntry {
    /// The source has a further entry after this one.
    pub(super) const HAS_NEXT: u8 = 1;
    /// The rule drops the samples of the source.
    pub(super) const DROPS: u8 = 2;
    /// Another entry of the source precedes this one.
    pub(super) const IS_BEHIND: u8 = 4;

    /// Returns a source of the output `output` that has no samples yet.
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

    /// Returns whether any of the bits in `flag` is set.
    #[inline]
    pub(super) fn has_flag(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Sets or clears a flag.
    pub(super) fn set_flag(&mut self, flag: u8, is_set: bool) {
        if is_set {
            self.flags |= flag
        } else {
            self.flags &= !flag
        }
    }
}

/// A part of the table with a fixed capacity, so that entries never move.
#[derive(Debug)]
struct SourceEntryLeaf {
    entries: Vec<SourceEntry>,
    /// For each entry, the reference of the entry in any lane that followed it in the previous
    /// batch; that one may be removed.
    followers: Box<[u32; LEAF]>,
}

impl SourceEntryLeaf {
    fn new() -> Self {
        Self {
            entries: Vec::with_capacity(LEAF),
            followers: Box::new([0; LEAF]),
        }
    }
}

/// The table of a lane's entries. Numbers of removed entries are reused.
#[derive(Debug, Default)]
pub(super) struct SourceEntryTable {
    leaves: Vec<SourceEntryLeaf>,
    free: Vec<u32>,
    count: usize,
}

impl SourceEntryTable {
    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the memory of the table in bytes, including unused entries.
    pub(super) fn memory_bytes(&self) -> usize {
        self.leaves.len() * LEAF * (size_of::<SourceEntry>() + size_of::<u32>())
            + self.leaves.capacity() * size_of::<SourceEntryLeaf>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// Returns the entry with the number `at`, unless it is free.
    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&SourceEntry> {
        let leaf = self.leaves.get(at as usize / LEAF)?;
        let entry = leaf.entries.get(at as usize % LEAF);
        entry.filter(|entry| entry.output != FREE)
    }

    /// Reads the first and last field of the entry `at`, so that the processor loads both of its
    /// cache lines.
    #[inline]
    pub(super) fn prefetch(&self, at: u32) -> u64 {
        let entry = self.get(at);
        entry.map_or(0, |entry| entry.print.low ^ u64::from(entry.flags))
    }

    /// Returns the reference stored by [`SourceEntryTable::set_follower`] for the entry `at`; zero
    /// before that.
    #[inline]
    pub(super) fn follower(&self, at: u32) -> u32 {
        let leaf = self.leaves.get(at as usize / LEAF);
        leaf.map_or(0, |leaf| leaf.followers[at as usize % LEAF])
    }

    /// Stores which entry followed the entry `at`.
    pub(super) fn set_follower(&mut self, at: u32, follower: u32) {
        if let Some(leaf) = self.leaves.get_mut(at as usize / LEAF) {
            leaf.followers[at as usize % LEAF] = follower;
        }
    }

    /// Returns the fingerprint at number `at`, even if the entry was removed.
    #[inline]
    pub(super) fn fingerprint_at(&self, at: u32) -> Fingerprint {
        let leaf = self.leaves.get(at as usize / LEAF);
        let entry = leaf.and_then(|leaf| leaf.entries.get(at as usize % LEAF));
        entry.map_or(Fingerprint::default(), |entry| entry.print)
    }

    /// Returns the entry for modification; see [`SourceEntryTable::get`].
    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut SourceEntry> {
        let leaf = self.leaves.get_mut(at as usize / LEAF)?;
        let entry = leaf.entries.get_mut(at as usize % LEAF);
        entry.filter(|entry| entry.output != FREE)
    }

    /// Returns the number that the next entry will get; `None` if the table is full.
    pub(super) fn next_number(&self) -> Option<u32> {
        let end = self.end_number() as usize;
        let grown = (end < ENTRIES_MAX).then_some(end as u32);
        self.free.last().copied().or(grown)
    }

    /// Stores `entry` at the number `at`, which must be free. The table grows if necessary.
    pub(super) fn insert(&mut self, at: u32, entry: SourceEntry) {
        while self.end_number() <= at {
            if self.end_number() < at {
                self.free.push(self.end_number());
            }
            self.push_entry(SourceEntry::new(Fingerprint::default(), FREE));
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

    /// Removes an entry and returns it; its number becomes free for another source.
    pub(super) fn remove(&mut self, at: u32) -> Option<SourceEntry> {
        let entry = self.get_mut(at)?;
        let removed = *entry;
        entry.output = FREE;
        self.free.push(at);
        self.count -= 1;
        Some(removed)
    }

    /// Iterates over all entries with their numbers, ascending. Free numbers are skipped.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &SourceEntry)> {
        let all = self
            .leaves
            .iter()
            .flat_map(|leaf| &leaf.entries)
            .enumerate();
        all.filter(|(_, entry)| entry.output != FREE)
            .map(|(at, entry)| (at as u32, entry))
    }

    /// Iterates over all entries for modification; see [`SourceEntryTable::iter`].
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut SourceEntry)> {
        let all = self.leaves.iter_mut().flat_map(|leaf| &mut leaf.entries);
        let all = all.enumerate();
        all.filter(|(_, entry)| entry.output != FREE)
            .map(|(at, entry)| (at as u32, entry))
    }

    /// Returns the greatest number ever used plus one.
    fn end_number(&self) -> u32 {
        let last = self.leaves.last().map_or(0, |leaf| leaf.entries.len());
        (self.leaves.len().saturating_sub(1) * LEAF + last) as u32
    }

    fn push_entry(&mut self, entry: SourceEntry) {
        let is_full = |leaf: &SourceEntryLeaf| leaf.entries.len() == LEAF;
        if self.leaves.last().is_none_or(is_full) {
            self.leaves.push(SourceEntryLeaf::new());
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
        let mut entries = SourceEntryTable::default();
        for number in 0..600 {
            assert_eq!(entries.next_number(), Some(number));
            entries.insert(number, SourceEntry::new(print(number.into()), 1));
        }
        for number in [5, 599, 300] {
            assert_eq!(entries.remove(number).unwrap().print.low, u64::from(number));
            assert!(entries.get(number).is_none() && entries.remove(number).is_none());
        }
        assert_eq!(entries.len(), 597);
        assert_eq!(entries.iter().count(), 597);
        assert_eq!(entries.next_number(), Some(300));
        entries.insert(5, SourceEntry::new(print(7), 1));
        assert_eq!(entries.get(5).unwrap().print, print(7));
        assert_eq!(entries.next_number(), Some(300));
        assert_eq!(size_of::<SourceEntry>(), 40);
    }

    #[test]
    fn entries_inserted_out_of_order_leave_the_places_between_free() {
        let mut entries = SourceEntryTable::default();
        for number in [3, 1] {
            entries.insert(number, SourceEntry::new(Fingerprint::default(), 0));
        }
        let numbers: Vec<u32> = entries.iter().map(|(at, _)| at).collect();
        assert_eq!(numbers, [1, 3]);
        for number in [2, 0, 4] {
            assert_eq!(entries.next_number(), Some(number));
            entries.insert(number, SourceEntry::new(Fingerprint::default(), 0));
        }
        assert_eq!(entries.len(), 5);
    }
}
