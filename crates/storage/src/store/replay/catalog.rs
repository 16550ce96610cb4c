//! The series that replay has met: their places, and their terms until the index is built.
//!
//! Everything lies in pages, so that growing copies nothing and a start of a million series holds
//! some 60 bytes for each beside the head that it fills.

use crate::index::Place;
use crate::trial::{self, Flaw};
use firn_model::sample::TimestampMs;
use std::collections::HashMap;

const PAGE: usize = 4_096;

const NOWHERE: Place = Place(u32::MAX);

/// Terms of a page; a series' terms lie in one.
const TERMS_OF_PAGE: usize = 1 << 18;

#[derive(Clone, Copy)]
struct Entry {
    place: Place,
    /// Where its terms lie.
    page: u32,
    start: u32,
    count: u32,
}

const NOBODY: Entry = Entry {
    place: NOWHERE,
    page: 0,
    start: 0,
    count: 0,
};

/// The series by slot.
#[derive(Default)]
pub(super) struct Catalog {
    /// By slot; slots of a store that is years old are few among many numbers.
    pages: Vec<Option<Box<[Entry]>>>,
    terms: Vec<Vec<u32>>,
    /// The newest sealed sample's time by slot, for those whose pages the log may repeat.
    sealed: HashMap<usize, Box<[Option<TimestampMs>]>>,
}

impl Catalog {
    /// Adds a series.
    pub(super) fn add(&mut self, slot: u32, place: Place, terms: &[u32]) {
        let is_full = |page: &Vec<u32>| page.len() + terms.len() > TERMS_OF_PAGE;
        if self.terms.last().is_none_or(is_full) {
            // The first one of a small store grows as a vector does.
            let capacity = if self.terms.is_empty() {
                0
            } else {
                TERMS_OF_PAGE
            };
            self.terms.push(Vec::with_capacity(capacity));
        }
        let terms_page = self.terms.len() - 1;
        let into = &mut self.terms[terms_page];
        let start = into.len();
        into.extend_from_slice(terms);
        let page = slot as usize / PAGE;
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| vec![NOBODY; PAGE].into());
        page[slot as usize % PAGE] = Entry {
            place,
            page: terms_page as u32,
            start: start as u32,
            count: terms.len() as u32,
        };
    }

    /// Forgets a series.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(Some(page)) = self.pages.get_mut(slot as usize / PAGE) {
            page[slot as usize % PAGE] = NOBODY;
        }
    }

    /// Where a series lives.
    #[inline]
    pub(super) fn place(&self, slot: u32) -> Option<Place> {
        let page = self.pages.get(slot as usize / PAGE)?.as_ref()?;
        Some(page[slot as usize % PAGE].place).filter(|place| *place != NOWHERE)
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
            && !trial::has(Flaw::ReplaysSealed)
    }

    /// Calls `each` with the series that were not forgotten, by ascending slot.
    pub(super) fn each_by_slot(&self, mut each: impl FnMut(u32, Place, &[u32])) {
        for (number, page) in self.pages.iter().enumerate() {
            for (at, entry) in page.iter().flat_map(|p| p.iter()).enumerate() {
                if entry.place != NOWHERE {
                    let terms = &self.terms[entry.page as usize][entry.start as usize..];
                    let slot = (number * PAGE + at) as u32;
                    each(slot, entry.place, &terms[..entry.count as usize]);
                }
            }
        }
    }
}
