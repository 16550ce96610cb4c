//! Copies of what is visible of the head's series: the part of a selection that needs locks.
//!
//! Shards are copied on all compute threads. A shard's lock is held for a slice of its series at a
//! time, so that no writer waits for a wide query.

use super::{Store, lock};
use crate::chunk::Chunk;
use crate::head::shard::copy_visible;
use crate::index::SeriesCursor;
use crate::sync::Mutex;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::store::SelectRequest;
use std::sync::PoisonError;

/// Series copied under one lock: some 20 us, less than a batch holds it.
const COPY_SLICE: usize = 256;

/// Fewer series are copied by the thread that asks: to wake another takes as long.
const SERIES_FOR_THREADS: usize = 1_024;

/// Bytes that a selection keeps of each series beside its chunks: its slot, its shard, where it is
/// looked for, where its copy is, and where its chunks end.
const SERIES_BYTES: usize = 48;

/// What the copy of a series is expected to take before one was made: a chunk of some samples.
const COPIED_BYTES: usize = 256;

/// Says of a series that it has left the head.
const IN_NO_SHARD: u32 = u32::MAX;

/// Copies of the series of a selection, to be taken in its order.
pub(super) struct Visible {
    /// The shard of each series.
    shards: Vec<u32>,
    copies: Vec<std::vec::IntoIter<CopiedSeries>>,
    chunks: Vec<std::vec::IntoIter<Chunk>>,
    /// The memory of all that, and of the selection that is made of it.
    pub(super) memory: Vec<Reservation>,
}

/// A series of the selection, by its number there, with the chunks and samples that may be read.
#[derive(Clone, Copy)]
struct CopiedSeries {
    number: u32,
    chunks: u32,
    last_samples: u32,
}

/// What one shard holds of a selection, in the selection's order.
#[derive(Default)]
struct ShardCopy {
    /// Series without a visible sample are left out.
    series: Vec<CopiedSeries>,
    chunks: Vec<Chunk>,
    /// Of the chunks.
    memory: Option<Reservation>,
}

/// A series of the selection that a shard may hold.
#[derive(Clone, Copy)]
struct Wanted {
    number: u32,
    slot: u32,
    local: u32,
}

impl Visible {
    /// Moves the chunks of the series with this number, which ascends, to the end of `into`; how
    /// many samples of the last one may be read, 0 without a chunk.
    pub(super) fn take(&mut self, number: usize, into: &mut Vec<Chunk>) -> u32 {
        let shard = self.shards[number] as usize;
        let Some(copies) = self.copies.get_mut(shard) else {
            return 0;
        };
        match copies.as_slice().first() {
            Some(copied) if copied.number as usize == number => {
                let (chunks, last_samples) = (copied.chunks, copied.last_samples);
                copies.next();
                into.extend(self.chunks[shard].by_ref().take(chunks as usize));
                last_samples
            }
            _ => 0,
        }
    }
}

impl Store {
    /// What a reader at `watermark` may see of the series with these slots.
    pub(super) fn copy_visible(
        &self,
        slots: &[u32],
        request: SelectRequest<'_>,
        watermark: u64,
    ) -> Result<Visible, Error> {
        let memory = request.budget.reserve(slots.len() * SERIES_BYTES)?;
        let mut shards = Vec::with_capacity(slots.len());
        let mut wanted: Vec<Vec<Wanted>> = vec![Vec::new(); self.shards.len()];
        let mut cursor = SeriesCursor::new(&self.index);
        for (number, slot) in slots.iter().enumerate() {
            let Some(place) = cursor.place(*slot) else {
                shards.push(IN_NO_SHARD);
                continue;
            };
            let (shard, local) = self.shard_and_local(place);
            shards.push(shard as u32);
            wanted[shard].push(Wanted {
                number: number as u32,
                slot: *slot,
                local,
            });
        }
        let empty = || Mutex::new(Ok(ShardCopy::default()));
        let copies: Vec<Mutex<Result<ShardCopy, Error>>> = wanted.iter().map(|_| empty()).collect();
        let copy = |shard: usize| {
            let copied = self.copy_of_shard(shard, &wanted[shard], request, watermark);
            *lock(&copies[shard]) = copied;
        };
        match slots.len() < SERIES_FOR_THREADS {
            true => (0..copies.len()).for_each(copy),
            false => self.env.compute.for_each(copies.len(), &copy),
        }
        let mut visible = Visible {
            shards,
            copies: Vec::new(),
            chunks: Vec::new(),
            memory: vec![memory],
        };
        for copied in copies {
            let copied = copied
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner)?;
            visible.copies.push(copied.series.into_iter());
            visible.chunks.push(copied.chunks.into_iter());
            visible.memory.extend(copied.memory);
        }
        Ok(visible)
    }

    fn copy_of_shard(
        &self,
        shard: usize,
        wanted: &[Wanted],
        request: SelectRequest<'_>,
        watermark: u64,
    ) -> Result<ShardCopy, Error> {
        let mut copy = ShardCopy::default();
        let mut bytes = Vec::new();
        let mut memory = request.budget.reserve(0)?;
        let (mut copied_bytes, mut series_bytes) = (0usize, COPIED_BYTES);
        for slice in wanted.chunks(COPY_SLICE) {
            request.cancel.check()?;
            // What the series will take is seen under the lock only: what those before took.
            let expected = copied_bytes.saturating_add(slice.len() * series_bytes);
            memory.grow(expected.saturating_sub(memory.bytes()))?;
            let first = copy.chunks.len();
            let shard = lock(&self.shards[shard]);
            for one in slice {
                let Some(series) = shard.series_of_slot(one.local, one.slot) else {
                    continue;
                };
                let hidden = shard.hidden(one.local, series, watermark);
                let before = copy.chunks.len();
                let copied =
                    copy_visible(series, request.range, hidden, &mut copy.chunks, &mut bytes);
                if let Some(last_samples) = copied {
                    copy.series.push(CopiedSeries {
                        number: one.number,
                        chunks: (copy.chunks.len() - before) as u32,
                        last_samples: last_samples as u32,
                    });
                }
            }
            // A slice is some tens of kilobytes, and its lock is not held for this.
            drop(shard);
            let slice_bytes: usize = copy.chunks[first..].iter().map(Chunk::memory_bytes).sum();
            series_bytes = slice_bytes.div_ceil(slice.len());
            copied_bytes += slice_bytes;
            memory.grow(copied_bytes.saturating_sub(memory.bytes()))?;
        }
        memory.shrink_to(copied_bytes);
        copy.memory = Some(memory);
        Ok(copy)
    }
}
