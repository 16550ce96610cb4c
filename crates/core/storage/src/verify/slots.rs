//! A set of slots, stored as bitmaps that are allocated for ranges with at least one slot.

use crate::ids::SeriesSlot;
use std::collections::BTreeMap;

/// Number of slots in a bitmap, which takes 8 kB.
const PIECE_SLOTS: u64 = 1 << 16;

const WORD_SLOTS: u64 = u64::BITS as u64;

/// A sparse set of slots, with 8 kB of memory for each 65,536 slots of which at least one is in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesSlotSet {
    pieces: BTreeMap<u64, Box<[u64]>>,
}

impl SeriesSlotSet {
    /// Adds a slot to the set.
    pub(crate) fn add(&mut self, SeriesSlot(slot): SeriesSlot) {
        let empty = || vec![0; (PIECE_SLOTS / WORD_SLOTS) as usize].into();
        let piece = self.pieces.entry(slot / PIECE_SLOTS).or_insert_with(empty);
        let at = slot % PIECE_SLOTS;
        piece[(at / WORD_SLOTS) as usize] |= 1 << (at % WORD_SLOTS);
    }

    /// Returns whether the set contains the slot.
    pub(crate) fn has(&self, SeriesSlot(slot): SeriesSlot) -> bool {
        let piece = self.pieces.get(&(slot / PIECE_SLOTS));
        let at = slot % PIECE_SLOTS;
        let word = piece.map_or(0, |words| words[(at / WORD_SLOTS) as usize]);
        word >> (at % WORD_SLOTS) & 1 == 1
    }

    /// Adds all slots of another set.
    pub(crate) fn add_all(&mut self, other: SeriesSlotSet) {
        for (number, words) in other.pieces {
            match self.pieces.get_mut(&number) {
                Some(known) => known.iter_mut().zip(&words).for_each(|(a, b)| *a |= b),
                None => {
                    self.pieces.insert(number, words);
                }
            }
        }
    }

    /// Returns the number of slots in the set.
    pub(crate) fn len(&self) -> u64 {
        let words = self.pieces.values().flat_map(|words| words.iter());
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns the number of slots in the set that are not in `other`.
    pub(crate) fn len_without(&self, other: &SeriesSlotSet) -> u64 {
        let of_piece = |(number, words): (u64, &[u64])| {
            let known = other.pieces.get(&number);
            let known = |i: usize| known.and_then(|words| words.get(i)).unwrap_or(&0);
            let left = words.iter().enumerate().map(|(i, word)| word & !known(i));
            left.map(|word| u64::from(word.count_ones())).sum::<u64>()
        };
        let pieces = self.pieces.iter();
        pieces
            .map(|(number, words)| of_piece((*number, &**words)))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_count_each_once() {
        let of = |slots: &[u64]| {
            let mut set = SeriesSlotSet::default();
            slots.iter().for_each(|slot| set.add(SeriesSlot(*slot)));
            set
        };
        let mut set = of(&[0, 63, 64, 64, 65_535, 65_536, u64::MAX]);
        assert_eq!(set.len(), 6);
        let has = |slot: u64| set.has(SeriesSlot(slot));
        assert!(has(63) && has(u64::MAX) && !has(u64::from(u32::MAX)) && !has(62) && !has(1 << 20));
        assert_eq!(set.len_without(&of(&[63, 65_536, 7])), 4);
        set.add_all(of(&[0, 1, 200_000]));
        assert_eq!(set.len(), 8);
    }
}
