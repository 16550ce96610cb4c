//! Which pages there are, by group: what a reader asks to find the sealed samples of a series.

use super::GROUP_SLOTS;
use super::meta::PageMeta;
use super::segment::Segment;
use crate::index::Run;
use firn_model::log::Position;
use firn_model::sample::{TimeRange, TimestampMs};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// A page and where its bytes lie. Some 64 bytes of memory: a group has one for each window of the
/// retention.
#[derive(Debug)]
pub(crate) struct PageEntry {
    pub(crate) segment: Arc<Segment>,
    /// Of its columns in the file of the segment.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    group: u32,
    /// From its oldest sample to its newest.
    pub(crate) range: TimeRange,
    /// The series that have a column; `None` if all of the group have.
    slots: Option<Box<[Run]>>,
}

impl PageEntry {
    /// The entry of a page with `meta`.
    pub(crate) fn new(meta: &PageMeta, segment: Arc<Segment>, offset: u64, bytes: u32) -> Self {
        let is_whole = meta.slots.len() == GROUP_SLOTS as usize;
        Self {
            segment,
            offset,
            bytes,
            group: meta.group,
            range: meta.range,
            slots: (!is_whole).then(|| meta.slots.as_slice().into()),
        }
    }

    /// Whether `slot` has a column.
    pub(crate) fn has(&self, slot: u32) -> bool {
        match &self.slots {
            None => slot / GROUP_SLOTS == self.group,
            Some(runs) => {
                let at = runs.partition_point(|run| run.end <= slot);
                runs.get(at).is_some_and(|run| run.start <= slot)
            }
        }
    }
}

type Groups = BTreeMap<u32, Vec<Arc<PageEntry>>>;

/// All pages. Of each group they stand in the order in which they were sealed.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    groups: RwLock<Groups>,
}

impl Directory {
    /// Adds a page; readers find it from here on.
    pub(crate) fn add(&self, page: Arc<PageEntry>) {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        groups.entry(page.group).or_default().push(page);
    }

    /// The pages of each of `wanted` that overlap `range`, as they are now.
    pub(crate) fn overlapping(
        &self,
        wanted: impl Iterator<Item = u32>,
        range: TimeRange,
    ) -> Vec<Vec<Arc<PageEntry>>> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        wanted
            .map(|group| {
                let pages = groups.get(&group).map_or(&[][..], Vec::as_slice);
                let overlaps = pages.iter().filter(|p| p.range.overlaps(&range));
                overlaps.cloned().collect()
            })
            .collect()
    }

    /// Forgets the pages of a segment.
    pub(crate) fn forget(&self, segment: Position) {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|_, pages| {
            pages.retain(|p| p.segment.number != segment);
            !pages.is_empty()
        });
    }

    /// The oldest sample's time, how many pages, and their bytes.
    pub(crate) fn summary(&self) -> Summary {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let mut summary = Summary::default();
        for page in groups.values().flatten() {
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
