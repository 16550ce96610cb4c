//! Places for series that were read: in the shards on all threads, and in the index on one of them.
//!
//! Interning is one after the other and takes about as long as all the rest, so one thread interns
//! while the others fill shards. What both found comes together at the end.

use super::{Read, Replay};
use crate::head::series::Series;
use crate::store::lock;
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use firn_model::labels::LabelsRef;

/// The terms of series, one behind the other.
#[derive(Default)]
struct Interned {
    terms: Vec<u32>,
    /// Where those of each series end; `None` if the index did not take it.
    ends: Vec<Option<usize>>,
}

/// A series that got a place in a shard.
struct InShard {
    /// Which of those that were read.
    read: usize,
    local: u32,
    /// The slot of a series with the same labels that was removed before this one was born.
    replaced: Option<u32>,
}

impl Replay<'_> {
    /// Gives series their places, unless they have them, or a later series has the same labels:
    /// then they were removed before that was born.
    pub(super) fn register_all(&self, series: &[Read]) {
        let Some(newest) = series.iter().map(|read| read.slot).max() else {
            return;
        };
        self.next_slot
            .fetch_max(newest.saturating_add(1), Ordering::Relaxed);
        let store = self.store;
        let interned = Mutex::new(Interned::default());
        let shards = store.shards.len();
        let mut of_shards = vec![Vec::new(); shards];
        for (i, read) in series.iter().enumerate() {
            of_shards[store.shard_of(read.print)].push(i);
        }
        let in_shards: Vec<Mutex<Vec<InShard>>> = (0..shards).map(|_| Mutex::default()).collect();
        store.env.compute.for_each(shards + 1, &|task| {
            match task.checked_sub(1) {
                None => *lock(&interned) = self.intern(series),
                Some(number) => {
                    let of_shard = &of_shards[number];
                    *lock(&in_shards[number]) = self.fill_shard(number, series, of_shard);
                }
            };
        });
        let interned = std::mem::take(&mut *lock(&interned));
        // In the order of births, so that sorting by it at the end has little to do.
        let mut places: Vec<Option<(usize, InShard)>> = Vec::new();
        places.resize_with(series.len(), || None);
        for (number, in_shard) in in_shards.iter().enumerate() {
            for found in lock(in_shard).drain(..) {
                let read = found.read;
                places[read] = Some((number, found));
            }
        }
        let mut catalog = lock(&self.catalog);
        for (read, (number, found)) in series.iter().zip(places).filter_map(|(r, p)| Some((r, p?)))
        {
            if let Some(slot) = found.replaced {
                catalog.forget(slot);
                store.index.unmark(slot);
            }
            match interned.of(found.read) {
                Some(terms) => catalog.add(read.slot, store.place(number, found.local), terms),
                None => {
                    lock(&store.shards[number]).remove(found.local);
                    store.report("the index takes no more label names or values");
                }
            }
        }
    }

    fn intern(&self, series: &[Read]) -> Interned {
        let mut births = self.store.index.births();
        let mut interned = Interned::default();
        for read in series {
            let terms = births.intern(LabelsRef::from_canonical(&read.labels));
            interned.ends.push(terms.ok().map(|terms| {
                interned.terms.extend_from_slice(terms);
                interned.terms.len()
            }));
        }
        interned
    }

    /// `of_shard` are the numbers of its series, ascending.
    fn fill_shard(&self, number: usize, series: &[Read], of_shard: &[usize]) -> Vec<InShard> {
        let mut shard = lock(&self.store.shards[number]);
        let mut filled = Vec::with_capacity(of_shard.len());
        for i in of_shard.iter().copied() {
            let read = &series[i];
            let mut replaced = None;
            let local = match shard.find(read.print, u32::MAX) {
                Some(local) => {
                    let older = |s: &&mut Series| s.slot < read.slot;
                    let Some(known) = shard.series_mut(local).filter(older) else {
                        continue;
                    };
                    replaced = Some(known.slot);
                    let bytes = known.memory_bytes();
                    *known = Series::new(read.slot);
                    shard.chunk_bytes -= bytes;
                    local
                }
                None => shard.insert(read.print, Series::new(read.slot)),
            };
            filled.push(InShard {
                read: i,
                local,
                replaced,
            });
        }
        filled
    }
}

impl Interned {
    fn of(&self, read: usize) -> Option<&[u32]> {
        let end = self.ends[read]?;
        let before = self.ends[..read].iter().rev().flatten().next();
        Some(&self.terms[before.copied().unwrap_or(0)..end])
    }
}
