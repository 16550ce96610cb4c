//! The read path: selects the series that match and decodes their samples on the caller's threads.
//!
//! A selection contains the state that was visible when it was created: its chunks are immutable or
//! copied, and samples of incomplete batches are hidden. Pages are listed after the head is copied,
//! so samples that are sealed in between are in both. [`merge`] defines how the samples of a series
//! are merged from its sources, and [`plain`] reads them without a copy if the sources do not
//! overlap.

mod costs;
mod deleted;
mod exemplars;
mod explain;
mod head_read;
mod late;
mod losses;
mod merge;
mod metadata;
mod names;
mod plain;
mod retained;
mod union;

use crate::blocks::BlocksView;
use crate::chunk::{DecodedTimesCache, SampleColumns};
use crate::failpoints::{self, StoreFlaw};
use crate::head::copies::SeriesCopy;
use crate::head::late::LateSeries;
use crate::head::watermark::WatermarkReadGuard;
use crate::ids::{GroupId, SeriesRef};
use crate::index::{Index, ReaderGeneration};
use crate::page::PageDecodeScratch;
use crate::parts::StoreParts;
use crate::parts::numbers::SeriesNumbers;
use crate::sealed::SealedPages;
use crate::sealed::directory::{PageLists, SealedPageEntry};
use crate::sync::{Mutex, lock};
use crate::tombstones::{DeletedRuns, SampleCheck, StoreTombstones};
use costs::ReadCostCounters;
use firn_model::budget::{Budget, Reservation};
use firn_model::cancel::CancelToken;
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::env::Compute;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{ReadCosts, SelectRequest, Selection};
use head_read::HeadCopies;
use late::LateReadRule;
use losses::GroupPageState;
use plain::BatchTimes;
use std::ops::Range;
use std::sync::Arc;

/// The selected series of head and pages, with their chunks and pages.
struct HeadSelection {
    index: Arc<Index>,
    numbers: Arc<SeriesNumbers>,
    compute: Arc<dyn Compute>,
    sealed: Arc<SealedPages>,
    /// Held so that no series or term of the index is freed.
    _generation: Arc<ReaderGeneration>,
    /// Time range for pages and for in-order samples of the head: begins at the cut time.
    range: TimeRange,
    /// Requested time range: late samples may be before the cut time.
    late_range: TimeRange,
    newest_only: bool,
    slots: Vec<SeriesRef>,
    /// Copies of the candidate series in the head.
    head: HeadCopies,
    /// Visibility of late samples, and the rule for equal times.
    late_rule: LateReadRule,
    /// Candidate numbers of the series in `slots`, if some candidates turned out to have no
    /// samples.
    asked: Option<Vec<u32>>,
    /// The pages of each group of `slots`, in ascending order of groups.
    pages: PageLists,
    /// Memory reservation of the query for `group_pages`.
    memory: Reservation,
    /// Budget from which reads reserve the pages that they hold.
    budget: Budget,
    /// Samples that reads could not return because of damage.
    losses: DataLossWarnings,
    /// Pages and units of blocks that reads have opened.
    costs: ReadCostCounters,
    /// Working memory of finished reads, for reuse.
    idle: Mutex<Vec<SeriesReadScratch>>,
    /// Deleted samples, which reads skip.
    tombstones: Arc<StoreTombstones>,
    /// Held so that pages whose samples are in newer blocks are not removed.
    view: Option<Arc<BlocksView>>,
}

/// Working memory of a read, used for one series at a time.
#[derive(Default)]
struct SeriesReadScratch {
    columns: SampleColumns,
    known: DecodedTimesCache,
    made: BatchTimes,
    page: PageDecodeScratch,
}

/// The pages of a group, which all its series share.
struct OpenPageGroup<'a> {
    group: Option<GroupId>,
    entries: &'a [Arc<SealedPageEntry>],
    /// One per entry; opened when a series needs it.
    pages: Vec<GroupPageState>,
    /// Memory reservation for the open pages.
    memory: Reservation,
    /// True if no other series of the group follows, so that its pages need not be kept open.
    is_last: bool,
    /// True if the head may contain samples older than those in pages.
    is_mixed: bool,
}

/// The series found in head and pages, with the view of the blocks that belongs to them.
struct SelectedSources {
    head: HeadSelection,
    view: Arc<BlocksView>,
}

/// Executes queries on the parts of a store.
pub(crate) struct StoreReader {
    pub(crate) parts: Arc<StoreParts>,
}

impl StoreReader {
    /// Selects the series that match and have samples in the range, from head, pages and blocks.
    /// The selection holds everything that it reads.
    pub(crate) fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select_checked(request, SampleCheck::BySource)
    }

    /// Selects like [`StoreReader::select`]. Omits each series whose samples in the range are all
    /// deleted, which may read samples.
    pub(crate) fn select_labels(
        &self,
        request: SelectRequest<'_>,
    ) -> Result<Arc<dyn Selection>, Error> {
        self.select_checked(request, SampleCheck::Deleted)
    }

    fn select_checked(
        &self,
        request: SelectRequest<'_>,
        check: SampleCheck,
    ) -> Result<Arc<dyn Selection>, Error> {
        let early = self.parts.blocks.view();
        // Held until the view is taken, so that no block in it contains a sample that this reader
        // must not see.
        let reading = self.parts.head.watermark.begin_read();
        if let Some(groups) = self.group_by_retention(request) {
            return self.select_retained(request, check, &groups, &early, reading);
        }
        let sources = self.select_sources(request, check, &early, &reading)?;
        drop(reading);
        self.join_sources(sources, request, check)
    }

    /// Selects the series in head and pages. Returns them with a view of the blocks that contains
    /// all samples which left the head before they were copied.
    fn select_sources(
        &self,
        request: SelectRequest<'_>,
        check: SampleCheck,
        early: &Arc<BlocksView>,
        reading: &WatermarkReadGuard<'_>,
    ) -> Result<SelectedSources, Error> {
        let of_blocks = |view: &BlocksView| view.find_overlapping(request.range).next().is_some();
        let asked = self.build_head_request(request, of_blocks(early));
        let deleted = &early.tombstones.in_order;
        let mut head = self.select_in_head(asked, deleted, reading)?;
        failpoints::turn();
        // Taken after the head was copied, so that the view contains the late samples that left the
        // head before. Pages that a cut frees remain as long as a view from before the cut.
        let mut view = if failpoints::has(StoreFlaw::ViewsBlocksFirst) {
            early.clone()
        } else {
            self.parts.blocks.view()
        };
        let has_other_tombstones = !Arc::ptr_eq(&early.tombstones, &view.tombstones);
        if head.newest_only && (of_blocks(&view) || has_other_tombstones) {
            // The first block in this range was added in the meantime, or samples were deleted.
            let asked = self.build_head_request(request, true);
            head = self.select_in_head(asked, deleted, reading)?;
            view = self.parts.blocks.view();
        }
        head.restrict_start(view.cut);
        head.apply_tombstones(&early.tombstones, view.tombstones.clone(), check)?;
        if check == SampleCheck::All {
            head.retain_series_with_samples()?;
        }
        Ok(SelectedSources { head, view })
    }

    /// Returns the selection of head, pages and the blocks that overlap the range.
    fn join_sources(
        &self,
        sources: SelectedSources,
        request: SelectRequest<'_>,
        check: SampleCheck,
    ) -> Result<Arc<dyn Selection>, Error> {
        let SelectedSources { mut head, view } = sources;
        if *request.tenant != self.parts.options.tenant {
            return Ok(Arc::new(head));
        }
        head.losses = self.parts.losses_in(request.range);
        if view.find_overlapping(request.range).next().is_some() {
            return self.join(head, view, request, check);
        }
        head.view = Some(view);
        Ok(Arc::new(head))
    }

    /// Returns the request for head and pages. If blocks overlap the range, more than the newest
    /// sample is needed, because a late sample in a block may have the time of an in-order sample.
    fn build_head_request<'a>(
        &self,
        request: SelectRequest<'a>,
        has_blocks: bool,
    ) -> SelectRequest<'a> {
        SelectRequest {
            newest_only: request.newest_only && !has_blocks,
            ..request
        }
    }

    /// Selects the series with samples in head and pages. `reading` must have begun before: every
    /// series found was indexed before its samples became visible. Series in `deleted` are copied
    /// with all samples, because the newest one may be deleted.
    fn select_in_head(
        &self,
        request: SelectRequest<'_>,
        deleted: &DeletedRuns,
        reading: &WatermarkReadGuard<'_>,
    ) -> Result<HeadSelection, Error> {
        let generation = self.parts.head.index.generation();
        let mut selection = HeadSelection {
            index: self.parts.head.index.clone(),
            numbers: self.parts.head.numbers.clone(),
            compute: self.parts.env.compute.clone(),
            sealed: self.parts.sealed.clone(),
            _generation: generation,
            range: request.range,
            late_range: request.range,
            newest_only: request.newest_only,
            slots: Vec::new(),
            head: HeadCopies::default(),
            late_rule: LateReadRule::default(),
            asked: None,
            pages: Vec::new(),
            memory: request.budget.create_reservation(),
            budget: request.budget.clone(),
            losses: DataLossWarnings::default(),
            costs: ReadCostCounters::default(),
            idle: Mutex::default(),
            tombstones: Arc::default(),
            view: None,
        };
        if *request.tenant != self.parts.options.tenant {
            return Ok(selection);
        }
        request.bind_matchers();
        let found =
            self.parts
                .head
                .index
                .lookup(request.matchers, request.range, request.cancel)?;
        request.series.add_series(found.len())?;
        let slots: Vec<SeriesRef> = found.slots().collect();
        let early = failpoints::has(StoreFlaw::ReadsPagesFirst);
        let memory = &mut selection.memory;
        let mut pages = || self.find_pages(&slots, request.range, memory);
        let too_early = if early { Some(pages()?) } else { None };
        failpoints::turn();
        selection.late_rule = LateReadRule::new(reading.sequence, self.parts.options.duplicates);
        selection.head = self.copy_head(&slots, request, deleted, reading.sequence)?;
        failpoints::turn();
        selection.pages = match too_early {
            Some(too_early) => too_early,
            None => pages()?,
        };
        selection.retain_sampled_series(slots);
        Ok(selection)
    }

    /// Returns the pages of the groups of `slots` that overlap `range`, in ascending order of
    /// groups.
    fn find_pages(
        &self,
        slots: &[SeriesRef],
        range: TimeRange,
        memory: &mut Reservation,
    ) -> Result<PageLists, Error> {
        let groups = slots.chunk_by(|a, b| SeriesNumbers::share_group(*a, *b));
        let groups = groups.map(|of_group| self.parts.head.numbers.group_of(of_group[0]));
        self.parts
            .sealed
            .directory
            .find_overlapping(groups, range, memory)
    }
}

impl Selection for HeadSelection {
    fn len(&self) -> usize {
        self.slots.len()
    }

    fn labels(&self, series: usize) -> Labels {
        self.index.dictionary.series_labels(self.slots[series])
    }

    fn label_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        let compute = &*self.compute;
        self.index
            .read_label_column(name, &self.slots, compute, cancel, memory)
    }

    fn loss_warnings(&self) -> DataLossWarnings {
        self.losses.clone()
    }

    fn read_costs(&self) -> ReadCosts {
        let mut costs = self.costs.load();
        costs.bytes += self.head.encoded_bytes() as u64;
        costs
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        let mut memory = lock(&self.idle).pop().unwrap_or_default();
        let outcome = self.read_with_scratch(&mut memory, series, into);
        lock(&self.idle).push(memory);
        outcome
    }
}

impl HeadSelection {
    /// Reads the samples of consecutive series of the selection into `into`, with this working
    /// memory.
    fn read_with_scratch(
        &self,
        memory: &mut SeriesReadScratch,
        series: Range<usize>,
        into: &mut SeriesBatch,
    ) -> Result<(), Error> {
        let mut open = OpenPageGroup::new(self.budget.create_reservation());
        for i in series.clone() {
            let slot = self.slots[i];
            let group = self.numbers.group_of(slot);
            if open.group != Some(group) {
                open.switch_group(group, self.group_pages(slot));
                open.is_mixed = self.sealed.returned.has(group);
                memory.made.reset();
            }
            let next = self.slots[..series.end].get(i + 1);
            open.is_last = next.is_none_or(|next| !SeriesNumbers::share_group(slot, *next));
            let is_plain = !open.is_mixed
                && self.late_copy(i).is_none()
                && self.deleted_times(i).is_empty()
                && self.read_plain(i, &mut open, memory, into)?;
            if !is_plain {
                memory.made.reset();
                self.merge_sources(i, &mut open, memory)?;
                memory.columns.push_range(self.late_range, into);
            }
            if i == series.start {
                // The other series usually resemble the first one.
                into.reserve_series(series.len() - 1);
            }
        }
        Ok(())
    }

    /// Restricts the selection to samples from `cut` on; blocks contain the earlier ones.
    fn restrict_start(&mut self, cut: TimestampMs) {
        self.range.min = self.range.min.max(cut);
    }

    /// Keeps the series of `slots` with samples in head or pages.
    fn retain_sampled_series(&mut self, slots: Vec<SeriesRef>) {
        let is_there =
            |(number, slot): &(usize, &SeriesRef)| self.head.has(*number) || self.has_page(**slot);
        let kept = slots.iter().enumerate().filter(is_there);
        let asked: Vec<u32> = kept.map(|(number, _)| number as u32).collect();
        if asked.len() == slots.len() {
            self.slots = slots;
            return;
        }
        self.slots = asked.iter().map(|n| slots[*n as usize]).collect();
        self.asked = Some(asked);
    }

    /// Returns the copy of a series' in-order samples in the head.
    fn head_copy(&self, series: usize) -> Option<SeriesCopy<'_>> {
        self.head.get(self.number(series))
    }

    /// Returns the copy of a series' late samples in the head.
    #[inline]
    fn late_copy(&self, series: usize) -> Option<&LateSeries> {
        self.head.late(self.number(series))
    }

    /// Returns the number of a requested series among the candidates of the selection.
    #[inline]
    fn number(&self, series: usize) -> usize {
        let asked = self.asked.as_ref();
        asked.map_or(series, |asked| asked[series] as usize)
    }

    /// Returns the pages of the group of `slot`.
    fn group_pages(&self, slot: SeriesRef) -> &[Arc<SealedPageEntry>] {
        let group = self.numbers.group_of(slot);
        match self.pages.binary_search_by_key(&group, |(g, _)| *g) {
            Ok(at) => &self.pages[at].1,
            Err(_) => &[],
        }
    }

    /// Returns whether any listed page contains the series.
    fn has_page(&self, slot: SeriesRef) -> bool {
        let stored = self.numbers.slot(slot);
        self.group_pages(slot)
            .iter()
            .any(|page| page.has_series(stored))
    }
}

impl<'a> OpenPageGroup<'a> {
    /// Returns an empty group. Its pages will be reserved in `memory`.
    fn new(memory: Reservation) -> Self {
        Self {
            group: None,
            entries: &[],
            pages: Vec::new(),
            memory,
            is_last: false,
            is_mixed: false,
        }
    }

    /// Switches to another group and its pages, and releases the pages of the last one.
    fn switch_group(&mut self, group: GroupId, entries: &'a [Arc<SealedPageEntry>]) {
        self.group = Some(group);
        self.entries = entries;
        self.pages.clear();
        self.memory.shrink_to(0);
        self.pages.resize_with(entries.len(), || GroupPageState::No);
    }
}
