//! Reading: from matchers to a selection that decodes on whatever thread asks.
//!
//! A selection holds what was visible when it was made: its chunks are immutable or copied, and
//! samples of batches that were not complete are counted off. The shard's lock is held for a slice
//! of the copying at a time.

use super::{Store, lock};
use crate::chunk::{Chunk, Columns};
use crate::head::shard::Copied;
use crate::index::{Generation, Index, SeriesCursor};
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;
use firn_model::store::{SelectRequest, Selection};
use std::ops::Range;
use std::sync::Arc;

/// Series copied under one lock: some 20 us, less than a batch holds it.
const COPY_SLICE: usize = 256;

/// Series found, and their chunks.
struct HeadSelection {
    index: Arc<Index>,
    /// While it is held, nothing that the index knew is forgotten.
    _generation: Arc<Generation>,
    range: TimeRange,
    slots: Vec<u32>,
    chunks: Vec<Chunk>,
    /// Where each series' chunks end, and how many samples of its last one may be read.
    ends: Vec<(u32, u32)>,
}

impl Store {
    pub(super) fn select_series(
        &self,
        request: SelectRequest<'_>,
    ) -> Result<Arc<dyn Selection>, Error> {
        let generation = self.index.generation();
        let mut selection = HeadSelection {
            index: self.index.clone(),
            _generation: generation,
            range: request.range,
            slots: Vec::new(),
            chunks: Vec::new(),
            ends: Vec::new(),
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
        let copied = self.copy(&slots, request, reading.sequence)?;
        drop(reading);
        for (slot, copied) in slots.into_iter().zip(copied) {
            if let Some(copied) = copied {
                selection.slots.push(slot);
                selection.chunks.extend(copied.chunks);
                let end = selection.chunks.len() as u32;
                selection.ends.push((end, copied.last_samples as u32));
            }
        }
        Ok(Arc::new(selection))
    }

    /// What is visible of each series, or nothing.
    fn copy(
        &self,
        slots: &[u32],
        request: SelectRequest<'_>,
        watermark: u64,
    ) -> Result<Vec<Option<Copied>>, Error> {
        let mut by_shard: Vec<Vec<(usize, u32)>> = vec![Vec::new(); self.shards.len()];
        let mut cursor = SeriesCursor::new(&self.index);
        for (i, slot) in slots.iter().enumerate() {
            if let Some(place) = cursor.place(*slot) {
                let (shard, local) = self.shard_and_local(place);
                by_shard[shard].push((i, local));
            }
        }
        let mut copied: Vec<Option<Copied>> = Vec::new();
        copied.resize_with(slots.len(), || None);
        for (shard, wanted) in self.shards.iter().zip(by_shard) {
            for slice in wanted.chunks(COPY_SLICE) {
                request.cancel.check()?;
                let shard = lock(shard);
                for (i, local) in slice {
                    if let Some(series) = shard.series_of_slot(*local, slots[*i]) {
                        let hidden = shard.hidden(*local, series, watermark);
                        copied[*i] = Copied::of(series, request.range, hidden);
                    }
                }
            }
        }
        Ok(copied)
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
        for i in series {
            columns.clear();
            self.decode(i, &mut columns).map_err(|e| {
                let labels = self.labels(i);
                Error::new(ErrorKind::Corrupt, format!("read chunk of {labels}: {e}"))
            })?;
            columns.push_range(self.range, into);
        }
        Ok(())
    }
}

impl HeadSelection {
    fn decode(&self, series: usize, into: &mut Columns) -> Result<(), crate::codec::Malformed> {
        let start = series.checked_sub(1).map_or(0, |i| self.ends[i].0) as usize;
        let (end, last_samples) = self.ends[series];
        let chunks = &self.chunks[start..end as usize];
        for (i, chunk) in chunks.iter().enumerate() {
            let is_last = i + 1 == chunks.len();
            let samples_max = if is_last {
                last_samples as usize
            } else {
                usize::MAX
            };
            chunk.decode(samples_max, into)?;
        }
        Ok(())
    }
}
