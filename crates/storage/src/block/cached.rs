//! A shard of the cache: units by their place, and the units that are being read.

use super::cache::Unit;
use crate::sync::{Condvar, Mutex, lock, wait};
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Where a unit lies: the number of its block, of its file in the block, and its offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) block: u64,
    pub(crate) file: u32,
    pub(crate) offset: u64,
}

impl Place {
    /// Which of so many shards it belongs to.
    pub(crate) fn shard(&self, shards: usize) -> usize {
        let mut hasher = FxHasher::default();
        self.hash(&mut hasher);
        (hasher.finish() >> 32) as usize % shards
    }
}

/// What becomes of a unit that is asked for.
pub(crate) enum Flight<'a> {
    /// It is there.
    Landed(Arc<dyn Unit>),
    /// Another thread reads it.
    Elsewhere(Arc<Pending>),
    /// The caller must read it; others wait until this is dropped.
    Here(Owned<'a>),
}

/// A unit that is being read.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Pending {
    /// Waits until the reader is done.
    pub(crate) fn wait(&self) {
        let mut is_over = lock(&self.is_over);
        while !*is_over {
            is_over = wait(&self.over, is_over);
        }
    }
}

/// Held by the thread that reads a unit.
pub(crate) struct Owned<'a> {
    shard: &'a Shard,
    place: Place,
    pending: Arc<Pending>,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        lock(&self.shard.0).pending.remove(&self.place);
        *lock(&self.pending.is_over) = true;
        self.pending.over.notify_all();
    }
}

struct Held {
    unit: Arc<dyn Unit>,
    bytes: usize,
    /// Since the hand last passed.
    is_used: bool,
}

/// What a shard knows.
#[derive(Default)]
struct State {
    held: FxHashMap<Place, Held>,
    /// In the order of the hand; a place that is not held any more is passed over.
    order: VecDeque<Place>,
    pending: FxHashMap<Place, Arc<Pending>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} units", self.held.len())
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Shard(Mutex<State>);

impl Shard {
    /// Looks a unit up; the caller must read it if no other thread does.
    pub(crate) fn begin(&self, place: &Place) -> Flight<'_> {
        let mut state = lock(&self.0);
        if let Some(held) = state.held.get_mut(place) {
            held.is_used = true;
            return Flight::Landed(held.unit.clone());
        }
        if let Some(pending) = state.pending.get(place) {
            return Flight::Elsewhere(pending.clone());
        }
        let pending = Arc::new(Pending::default());
        state.pending.insert(*place, pending.clone());
        Flight::Here(Owned {
            shard: self,
            place: *place,
            pending,
        })
    }

    /// Keeps a unit; returns the bytes of one that it replaces.
    pub(crate) fn put(&self, place: Place, unit: Arc<dyn Unit>, bytes: usize) -> usize {
        let mut state = lock(&self.0);
        let held = Held {
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

    /// Moves the hand to the first unit that goes, and returns its bytes; `None` if there is none.
    pub(crate) fn turn(&self) -> Option<usize> {
        let mut state = lock(&self.0);
        // Each is passed twice at most: the first time it may be spared.
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

    /// Drops the units of a block, and returns their bytes.
    pub(crate) fn forget(&self, block: u64) -> usize {
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
