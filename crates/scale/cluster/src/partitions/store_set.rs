//! The open stores of this process, which change while it runs.
//!
//! A node opens the store of a partition when it begins to lead it, and drops the store when
//! another node leads. Readers use a list that does not change while they use it. Invariants: each
//! store has the newest settings before it is in the list; counters never decrease, because the
//! last values of a removed store remain in the sums.

use super::metric_sums::{CounterSink, MetricSums};
use crate::ids::PartitionId;
use firn_model::metadata::MetadataBatch;
use firn_model::metrics::{Collect, MetricSink};
use firn_model::sync::lock;
use firn_storage::store::{RetentionLimits, SeriesLimits, Store};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The source of the metadata that a store keeps with its blocks.
type MetadataSource = Arc<dyn Fn() -> MetadataBatch + Send + Sync>;

/// An open store with the number of its partition.
#[derive(Clone)]
pub struct OpenStore {
    /// The number of the partition.
    pub partition: PartitionId,
    /// The store of the partition.
    pub store: Arc<Store>,
}

/// The settings that may change while stores are open. `None` leaves the options of a store.
#[derive(Default)]
struct LiveStoreSettings {
    exemplars_max: Option<usize>,
    late_window_ms: Option<i64>,
    retention: Option<RetentionLimits>,
    series_limits: Option<SeriesLimits>,
    metadata_source: Option<MetadataSource>,
}

/// The open stores of this process in the order of their partitions, and their settings.
pub struct StoreSet {
    stores: RwLock<Arc<[OpenStore]>>,
    settings: Mutex<LiveStoreSettings>,
    /// The counters of removed stores.
    removed: Mutex<MetricSums>,
    /// The number of stores among which limits that are amounts are divided.
    shares: usize,
}

impl StoreSet {
    /// Creates an empty set. Limits are divided among `shares` stores, which must not be zero.
    pub fn new(shares: usize) -> Self {
        assert!(shares > 0, "limits are divided among at least one store");
        Self {
            stores: RwLock::new(Arc::default()),
            settings: Mutex::default(),
            removed: Mutex::default(),
            shares,
        }
    }

    /// Returns the open stores, in the order of their partitions.
    pub fn stores(&self) -> Arc<[OpenStore]> {
        let stores = self.stores.read();
        stores.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the store of `partition`, if it is open.
    pub fn find(&self, partition: PartitionId) -> Option<Arc<Store>> {
        let stores = self.stores();
        let found = stores.binary_search_by_key(&partition, |open| open.partition);
        found.ok().map(|index| stores[index].store.clone())
    }

    /// Adds the store of a partition, after it has got the newest settings. Replaces an earlier
    /// store of the partition.
    pub fn insert(&self, partition: PartitionId, store: Arc<Store>) {
        // The lock is held until the store is in the list, so that no setting passes it by.
        let settings = lock(&self.settings);
        settings.apply_to(&store, self.shares);
        self.change(|stores| {
            stores.retain(|open| open.partition != partition);
            stores.push(OpenStore { partition, store });
            stores.sort_by_key(|open| open.partition);
        });
    }

    /// Removes the store of `partition` and returns it, if it is in the set.
    pub fn remove(&self, partition: PartitionId) -> Option<Arc<Store>> {
        let store = self.find(partition)?;
        let mut removed = lock(&self.removed);
        store.collect(&mut CounterSink(&mut removed));
        self.change(|stores| stores.retain(|open| open.partition != partition));
        Some(store)
    }

    /// Removes the store of `partition` and returns it, if nothing uses it: no reader of the list,
    /// no background work, and not more than `owners` others that hold it.
    pub(crate) fn remove_unused(
        &self,
        partition: PartitionId,
        owners: usize,
    ) -> Option<Arc<Store>> {
        let mut removed = lock(&self.removed);
        // No reader gets the list while the lock is held.
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        let found = stores.binary_search_by_key(&partition, |open| open.partition);
        let store = &stores[found.ok()?].store;
        let is_held = Arc::strong_count(&stores) > 1 || Arc::strong_count(store) > owners + 1;
        if is_held || store.has_background_work() {
            return None;
        }
        let store = store.clone();
        store.collect(&mut CounterSink(&mut removed));
        let others = stores.iter().filter(|open| open.partition != partition);
        *stores = others.cloned().collect();
        Some(store)
    }

    fn change(&self, edit: impl FnOnce(&mut Vec<OpenStore>)) {
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        let mut edited = stores.to_vec();
        edit(&mut edited);
        *stores = edited.into();
    }

    /// Changes settings, and applies them to all open stores.
    fn set(&self, edit: impl FnOnce(&mut LiveStoreSettings)) {
        let mut settings = lock(&self.settings);
        edit(&mut settings);
        for open in &*self.stores() {
            settings.apply_to(&open.store, self.shares);
        }
    }

    /// Sets the maximum number of exemplars of all stores together. See
    /// [`Store::set_exemplars_max`].
    pub(crate) fn set_exemplars_max(&self, max: usize) {
        self.set(|settings| settings.exemplars_max = Some(max));
    }

    /// Sets the out-of-order window of all stores. See [`Store::set_late_window_ms`].
    pub(crate) fn set_late_window_ms(&self, window_ms: i64) {
        self.set(|settings| settings.late_window_ms = Some(window_ms));
    }

    /// Sets the retention limits of all stores together. See [`Store::set_retention`].
    pub(crate) fn set_retention(&self, retention: RetentionLimits) {
        self.set(|settings| settings.retention = Some(retention));
    }

    /// Sets the limits of new series of all stores together. See [`Store::set_series_limits`].
    pub(crate) fn set_series_limits(&self, limits: SeriesLimits) {
        self.set(|settings| settings.series_limits = Some(limits));
    }

    /// Sets the source of metric metadata of all stores. See [`Store::set_metadata_source`].
    pub(crate) fn set_metadata_source(&self, source: MetadataSource) {
        self.set(|settings| settings.metadata_source = Some(source));
    }
}

impl LiveStoreSettings {
    fn apply_to(&self, store: &Store, shares: usize) {
        if let Some(max) = self.exemplars_max {
            store.set_exemplars_max(max.div_ceil(shares));
        }
        if let Some(window_ms) = self.late_window_ms {
            store.set_late_window_ms(window_ms);
        }
        if let Some(retention) = self.retention.clone() {
            store.set_retention(retention.divide_among(shares));
        }
        if let Some(limits) = self.series_limits {
            store.set_series_limits(limits.divide_among(shares));
        }
        if let Some(source) = &self.metadata_source {
            let source = source.clone();
            store.set_metadata_source(Box::new(move || source()));
        }
    }
}

/// Writes the metrics of all stores, added up. The log of each store must have its own metrics.
impl Collect for StoreSet {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let stores = self.stores();
        let removed = lock(&self.removed);
        if let ([one], true) = (&stores[..], removed.is_empty()) {
            return one.store.collect(sink);
        }
        let mut sums = MetricSums::default();
        for open in &*stores {
            open.store.collect(&mut sums);
        }
        removed.write(&mut sums);
        sums.write(sink);
    }
}
