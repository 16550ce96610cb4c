//! The cache of what was read of blocks: bounded by its bytes, each unit read once however many
//! threads want it.
//!
//! Units are kept as they are used, checked and opened. They lie in shards by their place, each
//! with a lock of its own; what all of them hold together is counted against one bound. Where it is
//! exceeded, a hand walks the shards and their units in the order in which they came; one that was
//! used since it last passed is spared once (Corbató's CLOCK), so that what one scan read goes
//! first. Readers hold an `Arc`: what leaves the cache lives until the last of them is done.
//!
//! Invariant: no lock is held while a unit is read.

use super::cached::{Flight, Place, Shard};
use crate::damage::{self, Damage, DamageKind, Damages};
use crate::error::StorageError;
use firn_model::metrics::{Counter, Gauge};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Threads that look units up wait for each other once in as many times.
const SHARDS: usize = 16;

/// Something that is kept.
pub(crate) trait Unit: Any + Send + Sync {
    /// Bytes of memory that it takes at most as long as it is kept.
    fn memory_bytes(&self) -> usize;
}

/// See the module.
#[derive(Debug)]
pub struct BlockCache {
    bytes_max: AtomicUsize,
    held: AtomicUsize,
    shards: [Shard; SHARDS],
    /// The shard at which the hand is.
    hand: AtomicUsize,
    blocks: AtomicU64,
    damages: Option<Arc<Damages>>,
    /// Bytes held.
    pub held_bytes: Gauge,
    /// Units found in it.
    pub hits: Counter,
    /// Units that had to be read.
    pub misses: Counter,
    /// Bytes that were read of files.
    pub read_bytes: Counter,
}

impl BlockCache {
    /// A cache of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max: AtomicUsize::new(bytes_max),
            held: AtomicUsize::new(0),
            shards: Default::default(),
            hand: AtomicUsize::new(0),
            blocks: AtomicU64::new(0),
            damages: None,
            held_bytes: Gauge::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            read_bytes: Counter::default(),
        }
    }

    /// The same, which reports what of its blocks had to be read from a second copy.
    pub(crate) fn reporting_to(self, damages: Arc<Damages>) -> Self {
        Self {
            damages: Some(damages),
            ..self
        }
    }

    /// Reports damage that costs nothing: what was there is in a second place, too.
    #[cold]
    pub(crate) fn report_recovered(&self, error: &StorageError, second: &str) {
        let Some(damages) = &self.damages else { return };
        let damage = damage::met(DamageKind::Blocks, error);
        damages.report(Damage {
            what: format!("{}; {second} is read instead, nothing is lost", damage.what),
            samples: Some(0),
            ..damage
        });
    }

    /// Reports damage to a block that is opened; reads that lack something for it say so.
    #[cold]
    pub(crate) fn report_damaged(&self, error: &StorageError) {
        if let Some(damages) = &self.damages {
            damages.report(damage::met(DamageKind::Blocks, error));
        }
    }

    /// Sets the bound; what is too much goes at once.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.shrink();
    }

    /// The bound in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// A number for the units of a block that is opened.
    pub(crate) fn next_block(&self) -> u64 {
        self.blocks.fetch_add(1, Ordering::Relaxed)
    }

    /// The unit at `place`, from memory or by `load`. Where another thread reads it, this one
    /// waits, and reads it itself if that fails.
    pub(crate) fn get<U: Unit>(
        &self,
        place: Place,
        load: impl FnOnce() -> Result<U, StorageError>,
    ) -> Result<Arc<U>, StorageError> {
        loop {
            match self.shard(&place).begin(&place) {
                Flight::Landed(unit) => {
                    self.hits.inc();
                    let unit: Arc<dyn Any + Send + Sync> = unit;
                    // An index that no writer wrote may say two things of one place.
                    return unit.downcast().or_else(|_| load().map(Arc::new));
                }
                Flight::Elsewhere(flight) => flight.wait(),
                Flight::Here(flight) => {
                    self.misses.inc();
                    let unit = Arc::new(load()?);
                    self.land(&place, unit.clone());
                    drop(flight);
                    return Ok(unit);
                }
            }
        }
    }

    /// Takes it on to read the unit at `place`; `None` if it is there or is being read. Others wait
    /// until what is returned is dropped.
    pub(crate) fn claim(&self, place: Place) -> Option<Claim<'_>> {
        match self.shard(&place).begin(&place) {
            Flight::Here(flight) => Some(Claim {
                cache: self,
                place,
                _flight: flight,
            }),
            Flight::Landed(_) | Flight::Elsewhere(_) => None,
        }
    }

    /// Drops the units of a block that was removed.
    pub(crate) fn forget(&self, block: u64) {
        for shard in &self.shards {
            let freed = shard.forget(block);
            self.held.fetch_sub(freed, Ordering::Relaxed);
        }
        self.publish();
    }

    fn land(&self, place: &Place, unit: Arc<dyn Unit>) {
        let bytes = unit.memory_bytes();
        if bytes > self.bytes_max() {
            return;
        }
        // Counted before it may go again on another thread.
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let freed = self.shard(place).put(*place, unit, bytes);
        self.held.fetch_sub(freed, Ordering::Relaxed);
        self.shrink();
    }

    /// Moves the hand until the bound holds.
    fn shrink(&self) {
        let mut empty = 0;
        while self.held.load(Ordering::Relaxed) > self.bytes_max() && empty < 2 * SHARDS {
            let shard = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            match self.shards[shard].turn() {
                Some(freed) => {
                    self.held.fetch_sub(freed, Ordering::Relaxed);
                    empty = 0;
                }
                None => empty += 1,
            }
        }
        self.publish();
    }

    fn publish(&self) {
        self.held_bytes
            .set(self.held.load(Ordering::Relaxed) as i64);
    }

    fn shard(&self, place: &Place) -> &Shard {
        &self.shards[place.shard(SHARDS)]
    }
}

/// The right to read a unit that others wait for.
pub(crate) struct Claim<'a> {
    cache: &'a BlockCache,
    place: Place,
    _flight: super::cached::Owned<'a>,
}

impl Claim<'_> {
    /// Gives the unit to the cache and to those who wait.
    pub(crate) fn land(self, unit: Arc<dyn Unit>) {
        self.cache.misses.inc();
        self.cache.land(&self.place, unit);
    }
}
