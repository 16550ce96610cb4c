//! One shard of the block cache: the cached units by location, and the units that are being read.

use super::cache::BlockUnit;
use crate::sync::{Condvar, Mutex, lock, wait};
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The location of a unit, used as its cache key: the number of the block, the number of the file
/// in the block and the offset in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnitKey {
    pub(crate) block: u64,
    pub(crate) file: u32,
    pub(crate) offset: u64,
}

impl UnitKey {
    /// Returns the index of the shard, out of `shards`, that holds the unit.
    pub(crate) fn shard_index(&self, shards: usize) -> usize {
        let mut hasher = FxHasher::default();
        self.hash(&mut hasher);
        (hasher.finish() >> 32) as usize % shards
    }
}

/// The result of looking up a unit in a shard.
pub(crate) enum UnitLookup<'a> {
    /// The unit is cached.
    Landed(Arc<dyn BlockUnit>),
    /// Another thread is reading the unit; the caller can wait for it.
    Elsewhere(Arc<PendingUnit>),
    /// The caller must read the unit. Other threads wait until this value is dropped.
    Here(UnitLoadGuard<'a>),
}

/// A unit that one thread is reading and that other threads can wait for.
#[derive(Debug, Default)]
pub(crate) struct PendingUnit {
    is_over: Mutex<bool>,
    over: Condvar,
}

impl PendingUnit {
    /// Waits until the reading thread has finished, whether it succeeded or failed.
    pub(crate) fn wait(&self) {
        let mut is_over = lock(&self.is_over);
        while !*is_over {
            is_over = wait(&self.over, is_over);
        }
    }
}

/// Marks the calling thread as the reader of a unit. Dropping it wakes the waiting threads.
pub(crate) struct UnitLoadGuard<'a> {
    shard: &'a BlockCacheShard,
    place: UnitKey,
    pending: Arc<PendingUnit>,
}

impl Drop for UnitLoadGuard<'_> {
    fn drop(&mut self) {
        lock(&self.shard.0).pending.remove(&self.place);
        *lock(&self.pending.is_over) = true;
        self.pending.over.notify_all();
    }
}

struct CachedUnit {
    unit: Arc<dyn BlockUnit>,
    bytes: usize,
    /// True if the unit was used since the eviction hand last passed it.
    is_used: bool,
}

/// The cached and the pending units of a shard, behind its lock.
#[derive(Default)]
struct UnitCacheState {
    held: FxHashMap<UnitKey, CachedUnit>,
    /// Locations in the order in which the eviction hand visits them. Locations of units that are
    /// no longer cached are skipped.
    order: VecDeque<UnitKey>,
    pending: FxHashMap<UnitKey, Arc<PendingUnit>>,
}

impl std::fmt::Debug for UnitCacheState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} units", self.held.len())
    }
}

/// A shard of the cache: one lock and the units it protects. It does not enforce a bound itself.
#[derive(Debug, Default)]
pub(crate) struct BlockCacheShard(Mutex<UnitCacheState>);

impl BlockCacheShard {
    /// Looks up a unit. If it is neither cached nor being read, the caller becomes its reader.
    pub(crate) fn look_up(&self, place: &UnitKey) -> UnitLookup<'_> {
        let mut state = lock(&self.0);
        if let Some(held) = state.held.get_mut(place) {
            held.is_used = true;
            return UnitLookup::Landed(held.unit.clone());
        }
        if let Some(pending) = state.pending.get(place) {
            return UnitLookup::Elsewhere(pending.clone());
        }
        let pending = Arc::new(PendingUnit::default());
        state.pending.insert(*place, pending.clone());
        UnitLookup::Here(UnitLoadGuard {
            shard: self,
            place: *place,
            pending,
        })
    }

    /// Inserts a unit and returns the bytes of the unit that it replaces, or 0.
    pub(crate) fn insert_unit(
        &self,
        place: UnitKey,
        unit: Arc<dyn BlockUnit>,
        bytes: usize,
    ) -> usize {
        let mut state = lock(&self.0);
        let held = CachedUnit {
            unit,
            bytes,
            is_used: false,
        };
        match state.held.insert(place, held) {
            Some(before) => before.bytes,
            None => {
                state.order.push_back(place);
                0
            }
        }
    }

    /// Advances the hand to the first unit that may be evicted, evicts it and returns its bytes.
    /// Returns `None` if the shard is empty.
    pub(crate) fn evict_next(&self) -> Option<usize> {
        let mut state = lock(&self.0);
        // This loop ends: it visits each unit at most twice, because only the first visit can spare
        // it.
        while let Some(place) = state.order.pop_front() {
            let Some(held) = state.held.get_mut(&place) else {
                continue;
            };
            if std::mem::take(&mut held.is_used) {
                state.order.push_back(place);
                continue;
            }
            return state.held.remove(&place).map(|gone| gone.bytes);
        }
        None
    }

    /// Evicts the units of a block and returns the number of bytes that they took.
    pub(crate) fn evict_block(&self, block: u64) -> usize {
        let mut state = lock(&self.0);
        let mut freed = 0;
        state.held.retain(|place, held| {
            let is_gone = place.block == block;
            freed += if is_gone { held.bytes } else { 0 };
            !is_gone
        });
        state.order.retain(|place| place.block != block);
        freed
    }
}
