//! Replay of pages: finds out which series have samples in which epochs, and the newest sample of
//! each series.
//!
//! The newest sample of a series determines which samples it accepts next, and which rows of the
//! log are already in a page. It is read from a page only if necessary: if the log may still
//! contain the page's samples, or if the page is so recent that a sample near it could be accepted.
//! Otherwise the end of the page is used instead.

use super::ReplayState;
use super::series::ReplaySeriesTable;
use crate::chunk::{ChunkSample, SampleColumns};
use crate::damage::{self, Damage, DamageKind, DamageList};
use crate::encoding::DecodeError;
use crate::error::StorageError;
use crate::fan_out::map;
use crate::ids::{GroupId, SeriesRef, SeriesSlot};
use crate::index::{HeadSeriesPlace, epoch_from_time};
use crate::maintenance::state::MaintenanceState;
use crate::page::{PageDecodeScratch, PageReader};
use crate::parts::StoreParts;
use crate::parts::head::StoreHead;
use crate::parts::numbers::SeriesNumberCursor;
use crate::sealed::cache::{page_damage_error, read};
use crate::sealed::directory::SealedPageEntry;
use crate::sealed::meta::SealedPageMeta;
use crate::sealed::segment::PageWithMeta;
use crate::sealed::{GROUP_SLOTS, place_in_group};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use firn_model::log::LogPosition;
use firn_model::sample::{TimeRange, TimestampMs};
use std::collections::BTreeMap;

/// Conditions under which the newest sample of a page must be read.
#[derive(Clone, Copy)]
struct NewestSampleCriteria {
    /// The first position of the log.
    log_first: LogPosition,
    /// Pages with samples at or after this time are recent.
    recent: TimestampMs,
    /// Samples before this time are beyond the retention, or in blocks.
    cutoff: TimestampMs,
}

/// A group whose pages are being loaded.
struct PageGroupLoader<'a> {
    head: &'a StoreHead,
    damages: &'a DamageList,
    known: &'a ReplaySeriesTable,
    numbers: SeriesNumberCursor<'a>,
    needed: NewestSampleCriteria,
    /// The newest sample of each series in the pages loaded so far.
    newest: [TimestampMs; GROUP_SLOTS as usize],
    found: LoadedPageGroup,
}

/// Result of loading the pages of a group.
#[derive(Default)]
struct LoadedPageGroup {
    /// Time up to which series are sealed, if the log may repeat their samples.
    sealed: Vec<(SeriesRef, TimestampMs)>,
    /// True if a page whose samples the log may repeat could not be read completely.
    is_damaged: bool,
    /// Number of series with samples that are not in the catalogue, and the time range of those
    /// samples.
    nameless: u64,
    nameless_range: Option<TimeRange>,
}

impl PageGroupLoader<'_> {
    /// Returns whether a page up to `time` may have a newer sample of a series than the pages
    /// loaded so far.
    fn is_fresh(&self, slot: SeriesSlot, time: TimestampMs) -> bool {
        self.newest[place_in_group(slot) as usize] < time
    }

    /// Sets the newest sample of a series in the pages loaded so far.
    fn set_newest(&mut self, slot: SeriesSlot, time: TimestampMs) {
        self.newest[place_in_group(slot) as usize] = time;
    }

    /// Returns number and place of a series, if it is in the catalogue.
    fn find(&mut self, slot: SeriesSlot) -> Option<(SeriesRef, HeadSeriesPlace)> {
        self.known.find(&mut self.numbers, slot)
    }
}

impl ReplayState<'_> {
    /// Makes the pages visible to readers and registers them in head, index and coverage. Returns
    /// whether all pages that the log may repeat were undamaged. If not, or if `is_whole` is false
    /// because pages are missing, only samples that are found in a page are skipped in the log, and
    /// the log is kept.
    pub(super) fn load_pages(
        &mut self,
        pages: Vec<PageWithMeta>,
        is_whole: bool,
        state: &mut MaintenanceState,
    ) -> bool {
        let store = self.store;
        let Some(newest) = pages.iter().map(|(meta, _)| meta.range.max).max() else {
            return true;
        };
        store.head.newest.fetch_max(newest, Ordering::Relaxed);
        let cut = store.blocks.view().cut;
        let needed = NewestSampleCriteria {
            log_first: store.log.positions().first,
            recent: newest.saturating_sub(store.head.lateness_ms()),
            cutoff: store.retaining.cutoff_at(newest).max(cut),
        };
        let mut groups: BTreeMap<GroupId, Vec<PageWithMeta>> = BTreeMap::new();
        // The next tick removes the segments of pages whose samples are in blocks.
        for (meta, entry) in pages.into_iter().filter(|(meta, _)| meta.range.max >= cut) {
            meta.slots()
                .last()
                .into_iter()
                .for_each(|slot| self.record_slot(slot));
            store.sealed.directory.add(entry.clone());
            groups.entry(meta.group).or_default().push((meta, entry));
        }
        let groups: Vec<Vec<PageWithMeta>> = groups.into_values().collect();
        // Every series of a page is in the catalogue, which was read before.
        let mut known = std::mem::replace(&mut *lock(&self.known), ReplaySeriesTable::new(cut));
        let load = |i: usize| PageGroupLoader::new(store, &known, needed).load_group(&groups[i]);
        let found = map(&*store.env.compute, groups.len(), load);
        let mut all_whole = true;
        let mut nameless = (0, None);
        for (pages, found) in groups.iter().zip(found) {
            all_whole &= !found.is_damaged;
            let trusts = is_whole && !found.is_damaged;
            self.restore_coverage(pages, trusts, state);
            match (trusts, pages.first()) {
                (false, Some((meta, _))) => {
                    store.sealed.returned.add(meta.group);
                    known.set_spans(meta.group, collect_intact_ranges(pages, needed));
                }
                _ => {
                    for (slot, time) in found.sealed {
                        known.set_sealed(slot, time);
                    }
                }
            }
            nameless.0 += found.nameless;
            nameless.1 = TimeRange::hull_of(nameless.1, found.nameless_range);
        }
        if !is_whole {
            known.trust_spans_only();
            store.sealed.returned.add_all();
        }
        *lock(&self.known) = known;
        self.report_unlabelled(nameless.0, nameless.1);
        all_whole
    }

    /// Registers the log positions of a group's pages in the coverage. If the pages are not
    /// trusted, the log may contain samples that are in no page, and is needed from its beginning.
    fn restore_coverage(&self, pages: &[PageWithMeta], trusts: bool, state: &mut MaintenanceState) {
        let log_last = self.store.log.positions().last;
        let start = self.store.log.positions().first.previous();
        for (meta, _) in pages {
            // A log that was removed manually assigns its positions again.
            let unsealed_after = if trusts {
                meta.unsealed_after.min(log_last)
            } else {
                start
            };
            state
                .coverage
                .restore_group(meta.group, meta.window_end, unsealed_after);
        }
    }

    /// Reports series whose part of the catalogue is lost: queries cannot find samples without
    /// labels.
    fn report_unlabelled(&self, series: u64, range: Option<TimeRange>) {
        if series == 0 {
            return;
        }
        let dir = self.store.dir.series();
        let what = format!("the labels of {series} series are lost, whose samples are in pages");
        let damage = Damage::for_file(DamageKind::Catalogue, &dir, what);
        self.store.damages.report(damage.with_time_range(range));
    }
}

impl<'a> PageGroupLoader<'a> {
    fn new(
        store: &'a StoreParts,
        known: &'a ReplaySeriesTable,
        needed: NewestSampleCriteria,
    ) -> Self {
        Self {
            head: &store.head,
            damages: &store.damages,
            known,
            numbers: known.groups.cursor(),
            needed,
            newest: [TimestampMs::MIN; GROUP_SLOTS as usize],
            found: LoadedPageGroup::default(),
        }
    }

    /// Loads the pages of one group, newest first.
    fn load_group(mut self, pages: &[PageWithMeta]) -> LoadedPageGroup {
        for (meta, entry) in pages.iter().rev() {
            self.load_page(meta, entry);
        }
        self.found
    }

    /// Loads one page: marks the epochs of its series in the index, and sets their newest samples
    /// in the head.
    fn load_page(&mut self, meta: &SealedPageMeta, entry: &SealedPageEntry) {
        let first = epoch_from_time(meta.range.min);
        let last = epoch_from_time(meta.range.max);
        let repeats = meta.sealed_up_to >= self.needed.log_first;
        let is_needed = repeats || meta.range.max >= self.needed.recent;
        let has_gaps = last - first > 1;
        let is_kept = meta.range.max >= self.needed.cutoff;
        let mut open = None;
        let wants = |slot: SeriesSlot, group: &mut Self| match group.find(slot) {
            None => is_kept,
            Some(_) => has_gaps || repeats || is_needed && group.is_fresh(slot, meta.range.max),
        };
        if meta.slots().any(|slot| wants(slot, self)) {
            match read(entry) {
                Ok(page) => open = Some(page),
                Err(e) => self.report_page_damage(meta, &e, repeats),
            }
        }
        if let Some(page) = open.as_ref().filter(|_| repeats)
            && let Err(e) = page.verify()
        {
            self.report_page_damage(meta, &page_damage_error(entry, e), repeats);
        }
        for slot in meta.slots() {
            let Some((series, place)) = self.find(slot) else {
                // Series whose samples are beyond the retention are not reported.
                if let Some(page) = open.as_ref().filter(|_| is_kept) {
                    self.count_unlabelled(page, slot);
                }
                continue;
            };
            let is_marked = match &open {
                Some(page) if has_gaps => self.mark_epochs(page, slot, series).is_ok(),
                _ => false,
            };
            if !is_marked {
                self.head.index.mark_sample(series, first);
                self.head.index.mark_sample(series, last);
            }
            if !self.is_fresh(slot, meta.range.max) {
                continue;
            }
            let column = match (&open, is_needed) {
                (Some(page), true) => read_newest_sample(page, slot).ok().flatten(),
                _ => None,
            };
            match column {
                Some((range, sample)) if self.is_fresh(slot, range.max) => {
                    self.set_newest(slot, range.max);
                    self.set_newest_sealed(place, range.max, Some(sample));
                    self.found.sealed.push((series, range.max));
                }
                Some(_) => {}
                // The log contains the damaged samples, unless it was trimmed.
                None if repeats => {}
                // The end of the page represents the newest sample, so a next sample in the same
                // epoch does not mark the epoch again.
                None => {
                    self.head.index.mark_sample(series, last);
                    self.set_newest(slot, meta.range.max);
                    self.set_newest_sealed(place, meta.range.max, None);
                }
            }
        }
    }

    /// Reports that a page, or a column of it, cannot be read.
    fn report_page_damage(&mut self, meta: &SealedPageMeta, error: &StorageError, repeats: bool) {
        self.found.is_damaged |= repeats;
        let damage = damage::damage_from_error(DamageKind::Pages, error);
        self.damages
            .report_read_damage(damage.with_time_range(Some(meta.range)));
    }

    /// Marks the epochs in which a series has samples, for a page in which epochs may be skipped:
    /// two consecutive samples may be any time apart.
    fn mark_epochs(
        &self,
        page: &PageReader,
        slot: SeriesSlot,
        series: SeriesRef,
    ) -> Result<(), DecodeError> {
        let Some(column) = page.find_column(slot)? else {
            return Ok(());
        };
        let mut columns = SampleColumns::default();
        page.decode(
            &column,
            TimeRange::ALL,
            &mut PageDecodeScratch::default(),
            &mut columns,
        )?;
        let mut epochs: Vec<i64> = columns.times.iter().map(|t| epoch_from_time(*t)).collect();
        epochs.dedup();
        for epoch in epochs {
            self.head.index.mark_sample(series, epoch);
        }
        Ok(())
    }

    /// Sets the newest sealed sample of a series in the head.
    fn set_newest_sealed(
        &self,
        place: HeadSeriesPlace,
        time: TimestampMs,
        sample: Option<ChunkSample>,
    ) {
        let (number, local) = self.head.decode_place(place);
        let mut shard = lock(&self.head.shards[number]);
        if let Some(series) = shard.series_mut(local) {
            let before = series.memory_bytes();
            series.set_newest_sealed(time, sample);
            let after = series.memory_bytes();
            shard.chunk_bytes = shard.chunk_bytes + after - before;
        }
    }
}

impl PageGroupLoader<'_> {
    /// Counts a series that is not in the catalogue, if it has samples within the retention.
    fn count_unlabelled(&mut self, page: &PageReader, slot: SeriesSlot) {
        let Ok(Some(column)) = page.find_column(slot) else {
            return;
        };
        let newest = column.range().max;
        if newest >= self.needed.cutoff && self.is_fresh(slot, newest) {
            // Counted once, however many pages contain it.
            self.set_newest(slot, TimestampMs::MAX);
            self.found.nameless += 1;
            self.found.nameless_range =
                TimeRange::hull_of(self.found.nameless_range, Some(column.range()));
        }
    }
}

/// Returns the time ranges that undamaged columns of a group contain, for pages whose samples the
/// log may repeat.
fn collect_intact_ranges(
    pages: &[PageWithMeta],
    needed: NewestSampleCriteria,
) -> Vec<(SeriesSlot, TimeRange)> {
    let mut spans = Vec::new();
    let repeats = |placed: &&PageWithMeta| placed.0.sealed_up_to >= needed.log_first;
    for (meta, entry) in pages.iter().filter(repeats) {
        // Unreadable pages were reported before.
        let Ok(page) = read(entry) else { continue };
        for slot in meta.slots() {
            if let Ok(Some((range, _))) = read_newest_sample(&page, slot) {
                spans.push((slot, range));
            }
        }
    }
    spans
}

/// Returns the time range of the samples of a series in `page`, and the newest one. Decoding checks
/// that the column is undamaged.
fn read_newest_sample(
    page: &PageReader,
    slot: SeriesSlot,
) -> Result<Option<(TimeRange, ChunkSample)>, DecodeError> {
    let Some(column) = page.find_column(slot)? else {
        return Ok(None);
    };
    let range = column.range();
    let last = TimeRange::new(range.max, range.max);
    let mut columns = SampleColumns::default();
    page.decode(
        &column,
        last,
        &mut PageDecodeScratch::default(),
        &mut columns,
    )?;
    let newest = columns.samples().last();
    Ok(newest.map(|(time, _, value)| (TimeRange::new(range.min, time), value)))
}
