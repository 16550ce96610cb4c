//! Reading: from matchers to a selection that decodes on whatever thread asks.
//!
//! A selection holds what was visible when it was made: its chunks are immutable or copied, and
//! samples of batches that were not complete are counted off. Pages are asked for after the
//! copying: what was sealed meanwhile is in both then, and of a page only what is older than the
//! copied chunks is read.

use super::Store;
use super::visible::{CopyId, Visible};
use crate::chunk::Columns;
use crate::codec::Malformed;
use crate::head::copies::Copied;
use crate::index::{Generation, Index};
use crate::page::{Page, Scratch};
use crate::sealed::directory::PageEntry;
use crate::sealed::{Sealed, group_of};
use crate::trial::{self, Flaw};
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;
use firn_model::store::{SelectRequest, Selection};
use std::ops::Range;
use std::sync::Arc;

/// Series found, with their chunks and pages.
struct HeadSelection {
    index: Arc<Index>,
    sealed: Arc<Sealed>,
    /// While it is held, nothing that the index knew is forgotten.
    _generation: Arc<Generation>,
    range: TimeRange,
    slots: Vec<u32>,
    /// What the head held of each series.
    copies: Vec<Option<CopyId>>,
    visible: Visible,
    /// The pages of each group of `slots`, ascending.
    pages: Vec<(u32, Vec<Arc<PageEntry>>)>,
}

/// The pages that were opened for a group: those of neighbouring series are the same.
#[derive(Default)]
struct OpenGroup {
    group: Option<u32>,
    /// As many as the group has; opened when a series needs them.
    pages: Vec<Option<Arc<Page>>>,
    scratch: Scratch,
}

impl Store {
    pub(super) fn select_series(
        &self,
        request: SelectRequest<'_>,
    ) -> Result<Arc<dyn Selection>, Error> {
        let generation = self.index.generation();
        let mut selection = HeadSelection {
            index: self.index.clone(),
            sealed: self.sealed.clone(),
            _generation: generation,
            range: request.range,
            slots: Vec::new(),
            copies: Vec::new(),
            visible: Visible::default(),
            pages: Vec::new(),
        };
        if *request.tenant != self.options.tenant {
            return Ok(Arc::new(selection));
        }
        // Before the look-up: a series that it finds was indexed before its samples became visible.
        let reading = self.watermark.read();
        let found = self
            .index
            .lookup(request.matchers, request.range, request.cancel)?;
        let slots: Vec<u32> = found.slots().collect();
        let early = trial::has(Flaw::ReadsPagesFirst);
        let too_early = early.then(|| self.pages_of(&slots, request.range));
        trial::turn();
        let (visible, mut ids) = self.copy_visible(&slots, request, reading.sequence)?;
        trial::turn();
        let pages = || self.pages_of(&slots, request.range);
        selection.pages = too_early.unwrap_or_else(pages);
        drop(reading);
        for (i, slot) in slots.into_iter().enumerate() {
            let copy = ids.take(&visible, i);
            if copy.is_some() || selection.has_page(slot) {
                selection.slots.push(slot);
                selection.copies.push(copy);
            }
        }
        selection.visible = visible;
        Ok(Arc::new(selection))
    }

    /// The pages of the groups of `slots`, ascending, that overlap `range`.
    fn pages_of(&self, slots: &[u32], range: TimeRange) -> Vec<(u32, Vec<Arc<PageEntry>>)> {
        let mut groups: Vec<u32> = slots.iter().map(|slot| group_of(*slot)).collect();
        groups.dedup();
        let pages = self
            .sealed
            .directory
            .overlapping(groups.iter().copied(), range);
        let with_pages = groups.into_iter().zip(pages);
        with_pages.filter(|(_, pages)| !pages.is_empty()).collect()
    }
}

impl Selection for HeadSelection {
    fn len(&self) -> usize {
        self.slots.len()
    }

    fn labels(&self, series: usize) -> Labels {
        self.index.series_labels(self.slots[series])
    }

    fn label_column(&self, name: &str) -> LabelColumn {
        self.index.label_column(name, &self.slots)
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        let mut columns = Columns::default();
        let mut open = OpenGroup::default();
        for i in series {
            if !self.read_plain(i, &mut columns, into)? {
                columns.clear();
                self.decode(i, &mut open, &mut columns)?;
                columns.push_range(self.range, into);
            }
        }
        Ok(())
    }
}

impl HeadSelection {
    /// The pages of the group of `slot`.
    fn pages(&self, slot: u32) -> &[Arc<PageEntry>] {
        let group = group_of(slot);
        match self.pages.binary_search_by_key(&group, |(g, _)| *g) {
            Ok(at) => &self.pages[at].1,
            Err(_) => &[],
        }
    }

    fn has_page(&self, slot: u32) -> bool {
        self.pages(slot).iter().any(|page| page.has(slot))
    }

    fn corrupt(&self, series: usize, e: Malformed) -> Error {
        let labels = self.labels(series);
        Error::new(ErrorKind::Corrupt, format!("read chunk of {labels}: {e}"))
    }

    /// Decodes a series of floats in one chunk straight into the batch; `false`, and nothing is
    /// added, if it is more than that.
    fn read_plain(
        &self,
        series: usize,
        scratch: &mut Columns,
        into: &mut SeriesBatch,
    ) -> Result<bool, Error> {
        let copy = self.copies[series].map(|id| self.visible.get(id));
        let Some((chunk, samples)) = copy.and_then(Copied::sole_chunk) else {
            return Ok(false);
        };
        let slot = self.slots[series];
        if self.has_page(slot) {
            return Ok(false);
        }
        let times = &mut scratch.times;
        let decoded = chunk
            .decode_plain(samples, times, into.values_mut())
            .map_err(|e| self.corrupt(series, e))?;
        let Some(count) = decoded else {
            return Ok(false);
        };
        into.end_floats(&times[..count], self.range);
        Ok(true)
    }

    fn decode(&self, series: usize, open: &mut OpenGroup, into: &mut Columns) -> Result<(), Error> {
        let slot = self.slots[series];
        let pages = self.pages(slot);
        open.turn_to(group_of(slot), pages.len());
        for (entry, opened) in pages.iter().zip(&mut open.pages) {
            if entry.has(slot) {
                let page = match opened {
                    Some(page) => page,
                    None => opened.insert(self.sealed.cache.get(entry)?),
                };
                let damaged = |e| self.sealed.cache.damage(entry, e);
                if let Some(column) = page.find(slot).map_err(damaged)? {
                    let before = into.times.len();
                    let scratch = &mut open.scratch;
                    page.decode(&column, self.range, scratch, into)
                        .map_err(damaged)?;
                    into.drop_repeated(before);
                }
            }
        }
        let Some(id) = self.copies[series] else {
            return Ok(());
        };
        let copy = self.visible.get(id);
        if let Some(unsealed) = copy.first_time() {
            into.truncate(into.times.partition_point(|t| *t < unsealed));
        }
        copy.decode(into).map_err(|e| self.corrupt(series, e))
    }
}

impl OpenGroup {
    /// Goes on with `group`, which has `count` pages.
    fn turn_to(&mut self, group: u32, count: usize) {
        if self.group != Some(group) {
            self.group = Some(group);
            self.pages.clear();
            self.pages.resize(count, None);
        }
    }
}
