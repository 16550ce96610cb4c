//! Cache of the terms of labels by slot. A dashboard groups the same series by the same labels
//! every few seconds, and a cached load is cheaper than decoding the terms of a series.
//!
//! A slot is never reused, its series keeps its labels, and the number of a term is never reused
//! either, so entries never become invalid. No query reads an entry of a removed series.
//!
//! ```text
//! label, leaf of slots -> one of the cells -> label | leaf | a term for each slot of the leaf
//! ```
//!
//! A cell contains one piece; a new piece replaces it. Invariant: there are no more pieces than
//! cells.

use super::series_table::LEAF_SLOTS;
use crate::ids::{LabelId, SeriesRef, TermId};
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use arc_swap::{ArcSwapOption, Guard};
use std::sync::Arc;

/// Maximum number of pieces of 1 KB each: enough for two labels of a million series.
const CELLS: usize = 8_192;

/// Entry of a slot whose term is not cached yet.
const UNKNOWN: u32 = 0;

/// Entry of a series without the label.
const ABSENT: u32 = u32::MAX;

/// The cache, shared by all readers of an index: cells that hold one piece each.
#[derive(Debug)]
pub(super) struct LabelValueCache {
    cells: Box<[ArcSwapOption<LabelValuePiece>]>,
    pieces: AtomicUsize,
}

impl Default for LabelValueCache {
    fn default() -> Self {
        Self {
            cells: (0..CELLS).map(|_| ArcSwapOption::empty()).collect(),
            pieces: AtomicUsize::new(0),
        }
    }
}

/// The entries of one label for one leaf of slots: the number of the term plus one, [`UNKNOWN`] or
/// [`ABSENT`].
#[derive(Debug)]
struct LabelValuePiece {
    label: LabelId,
    leaf: u32,
    terms: [AtomicU32; LEAF_SLOTS as usize],
}

impl LabelValuePiece {
    fn new(label: LabelId, leaf: u32) -> Self {
        Self {
            label,
            leaf,
            terms: [const { AtomicU32::new(UNKNOWN) }; LEAF_SLOTS as usize],
        }
    }

    fn is_for(&self, label: LabelId, leaf: u32) -> bool {
        (self.label, self.leaf) == (label, leaf)
    }
}

impl LabelValueCache {
    /// Returns a reader of the terms of `label`.
    pub(super) fn reader(&self, label: LabelId) -> LabelValueReader<'_> {
        LabelValueReader {
            known: self,
            label,
            piece: Guard::from_inner(None),
        }
    }

    /// Returns the piece of a label and a leaf. If its cell contains another piece, replaces that
    /// by an empty one.
    fn load_piece(&self, label: LabelId, leaf: u32) -> Guard<Option<Arc<LabelValuePiece>>> {
        // The cells of different labels start far apart, and the leaves of one label are
        // neighbours.
        let start = label.0.wrapping_mul(0x9e37_79b9) >> 16;
        let cell = &self.cells[(start.wrapping_add(leaf)) as usize % CELLS];
        let there = cell.load();
        let is_it = |piece: &Arc<LabelValuePiece>| piece.is_for(label, leaf);
        if there.as_ref().is_some_and(is_it) {
            return there;
        }
        let piece = Some(Arc::new(LabelValuePiece::new(label, leaf)));
        if cell.swap(piece.clone()).is_none() {
            self.pieces.fetch_add(1, Ordering::Relaxed);
        }
        Guard::from_inner(piece)
    }

    /// Returns the memory of the cache in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let pieces = self.pieces.load(Ordering::Relaxed);
        size_of_val(&self.cells[..]) + pieces * (size_of::<LabelValuePiece>() + 16)
    }
}

/// Reads the terms of one label for several slots; fastest in ascending order.
pub(super) struct LabelValueReader<'a> {
    known: &'a LabelValueCache,
    label: LabelId,
    /// A guard and not a clone of the `Arc`, whose reference count would be contended by all
    /// threads.
    piece: Guard<Option<Arc<LabelValuePiece>>>,
}

impl LabelValueReader<'_> {
    /// Returns the term of the series with `slot`. `read` finds the term if it is not cached.
    #[inline]
    pub(super) fn get_or_read(
        &mut self,
        SeriesRef(slot): SeriesRef,
        read: impl FnOnce() -> Option<TermId>,
    ) -> Option<TermId> {
        let leaf = slot / LEAF_SLOTS;
        if self.piece.as_ref().is_none_or(|held| held.leaf != leaf) {
            self.piece = self.known.load_piece(self.label, leaf);
        }
        let Some(piece) = &*self.piece else {
            return read();
        };
        let place = &piece.terms[(slot % LEAF_SLOTS) as usize];
        match place.load(Ordering::Relaxed) {
            UNKNOWN => {
                let term = read();
                let known = term.map_or(ABSENT, |term| term.0 + 1);
                place.store(known, Ordering::Relaxed);
                term
            }
            ABSENT => None,
            known => Some(TermId(known - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    /// Returns the term of a label for a series, computed from their numbers alone.
    fn term(LabelId(label): LabelId, SeriesRef(slot): SeriesRef) -> Option<TermId> {
        let is_there = !(slot + label).is_multiple_of(5);
        is_there.then(|| TermId(label.wrapping_mul(1_000_003) ^ (slot / 3)))
    }

    #[test]
    fn terms_of_more_labels_and_pages_than_fit_are_never_those_of_another() {
        let known = LabelValueCache::default();
        let rng = SimRng::new(7);
        for _ in 0..2_000 {
            let label = LabelId(rng.next_below(9) as u32);
            let mut reader = known.reader(label);
            let mut slot = SeriesRef(rng.next_below(3_000_000) as u32);
            for _ in 0..20 {
                slot.0 += rng.next_below(300) as u32;
                let found = reader.get_or_read(slot, || term(label, slot));
                assert_eq!(found, term(label, slot), "{label:?}, {slot:?}");
                let again = reader.get_or_read(slot, || unreachable!("it was read just now"));
                assert_eq!(again, found, "{label:?}, {slot:?}");
            }
        }
        let pieces = known.cells.iter().filter(|cell| cell.load().is_some());
        let (count, bytes) = (pieces.count(), size_of_val(&known.cells[..]));
        assert_eq!(
            known.memory_bytes(),
            bytes + count * (size_of::<LabelValuePiece>() + 16)
        );
    }
}
