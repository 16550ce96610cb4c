//! The series by slot: their places in the head and their terms.
//!
//! Leaves of 256 slots are immutable. The current leaf is published again after each batch of new
//! series, so that readers swap a pointer and never see a change. Terms are in the order of their
//! labels' names.

use super::packed_terms::{PackedTerms, TermPacker, TermReader};
use super::terms::IndexTerms;
use crate::ids::{LabelId, SeriesRef, TermId};
use arc_swap::Guard;
use std::sync::Arc;

/// Number of slots of a leaf; publishing one copies about 4 KB.
pub(super) const LEAF_SLOTS: u32 = 256;

/// The place of a series in the head: `local * shards + shard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadSeriesPlace(pub(crate) u32);

impl HeadSeriesPlace {
    /// The place of a series that is not in the head, because all of its samples are sealed.
    pub(crate) const EVICTED: Self = Self(u32::MAX - 1);
}

/// One leaf of the table as readers see it: the places and terms of up to 256 slots. Never changes.
#[derive(Debug, Default)]
pub(super) struct SeriesLeaf {
    places: Box<[HeadSeriesPlace]>,
    /// Shared by successive versions of a leaf in which only the places differ.
    terms: Arc<PackedTerms>,
}

impl SeriesLeaf {
    fn place(&self, at: usize) -> Option<HeadSeriesPlace> {
        let place = *self.places.get(at)?;
        // A place that no shard can have marks a removed or skipped slot.
        (place != LeafBuilder::NO_PLACE).then_some(place)
    }

    /// Returns a copy of the leaf in which the series at `slots` have the place `to`.
    pub(super) fn with_moved(
        &self,
        slots: impl IntoIterator<Item = usize>,
        to: HeadSeriesPlace,
    ) -> Self {
        let mut places = self.places.clone();
        for at in slots {
            move_to(&mut places, at, to);
        }
        Self {
            places,
            terms: self.terms.clone(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.places.len() * 4 + self.terms.memory_bytes()
    }
}

/// Changes the place of a slot, unless its series is removed.
fn move_to(places: &mut [HeadSeriesPlace], at: usize, to: HeadSeriesPlace) {
    let known = places.get_mut(at);
    if let Some(known) = known.filter(|known| **known != LeafBuilder::NO_PLACE) {
        *known = to;
    }
}

/// The current leaf, to which series are added.
#[derive(Debug, Default)]
pub(super) struct LeafBuilder {
    places: Vec<HeadSeriesPlace>,
    terms: TermPacker,
}

impl LeafBuilder {
    const NO_PLACE: HeadSeriesPlace = HeadSeriesPlace(u32::MAX);

    /// Returns a builder with the contents of `leaf`, without the slots for which `is_gone` returns
    /// true.
    pub(super) fn from_leaf(leaf: &SeriesLeaf, is_gone: impl Fn(usize) -> bool) -> Self {
        let mut builder = Self::default();
        let mut reader = TermReader::default();
        for at in 0..leaf.places.len() {
            match leaf.place(at).filter(|_| !is_gone(at)) {
                Some(place) => builder.add(place, reader.read_terms(&leaf.terms, at)),
                None => builder.add(Self::NO_PLACE, &[]),
            }
        }
        builder
    }

    /// Changes the place of slot `at`, unless its series is removed.
    pub(super) fn move_to(&mut self, at: usize, place: HeadSeriesPlace) {
        move_to(&mut self.places, at, place);
    }

    /// Adds slot `at` of the leaf, and marks the skipped slots before it as absent.
    pub(super) fn push(&mut self, at: usize, place: HeadSeriesPlace, terms: &[TermId]) {
        assert!(self.places.len() <= at, "slots of a leaf come in order");
        while self.places.len() < at {
            self.add(Self::NO_PLACE, &[]);
        }
        self.add(place, terms);
    }

    fn add(&mut self, place: HeadSeriesPlace, terms: &[TermId]) {
        self.places.push(place);
        self.terms.push(terms);
    }

    /// Returns an immutable copy of the leaf for readers.
    pub(super) fn build(&self) -> SeriesLeaf {
        SeriesLeaf {
            places: self.places.as_slice().into(),
            terms: Arc::new(self.terms.build()),
        }
    }

    /// Clears the leaf for the next number.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.terms.clear();
    }

    /// Returns whether no slot of the leaf has a series.
    pub(super) fn is_vacant(&self) -> bool {
        self.places.iter().all(|p| *p == Self::NO_PLACE)
    }
}

/// Reads the series of several slots; cheapest in ascending order.
pub(crate) struct SeriesCursor<'a> {
    index: &'a IndexTerms,
    leaf: Option<(u32, Guard<Arc<SeriesLeaf>>)>,
    reader: TermReader,
    /// Index of the last requested term within the terms of its series.
    found_at: usize,
}

impl<'a> SeriesCursor<'a> {
    /// Returns a cursor over `index` that has not read any leaf yet.
    pub(crate) fn new(index: &'a IndexTerms) -> Self {
        Self {
            index,
            leaf: None,
            reader: TermReader::default(),
            found_at: 0,
        }
    }

    /// Loads the leaf of `slot`. Returns it with the reader of its terms.
    fn load_leaf(&mut self, slot: SeriesRef) -> Option<(&SeriesLeaf, &mut TermReader)> {
        let number = slot.0 / LEAF_SLOTS;
        if self.leaf.as_ref().is_none_or(|(held, _)| *held != number) {
            self.leaf = Some((number, self.index.series.get(number)?.load()));
            self.reader.reset();
        }
        let (_, leaf) = self.leaf.as_ref()?;
        Some((leaf, &mut self.reader))
    }

    /// Returns the place of the series, or `None` if it is removed.
    pub(crate) fn place(&mut self, slot: SeriesRef) -> Option<HeadSeriesPlace> {
        let (leaf, _) = self.load_leaf(slot)?;
        leaf.place((slot.0 % LEAF_SLOTS) as usize)
    }

    /// Returns the terms of the series in the order of their labels' names; empty if it is removed.
    pub(crate) fn terms(&mut self, slot: SeriesRef) -> &[TermId] {
        let at = (slot.0 % LEAF_SLOTS) as usize;
        match self.load_leaf(slot) {
            Some((leaf, reader)) if leaf.place(at).is_some() => reader.read_terms(&leaf.terms, at),
            _ => &[],
        }
    }

    /// Returns the term of the series for `label`.
    pub(crate) fn find_term(&mut self, slot: SeriesRef, label: LabelId) -> Option<TermId> {
        let index = self.index;
        let is_of = |term: &&TermId| index.label_of_term(**term) == label;
        // Neighbours mostly have the same labels.
        let likely = self.found_at;
        let terms = self.terms(slot);
        if let Some(term) = terms.get(likely).filter(is_of) {
            return Some(*term);
        }
        let at = terms.iter().position(|term| is_of(&term))?;
        let term = terms[at];
        self.found_at = at;
        Some(term)
    }
}
