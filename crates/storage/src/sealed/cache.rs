//! The cache of opened pages: bounded by their bytes, second chance for what was asked for again,
//! and none for what no query read within an hour of data time.
//!
//! Pages enter when they are sealed and when they are read. The hand walks them in the order in
//! which they came; one that was used since it last passed is spared once (Corbató's CLOCK).
//! Readers hold an `Arc`, so what is evicted lives until the last of them is done.

use super::directory::PageEntry;
use crate::encoding::Malformed;
use crate::error::StorageError;
use crate::page::Page;
use firn_model::log::Position;
use firn_model::metrics::{Counter, Gauge};
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// A page's place: the number of its segment and its offset.
type Key = (u64, u64);

/// Data time for which a page is kept that no query reads: what most dashboards look at.
const IDLE_MS: i64 = 3_600_000;

#[derive(Debug)]
struct Held {
    page: Arc<Page>,
    /// Since the hand last passed.
    used: AtomicBool,
    /// The newest of its samples, or of the store when it was last asked for.
    wanted_at: AtomicI64,
}

#[derive(Debug, Default)]
struct Clock {
    held: FxHashMap<Key, Held>,
    /// In the order of the hand; a key that is not held any more is passed over.
    order: VecDeque<Key>,
    bytes: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PageCache {
    bytes_max: usize,
    clock: Mutex<Clock>,
    /// The newest sample of the store, as of the last [`PageCache::forget_idle`].
    now: AtomicI64,
    /// Bytes held.
    pub(crate) held_bytes: Gauge,
    /// Pages found in it.
    pub(crate) hits: Counter,
    /// Pages that had to be read.
    pub(crate) misses: Counter,
}

impl PageCache {
    /// A cache of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            clock: Mutex::default(),
            now: AtomicI64::new(i64::MIN),
            held_bytes: Gauge::default(),
            hits: Counter::default(),
            misses: Counter::default(),
        }
    }

    /// The page, from memory or from its segment.
    pub(crate) fn get(&self, entry: &PageEntry) -> Result<Arc<Page>, StorageError> {
        if let Some(held) = lock(&self.clock).held.get(&key(entry)) {
            held.used.store(true, Ordering::Relaxed);
            let now = self.now.load(Ordering::Relaxed);
            held.wanted_at.fetch_max(now, Ordering::Relaxed);
            self.hits.inc();
            return Ok(held.page.clone());
        }
        self.misses.inc();
        let page = read(entry)?;
        let page = Arc::new(page);
        let now = self.now.load(Ordering::Relaxed);
        self.hold(entry, page.clone(), now.max(entry.range.max));
        Ok(page)
    }

    /// Takes a page that was just sealed.
    pub(crate) fn insert(&self, entry: &PageEntry, page: Arc<Page>) {
        self.hold(entry, page, entry.range.max);
    }

    fn hold(&self, entry: &PageEntry, page: Arc<Page>, wanted_at: TimestampMs) {
        let bytes = page.memory_bytes();
        if bytes > self.bytes_max {
            return;
        }
        let mut clock = lock(&self.clock);
        let held = Held {
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
        while clock.bytes > self.bytes_max {
            clock.turn();
        }
        self.held_bytes.set(clock.bytes as i64);
    }

    /// Drops the pages of a segment.
    pub(crate) fn forget(&self, segment: Position) {
        self.retain(|key, _| key.0 != segment.0);
    }

    /// Drops the pages that no query read within an hour of data time, now that the newest
    /// sample of the store is at `now`.
    pub(crate) fn forget_idle(&self, now: TimestampMs) {
        self.now.store(now, Ordering::Relaxed);
        let oldest = now.saturating_sub(IDLE_MS);
        self.retain(|_, held| held.wanted_at.load(Ordering::Relaxed) >= oldest);
    }

    /// Walks all pages under the lock: some thousand fit into the bound.
    fn retain(&self, is_kept: impl Fn(&Key, &Held) -> bool) {
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

impl Clock {
    /// Moves the hand over one page: it is spared if it was used, or goes.
    fn turn(&mut self) {
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

fn key(entry: &PageEntry) -> Key {
    (entry.segment.number.0, entry.offset)
}

/// Reads a page and checks it.
pub(crate) fn read(entry: &PageEntry) -> Result<Page, StorageError> {
    let ranges = entry.segment.ranges();
    let bytes = ranges.read(entry.offset, entry.bytes as usize)?;
    Page::open(bytes.into()).map_err(|e| damaged(entry, e))
}

/// Says that the page holds other bytes than were written.
pub(crate) fn damaged(entry: &PageEntry, what: Malformed) -> StorageError {
    StorageError::Damaged {
        path: entry.segment.ranges().path().to_path_buf(),
        offset: entry.offset,
        what: what.to_string(),
    }
}
