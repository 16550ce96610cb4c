//! The cache of units read from blocks: bounded in bytes, and each unit is read once even if
//! several threads request it at the same time.
//!
//! Units are cached in the form in which they are used: verified and decoded. They are distributed
//! over shards by a hash of their location, each shard with its own lock; one bound applies to the
//! total size of all shards. When the total exceeds the bound, a hand walks the shards and evicts
//! units in insertion order, skipping once each unit that was used since the last pass (Corbató's
//! CLOCK). Units that a single scan read are therefore evicted first. Readers hold an `Arc`, so an
//! evicted unit lives until its last reader drops it.
//!
//! Invariant: no lock is held while a unit is read.

use super::cached::{BlockCacheShard, UnitKey, UnitLookup};
use crate::damage::{self, Damage, DamageKind, DamageList};
use crate::error::StorageError;
use firn_model::metrics::{Counter, Gauge};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of shards, each with its own lock; more shards reduce contention between lookups.
const SHARDS: usize = 16;

/// A decoded part of a block that the cache can hold, such as a page or a unit of an index section.
pub(crate) trait BlockUnit: Any + Send + Sync {
    /// Returns the largest number of bytes that the unit takes in memory while it is cached.
    fn memory_bytes(&self) -> usize;
}

/// The cache of decoded block units. One instance is shared by all blocks of a store; see the
/// module documentation.
#[derive(Debug)]
pub struct BlockCache {
    bytes_max: AtomicUsize,
    held: AtomicUsize,
    shards: [BlockCacheShard; SHARDS],
    /// Number of steps that the eviction hand has made; modulo `SHARDS` it is the next shard.
    hand: AtomicUsize,
    blocks: AtomicU64,
    damages: Option<Arc<DamageList>>,
    /// Bytes of all cached units.
    pub held_bytes: Gauge,
    /// Number of lookups that found their unit in the cache.
    pub hits: Counter,
    /// Number of units that had to be read because the cache did not hold them.
    pub misses: Counter,
    /// Number of bytes read from block files.
    pub read_bytes: Counter,
}

impl BlockCache {
    /// Creates an empty cache that holds at most `bytes_max` bytes.
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

    /// Returns the cache with `damages` as the receiver of reports about damaged blocks.
    pub(crate) fn with_damages(self, damages: Arc<DamageList>) -> Self {
        Self {
            damages: Some(damages),
            ..self
        }
    }

    /// Reports damage that loses no data because `second`, another copy, is intact and read
    /// instead.
    #[cold]
    pub(crate) fn report_recovered(&self, error: &StorageError, second: &str) {
        let Some(damages) = &self.damages else { return };
        let damage = damage::damage_from_error(DamageKind::Blocks, error);
        damages.report(Damage {
            what: format!("{}; {second} is read instead, nothing is lost", damage.what),
            samples: Some(0),
            ..damage
        });
    }

    /// Reports damage found while a block is opened. Reads that need the damaged bytes return their
    /// own error.
    #[cold]
    pub(crate) fn report_damaged(&self, error: &StorageError) {
        if let Some(damages) = &self.damages {
            damages.report(damage::damage_from_error(DamageKind::Blocks, error));
        }
    }

    /// Sets the bound in bytes and evicts units immediately until the cache is within it.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.evict_to_bound();
    }

    /// Returns the largest total size of the cached units, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Returns a new number that identifies a newly opened block in the keys of the cache.
    pub(crate) fn allocate_block_number(&self) -> u64 {
        self.blocks.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the unit at `place` from the cache, or loads it with `load`. If another thread is
    /// loading it, waits for that thread, and loads the unit itself if that load fails.
    pub(crate) fn get_or_load<U: BlockUnit>(
        &self,
        place: UnitKey,
        load: impl FnOnce() -> Result<U, StorageError>,
    ) -> Result<Arc<U>, StorageError> {
        loop {
            match self.shard(&place).look_up(&place) {
                UnitLookup::Landed(unit) => {
                    self.hits.inc();
                    let unit: Arc<dyn Any + Send + Sync> = unit;
                    // A corrupt index can assign units of two different types to the same location.
                    return unit.downcast().or_else(|_| load().map(Arc::new));
                }
                UnitLookup::Elsewhere(flight) => flight.wait(),
                UnitLookup::Here(flight) => {
                    self.misses.inc();
                    let unit = Arc::new(load()?);
                    self.insert_unit(&place, unit.clone());
                    drop(flight);
                    return Ok(unit);
                }
            }
        }
    }

    /// Claims the unit at `place` so that the caller can read it. Returns `None` if the unit is
    /// cached or is being read by another thread. Other threads wait for the unit until the claim
    /// is dropped.
    pub(crate) fn claim_unit(&self, place: UnitKey) -> Option<UnitClaim<'_>> {
        match self.shard(&place).look_up(&place) {
            UnitLookup::Here(flight) => Some(UnitClaim {
                cache: self,
                place,
                _flight: flight,
            }),
            UnitLookup::Landed(_) | UnitLookup::Elsewhere(_) => None,
        }
    }

    /// Evicts all units of a block that was removed. Units that readers still hold stay valid until
    /// they drop them.
    pub(crate) fn evict_block(&self, block: u64) {
        for shard in &self.shards {
            let freed = shard.evict_block(block);
            self.held.fetch_sub(freed, Ordering::Relaxed);
        }
        self.update_gauge();
    }

    fn insert_unit(&self, place: &UnitKey, unit: Arc<dyn BlockUnit>) {
        let bytes = unit.memory_bytes();
        if bytes > self.bytes_max() {
            return;
        }
        // Count the bytes first: another thread may evict the unit as soon as it is in the shard.
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let freed = self.shard(place).insert_unit(*place, unit, bytes);
        self.held.fetch_sub(freed, Ordering::Relaxed);
        self.evict_to_bound();
    }

    /// Evicts units until the cache is within its bound or empty.
    fn evict_to_bound(&self) {
        let mut empty = 0;
        while self.held.load(Ordering::Relaxed) > self.bytes_max() && empty < 2 * SHARDS {
            let shard = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            match self.shards[shard].evict_next() {
                Some(freed) => {
                    self.held.fetch_sub(freed, Ordering::Relaxed);
                    empty = 0;
                }
                None => empty += 1,
            }
        }
        self.update_gauge();
    }

    fn update_gauge(&self) {
        self.held_bytes
            .set(self.held.load(Ordering::Relaxed) as i64);
    }

    fn shard(&self, place: &UnitKey) -> &BlockCacheShard {
        &self.shards[place.shard_index(SHARDS)]
    }
}

/// The exclusive right to read one unit while other threads that need it wait.
pub(crate) struct UnitClaim<'a> {
    cache: &'a BlockCache,
    place: UnitKey,
    _flight: super::cached::UnitLoadGuard<'a>,
}

impl UnitClaim<'_> {
    /// Inserts the unit that was read into the cache and wakes the waiting threads.
    pub(crate) fn insert_unit(self, unit: Arc<dyn BlockUnit>) {
        self.cache.misses.inc();
        self.cache.insert_unit(&self.place, unit);
    }
}
