//! The place of the store of one tenant, which is open or closed.
//!
//! Invariant: at most one store of a folder is open. The lock of the place is held while a store is
//! opened or closed, so that a request waits instead of opening the folder twice.

use crate::ids::PartitionId;
use firn_model::error::Error;
use firn_storage::store::Store;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// References to an open store that is not in use: those of its slot and of the set of open stores.
const IDLE_REFERENCES: usize = 2;

/// The store of one tenant. Created for a folder that exists, or by the first append.
pub(super) struct TenantSlot {
    /// The number of the store in the set of open stores.
    pub(super) number: PartitionId,
    store: RwLock<Option<Arc<Store>>>,
    /// True if the folder of the store exists.
    exists: AtomicBool,
    /// Time on the monotonic clock until which the store stays open, in milliseconds.
    keep_until_ms: AtomicU64,
}

impl TenantSlot {
    pub(super) fn new(number: PartitionId) -> Self {
        Self {
            number,
            store: RwLock::default(),
            exists: AtomicBool::new(false),
            keep_until_ms: AtomicU64::new(0),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<Arc<Store>>> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<Arc<Store>>> {
        self.store.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the tenant has a store, open or closed.
    pub(super) fn exists(&self) -> bool {
        self.exists.load(Ordering::Acquire)
    }

    pub(super) fn set_existing(&self) {
        self.exists.store(true, Ordering::Release);
    }

    /// Extends the time for which the store stays open.
    pub(super) fn note_use(&self, keep_until: Duration) {
        self.keep_until_ms
            .fetch_max(keep_until.as_millis() as u64, Ordering::Relaxed);
    }

    fn keep_until(&self) -> Duration {
        Duration::from_millis(self.keep_until_ms.load(Ordering::Relaxed))
    }

    /// Returns the store if it is open.
    pub(super) fn open_store(&self) -> Option<Arc<Store>> {
        self.read().clone()
    }

    /// Returns the store. Opens it with `open` if it is closed.
    pub(super) fn get_or_open(
        &self,
        open: impl FnOnce() -> Result<Arc<Store>, Error>,
    ) -> Result<Arc<Store>, Error> {
        if let Some(store) = self.open_store() {
            return Ok(store);
        }
        let mut place = self.write();
        if let Some(store) = &*place {
            return Ok(store.clone());
        }
        let store = open()?;
        *place = Some(store.clone());
        self.set_existing();
        Ok(store)
    }

    /// Closes the store with `close` if it is open, nothing uses it and its time is over.
    pub(super) fn close_if_idle(
        &self,
        now: Duration,
        close: impl FnOnce(&Store) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if now < self.keep_until() || self.read().is_none() {
            return Ok(());
        }
        let mut place = self.write();
        let is_idle = |store: &mut Arc<Store>| {
            let work = store.block_stats();
            Arc::strong_count(store) <= IDLE_REFERENCES
                && !work.cut.is_running
                && !work.compaction.is_running
        };
        // A use that began before the lock was taken has extended the time.
        if now < self.keep_until() {
            return Ok(());
        }
        match place.take_if(is_idle) {
            Some(store) => close(&store),
            None => Ok(()),
        }
    }

    /// Returns whether the store has been closed for `time`.
    pub(super) fn is_visit_due(&self, now: Duration, time: Duration) -> bool {
        self.exists() && now >= self.keep_until() + time && self.read().is_none()
    }
}
