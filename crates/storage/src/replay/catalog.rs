//! The series that replay has met: their places, and their terms until the index is built.
//!
//! Everything lies in pages, so that growing copies nothing and a start of a million series holds
//! some 60 bytes for each beside the head that it fills.

use crate::ids::{GroupId, SeriesRef, TermId};
use crate::index::Place;
use crate::sealed::group_of;
use crate::trial::{self, Flaw};
use firn_model::sample::{TimeRange, TimestampMs};
use std::collections::BTreeMap;

const PAGE: usize = 4_096;

const NOWHERE: Place = Place(u32::MAX);

/// Terms of a page; a series' terms lie in one.
const TERMS_OF_PAGE: usize = 1 << 18;

/// Pages by number, of which some are not there.
struct Pages<T>(Vec<Option<Box<[T]>>>);

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Pages<T> {
    #[inline]
    fn get(&self, SeriesRef(slot): SeriesRef) -> Option<T> {
        let page = self.0.get(slot as usize / PAGE)?.as_ref()?;
        Some(page[slot as usize % PAGE])
    }

    /// What `slot` has; `none` if nothing was there yet.
    fn entry(&mut self, SeriesRef(slot): SeriesRef, none: T) -> &mut T {
        let page = slot as usize / PAGE;
        if self.0.len() <= page {
            self.0.resize_with(page + 1, || None);
        }
        let page = self.0[page].get_or_insert_with(|| vec![none; PAGE].into());
        &mut page[slot as usize % PAGE]
    }
}

/// The series by slot; slots of a store that is years old are few among many numbers.
#[derive(Default)]
pub(super) struct Catalog {
    places: Pages<Place>,
    /// The newest sealed sample's time, for those whose pages the log may repeat.
    sealed: Pages<Option<TimestampMs>>,
    /// Of groups whose pages are damaged: from when to when some page is seen to hold a series.
    spans: BTreeMap<GroupId, BTreeMap<SeriesRef, Vec<TimeRange>>>,
    /// All groups count as such: what pages there were is not known.
    trusts_spans_only: bool,
}

impl Catalog {
    /// Says where a series lives.
    pub(super) fn add(&mut self, slot: SeriesRef, place: Place) {
        *self.places.entry(slot, NOWHERE) = place;
    }

    /// Forgets a series.
    pub(super) fn forget(&mut self, slot: SeriesRef) {
        if self.place(slot).is_some() {
            self.add(slot, NOWHERE);
        }
    }

    /// Where a series lives.
    #[inline]
    pub(super) fn place(&self, slot: SeriesRef) -> Option<Place> {
        self.places.get(slot).filter(|place| *place != NOWHERE)
    }

    /// Says that the samples of a series up to `time` are sealed.
    pub(super) fn set_sealed(&mut self, slot: SeriesRef, time: TimestampMs) {
        let known = self.sealed.entry(slot, None);
        *known = Some(time).max(*known);
    }

    /// Says from when to when pages are seen to hold the series of a group whose pages are damaged:
    /// nothing else of it is sealed.
    pub(super) fn set_spans(&mut self, group: GroupId, spans: Vec<(SeriesRef, TimeRange)>) {
        let of_group = self.spans.entry(group).or_default();
        for (slot, span) in spans {
            of_group.entry(slot).or_default().push(span);
        }
    }

    /// Nothing is sealed but what [`Catalog::set_spans`] says, of any group.
    pub(super) fn trust_spans_only(&mut self) {
        self.trusts_spans_only = true;
    }

    /// Whether the sample of a series at `time` is sealed.
    #[inline]
    pub(super) fn is_sealed(&self, slot: SeriesRef, time: TimestampMs) -> bool {
        if self.trusts_spans_only || !self.spans.is_empty() {
            let of_group = self.spans.get(&group_of(slot));
            if of_group.is_some() || self.trusts_spans_only {
                let spans = of_group.and_then(|of_group| of_group.get(&slot));
                let holds = |span: &TimeRange| span.contains(time);
                return spans.is_some_and(|spans| spans.iter().any(holds));
            }
        }
        let sealed = self.sealed.get(slot).flatten();
        sealed.is_some_and(|sealed| time <= sealed) && !trial::has(Flaw::ReplaysSealed)
    }

    /// Calls `each` with the series that were not forgotten, by ascending slot.
    pub(super) fn each_by_slot(&self, mut each: impl FnMut(SeriesRef, Place)) {
        for (number, page) in self.places.0.iter().enumerate() {
            for (at, place) in page.iter().flat_map(|p| p.iter()).enumerate() {
                if *place != NOWHERE {
                    each(SeriesRef((number * PAGE + at) as u32), *place);
                }
            }
        }
    }
}

/// Where the terms of a series lie.
#[derive(Clone, Copy, Default)]
struct List {
    page: u32,
    start: u32,
    count: u32,
}

/// The terms of series, until the index is built.
#[derive(Default)]
pub(super) struct TermLists {
    by_slot: Pages<List>,
    terms: Vec<Vec<TermId>>,
}

impl TermLists {
    /// Adds the terms of a series.
    pub(super) fn add(&mut self, slot: SeriesRef, terms: &[TermId]) {
        let is_full = |page: &Vec<TermId>| page.len() + terms.len() > TERMS_OF_PAGE;
        if self.terms.last().is_none_or(is_full) {
            // The first one of a small store grows as a vector does.
            let capacity = if self.terms.is_empty() {
                0
            } else {
                TERMS_OF_PAGE
            };
            self.terms.push(Vec::with_capacity(capacity));
        }
        let page = self.terms.len() - 1;
        let into = &mut self.terms[page];
        *self.by_slot.entry(slot, List::default()) = List {
            page: page as u32,
            start: into.len() as u32,
            count: terms.len() as u32,
        };
        into.extend_from_slice(terms);
    }

    /// Bytes of memory of the terms; as many go into the index.
    pub(super) fn memory_bytes(&self) -> usize {
        let pages = self.terms.iter();
        pages
            .map(|page| page.capacity() * size_of::<TermId>())
            .sum()
    }

    /// The terms of a series; none if it is not known.
    pub(super) fn of(&self, slot: SeriesRef) -> &[TermId] {
        let list = self.by_slot.get(slot).unwrap_or_default();
        let page = self.terms.get(list.page as usize);
        page.map_or(&[], |page| {
            &page[list.start as usize..][..list.count as usize]
        })
    }
}
