//! From a slot to the series: its place in the head and its terms.
//!
//! Pages of 256 slots are immutable; the page under way is published again after each batch of
//! births, so readers swap a pointer and nothing moves under them. Terms are varints in the order
//! of their labels' names.

use super::Index;
use crate::codec::cursor::Cursor;
use crate::codec::push_uvarint;
use arc_swap::Guard;
use std::sync::Arc;

/// Slots of a page: publishing one again copies some 7 KB.
pub(super) const PAGE_SLOTS: u32 = 256;

/// Where the head keeps a series: `local * shards + shard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) u32);

impl Place {
    /// A series that the head does not keep: all of its samples are sealed.
    pub(crate) const RETIRED: Self = Self(u32::MAX - 1);
}

/// One page, for readers.
#[derive(Debug, Default)]
pub(super) struct SeriesPage {
    /// Where each slot's terms end; a series without any is gone.
    ends: Box<[u32]>,
    places: Box<[Place]>,
    terms: Box<[u8]>,
}

impl SeriesPage {
    fn get(&self, at: usize) -> Option<(Place, &[u8])> {
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        let terms = self.terms.get(start as usize..end as usize)?;
        // A place that no shard can have marks a removed or skipped slot.
        let place = *self.places.get(at)?;
        (place != PageBuilder::NO_PLACE).then_some((place, terms))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.ends.len() * 8 + self.terms.len()
    }
}

/// One page, as it grows.
#[derive(Debug, Default)]
pub(super) struct PageBuilder {
    ends: Vec<u32>,
    places: Vec<Place>,
    terms: Vec<u8>,
}

impl PageBuilder {
    const NO_PLACE: Place = Place(u32::MAX);

    /// Begins anew from `page` without the slots for which `is_gone` says so.
    pub(super) fn from_page(page: &SeriesPage, is_gone: impl Fn(usize) -> bool) -> Self {
        let mut builder = Self::default();
        for at in 0..page.ends.len() {
            match page.get(at).filter(|_| !is_gone(at)) {
                Some((place, terms)) => {
                    builder.terms.extend_from_slice(terms);
                    builder.end(place);
                }
                None => builder.end(Self::NO_PLACE),
            }
        }
        builder
    }

    /// Moves slot `at` to another place, unless it is gone.
    pub(super) fn move_to(&mut self, at: usize, place: Place) {
        let known = self.places.get_mut(at);
        if let Some(known) = known.filter(|known| **known != Self::NO_PLACE) {
            *known = place;
        }
    }

    /// Adds slot `at` of the page, skipping those before it that are not there.
    pub(super) fn push(&mut self, at: usize, place: Place, terms: &[u32]) {
        while self.ends.len() < at {
            self.end(Self::NO_PLACE);
        }
        for term in terms {
            push_uvarint(&mut self.terms, u64::from(*term));
        }
        self.end(place);
    }

    fn end(&mut self, place: Place) {
        self.ends.push(self.terms.len() as u32);
        self.places.push(place);
    }

    /// The page as readers get it.
    pub(super) fn build(&self) -> SeriesPage {
        SeriesPage {
            ends: self.ends.as_slice().into(),
            places: self.places.as_slice().into(),
            terms: self.terms.as_slice().into(),
        }
    }

    /// Empties the page for the next number.
    pub(super) fn clear(&mut self) {
        self.ends.clear();
        self.places.clear();
        self.terms.clear();
    }

    /// Whether every slot in it is gone.
    pub(super) fn is_vacant(&self) -> bool {
        self.places.iter().all(|p| *p == Self::NO_PLACE)
    }
}

/// Looks at one series after the other; cheap when they come in order of their slots.
pub(crate) struct SeriesCursor<'a> {
    index: &'a Index,
    page: Option<(u32, Guard<Arc<SeriesPage>>)>,
}

impl<'a> SeriesCursor<'a> {
    /// A cursor over `index`.
    pub(crate) fn new(index: &'a Index) -> Self {
        Self { index, page: None }
    }

    fn get(&mut self, slot: u32) -> Option<(Place, &[u8])> {
        let number = slot / PAGE_SLOTS;
        if self.page.as_ref().is_none_or(|(held, _)| *held != number) {
            self.page = Some((number, self.index.series.get(number)?.load()));
        }
        let (_, page) = self.page.as_ref()?;
        page.get((slot % PAGE_SLOTS) as usize)
    }

    /// Where the series lives, unless it is gone.
    pub(crate) fn place(&mut self, slot: u32) -> Option<Place> {
        self.get(slot).map(|(place, _)| place)
    }

    /// Calls `each` for the terms of the series in the order of their labels' names.
    pub(crate) fn terms(&mut self, slot: u32, mut each: impl FnMut(u32)) {
        let terms = self.get(slot).map_or(&[][..], |(_, terms)| terms);
        let mut cursor = Cursor::new(terms);
        while let Ok(term) = cursor.uvarint() {
            each(term as u32);
        }
    }

    /// The series' term of `label`.
    pub(crate) fn term_of(&mut self, slot: u32, label: u32) -> Option<u32> {
        let index = self.index;
        let mut cursor = Cursor::new(self.get(slot)?.1);
        while let Ok(term) = cursor.uvarint() {
            if index.label_of(term as u32) == label {
                return Some(term as u32);
            }
        }
        None
    }
}
