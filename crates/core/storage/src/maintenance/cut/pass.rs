//! The sources of a cut, and one pass over them: collects the columns of a partition of the series
//! from all pages that have them.
//!
//! Pages are ordered by target and blocks by metric, so each pass opens every page with a series of
//! its partition. This costs about 15 us per page, mostly from the system's cache. The alternatives
//! are worse: holding the columns of all series would take memory proportional to the size of the
//! block, and spilling them to disk would write every sample once more.

use super::order::SeriesOrder;
use super::progress::BlockCutProgress;
use crate::block::MetricMetadataSet;
use crate::chunk::SampleColumns;
use crate::damage::{self, DamageKind, DamageList};
use crate::error::StorageError;
use crate::exemplars::ExemplarStorage;
use crate::ids::{SeriesRef, SeriesSlot};
use crate::page::{PageDecodeScratch, PageReader};
use crate::parts::MetadataSource;
use crate::parts::head::StoreHead;
use crate::parts::numbers::SeriesNumbers;
use crate::sealed::SealedPages;
use crate::sealed::cache::{page_damage_error, read};
use crate::sealed::directory::{PageLists, SealedPageEntry};
use crate::tombstones::hide_deleted;
use firn_model::exemplar::SeriesExemplars;
use firn_model::labels::Labels;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{TimeRange, TimestampMs};
use std::sync::{Arc, OnceLock};

/// Minimum number of samples decoded at a time: 8 MiB of columns.
const SAMPLES_MIN: usize = 512 << 10;

/// Maximum number of passes over the pages, apart from a few more if series differ in length.
const PASSES_MAX: usize = 64;

/// Returns the number of samples to decode at a time for a block of `samples` samples.
pub(super) fn samples_per_pass(samples: usize) -> usize {
    SAMPLES_MIN.max(samples / PASSES_MAX)
}

/// Returns an estimate of the number of samples in the pages, from their size on disk.
pub(super) fn estimate_samples(pages: &PageLists) -> usize {
    let pages = pages.iter().flat_map(|(_, pages)| pages);
    // A sample usually takes between 0.5 and 2 bytes.
    pages.map(|page| page.bytes as usize).sum()
}

/// The sources of the blocks that are cut: pages, exemplars and metadata of metrics.
#[derive(Clone, Copy)]
pub(crate) struct CutSources<'a> {
    pub(in crate::maintenance) head: &'a StoreHead,
    pub(in crate::maintenance) sealed: &'a SealedPages,
    pub(in crate::maintenance) exemplars: &'a ExemplarStorage,
    pub(in crate::maintenance) metadata: &'a OnceLock<MetadataSource>,
    pub(in crate::maintenance) damages: &'a DamageList,
}

impl CutSources<'_> {
    /// Returns the time of the oldest sample in pages from `cut` on.
    pub(super) fn find_oldest_since(&self, cut: TimestampMs) -> Option<TimestampMs> {
        self.sealed.directory.find_oldest_since(cut)
    }

    /// Returns the pages with samples in `range`, and their series in block order.
    pub(super) fn list_series(&self, range: TimeRange) -> (PageLists, SeriesOrder) {
        let pages = self.sealed.directory.find_all_overlapping(range);
        let order = SeriesOrder::new(self.head, &pages);
        (pages, order)
    }

    /// Returns the current metadata of metrics, for a block with this range.
    pub(super) fn collect_metadata(&self, range: TimeRange) -> MetricMetadataSet {
        let learn = self.metadata.get();
        let batch = learn.map_or_else(MetadataBatch::default, |learn| learn());
        MetricMetadataSet::from_batch(range, &batch)
    }

    /// Writes the next partition. Returns whether it was the last one.
    pub(super) fn write_partition(
        &self,
        writing: &mut BlockCutProgress,
    ) -> Result<bool, StorageError> {
        let count = writing.samples_at_once / writing.samples_each;
        let series = writing.order.next_series(&self.head.index, count);
        let columns = self.read_columns(writing, &series)?;
        let mut exemplars = SeriesExemplars::default();
        for ((number, labels), columns) in series.iter().zip(&columns) {
            if columns.times.is_empty() {
                continue;
            }
            let (first, last) = (columns.times.first(), columns.times.last());
            let is_in_cut =
                |time: Option<&TimestampMs>| time.is_some_and(|t| writing.range.contains(*t));
            assert!(
                is_in_cut(first) && is_in_cut(last),
                "samples from {first:?} to {last:?} in a cut of {:?}",
                writing.range
            );
            writing.writer.push(labels.as_ref(), columns)?;
            exemplars.clear();
            let slot = self.head.numbers.slot(*number);
            self.exemplars
                .copy_series(slot, writing.exemplar_range(), &mut exemplars);
            let of_series = exemplars.iter().map(|(_, exemplar)| exemplar);
            writing.writer.push_exemplars(of_series)?;
        }
        writing.series_done += series.len() as u64;
        Ok(writing.order.is_done())
    }

    /// Returns the columns of `series`, in their order.
    fn read_columns(
        &self,
        writing: &BlockCutProgress,
        series: &[(SeriesRef, Labels)],
    ) -> Result<Vec<SampleColumns>, StorageError> {
        let mut columns = vec![SampleColumns::default(); series.len()];
        let mut by_slot: Vec<usize> = (0..series.len()).collect();
        by_slot.sort_unstable_by_key(|i| series[*i].0);
        let share_group =
            |a: &usize, b: &usize| SeriesNumbers::share_group(series[*a].0, series[*b].0);
        let slot_of = |i: usize| self.head.numbers.slot(series[i].0);
        for of_group in by_slot.chunk_by(share_group) {
            let group = self.head.numbers.group_of(series[of_group[0]].0);
            let found = writing
                .pages
                .binary_search_by_key(&group, |(group, _)| *group);
            let Ok(at) = found else { continue };
            for entry in &writing.pages[at].1 {
                let mut wanted = of_group
                    .iter()
                    .filter(|i| entry.has_series(slot_of(**i)))
                    .peekable();
                if wanted.peek().is_none() {
                    continue;
                }
                let Some(page) = self.read_cut_page(entry)? else {
                    continue;
                };
                let mut scratch = PageDecodeScratch::default();
                for i in wanted {
                    let into = &mut columns[*i];
                    self.append_column(writing, entry, &page, slot_of(*i), &mut scratch, into);
                }
            }
        }
        Ok(columns)
    }

    /// Reads the page of `entry`. Returns `None` if it is damaged, and reports the damage. A disk
    /// error is returned: the page is kept, and the cut waits.
    fn read_cut_page(
        &self,
        entry: &Arc<SealedPageEntry>,
    ) -> Result<Option<PageReader>, StorageError> {
        match read(entry) {
            Ok(page) => Ok(Some(page)),
            Err(e) if e.is_disk_fault() => Err(e),
            Err(e) => {
                self.report_lost_in_cut(entry, &e);
                Ok(None)
            }
        }
    }

    fn append_column(
        &self,
        writing: &BlockCutProgress,
        entry: &SealedPageEntry,
        page: &PageReader,
        slot: SeriesSlot,
        scratch: &mut PageDecodeScratch,
        into: &mut SampleColumns,
    ) {
        let before = into.times.len();
        let decoded = match page.find_column(slot) {
            Ok(Some(column)) => page.decode(&column, writing.range, scratch, into),
            Ok(None) => Ok(()),
            Err(e) => Err(e),
        };
        match decoded {
            Ok(()) => {
                let deleted = writing.tombstones.in_order.find(slot.0);
                hide_deleted(into, before, deleted);
                into.merge_from(before);
                if !deleted.is_empty() {
                    into.forget_reset_hints();
                }
            }
            Err(e) => self.report_lost_in_cut(entry, &page_damage_error(entry, e)),
        }
    }

    /// Reports samples that cannot be read, like any reader; they will be missing in the block.
    fn report_lost_in_cut(&self, entry: &SealedPageEntry, error: &StorageError) {
        let damage = damage::damage_from_error(DamageKind::Pages, error);
        self.damages
            .report_read_damage(damage.with_time_range(Some(entry.range)));
    }
}
