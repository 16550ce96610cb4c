//! The series that replay has met: their places, and their terms until the index is built.

use crate::index::Place;
use firn_model::sample::TimestampMs;
use std::collections::HashMap;

const PAGE: usize = 4_096;

const NOWHERE: Place = Place(u32::MAX);

struct Entry {
    slot: u32,
    place: Place,
    /// Where its terms lie.
    terms: std::ops::Range<usize>,
}

/// The series by slot.
#[derive(Default)]
pub(super) struct Catalog {
    entries: Vec<Entry>,
    terms: Vec<u32>,
    /// Places by slot, in pages: slots of a store that is years old are few among many numbers.
    pages: Vec<Option<Box<[Place]>>>,
    /// The newest sealed sample's time by slot, for those whose pages the log may repeat.
    sealed: HashMap<usize, Box<[Option<TimestampMs>]>>,
}

impl Catalog {
    /// Adds a series.
    pub(super) fn add(&mut self, slot: u32, place: Place, terms: &[u32]) {
        let start = self.terms.len();
        self.terms.extend_from_slice(terms);
        self.entries.push(Entry {
            slot,
            place,
            terms: start..self.terms.len(),
        });
        let page = slot as usize / PAGE;
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| vec![NOWHERE; PAGE].into());
        page[slot as usize % PAGE] = place;
    }

    /// Forgets a series.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(Some(page)) = self.pages.get_mut(slot as usize / PAGE) {
            page[slot as usize % PAGE] = NOWHERE;
        }
    }

    /// Where a series lives.
    #[inline]
    pub(super) fn place(&self, slot: u32) -> Option<Place> {
        let page = self.pages.get(slot as usize / PAGE)?.as_ref()?;
        Some(page[slot as usize % PAGE]).filter(|place| *place != NOWHERE)
    }

    /// Says that the samples of a series up to `time` are sealed.
    pub(super) fn set_sealed(&mut self, slot: u32, time: TimestampMs) {
        let page = self.sealed.entry(slot as usize / PAGE);
        let page = page.or_insert_with(|| vec![None; PAGE].into());
        let known = &mut page[slot as usize % PAGE];
        *known = Some(time).max(*known);
    }

    /// Whether the sample of a series at `time` is sealed.
    #[inline]
    pub(super) fn is_sealed(&self, slot: u32, time: TimestampMs) -> bool {
        let page = self.sealed.get(&(slot as usize / PAGE));
        page.is_some_and(|p| p[slot as usize % PAGE].is_some_and(|sealed| time <= sealed))
    }

    /// Calls `each` with the series that were not forgotten, by ascending slot.
    pub(super) fn each_by_slot(&mut self, mut each: impl FnMut(u32, Place, &[u32])) {
        self.entries.sort_unstable_by_key(|e| e.slot);
        for entry in &self.entries {
            if self.place(entry.slot).is_some() {
                each(entry.slot, entry.place, &self.terms[entry.terms.clone()]);
            }
        }
    }
}
