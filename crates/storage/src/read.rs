//! The read path: selects the series that match and decodes their samples on the caller's threads.
//!
//! A selection contains the state that was visible when it was created: its chunks are immutable or
//! copied, and samples of incomplete batches are hidden. Pages are listed after the head is copied,
//! so samples that are sealed in between are in both. [`merge`] defines how the samples of a series
//! are merged from its sources, and [`plain`] reads them without a copy if the sources do not
//! overlap.

mod exemplars;
mod head_read;
mod late;
mod losses;
mod merge;
mod metadata;
mod names;
mod plain;
mod union;

use crate::blocks::View;
use crate::chunk::{Columns, TimesKnown};
use crate::failpoints::{self, Flaw};
use crate::head::copies::Copied;
use crate::head::late::LateSeries;
use crate::head::watermark::Reading;
use crate::ids::{GroupId, SeriesRef};
use crate::index::{Generation, Index};
use crate::page::Scratch;
use crate::parts::Parts;
use crate::parts::numbers::Numbers;
use crate::sealed::Sealed;
use crate::sealed::directory::{PageEntry, PageLists};
use crate::sync::{Mutex, lock};
use firn_model::budget::{Budget, Reservation};
use firn_model::cancel::Cancel;
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::env::Compute;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::losses::Losses;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{SelectRequest, Selection};
use head_read::HeadCopies;
use late::LateRule;
use losses::Opened;
use plain::TimesMade;
use std::ops::Range;
use std::sync::Arc;

/// The selected series of head and pages, with their chunks and pages.
struct HeadSelection {
    index: Arc<Index>,
    numbers: Arc<Numbers>,
    compute: Arc<dyn Compute>,
    sealed: Arc<Sealed>,
    /// Held so that no series or term of the index is freed.
    _generation: Arc<Generation>,
    /// Time range for pages and for in-order samples of the head: begins at the cut time.
    range: TimeRange,
    /// Requested time range: late samples may be before the cut time.
    late_range: TimeRange,
    newest_only: bool,
    slots: Vec<SeriesRef>,
    /// Copies of the candidate series in the head.
    head: HeadCopies,
    /// Visibility of late samples, and the rule for equal times.
    late_rule: LateRule,
    /// Candidate numbers of the series in `slots`, if some candidates turned out to have no
    /// samples.
    asked: Option<Vec<u32>>,
    /// The pages of each group of `slots`, in ascending order of groups.
    pages: PageLists,
    /// Memory reservation of the query for `pages`.
    memory: Reservation,
    /// Budget from which reads reserve the pages that they hold.
    budget: Budget,
    /// Samples that reads could not return because of damage.
    losses: Losses,
    /// Working memory of finished reads, for reuse.
    idle: Mutex<Vec<Memory>>,
    /// Held so that pages whose samples are in newer blocks are not removed.
    view: Option<Arc<View>>,
}

/// Working memory of a read, used for one series at a time.
#[derive(Default)]
struct Memory {
    columns: Columns,
    known: TimesKnown,
    made: TimesMade,
    page: Scratch,
}

/// The pages of a group, which all its series share.
struct OpenGroup<'a> {
    group: Option<GroupId>,
    entries: &'a [Arc<PageEntry>],
    /// One per entry; opened when a series needs it.
    pages: Vec<Opened>,
    /// Memory reservation for the open pages.
    memory: Reservation,
    /// True if no other series of the group follows, so that its pages need not be kept open.
    is_last: bool,
    /// True if the head may contain samples older than those in pages.
    is_mixed: bool,
}

/// Executes queries on the parts of a store.
pub(crate) struct Reader(pub(crate) Arc<Parts>);

impl std::ops::Deref for Reader {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Reader {
    /// Selects the series that match and have samples in the range, from head, pages and blocks.
    /// The selection holds everything that it reads.
    pub(crate) fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        let early = self.blocks.view();
        let of_blocks = |view: &View| view.overlapping(request.range).next().is_some();
        // Held until the view is taken, so that no block in it contains a sample that this reader
        // must not see.
        let reading = self.watermark.read();
        let asked = self.asked_of_head(request, of_blocks(&early));
        let mut head = self.select_in_head(asked, &reading)?;
        failpoints::turn();
        // Taken after the head was copied, so that the view contains the late samples that left the
        // head before. Pages that a cut frees remain as long as a view from before the cut.
        let mut view = match failpoints::has(Flaw::ViewsBlocksFirst) {
            true => early,
            false => self.blocks.view(),
        };
        if head.newest_only && of_blocks(&view) {
            // The first block in this range was added in the meantime.
            head = self.select_in_head(self.asked_of_head(request, true), &reading)?;
            view = self.blocks.view();
        }
        drop(reading);
        head.begin_at(view.cut);
        if *request.tenant != self.options.tenant {
            return Ok(Arc::new(head));
        }
        head.losses = self.losses_in(request.range);
        if of_blocks(&view) {
            return self.join(head, view, request);
        }
        head.view = Some(view);
        Ok(Arc::new(head))
    }

    /// Returns the request for head and pages. If blocks overlap the range, more than the newest
    /// sample is needed, because a late sample in a block may have the time of an in-order sample.
    fn asked_of_head<'a>(&self, request: SelectRequest<'a>, has_blocks: bool) -> SelectRequest<'a> {
        SelectRequest {
            newest_only: request.newest_only && !has_blocks,
            ..request
        }
    }

    /// Selects the series with samples in head and pages. `reading` must have begun before: every
    /// series found was indexed before its samples became visible.
    fn select_in_head(
        &self,
        request: SelectRequest<'_>,
        reading: &Reading<'_>,
    ) -> Result<HeadSelection, Error> {
        let generation = self.index.generation();
        let mut selection = HeadSelection {
            index: self.index.clone(),
            numbers: self.numbers.clone(),
            compute: self.env.compute.clone(),
            sealed: self.sealed.clone(),
            _generation: generation,
            range: request.range,
            late_range: request.range,
            newest_only: request.newest_only,
            slots: Vec::new(),
            head: HeadCopies::default(),
            late_rule: LateRule::default(),
            asked: None,
            pages: Vec::new(),
            memory: request.budget.hold(),
            budget: request.budget.clone(),
            losses: Losses::default(),
            idle: Mutex::default(),
            view: None,
        };
        if *request.tenant != self.options.tenant {
            return Ok(selection);
        }
        request.bind_matchers();
        let found = self
            .index
            .lookup(request.matchers, request.range, request.cancel)?;
        request.series.count(found.len())?;
        let slots: Vec<SeriesRef> = found.slots().collect();
        let early = failpoints::has(Flaw::ReadsPagesFirst);
        let memory = &mut selection.memory;
        let mut pages = || self.pages_of(&slots, request.range, memory);
        let too_early = if early { Some(pages()?) } else { None };
        failpoints::turn();
        selection.late_rule = LateRule::new(reading.sequence, self.options.duplicates);
        selection.head = self.copy_head(&slots, request, reading.sequence)?;
        failpoints::turn();
        selection.pages = match too_early {
            Some(too_early) => too_early,
            None => pages()?,
        };
        selection.keep_those_with_samples(slots);
        Ok(selection)
    }

    /// Returns the pages of the groups of `slots` that overlap `range`, in ascending order of
    /// groups.
    fn pages_of(
        &self,
        slots: &[SeriesRef],
        range: TimeRange,
        memory: &mut Reservation,
    ) -> Result<PageLists, Error> {
        let groups = slots.chunk_by(|a, b| Numbers::share_group(*a, *b));
        let groups = groups.map(|of_group| self.numbers.group_of(of_group[0]));
        self.sealed.directory.overlapping(groups, range, memory)
    }
}

impl Selection for HeadSelection {
    fn len(&self) -> usize {
        self.slots.len()
    }

    fn labels(&self, series: usize) -> Labels {
        self.index.series_labels(self.slots[series])
    }

    fn label_column(
        &self,
        name: &str,
        cancel: &Cancel,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        let compute = &*self.compute;
        self.index
            .label_column(name, &self.slots, compute, cancel, memory)
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        let mut memory = lock(&self.idle).pop().unwrap_or_default();
        let outcome = self.read_in(&mut memory, series, into);
        lock(&self.idle).push(memory);
        outcome
    }
}

impl HeadSelection {
    /// Reads the samples of consecutive series of the selection into `into`, with this working
    /// memory.
    fn read_in(
        &self,
        memory: &mut Memory,
        series: Range<usize>,
        into: &mut SeriesBatch,
    ) -> Result<(), Error> {
        let mut open = OpenGroup::new(self.budget.hold());
        for i in series.clone() {
            let slot = self.slots[i];
            let group = self.numbers.group_of(slot);
            if open.group != Some(group) {
                open.turn_to(group, self.pages(slot));
                open.is_mixed = self.sealed.returned.has(group);
                memory.made.forget();
            }
            let next = self.slots[..series.end].get(i + 1);
            open.is_last = next.is_none_or(|next| !Numbers::share_group(slot, *next));
            let is_plain = !open.is_mixed
                && self.late(i).is_none()
                && self.read_plain(i, &mut open, memory, into)?;
            if !is_plain {
                memory.made.forget();
                self.merge_sources(i, &mut open, memory)?;
                memory.columns.push_range(self.late_range, into);
            }
            if i == series.start {
                // The other series usually resemble the first one.
                into.make_room(series.len() - 1);
            }
        }
        Ok(())
    }

    /// Restricts the selection to samples from `cut` on; blocks contain the earlier ones.
    fn begin_at(&mut self, cut: TimestampMs) {
        self.range.min = self.range.min.max(cut);
    }

    /// Keeps the series of `slots` with samples in head or pages.
    fn keep_those_with_samples(&mut self, slots: Vec<SeriesRef>) {
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
    fn copy(&self, series: usize) -> Option<Copied<'_>> {
        self.head.get(self.number(series))
    }

    /// Returns the copy of a series' late samples in the head.
    #[inline]
    fn late(&self, series: usize) -> Option<&LateSeries> {
        self.head.late(self.number(series))
    }

    /// Returns the number of a requested series among the candidates of the selection.
    #[inline]
    fn number(&self, series: usize) -> usize {
        let asked = self.asked.as_ref();
        asked.map_or(series, |asked| asked[series] as usize)
    }

    /// Returns the pages of the group of `slot`.
    fn pages(&self, slot: SeriesRef) -> &[Arc<PageEntry>] {
        let group = self.numbers.group_of(slot);
        match self.pages.binary_search_by_key(&group, |(g, _)| *g) {
            Ok(at) => &self.pages[at].1,
            Err(_) => &[],
        }
    }

    /// Returns whether any listed page contains the series.
    fn has_page(&self, slot: SeriesRef) -> bool {
        let stored = self.numbers.slot(slot);
        self.pages(slot).iter().any(|page| page.has(stored))
    }
}

impl<'a> OpenGroup<'a> {
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
    fn turn_to(&mut self, group: GroupId, entries: &'a [Arc<PageEntry>]) {
        self.group = Some(group);
        self.entries = entries;
        self.pages.clear();
        self.memory.shrink_to(0);
        self.pages.resize_with(entries.len(), || Opened::No);
    }
}
