//! The in-memory directory of all pages by group, from which readers find the sealed samples of a
//! series.

use super::group::{GROUP_SLOTS, group_of, place_in_group};
use super::lost_pages::LostPages;
use super::meta::SealedPageMeta;
use super::segment::PageSegment;
use crate::ids::{GroupId, SeriesSlot};
use crate::index::SlotRun;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::log::LogPosition;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::sync::{read, write};
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

/// A page and the location of its bytes. It takes about 100 bytes including the list entry; a group
/// has one page for each window of the retention.
#[derive(Debug)]
pub(crate) struct SealedPageEntry {
    pub(crate) segment: Arc<PageSegment>,
    /// Offset of its columns in the segment file.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    group: GroupId,
    /// Time range from the oldest to the newest sample, both inclusive.
    pub(crate) range: TimeRange,
    /// Places in the group of the series that have a column, or `None` if all have one.
    places: Option<Box<[SlotRun]>>,
}

impl SealedPageEntry {
    /// Creates the entry of the page with the header `meta`, whose `bytes` bytes of columns are at
    /// `offset`.
    pub(crate) fn new(
        meta: &SealedPageMeta,
        segment: Arc<PageSegment>,
        offset: u64,
        bytes: u32,
    ) -> Self {
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

    /// Calls `each` with the slots of the series that have a column, in ascending order.
    pub(crate) fn for_each_slot(&self, each: impl FnMut(SeriesSlot)) {
        let whole = [SlotRun {
            start: 0,
            end: GROUP_SLOTS,
        }];
        let runs = self.places.as_deref().unwrap_or(&whole);
        let places = runs.iter().flat_map(|run| run.start..run.end);
        places.map(|place| self.group.slot(place)).for_each(each);
    }

    /// Returns the number of series that have a column.
    pub(crate) fn series_count(&self) -> usize {
        let of_runs =
            |runs: &[SlotRun]| runs.iter().map(|run| (run.end - run.start) as usize).sum();
        self.places.as_deref().map_or(GROUP_SLOTS as usize, of_runs)
    }

    /// Returns whether the series at `slot` has a column.
    pub(crate) fn has_series(&self, slot: SeriesSlot) -> bool {
        let is_placed = |runs: &[SlotRun]| {
            let place = place_in_group(slot);
            let at = runs.partition_point(|run| run.end <= place);
            runs.get(at).is_some_and(|run| run.start <= place)
        };
        group_of(slot) == self.group && self.places.as_deref().is_none_or(is_placed)
    }
}

/// Memory of a list of pages in addition to its entries: its place in an outer list that may have
/// grown to twice its length, and the overhead of the allocator.
const LIST_BYTES: usize = 2 * size_of::<(GroupId, Vec<Arc<SealedPageEntry>>)>() + 16;

/// Groups in ascending order, each with its pages.
pub(crate) type PageLists = Vec<(GroupId, Vec<Arc<SealedPageEntry>>)>;

/// The pages of a group in the order in which they were sealed. This is nearly the order of their
/// samples, so a query of the last hour visits only the newest pages, regardless of the number of
/// pages.
#[derive(Debug, Default)]
struct SealedPageGroup {
    pages: Vec<BoundedPageEntry>,
}

/// A page with bounds on its neighbours, stored inline so that a search does not dereference the
/// entries.
#[derive(Debug)]
struct BoundedPageEntry {
    /// Time of the newest sample of this page and all pages before it.
    newest: TimestampMs,
    /// Time of the oldest sample of this page and all pages after it.
    oldest: TimestampMs,
    page: Arc<SealedPageEntry>,
}

impl SealedPageGroup {
    fn push(&mut self, page: Arc<SealedPageEntry>) {
        let TimeRange { min, max } = page.range;
        let older = |placed: &&mut BoundedPageEntry| placed.oldest > min;
        for placed in self.pages.iter_mut().rev().take_while(older) {
            placed.oldest = min;
        }
        let newest = self.pages.last().map_or(max, |last| last.newest.max(max));
        self.pages.push(BoundedPageEntry {
            newest,
            oldest: min,
            page,
        });
    }

    /// Returns the pages that may overlap `range`, found by a binary search for each end.
    fn find_overlapping(&self, range: TimeRange) -> &[BoundedPageEntry] {
        let start = self.pages.partition_point(|p| p.newest < range.min);
        let end = self.pages.partition_point(|p| p.oldest <= range.max);
        self.pages.get(start..end).unwrap_or(&[])
    }

    /// Removes the pages of a segment, and returns the segment if the group had any of its pages.
    fn remove_segment(&mut self, segment: LogPosition) -> Option<Arc<PageSegment>> {
        let is_kept = |placed: &BoundedPageEntry| placed.page.segment.number != segment;
        let gone = self.pages.iter().find(|placed| !is_kept(placed))?;
        let gone = gone.page.segment.clone();
        let pages = std::mem::take(&mut self.pages).into_iter();
        for placed in pages.filter(is_kept) {
            self.push(placed.page);
        }
        Some(gone)
    }
}

/// The directory of all pages of a store. Readers take a read lock only while they collect entries.
#[derive(Debug, Default)]
pub(crate) struct SealedPageDirectory {
    groups: RwLock<BTreeMap<GroupId, SealedPageGroup>>,
    /// Damage that reads of the pages found.
    pub(super) lost: LostPages,
}

impl SealedPageDirectory {
    /// Adds a page; readers find it from here on.
    pub(crate) fn add(&self, page: Arc<SealedPageEntry>) {
        let mut groups = write(&self.groups);
        groups.entry(page.group).or_default().push(page);
    }

    /// Returns those of the `wanted` groups with pages that overlap `range`, together with these
    /// pages. `wanted` should be nearly sorted. The memory of the lists is reserved in `memory`
    /// before they are allocated.
    pub(crate) fn find_overlapping(
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
            let between = group.find_overlapping(range);
            if between.is_empty() {
                continue;
            }
            memory.grow(LIST_BYTES + between.len() * size_of::<Arc<SealedPageEntry>>())?;
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

    /// Returns all pages that overlap `range`, by group, without a bound on the memory of the
    /// lists.
    pub(crate) fn find_all_overlapping(&self, range: TimeRange) -> PageLists {
        let groups = read(&self.groups);
        let mut found = Vec::new();
        for (number, group) in groups.iter() {
            let between = group
                .find_overlapping(range)
                .iter()
                .map(|placed| &placed.page);
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

    /// Returns a lower bound of the time of the oldest sample at or after `from`, or `None` if
    /// there is none. Visits every group.
    pub(crate) fn find_oldest_since(&self, from: TimestampMs) -> Option<TimestampMs> {
        let groups = read(&self.groups);
        let behind = groups.values().filter_map(|group| {
            let pages = group
                .find_overlapping(TimeRange::new(from, i64::MAX))
                .iter();
            let newer = pages.filter(|placed| placed.page.range.max >= from);
            newer.map(|placed| placed.page.range.min).min()
        });
        behind.min().map(|oldest| oldest.max(from))
    }

    /// Returns the number of pages of a segment and their time range. Visits every page.
    pub(super) fn segment_extent(&self, segment: LogPosition) -> (usize, Option<TimeRange>) {
        let groups = read(&self.groups);
        let (mut count, mut extent) = (0, None::<TimeRange>);
        for BoundedPageEntry { page, .. } in groups.values().flat_map(|group| &group.pages) {
            if page.segment.number == segment {
                count += 1;
                extent = TimeRange::hull_of(extent, Some(page.range));
            }
        }
        (count, extent)
    }

    /// Removes the pages of a segment whose file is about to be removed.
    pub(crate) fn remove_segment(&self, segment: LogPosition) {
        let mut groups = write(&self.groups);
        let mut gone = None;
        groups.retain(|_, group| {
            gone = group.remove_segment(segment).or(gone.take());
            !group.pages.is_empty()
        });
        drop(groups);
        if let Some(gone) = gone {
            // Queries that already hold entries of its pages must not report its absence as damage.
            gone.ranges().mark_removed();
        }
        self.lost.forget(segment);
    }

    /// Returns the time of the oldest sample, the number of pages and their total size.
    pub(crate) fn summary(&self) -> SealedPageSummary {
        let groups = read(&self.groups);
        let mut summary = SealedPageSummary::default();
        for BoundedPageEntry { page, .. } in groups.values().flat_map(|group| &group.pages) {
            let oldest = summary.oldest.unwrap_or(i64::MAX).min(page.range.min);
            summary.oldest = Some(oldest);
            summary.pages += 1;
            summary.bytes += u64::from(page.bytes);
        }
        summary
    }
}

/// Statistics of all pages in the directory, as of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SealedPageSummary {
    /// Time of the oldest sample in milliseconds, or `None` without pages.
    pub(crate) oldest: Option<TimestampMs>,
    /// Number of pages.
    pub(crate) pages: usize,
    /// Total size of the columns of the pages in bytes.
    pub(crate) bytes: u64,
}
