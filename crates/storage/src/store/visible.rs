//! Copies of what is visible of the head's series: the part of a selection that needs locks.
//!
//! Shards are copied on all compute threads. A shard's lock is held for a slice of its series at a
//! time, so that no writer waits for a wide query.

use super::{Store, lock};
use crate::head::copies::{Copied, Copies};
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

/// Bytes that a selection keeps of each series beside its copy: its slot, its shard, where it is
/// looked for, and where its copy is.
const SERIES_BYTES: usize = 40;

/// What the copy of a series is expected to take before one was made: a chunk of some samples.
const COPIED_BYTES: usize = 256;

/// Says of a series that it has left the head.
const IN_NO_SHARD: u32 = u32::MAX;

/// Copies of the series of a selection.
#[derive(Default)]
pub(super) struct Visible {
    shards: Vec<ShardCopies>,
    /// Beside that of the copies.
    _memory: Option<Reservation>,
}

/// Where a copy is.
#[derive(Clone, Copy)]
pub(super) struct CopyId {
    shard: u32,
    number: u32,
}

/// What one shard holds of a selection, in the selection's order.
#[derive(Default)]
struct ShardCopies {
    copies: Copies,
    /// The number in the selection of each, ascending.
    series: Vec<u32>,
    _memory: Option<Reservation>,
}

/// A series of the selection that a shard may hold.
#[derive(Clone, Copy)]
struct Wanted {
    number: u32,
    slot: u32,
    local: u32,
}

impl Visible {
    /// The copy with this id.
    pub(super) fn get(&self, id: CopyId) -> Copied<'_> {
        let shard = &self.shards[id.shard as usize];
        shard.copies.get(id.number as usize)
    }
}

/// Hands out the ids of copies in the order of the selection.
pub(super) struct CopyIds {
    /// The shard of each series.
    shards: Vec<u32>,
    /// The next copy of each shard.
    next: Vec<u32>,
}

impl CopyIds {
    /// The copy of the series with this number, which ascends, if there is one.
    pub(super) fn take(&mut self, visible: &Visible, number: usize) -> Option<CopyId> {
        let shard = self.shards[number];
        let next = self.next.get_mut(shard as usize)?;
        let copied = visible.shards[shard as usize].series.get(*next as usize)?;
        if *copied as usize != number {
            return None;
        }
        let id = CopyId {
            shard,
            number: *next,
        };
        *next += 1;
        Some(id)
    }
}

impl Store {
    /// What a reader at `watermark` may see of the series with these slots.
    pub(super) fn copy_visible(
        &self,
        slots: &[u32],
        request: SelectRequest<'_>,
        watermark: u64,
    ) -> Result<(Visible, CopyIds), Error> {
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
        let empty = || Mutex::new(Ok(ShardCopies::default()));
        let copied: Vec<Mutex<Result<_, Error>>> = wanted.iter().map(|_| empty()).collect();
        let copy = |shard: usize| {
            let of_shard = self.copy_of_shard(shard, &wanted[shard], request, watermark);
            *lock(&copied[shard]) = of_shard;
        };
        match slots.len() < SERIES_FOR_THREADS {
            true => (0..copied.len()).for_each(copy),
            false => self.env.compute.for_each(copied.len(), &copy),
        }
        let ids = CopyIds {
            shards,
            next: vec![0; copied.len()],
        };
        let copied = copied.into_iter();
        let copied = copied.map(|c| c.into_inner().unwrap_or_else(PoisonError::into_inner));
        let visible = Visible {
            shards: copied.collect::<Result<_, Error>>()?,
            _memory: Some(memory),
        };
        Ok((visible, ids))
    }

    fn copy_of_shard(
        &self,
        shard: usize,
        wanted: &[Wanted],
        request: SelectRequest<'_>,
        watermark: u64,
    ) -> Result<ShardCopies, Error> {
        let mut of_shard = ShardCopies::default();
        let mut memory = request.budget.reserve(0)?;
        let mut series_bytes = COPIED_BYTES;
        let mut done = 0;
        for slice in wanted.chunks(COPY_SLICE) {
            request.cancel.check()?;
            // What the series will take is seen under the lock only: what those before took.
            let expected = of_shard.copies.memory_bytes() + slice.len() * series_bytes;
            memory.grow(expected.saturating_sub(memory.bytes()))?;
            let shard = lock(&self.shards[shard]);
            for one in slice {
                let Some(series) = shard.series_of_slot(one.local, one.slot) else {
                    continue;
                };
                let hidden = shard.hidden(one.local, series, watermark);
                if of_shard.copies.add(series, request.range, hidden) {
                    of_shard.series.push(one.number);
                }
            }
            drop(shard);
            done += slice.len();
            let bytes = of_shard.copies.memory_bytes();
            series_bytes = bytes.div_ceil(done);
            memory.grow(bytes.saturating_sub(memory.bytes()))?;
        }
        memory.shrink_to(of_shard.copies.memory_bytes());
        of_shard._memory = Some(memory);
        Ok(of_shard)
    }
}
