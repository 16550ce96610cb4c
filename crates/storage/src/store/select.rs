//! Reading: from matchers to a selection that decodes on whatever thread asks.
//!
//! A selection holds what was visible when it was made: its chunks are immutable or copied, and
//! samples of batches that were not complete are counted off. Pages are asked for after the
//! copying: what was sealed meanwhile is in both then, and of a page only what is older than the
//! copied chunks is read.

use super::Store;
use crate::chunk::{Chunk, Columns};
use crate::codec::Malformed;
use crate::index::{Generation, Index};
use crate::page::{Page, Scratch};
use crate::sealed::directory::PageEntry;
use crate::sealed::{Sealed, group_of};
use crate::trial::{self, Flaw};
use firn_model::budget::Reservation;
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
    chunks: Vec<Chunk>,
    /// Where each series' chunks end, and how many samples of its last one may be read.
    ends: Vec<(u32, u32)>,
    /// The pages of each group of `slots`, ascending.
    pages: Vec<(u32, Vec<Arc<PageEntry>>)>,
    /// The memory of the lists and chunks.
    _memory: Vec<Reservation>,
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
            chunks: Vec::new(),
            ends: Vec::new(),
            pages: Vec::new(),
            _memory: Vec::new(),
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
        let mut visible = self.copy_visible(&slots, request, reading.sequence)?;
        selection._memory = std::mem::take(&mut visible.memory);
        trial::turn();
        let pages = || self.pages_of(&slots, request.range);
        selection.pages = too_early.unwrap_or_else(pages);
        drop(reading);
        for (i, slot) in slots.into_iter().enumerate() {
            let last_samples = visible.take(i, &mut selection.chunks);
            if last_samples == 0 && !selection.has_page(slot) {
                continue;
            }
            selection.slots.push(slot);
            let end = selection.chunks.len() as u32;
            selection.ends.push((end, last_samples));
        }
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
            columns.clear();
            self.decode(i, &mut open, &mut columns)?;
            columns.push_range(self.range, into);
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

    fn decode(&self, series: usize, open: &mut OpenGroup, into: &mut Columns) -> Result<(), Error> {
        let start = series.checked_sub(1).map_or(0, |i| self.ends[i].0) as usize;
        let (end, last_samples) = self.ends[series];
        let chunks = &self.chunks[start..end as usize];
        let corrupt = |e: Malformed| {
            let labels = self.labels(series);
            Error::new(ErrorKind::Corrupt, format!("read chunk of {labels}: {e}"))
        };
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
        if let Some(first) = chunks.first() {
            let unsealed = first.range().min;
            into.truncate(into.times.partition_point(|t| *t < unsealed));
        }
        for (i, chunk) in chunks.iter().enumerate() {
            let is_last = i + 1 == chunks.len();
            let samples_max = if is_last {
                last_samples as usize
            } else {
                usize::MAX
            };
            chunk.decode(samples_max, into).map_err(corrupt)?;
        }
        Ok(())
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
