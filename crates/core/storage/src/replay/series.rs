//! The series found by replay: their places, and their terms until the index is built.
//!
//! Tables grow by leaves, so that growth copies nothing. A start with a million series takes about
//! 60 bytes per series in addition to the head.

use crate::failpoints::{self, StoreFlaw};
use crate::ids::{GroupId, SeriesRef, SeriesSlot, TermId};
use crate::index::HeadSeriesPlace;
use crate::parts::numbers::{SeriesNumberCursor, StartupGroups};
use crate::sealed::group_of;
use firn_model::sample::{TimeRange, TimestampMs};
use std::collections::BTreeMap;

const LEAF: usize = 4_096;

const NOWHERE: HeadSeriesPlace = HeadSeriesPlace(u32::MAX);

/// Number of terms in a leaf; all terms of a series are in one leaf.
const TERMS_OF_LEAF: usize = 1 << 18;

/// The leaves of a table by number; a leaf is allocated when one of its numbers is first used.
struct SeriesLeaves<T>(Vec<Option<Box<[T]>>>);

impl<T> Default for SeriesLeaves<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> SeriesLeaves<T> {
    #[inline]
    fn get(&self, SeriesRef(slot): SeriesRef) -> Option<T> {
        let leaf = self.0.get(slot as usize / LEAF)?.as_ref()?;
        Some(leaf[slot as usize % LEAF])
    }

    /// Returns the entry of `slot`, initialized to `none`.
    fn entry(&mut self, SeriesRef(slot): SeriesRef, none: T) -> &mut T {
        let number = slot as usize / LEAF;
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        let leaf = self.0[number].get_or_insert_with(|| vec![none; LEAF].into());
        &mut leaf[slot as usize % LEAF]
    }
}

/// The series by the numbers assigned to their slots during replay.
pub(super) struct ReplaySeriesTable {
    /// The groups of slots to which numbers were assigned.
    pub(super) groups: StartupGroups,
    places: SeriesLeaves<HeadSeriesPlace>,
    /// Time of the newest sealed sample, for series whose pages the log may repeat.
    sealed: SeriesLeaves<Option<TimestampMs>>,
    /// For groups with damaged pages: the time ranges that undamaged pages contain, by series.
    spans: BTreeMap<GroupId, BTreeMap<SeriesSlot, Vec<TimeRange>>>,
    /// True if all groups are treated like those with damaged pages, because pages may be missing.
    trusts_spans_only: bool,
    /// Blocks contain all in-order samples before this time.
    cut: TimestampMs,
}

impl ReplaySeriesTable {
    /// Returns an empty table. Blocks contain all in-order samples before `cut`.
    pub(super) fn new(cut: TimestampMs) -> Self {
        Self {
            groups: StartupGroups::default(),
            places: SeriesLeaves::default(),
            sealed: SeriesLeaves::default(),
            spans: BTreeMap::new(),
            trusts_spans_only: false,
            cut,
        }
    }

    /// Sets the place of a series in the head.
    pub(super) fn add(&mut self, slot: SeriesRef, place: HeadSeriesPlace) {
        *self.places.entry(slot, NOWHERE) = place;
    }

    /// Removes a series from the table, if it is in it.
    pub(super) fn remove(&mut self, slot: SeriesRef) {
        if self.place(slot).is_some() {
            self.add(slot, NOWHERE);
        }
    }

    /// Returns number and place of the series with this slot, if there is one.
    #[inline]
    pub(super) fn find(
        &self,
        numbers: &mut SeriesNumberCursor<'_>,
        slot: SeriesSlot,
    ) -> Option<(SeriesRef, HeadSeriesPlace)> {
        let series = numbers.number(slot)?;
        Some((series, self.place(series)?))
    }

    /// Returns the place of a series in the head, if it has one.
    #[inline]
    pub(super) fn place(&self, slot: SeriesRef) -> Option<HeadSeriesPlace> {
        self.places.get(slot).filter(|place| *place != NOWHERE)
    }

    /// Records that the samples of a series up to `time` are sealed.
    pub(super) fn set_sealed(&mut self, slot: SeriesRef, time: TimestampMs) {
        let known = self.sealed.entry(slot, None);
        *known = Some(time).max(*known);
    }

    /// Records the time ranges that undamaged pages contain for a group with damaged pages. No
    /// other samples of the group count as sealed.
    pub(super) fn set_spans(&mut self, group: GroupId, spans: Vec<(SeriesSlot, TimeRange)>) {
        let of_group = self.spans.entry(group).or_default();
        for (slot, span) in spans {
            of_group.entry(slot).or_default().push(span);
        }
    }

    /// Treats samples as unsealed from now on, in all groups, except those in the ranges passed to
    /// [`ReplaySeriesTable::set_spans`].
    pub(super) fn trust_spans_only(&mut self) {
        self.trusts_spans_only = true;
    }

    /// Returns whether an in-order sample of a series at `time` is in a page or a block.
    #[inline]
    pub(super) fn is_sealed(&self, slot: SeriesRef, time: TimestampMs) -> bool {
        if time < self.cut {
            return true;
        }
        if self.trusts_spans_only || !self.spans.is_empty() {
            let stored = self.groups.slot(slot);
            let of_group = stored.and_then(|stored| self.spans.get(&group_of(stored)));
            if of_group.is_some() || self.trusts_spans_only {
                let spans = of_group.zip(stored);
                let spans = spans.and_then(|(of_group, stored)| of_group.get(&stored));
                let holds = |span: &TimeRange| span.contains(time);
                return spans.is_some_and(|spans| spans.iter().any(holds));
            }
        }
        let sealed = self.sealed.get(slot).flatten();
        sealed.is_some_and(|sealed| time <= sealed) && !failpoints::has(StoreFlaw::ReplaysSealed)
    }

    /// Calls `each` with the series that were not removed, in ascending order of numbers.
    pub(super) fn each_in_order(&self, mut each: impl FnMut(SeriesRef, HeadSeriesPlace)) {
        for (number, leaf) in self.places.0.iter().enumerate() {
            for (at, place) in leaf.iter().flat_map(|places| places.iter()).enumerate() {
                if *place != NOWHERE {
                    each(SeriesRef((number * LEAF + at) as u32), *place);
                }
            }
        }
    }
}

/// Position of the terms of a series.
#[derive(Clone, Copy, Default)]
struct TermListLocation {
    leaf: u32,
    start: u32,
    count: u32,
}

/// The terms of all series, until the index is built.
#[derive(Default)]
pub(super) struct SeriesTermLists {
    by_slot: SeriesLeaves<TermListLocation>,
    terms: Vec<Vec<TermId>>,
}

impl SeriesTermLists {
    /// Adds the terms of a series.
    pub(super) fn add(&mut self, slot: SeriesRef, terms: &[TermId]) {
        let is_full = |leaf: &Vec<TermId>| leaf.len() + terms.len() > TERMS_OF_LEAF;
        if self.terms.last().is_none_or(is_full) {
            // The first leaf of a small store grows like a vector.
            let capacity = if self.terms.is_empty() {
                0
            } else {
                TERMS_OF_LEAF
            };
            self.terms.push(Vec::with_capacity(capacity));
        }
        let leaf = self.terms.len() - 1;
        let into = &mut self.terms[leaf];
        *self.by_slot.entry(slot, TermListLocation::default()) = TermListLocation {
            leaf: leaf as u32,
            start: into.len() as u32,
            count: terms.len() as u32,
        };
        into.extend_from_slice(terms);
    }

    /// Returns the memory of the terms in bytes; the index will need as much.
    pub(super) fn memory_bytes(&self) -> usize {
        let leaves = self.terms.iter();
        leaves
            .map(|leaf| leaf.capacity() * size_of::<TermId>())
            .sum()
    }

    /// Returns the terms of a series; empty if it is unknown.
    pub(super) fn series_terms(&self, slot: SeriesRef) -> &[TermId] {
        let list = self.by_slot.get(slot).unwrap_or_default();
        let leaf = self.terms.get(list.leaf as usize);
        leaf.map_or(&[], |leaf| {
            &leaf[list.start as usize..][..list.count as usize]
        })
    }
}
