//! Which pages there are, by group: what a reader asks to find the sealed samples of a series.

use super::group::{GROUP_SLOTS, group_of, place_in_group};
use super::lost_pages::LostPages;
use super::meta::PageMeta;
use super::segment::Segment;
use crate::ids::{GroupId, Slot};
use crate::index::Run;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::log::Position;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::sync::{read, write};
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

/// A page and where its bytes lie. Some 100 bytes of memory with its place: a group has one for
/// each window of the retention.
#[derive(Debug)]
pub(crate) struct PageEntry {
    pub(crate) segment: Arc<Segment>,
    /// Of its columns in the file of the segment.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    group: GroupId,
    /// From its oldest sample to its newest.
    pub(crate) range: TimeRange,
    /// The places of the series that have a column; `None` if all of the group have.
    places: Option<Box<[Run]>>,
}

impl PageEntry {
    /// The entry of a page with `meta`.
    pub(crate) fn new(meta: &PageMeta, segment: Arc<Segment>, offset: u64, bytes: u32) -> Self {
        let is_whole = meta.places.len() == GROUP_SLOTS as usize;
        Self {
            segment,
            offset,
            bytes,
            group: meta.group,
            range: meta.range,
            places: (!is_whole).then(|| meta.places.as_slice().into()),
        }
    }

    /// Calls `each` with the series that have a column, ascending.
    pub(crate) fn each_slot(&self, each: impl FnMut(Slot)) {
        let whole = [Run {
            start: 0,
            end: GROUP_SLOTS,
        }];
        let runs = self.places.as_deref().unwrap_or(&whole);
        let places = runs.iter().flat_map(|run| run.start..run.end);
        places.map(|place| self.group.slot(place)).for_each(each);
    }

    /// How many series have a column.
    pub(crate) fn series_count(&self) -> usize {
        let of_runs = |runs: &[Run]| runs.iter().map(|run| (run.end - run.start) as usize).sum();
        self.places.as_deref().map_or(GROUP_SLOTS as usize, of_runs)
    }

    /// Whether `slot` has a column.
    pub(crate) fn has(&self, slot: Slot) -> bool {
        let is_placed = |runs: &[Run]| {
            let place = place_in_group(slot);
            let at = runs.partition_point(|run| run.end <= place);
            runs.get(at).is_some_and(|run| run.start <= place)
        };
        group_of(slot) == self.group && self.places.as_deref().is_none_or(is_placed)
    }
}

/// What a list of the pages of a group takes beside the pages: its place among twice as many, since
/// they grow, and what the allocator adds.
const LIST_BYTES: usize = 2 * size_of::<(GroupId, Vec<Arc<PageEntry>>)>() + 16;

/// Groups, ascending, and pages of each.
pub(crate) type PageLists = Vec<(GroupId, Vec<Arc<PageEntry>>)>;

/// The pages of a group in the order in which they were sealed. That is nearly the order of their
/// samples: a query of the newest hour looks at the newest pages, however many there are.
#[derive(Debug, Default)]
struct Group {
    pages: Vec<Placed>,
}

/// A page and what is known of those around it, kept apart from the entry, which lies elsewhere.
#[derive(Debug)]
struct Placed {
    /// The time of the newest sample of this page and those before it.
    newest: TimestampMs,
    /// The time of the oldest sample of this page and those behind it.
    oldest: TimestampMs,
    page: Arc<PageEntry>,
}

impl Group {
    fn push(&mut self, page: Arc<PageEntry>) {
        let TimeRange { min, max } = page.range;
        let older = |placed: &&mut Placed| placed.oldest > min;
        for placed in self.pages.iter_mut().rev().take_while(older) {
            placed.oldest = min;
        }
        let newest = self.pages.last().map_or(max, |last| last.newest.max(max));
        self.pages.push(Placed {
            newest,
            oldest: min,
            page,
        });
    }

    /// The pages that may overlap `range`: a binary search for each end.
    fn between(&self, range: TimeRange) -> &[Placed] {
        let start = self.pages.partition_point(|p| p.newest < range.min);
        let end = self.pages.partition_point(|p| p.oldest <= range.max);
        self.pages.get(start..end).unwrap_or(&[])
    }

    /// Keeps the pages that are not of a segment; returns that if it had pages here.
    fn forget(&mut self, segment: Position) -> Option<Arc<Segment>> {
        let is_kept = |placed: &Placed| placed.page.segment.number != segment;
        let gone = self.pages.iter().find(|placed| !is_kept(placed))?;
        let gone = gone.page.segment.clone();
        let pages = std::mem::take(&mut self.pages).into_iter();
        for placed in pages.filter(is_kept) {
            self.push(placed.page);
        }
        Some(gone)
    }
}

/// All pages.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    groups: RwLock<BTreeMap<GroupId, Group>>,
    /// What of the pages could not be read.
    pub(super) lost: LostPages,
}

impl Directory {
    /// Adds a page; readers find it from here on.
    pub(crate) fn add(&self, page: Arc<PageEntry>) {
        let mut groups = write(&self.groups);
        groups.entry(page.group).or_default().push(page);
    }

    /// The groups among `wanted`, which come nearly in order, with pages that overlap `range`, and
    /// those pages, as they are now.
    /// What the lists take is reserved in `memory` before they are made.
    pub(crate) fn overlapping(
        &self,
        wanted: impl Iterator<Item = GroupId>,
        range: TimeRange,
        memory: &mut Reservation,
    ) -> Result<PageLists, Error> {
        let groups = read(&self.groups);
        let mut found = Vec::new();
        for number in wanted {
            let Some(group) = groups.get(&number) else {
                continue;
            };
            let between = group.between(range);
            if between.is_empty() {
                continue;
            }
            memory.grow(LIST_BYTES + between.len() * size_of::<Arc<PageEntry>>())?;
            let mut pages = Vec::with_capacity(between.len());
            let overlapping = between.iter().map(|placed| &placed.page);
            pages.extend(overlapping.filter(|p| p.range.overlaps(&range)).cloned());
            if !pages.is_empty() {
                found.push((number, pages));
            }
        }
        found.sort_unstable_by_key(|(number, _)| *number);
        Ok(found)
    }

    /// All pages that overlap `range`, by group.
    pub(crate) fn all_overlapping(&self, range: TimeRange) -> PageLists {
        let groups = read(&self.groups);
        let mut found = Vec::new();
        for (number, group) in groups.iter() {
            let between = group.between(range).iter().map(|placed| &placed.page);
            let pages: Vec<_> = between
                .filter(|p| p.range.overlaps(&range))
                .cloned()
                .collect();
            if !pages.is_empty() {
                found.push((*number, pages));
            }
        }
        found
    }

    /// A time not after the oldest sample at `from` or later, if there is one. Looks at every
    /// group.
    pub(crate) fn oldest_from(&self, from: TimestampMs) -> Option<TimestampMs> {
        let groups = read(&self.groups);
        let behind = groups.values().filter_map(|group| {
            let pages = group.between(TimeRange::new(from, i64::MAX)).iter();
            let newer = pages.filter(|placed| placed.page.range.max >= from);
            newer.map(|placed| placed.page.range.min).min()
        });
        behind.min().map(|oldest| oldest.max(from))
    }

    /// How many pages a segment has, and from their oldest sample to their newest. Looks at every
    /// page.
    pub(super) fn extent_of(&self, segment: Position) -> (usize, Option<TimeRange>) {
        let groups = read(&self.groups);
        let (mut count, mut extent) = (0, None::<TimeRange>);
        for Placed { page, .. } in groups.values().flat_map(|group| &group.pages) {
            if page.segment.number == segment {
                count += 1;
                extent = TimeRange::hull_of(extent, Some(page.range));
            }
        }
        (count, extent)
    }

    /// Forgets the pages of a segment, which is about to be removed.
    pub(crate) fn forget(&self, segment: Position) {
        let mut groups = write(&self.groups);
        let mut gone = None;
        groups.retain(|_, group| {
            gone = group.forget(segment).or(gone.take());
            !group.pages.is_empty()
        });
        drop(groups);
        if let Some(gone) = gone {
            // Selections that list its pages see it so.
            gone.ranges().mark_removed();
        }
        self.lost.forget(segment);
    }

    /// The oldest sample's time, how many pages, and their bytes.
    pub(crate) fn summary(&self) -> Summary {
        let groups = read(&self.groups);
        let mut summary = Summary::default();
        for Placed { page, .. } in groups.values().flat_map(|group| &group.pages) {
            let oldest = summary.oldest.unwrap_or(i64::MAX).min(page.range.min);
            summary.oldest = Some(oldest);
            summary.pages += 1;
            summary.bytes += u64::from(page.bytes);
        }
        summary
    }
}

/// Figures about all pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The oldest sample's time.
    pub(crate) oldest: Option<TimestampMs>,
    /// How many.
    pub(crate) pages: usize,
    /// Bytes of their columns.
    pub(crate) bytes: u64,
}
