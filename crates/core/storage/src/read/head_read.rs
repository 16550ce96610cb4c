//! Copies the visible samples of the head: the part of a selection that needs locks.
//!
//! The series are copied in parts on all compute threads. A shard's lock is held for a slice of a
//! part at a time, so that no writer has to wait for a large query.

use super::StoreReader;
use super::late::LateCopies;
use crate::fan_out::map_parts;
use crate::head::copies::{SeriesCopies, SeriesCopy};
use crate::head::late::LateSeries;
use crate::head::shard::HeadShard;
use crate::ids::{SeriesRef, ShardLocalId};
use crate::index::SeriesCursor;
use crate::sync::lock;
use crate::tombstones::DeletedRuns;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::store::SelectRequest;

/// Number of series that a thread copies at a time, about 100 us. Waking another thread for fewer
/// takes as long. Small in tests.
const PART: usize = if cfg!(test) { 4 } else { 512 };

/// Number of series copied under one lock: about 20 us, less than a batch holds it.
const COPY_SLICE: usize = 256;

/// Number of iterations between prefetching a series, prefetching its chunk, and copying it.
const AHEAD: usize = 8;

/// Memory of a selection per series in bytes, without its copy: its slot, twice, its shard, its
/// place, and the number of its copy.
const SERIES_BYTES: usize = 40;

/// Expected memory of the copy of a series in bytes before any was made: a chunk of half an hour.
const COPIED_BYTES: usize = 256;

/// Memory of the copy of only the newest sample, in bytes.
const NEWEST_BYTES: usize = 48;

/// Number of a copy that does not exist.
const NO_COPY: u32 = u32::MAX;

/// Copies of the candidate series, in parts.
#[derive(Default)]
pub(super) struct HeadCopies {
    parts: Vec<PartCopies>,
    /// True if any series has late samples. Usually none has, and then no lookups are needed.
    has_late: bool,
    /// Memory reservation for everything except the copies.
    _memory: Option<Reservation>,
}

/// Copies of the series of one part.
struct PartCopies {
    copies: SeriesCopies,
    late: LateCopies,
    /// Number of series that are not visited yet.
    left: usize,
    /// Number of the copy of each series.
    numbers: Vec<u32>,
    memory: Reservation,
}

/// The samples of a series that a selection copies.
#[derive(Clone, Copy)]
struct HeadCopyRule<'a> {
    request: SelectRequest<'a>,
    /// Series whose newest sample may be deleted.
    deleted: &'a DeletedRuns,
    watermark: u64,
}

/// A series of a part with its place in a shard.
#[derive(Clone, Copy)]
struct WantedMemSeries {
    /// Index of the series in the part.
    place: u32,
    slot: SeriesRef,
    local: ShardLocalId,
}

impl HeadCopies {
    /// Returns whether the series with this number has a copy or late samples.
    pub(super) fn has(&self, number: usize) -> bool {
        self.find(number).is_some() || self.late(number).is_some()
    }

    /// Returns the size of all copied chunks in bytes.
    pub(super) fn encoded_bytes(&self) -> usize {
        let parts = self.parts.iter();
        parts.map(|part| part.copies.encoded_bytes()).sum()
    }

    /// Returns the late samples of the series with this number, if there are any.
    #[inline]
    pub(super) fn late(&self, number: usize) -> Option<&LateSeries> {
        if self.has_late {
            self.parts[number / PART].late.get(number % PART)
        } else {
            None
        }
    }

    /// Returns the copy of the candidate series with this number, if there is one.
    pub(super) fn get(&self, number: usize) -> Option<SeriesCopy<'_>> {
        let (copies, copy) = self.find(number)?;
        Some(copies.get(copy))
    }

    /// Returns the copies of a part and the number of the series' copy in them.
    fn find(&self, number: usize) -> Option<(&SeriesCopies, usize)> {
        let part = &self.parts[number / PART];
        let copy = part.numbers[number % PART];
        (copy != NO_COPY).then_some((&part.copies, copy as usize))
    }
}

impl StoreReader {
    /// Copies the samples of the series with these slots that are visible at `watermark`. Series in
    /// `deleted` are copied with all samples.
    pub(super) fn copy_head(
        &self,
        slots: &[SeriesRef],
        request: SelectRequest<'_>,
        deleted: &DeletedRuns,
        watermark: u64,
    ) -> Result<HeadCopies, Error> {
        let memory = request.budget.reserve(slots.len() * SERIES_BYTES)?;
        let parts: Vec<&[SeriesRef]> = slots.chunks(PART).collect();
        let rule = HeadCopyRule {
            request,
            deleted,
            watermark,
        };
        let copy = |part: usize, slots: &[SeriesRef]| self.copy_part(part, slots, rule);
        let parts = map_parts(&*self.parts.env.compute, &parts, copy)?;
        Ok(HeadCopies {
            has_late: parts.iter().any(|part| !part.late.is_empty()),
            parts,
            _memory: Some(memory),
        })
    }

    /// Copies the visible samples of one part of the series, shard by shard.
    fn copy_part(
        &self,
        part: usize,
        slots: &[SeriesRef],
        rule: HeadCopyRule<'_>,
    ) -> Result<PartCopies, Error> {
        let shards = self.parts.head.shards.len();
        // Slots are usually spread evenly over the shards; otherwise a list grows.
        let each = 2 * slots.len() / shards;
        let mut wanted: Vec<_> = (0..shards).map(|_| Vec::with_capacity(each)).collect();
        let mut cursor = SeriesCursor::new(&self.parts.head.index.dictionary);
        for (place, slot) in slots.iter().enumerate() {
            let Some(found) = cursor.place(*slot) else {
                continue;
            };
            let (shard, local) = self.parts.head.decode_place(found);
            wanted[shard].push(WantedMemSeries {
                place: place as u32,
                slot: *slot,
                local,
            });
        }
        let mut of_part = PartCopies {
            copies: SeriesCopies::default(),
            late: LateCopies::default(),
            left: slots.len(),
            numbers: vec![NO_COPY; slots.len()],
            memory: rule.request.budget.reserve(0)?,
        };
        // Parts begin with different shards, so that they do not wait for each other.
        for shard in (0..shards).map(|i| (part + i) % shards) {
            self.copy_shard(shard, &wanted[shard], rule, &mut of_part)?;
        }
        of_part.release_unused();
        Ok(of_part)
    }

    /// Copies the visible samples of the series of a part that are in one shard, in slices under
    /// its lock.
    fn copy_shard(
        &self,
        shard: usize,
        wanted: &[WantedMemSeries],
        rule: HeadCopyRule<'_>,
        into: &mut PartCopies,
    ) -> Result<(), Error> {
        let (request, watermark) = (rule.request, rule.watermark);
        for slice in wanted.chunks(COPY_SLICE) {
            request.cancel.check()?;
            into.reserve_estimate(request.newest_only)?;
            let shard = lock(&self.parts.head.shards[shard]);
            let has_late = !shard.late.is_empty();
            let ahead = MemSeriesPrefetcher::new(&shard, slice, request.newest_only);
            for (i, one) in slice.iter().enumerate() {
                ahead.prefetch_after(i);
                let Some(series) = shard.series_of_slot(one.local, one.slot) else {
                    continue;
                };
                let hidden = shard.count_hidden(one.local, series, watermark);
                let number = into.copies.len() as u32;
                let has_late = has_late
                    && (into.late).add(one.place, &shard, one.local, request.range, watermark);
                let copies = &mut into.copies;
                // With late samples, all samples are needed to apply the rule for equal times.
                let is_newest_enough = request.newest_only
                    && hidden == 0
                    && !has_late
                    && self.has_no_tombstone(rule.deleted, one.slot);
                if is_newest_enough && copies.add_newest(series, request.range)
                    || copies.add(series, request.range, hidden)
                {
                    into.numbers[one.place as usize] = number;
                }
            }
            drop(shard);
            into.left -= slice.len();
            into.reserve_actual()?;
        }
        Ok(())
    }
}

impl StoreReader {
    #[inline]
    fn has_no_tombstone(&self, deleted: &DeletedRuns, slot: SeriesRef) -> bool {
        deleted.is_empty()
            || deleted
                .find(self.parts.head.numbers.slot(slot).0)
                .is_empty()
    }
}

/// Prefetches the memory of series that are copied one after the other.
struct MemSeriesPrefetcher<'a> {
    shard: &'a HeadShard,
    series: &'a [WantedMemSeries],
    /// True if their chunks are not read.
    newest_only: bool,
}

impl<'a> MemSeriesPrefetcher<'a> {
    fn new(shard: &'a HeadShard, series: &'a [WantedMemSeries], newest_only: bool) -> Self {
        let ahead = Self {
            shard,
            series,
            newest_only,
        };
        (0..2 * AHEAD).for_each(|i| ahead.prefetch_series(i));
        (0..AHEAD).for_each(|i| ahead.prefetch_chunk(i));
        ahead
    }

    /// Prefetches the memory for the iterations after `i`.
    #[inline]
    fn prefetch_after(&self, i: usize) {
        self.prefetch_series(i + 2 * AHEAD);
        self.prefetch_chunk(i + AHEAD);
    }

    #[inline]
    fn prefetch_series(&self, i: usize) {
        if let Some(one) = self.series.get(i) {
            self.shard.prefetch(one.local);
        }
    }

    #[inline]
    fn prefetch_chunk(&self, i: usize) {
        if let Some(one) = self.series.get(i).filter(|_| !self.newest_only) {
            self.shard.prefetch_chunk(one.local);
        }
    }
}

impl PartCopies {
    /// Reserves the expected memory of the remaining series, estimated from the previous ones,
    /// because the actual size is only determined under the lock.
    fn reserve_estimate(&mut self, newest_only: bool) -> Result<(), Error> {
        let each = self.copies.estimate_copy_bytes().unwrap_or(if newest_only {
            NEWEST_BYTES
        } else {
            COPIED_BYTES
        });
        self.reserve(self.memory_bytes() + self.left * each)?;
        self.copies.reserve_memory(self.left, each);
        Ok(())
    }

    /// Reserves the actual memory of the copies, if it exceeds the estimate that was reserved.
    fn reserve_actual(&mut self) -> Result<(), Error> {
        self.reserve(self.memory_bytes())
    }

    fn memory_bytes(&self) -> usize {
        self.copies.memory_bytes() + self.late.memory_bytes()
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), Error> {
        self.memory.grow(bytes.saturating_sub(self.memory.bytes()))
    }

    /// Releases memory that was reserved and not used.
    fn release_unused(&mut self) {
        self.copies.release_unused_memory();
        self.late.settle();
        self.memory.shrink_to(self.memory_bytes());
    }
}
