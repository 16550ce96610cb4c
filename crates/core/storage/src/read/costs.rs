//! The bytes, pages and units that a selection has read.

use crate::sync::atomic::{AtomicU64, Ordering};
use firn_model::store::ReadCosts;

/// Counters of the reads of one selection, which all its threads share.
#[derive(Debug, Default)]
pub(super) struct ReadCostCounters {
    bytes: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl ReadCostCounters {
    /// Counts a page of `bytes` bytes that a read opened.
    pub(super) fn add_unit(&self, bytes: u64, was_cached: bool) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let counter = if was_cached { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts `count` units of blocks with a total size of `bytes` bytes. `loaded` is the number of
    /// units that were read from the disk.
    pub(super) fn add_units(&self, count: u64, bytes: u64, loaded: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let hits = count.saturating_sub(loaded);
        self.hits.fetch_add(hits, Ordering::Relaxed);
        self.misses.fetch_add(loaded, Ordering::Relaxed);
    }

    /// Returns the costs of the reads so far.
    pub(super) fn load(&self) -> ReadCosts {
        ReadCosts {
            bytes: self.bytes.load(Ordering::Relaxed),
            cache_hits: self.hits.load(Ordering::Relaxed),
            cache_misses: self.misses.load(Ordering::Relaxed),
        }
    }
}
