//! The place of the store of one tenant, which is open or closed.
//!
//! Invariant: at most one store of a folder is open. The lock of the place is held while a store is
//! opened or closed, so that a request waits instead of opening the folder twice. A closed store is
//! dropped before the lock is released, and with it the lock of its folder.

use crate::ids::PartitionId;
use crate::partitions::store_set::StoreSet;
use firn_model::error::Error;
use firn_storage::store::Store;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

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

    /// Removes the store from the `open` ones and closes it, if its time is over and nothing uses
    /// it.
    pub(super) fn close_if_idle(&self, now: Duration, open: &StoreSet) -> Result<(), Error> {
        if now < self.keep_until() || self.read().is_none() {
            return Ok(());
        }
        let mut place = self.write();
        // A use that began before the lock was taken has extended the time.
        if now < self.keep_until() {
            return Ok(());
        }
        let is_busy = place.as_ref().is_some_and(|store| {
            let work = store.block_stats();
            work.cut.is_running || work.compaction.is_running
        });
        if is_busy || open.remove_unused(self.number, 1).is_none() {
            return Ok(());
        }
        match place.take() {
            Some(store) => store.close(),
            None => Ok(()),
        }
    }

    /// Returns whether the store has been closed for `time`.
    pub(super) fn is_visit_due(&self, now: Duration, time: Duration) -> bool {
        self.exists() && now >= self.keep_until() + time && self.read().is_none()
    }
}
