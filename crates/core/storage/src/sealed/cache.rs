//! The cache of opened pages. It is bounded in bytes, gives pages that were used again a second
//! chance, and drops pages that no query used within an hour of data time.
//!
//! Pages enter the cache when they are sealed and when they are read. When the cache exceeds its
//! bound, a hand evicts pages in insertion order and skips once each page that was used since the
//! last pass (Corbató's CLOCK). Readers hold an `Arc`, so an evicted page lives until its last
//! reader drops it.

use super::directory::SealedPageEntry;
use crate::encoding::DecodeError;
use crate::error::StorageError;
use crate::page::PageReader;
use firn_model::log::LogPosition;
use firn_model::metrics::{Counter, Gauge};
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The location of a page: the number of its segment and its offset in the file.
type CachedPageKey = (u64, u64);

/// Duration of data time for which an unused page is kept, in milliseconds; most dashboards query
/// the last hour.
const IDLE_MS: i64 = 3_600_000;

#[derive(Debug)]
struct CachedPage {
    page: Arc<PageReader>,
    /// True if the page was used since the eviction hand last passed it.
    used: AtomicBool,
    /// Time of its newest sample, or of the newest sample in the store when the page was last used.
    wanted_at: AtomicI64,
}

#[derive(Debug, Default)]
struct PageCacheClock {
    held: FxHashMap<CachedPageKey, CachedPage>,
    /// Keys in the order in which the hand visits them. Keys of pages that are no longer cached are
    /// skipped.
    order: VecDeque<CachedPageKey>,
    bytes: usize,
}

/// The cache of opened pages, shared by all readers of a store; see the module documentation.
#[derive(Debug)]
pub(crate) struct PageCache {
    bytes_max: AtomicUsize,
    clock: Mutex<PageCacheClock>,
    /// Time of the newest sample in the store at the last call of [`PageCache::evict_idle`].
    now: AtomicI64,
    /// Bytes of all cached pages.
    pub(crate) held_bytes: Gauge,
    /// Number of lookups that found their page in the cache.
    pub(crate) hits: Counter,
    /// Number of pages that had to be read because the cache did not hold them.
    pub(crate) misses: Counter,
}

impl PageCache {
    /// Creates an empty cache that holds at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max: AtomicUsize::new(bytes_max),
            clock: Mutex::default(),
            now: AtomicI64::new(i64::MIN),
            held_bytes: Gauge::default(),
            hits: Counter::default(),
            misses: Counter::default(),
        }
    }

    /// Sets the bound in bytes, and evicts pages until the cache is within it.
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.evict_to_bound(&mut lock(&self.clock));
    }

    fn evict_to_bound(&self, clock: &mut PageCacheClock) {
        while clock.bytes > self.bytes_max.load(Ordering::Relaxed) {
            clock.advance_hand();
        }
        self.held_bytes.set(clock.bytes as i64);
    }

    /// Returns the page from the cache, or reads it from its segment and caches it.
    /// Also returns whether it was in the cache.
    pub(crate) fn get(
        &self,
        entry: &SealedPageEntry,
    ) -> Result<(Arc<PageReader>, bool), StorageError> {
        if let Some(held) = lock(&self.clock).held.get(&key(entry)) {
            held.used.store(true, Ordering::Relaxed);
            let now = self.now.load(Ordering::Relaxed);
            held.wanted_at.fetch_max(now, Ordering::Relaxed);
            self.hits.inc();
            return Ok((held.page.clone(), true));
        }
        self.misses.inc();
        let page = read(entry)?;
        let page = Arc::new(page);
        let now = self.now.load(Ordering::Relaxed);
        self.insert_with_time(entry, page.clone(), now.max(entry.range.max));
        Ok((page, false))
    }

    /// Inserts a page that was just sealed, because queries of recent samples will need it soon.
    pub(crate) fn insert(&self, entry: &SealedPageEntry, page: Arc<PageReader>) {
        self.insert_with_time(entry, page, entry.range.max);
    }

    fn insert_with_time(
        &self,
        entry: &SealedPageEntry,
        page: Arc<PageReader>,
        wanted_at: TimestampMs,
    ) {
        let bytes = page.memory_bytes();
        if bytes > self.bytes_max.load(Ordering::Relaxed) {
            return;
        }
        let mut clock = lock(&self.clock);
        let held = CachedPage {
            page,
            used: AtomicBool::new(false),
            wanted_at: AtomicI64::new(wanted_at),
        };
        if let Some(before) = clock.held.insert(key(entry), held) {
            clock.bytes -= before.page.memory_bytes();
        } else {
            clock.order.push_back(key(entry));
        }
        clock.bytes += bytes;
        self.evict_to_bound(&mut clock);
    }

    /// Evicts the pages of a segment that is about to be removed.
    pub(crate) fn evict_segment(&self, segment: LogPosition) {
        self.retain(|key, _| key.0 != segment.0);
    }

    /// Evicts the pages that no query used within an hour of data time. `now` is the time of the
    /// newest sample in the store.
    pub(crate) fn evict_idle(&self, now: TimestampMs) {
        self.now.store(now, Ordering::Relaxed);
        let oldest = now.saturating_sub(IDLE_MS);
        self.retain(|_, held| held.wanted_at.load(Ordering::Relaxed) >= oldest);
    }

    /// Evicts the pages that do not satisfy `is_kept`. Visits all pages under the lock, of which
    /// the bound allows a few thousand.
    fn retain(&self, is_kept: impl Fn(&CachedPageKey, &CachedPage) -> bool) {
        let mut guard = lock(&self.clock);
        let clock = &mut *guard;
        let before = clock.held.len();
        let mut freed = 0;
        clock.held.retain(|key, held| {
            let is_kept = is_kept(key, held);
            freed += if is_kept { 0 } else { held.page.memory_bytes() };
            is_kept
        });
        if clock.held.len() < before {
            let held = &clock.held;
            clock.order.retain(|key| held.contains_key(key));
            clock.bytes -= freed;
            self.held_bytes.set(clock.bytes as i64);
        }
    }
}

impl PageCacheClock {
    /// Advances the hand by one page, which is spared if it was used and evicted otherwise.
    fn advance_hand(&mut self) {
        let Some(key) = self.order.pop_front() else {
            return;
        };
        let Some(held) = self.held.get(&key) else {
            return;
        };
        if held.used.swap(false, Ordering::Relaxed) {
            self.order.push_back(key);
        } else if let Some(gone) = self.held.remove(&key) {
            self.bytes -= gone.page.memory_bytes();
        }
    }
}

fn key(entry: &SealedPageEntry) -> CachedPageKey {
    (entry.segment.number.0, entry.offset)
}

/// Reads a page from its segment and verifies its header and directory.
pub(crate) fn read(entry: &SealedPageEntry) -> Result<PageReader, StorageError> {
    let ranges = entry.segment.ranges();
    let bytes = ranges.read(entry.offset, entry.bytes as usize)?;
    PageReader::open(bytes.into()).map_err(|e| page_damage_error(entry, e))
}

/// Returns the error for a page with corrupted bytes.
pub(crate) fn page_damage_error(entry: &SealedPageEntry, what: DecodeError) -> StorageError {
    StorageError::Damaged {
        path: entry.segment.ranges().path().to_path_buf(),
        offset: entry.offset,
        what: what.to_string(),
    }
}
