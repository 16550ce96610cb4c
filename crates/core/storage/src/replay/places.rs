//! Creates series that were read: in the shards on all threads, and in the index on one of them.
//!
//! Interning is sequential, so one thread interns while the others fill shards. It follows the
//! stored differences between label sets and needs no complete labels. The results of both are
//! combined at the end.

use super::{ReplaySeriesBatch, ReplaySeriesKey, ReplayState};
use crate::head::series::MemSeries;
use crate::head::shard::{HeadShard, WARM};
use crate::ids::{SeriesRef, SeriesSlot, ShardLocalId};
use crate::parts::numbers::StartupGroups;
use crate::sync::Mutex;
use crate::sync::lock;

/// A series that got a place in a shard.
struct PlacedSeries {
    /// Index of the series among those that were read.
    read: usize,
    local: ShardLocalId,
    /// A series with equal labels that was removed before this one was created.
    replaced: Option<SeriesRef>,
}

impl ReplayState<'_> {
    /// Creates series in shards and index. An existing series keeps its place. A series with the
    /// labels of a later one gets none, because it was removed before the later one was created.
    pub(super) fn register_all(&self, sources: &[ReplaySeriesBatch<'_>]) {
        let series: Vec<ReplaySeriesKey> = sources
            .iter()
            .flat_map(|read| read.series.iter().copied())
            .collect();
        let Some(newest) = series.iter().map(|read| read.slot).max() else {
            return;
        };
        self.record_slot(newest);
        let mut known = lock(&self.known);
        let number = |read: &ReplaySeriesKey| known.groups.find_or_assign_number(read.slot);
        let numbers: Vec<Option<SeriesRef>> = series.iter().map(number).collect();
        let store = self.store;
        let untaken = Mutex::new(Vec::new());
        let shards = store.head.shards.len();
        let mut of_shards = vec![Vec::new(); shards];
        for (i, read) in series.iter().enumerate() {
            of_shards[store.head.shard_of(read.print)].push(i);
        }
        let in_shards: Vec<Mutex<Vec<PlacedSeries>>> =
            (0..shards).map(|_| Mutex::default()).collect();
        store.env.compute.for_each(shards + 1, &|task| {
            match task.checked_sub(1) {
                None => *lock(&untaken) = self.intern(sources, &numbers),
                Some(number) => {
                    let of_shard = &of_shards[number];
                    *lock(&in_shards[number]) =
                        self.fill_shard(number, &series, &numbers, of_shard, &known.groups);
                }
            };
        });
        let untaken = std::mem::take(&mut *lock(&untaken));
        for (number, in_shard) in in_shards.iter().enumerate() {
            for found in lock(in_shard).drain(..) {
                if let Some(slot) = found.replaced {
                    known.remove(slot);
                    store.head.index.clear_marks(slot);
                }
                let is_taken = untaken.binary_search(&found.read).is_err();
                if let Some(series) = numbers[found.read].filter(|_| is_taken) {
                    known.add(series, store.head.encode_place(number, found.local));
                } else {
                    lock(&store.head.shards[number]).remove(found.local);
                    self.report_malformed_record(
                        "the index cannot hold more label names or values",
                    );
                }
            }
        }
    }

    /// Interns the terms of every series. Returns the indices of those that the index did not
    /// accept, in ascending order.
    fn intern(
        &self,
        sources: &[ReplaySeriesBatch<'_>],
        numbers: &[Option<SeriesRef>],
    ) -> Vec<usize> {
        let mut interning = self.store.head.index.create_series();
        let mut terms = lock(&self.terms);
        let mut untaken = Vec::new();
        let mut number = 0;
        for ReplaySeriesBatch { records, series } in sources {
            let mut records = records.clone();
            for _ in series {
                match (interning.intern_steps(records.steps()), numbers[number]) {
                    (Ok(of_series), Some(series)) => terms.add(series, of_series),
                    _ => untaken.push(number),
                }
                number += 1;
            }
        }
        untaken
    }

    /// Fills one shard. `of_shard` are the indices of its series among those that were read, in
    /// ascending order.
    fn fill_shard(
        &self,
        number: usize,
        read: &[ReplaySeriesKey],
        numbers: &[Option<SeriesRef>],
        of_shard: &[usize],
        groups: &StartupGroups,
    ) -> Vec<PlacedSeries> {
        let mut shard = lock(&self.store.head.shards[number]);
        let mut filled = Vec::with_capacity(of_shard.len());
        for some in of_shard.chunks(WARM) {
            shard.prefetch_cells(some.iter().map(|i| read[*i].print));
            for i in some.iter().copied() {
                if let Some(series) = numbers[i] {
                    filled.extend(fill_series(&mut shard, i, read[i], series, groups));
                }
            }
        }
        filled
    }
}

/// Creates the series with index `i` in the shard, unless a later one has its place.
fn fill_series(
    shard: &mut HeadShard,
    i: usize,
    read: ReplaySeriesKey,
    series: SeriesRef,
    groups: &StartupGroups,
) -> Option<PlacedSeries> {
    let mut replaced = None;
    let (local, is_new) = shard.find_or_insert(read.print, MemSeries::new(series));
    if !is_new {
        let slot_of = |s: &MemSeries| groups.slot(s.slot).unwrap_or(SeriesSlot(u64::MAX));
        let known = shard.series_mut(local);
        let known = known.filter(|s| slot_of(s) < read.slot)?;
        replaced = Some(known.slot);
        let bytes = known.memory_bytes();
        *known = MemSeries::new(series);
        shard.chunk_bytes -= bytes;
    }
    Some(PlacedSeries {
        read: i,
        local,
        replaced,
    })
}
