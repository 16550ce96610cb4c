//! A selection over head, pages and blocks: the series of the head's selection, extended by their
//! samples in blocks, followed by the series that are only in blocks.
//!
//! Invariants: the cut time of the view separates the in-order samples of blocks from those of
//! pages and head, so each is read once; late samples may be anywhere and are merged by time. The
//! view is taken after the pages are listed, and is held as long as the selection: neither a page
//! whose samples are not in its blocks nor one of its blocks is removed in that time. Damaged parts
//! of a block are left out and reported, and do not affect others.

mod labels;
mod pairs;
mod series;

use super::deleted::retain_left_series;
use super::{HeadSelection, OpenPageGroup, SeriesReadScratch, StoreReader};
use crate::block::BlockColumnReader;
use crate::blocks::{BlockKind, BlocksView, OpenBlock};
use crate::damage::{self, Damage, DamageKind, DamageList};
use crate::error::StorageError;
use crate::sync::lock;
use crate::tombstones::{DeletedRuns, SampleCheck, hide_deleted};
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::sample::TimeRange;
use firn_model::store::{ReadCosts, SelectRequest, Selection};
use series::{BlockSeriesOrdinal, UnionSeriesTable};
use std::ops::Range;
use std::sync::Arc;

/// The selection of a query that overlaps blocks.
pub(super) struct UnionSelection {
    head: HeadSelection,
    /// The requested time range; samples outside of it are skipped.
    range: TimeRange,
    /// The blocks with matching series, in order of precedence for equal times.
    blocks: Vec<Arc<OpenBlock>>,
    joined: UnionSeriesTable,
    damages: Arc<DamageList>,
    /// Held so that its blocks, and pages not covered by them, are not removed.
    view: Arc<BlocksView>,
    /// Memory reservation of the query for `joined`.
    _memory: Reservation,
}

impl StoreReader {
    /// Joins the series of `head` with the matching ones of the blocks of `view`.
    pub(super) fn join(
        &self,
        head: HeadSelection,
        view: Arc<BlocksView>,
        request: SelectRequest<'_>,
        check: SampleCheck,
    ) -> Result<Arc<dyn Selection>, Error> {
        let mut memory = request.budget.create_reservation();
        let mut joined =
            UnionSeriesTable::from_head(&head.index, &head.slots, request.cancel, &mut memory)?;
        let mut blocks = Vec::new();
        for open in view.find_matching(request.range, request.matchers) {
            request.cancel.check()?;
            let ordinals = find_in_block(open, &view, request, check, &mut memory);
            let added = ordinals.and_then(|ordinals| {
                let number = blocks.len();
                if !ordinals.is_empty() {
                    joined.add(number, &open.block, &ordinals, &mut memory)?;
                }
                Ok(!ordinals.is_empty())
            });
            match added {
                Ok(false) => {}
                Ok(true) => blocks.push(open.clone()),
                Err(e) if e.kind == ErrorKind::Corrupt => {
                    head.losses.add(&self.report_lookup_loss(open, &e));
                }
                Err(e) => return Err(e),
            }
        }
        request.series.add_series(joined.len() - head.len())?;
        if blocks.is_empty() {
            return Ok(Arc::new(head));
        }
        joined.complete();
        Ok(Arc::new(UnionSelection {
            range: request.range,
            head,
            blocks,
            joined,
            damages: self.parts.damages.clone(),
            view,
            _memory: memory,
        }))
    }

    /// Reports a block whose index cannot be read, so that none of its series is found. Returns the
    /// text of the warning.
    pub(super) fn report_lookup_loss(&self, open: &OpenBlock, error: &Error) -> String {
        let dir = self.parts.blocks.block_dir(open.entry.id);
        let damage = Damage::for_file(DamageKind::Blocks, &dir, error.message.clone());
        let damage = Damage {
            samples: Some(open.entry.samples),
            ..damage.with_time_range(Some(open.entry.range))
        };
        self.parts.damages.report_lookup_damage(damage).warning()
    }
}

/// Returns the matching series of one block, without those that have no sample in the range.
fn find_in_block(
    open: &OpenBlock,
    view: &BlocksView,
    request: SelectRequest<'_>,
    check: SampleCheck,
    memory: &mut Reservation,
) -> Result<Vec<u32>, Error> {
    let mut ordinals = open
        .block
        .lookup(request.matchers, request.cancel, memory)?;
    let deleted = view.tombstones.of_block(open.entry.id);
    if deleted.is_some() || check == SampleCheck::All {
        let none = DeletedRuns::default();
        let deleted = deleted.map_or(&none, |deleted| deleted);
        retain_left_series(open, deleted, request.range, check, &mut ordinals);
    }
    Ok(ordinals)
}

impl Selection for UnionSelection {
    fn len(&self) -> usize {
        self.joined.len()
    }

    fn labels(&self, series: usize) -> Labels {
        match series.checked_sub(self.head.len()) {
            None => self.head.labels(series),
            Some(number) => self.joined.labels(number),
        }
    }

    fn label_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        let column = self.head.label_column(name, cancel, memory)?;
        labels::extend(column, &self.joined, name, cancel, memory)
    }

    fn loss_warnings(&self) -> DataLossWarnings {
        self.head.loss_warnings()
    }

    fn read_costs(&self) -> ReadCosts {
        self.head.read_costs()
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        let mut at = series.start;
        while at < series.end {
            let of_head = self
                .joined
                .prefix_without_blocks(at..series.end.min(self.head.len()));
            if !of_head.is_empty() {
                at = of_head.end;
                self.head.read(of_head, into)?;
                continue;
            }
            let end = self.joined.merged_series_end(at, series.end);
            self.read_merged(at..end, into)?;
            at = end;
        }
        Ok(())
    }
}

/// Working memory for reading a range of series.
struct UnionScratch<'a> {
    /// One per block; opened when a series needs it.
    readers: Vec<Option<BlockColumnReader<'a>>>,
    open: OpenPageGroup<'a>,
    memory: SeriesReadScratch,
    /// True if the series that is read has tombstones.
    has_deleted: bool,
}

impl UnionSelection {
    /// Reads series that have samples in blocks, and merges all their sources.
    fn read_merged(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        let loaded = self.prefetch_pages(&series)?;
        let mut working = UnionScratch {
            readers: self.blocks.iter().map(|_| None).collect(),
            open: OpenPageGroup::new(self.head.budget.create_reservation()),
            memory: lock(&self.head.idle).pop().unwrap_or_default(),
            has_deleted: false,
        };
        for i in series.clone() {
            self.merge(i, &mut working)?;
            working.memory.columns.push_range(self.range, into);
            if i == series.start {
                into.reserve_series(series.len() - 1);
            }
        }
        let readers = working.readers.iter().flatten();
        let (units, bytes) = readers
            .map(BlockColumnReader::opened_units)
            .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        self.head.costs.add_units(units, bytes, loaded as u64);
        lock(&self.head.idle).push(working.memory);
        Ok(())
    }

    /// Reads the pages of blocks that `series` need ahead, neighbours together. Returns the number
    /// of units that were read from the disk.
    fn prefetch_pages(&self, series: &Range<usize>) -> Result<usize, Error> {
        let mut loaded = 0;
        for (number, open) in self.blocks.iter().enumerate() {
            let ordinals = self.joined.block_ordinals(number, series.clone());
            match open.block.prefetch(&ordinals, self.range) {
                Ok(units) => loaded += units,
                Err(e) => self.add_block_loss(open, e)?,
            }
        }
        Ok(loaded)
    }

    /// Merges the samples of a series into the columns of `working`: main blocks, pages and
    /// in-order samples of the head, then late blocks and late samples of the head, in order of
    /// arrival.
    fn merge<'a>(&'a self, series: usize, working: &mut UnionScratch<'a>) -> Result<(), Error> {
        working.memory.columns.clear();
        let mut of_blocks = self.joined.block_series(series).peekable();
        let is_main =
            |of: &BlockSeriesOrdinal| self.blocks[of.block as usize].entry.kind == BlockKind::Main;
        while let Some(of_block) = of_blocks.next_if(is_main) {
            self.append_block(of_block, working)?;
        }
        if series < self.head.len() {
            self.append_head(series, working)?;
        }
        for of_block in of_blocks {
            self.append_block(of_block, working)?;
        }
        if series < self.head.len() {
            self.head.merge_late(series, &mut working.memory);
            working.has_deleted |= !self.head.deleted_times(series).is_empty();
        }
        if std::mem::take(&mut working.has_deleted) {
            working.memory.columns.forget_reset_hints();
        }
        Ok(())
    }

    /// Merges the samples of a series from one block; reports a block that cannot be read.
    fn append_block<'a>(
        &'a self,
        BlockSeriesOrdinal { block, ordinal }: BlockSeriesOrdinal,
        working: &mut UnionScratch<'a>,
    ) -> Result<(), Error> {
        let open = &self.blocks[block as usize];
        let reader = working.readers[block as usize].get_or_insert_with(|| open.block.reader());
        let columns = &mut working.memory.columns;
        let before = columns.times.len();
        let read = reader.read(ordinal, self.range, columns);
        if let Some(deleted) = self.view.tombstones.of_block(open.entry.id) {
            let times = deleted.find(u64::from(ordinal));
            hide_deleted(columns, before, times);
            working.has_deleted |= !times.is_empty();
        }
        match read {
            Ok(()) if open.entry.kind == BlockKind::Main => columns.merge_from(before),
            Ok(()) => columns.merge_late(before, self.head.late_rule.duplicates),
            Err(e) => self.add_block_loss(open, e)?,
        }
        Ok(())
    }

    /// Merges the in-order samples of a series from pages and head.
    fn append_head<'a>(
        &'a self,
        series: usize,
        working: &mut UnionScratch<'a>,
    ) -> Result<(), Error> {
        let slot = self.head.slots[series];
        let group = self.head.numbers.group_of(slot);
        if working.open.group != Some(group) {
            working
                .open
                .switch_group(group, self.head.group_pages(slot));
        }
        self.head
            .append_in_order(series, &mut working.open, &mut working.memory)
    }

    /// Adds a warning for a block that cannot be read. Returns an error that has another cause than
    /// the block.
    #[cold]
    fn add_block_loss(&self, open: &OpenBlock, error: StorageError) -> Result<(), Error> {
        let text = report_block_loss(&self.damages, open, error)?;
        self.head.losses.add(&text);
        Ok(())
    }
}

/// Reports a block that cannot be read and returns the text of the warning. Returns an error that
/// has another cause than the block.
pub(super) fn report_block_loss(
    damages: &DamageList,
    open: &OpenBlock,
    error: StorageError,
) -> Result<String, Error> {
    if !matches!(error, StorageError::Damaged { .. }) && !error.is_disk_fault() {
        return Err(error.into());
    }
    let damage = damage::damage_from_error(DamageKind::Blocks, &error)
        .with_time_range(Some(open.entry.range));
    Ok(damages.report_read_damage(damage).warning())
}
