//! The stores of many tenants as one store, for a server with multitenancy.
//!
//! ```text
//! unknown --first append--> open <--append, read, visit-- closed
//!                             |                             ^
//!                             +-- no use for some minutes --+
//! ```
//!
//! The tenant `anonymous` owns the store in the data folder, which is always open. Every other
//! tenant has a data folder of its own, `tenants/<id>`, which its first append creates. All stores
//! share the limits of the head and the hash of series keys, so that a caller may compute
//! fingerprints before the tenant is known to a store.
//!
//! Invariants: a read of an unknown tenant finds nothing and creates nothing; a store is closed
//! only while no append and no selection uses it; an acked sample is in the log of its store, also
//! if the process ends while the folder of the tenant is created. Requests for several tenants
//! together are divided by the server.

mod append;
mod select;
mod slot;

use crate::ids::PartitionId;
use crate::partitions::metric_sums::MetricSums;
use crate::partitions::store::PartitionedStore;
use crate::partitions::store_set::StoreSet;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::metadata::MetadataBatch;
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_model::stats::{BlockStoreStats, StoreStats};
use firn_model::store::{Append, DeleteRequest};
use firn_model::tenant::TenantId;
use firn_storage::damage::Damage;
use firn_storage::data_dir::TENANTS;
use firn_storage::store::{RetentionLimits, SeriesLimits, Store, StoreOptions};
use slot::TenantSlot;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// Time for which a store stays open that was opened only for its background work.
const VISIT: Duration = Duration::from_secs(30);

/// Time after which a closed store is opened for its background work, such as retention.
const VISIT_AFTER: Duration = Duration::from_hours(1);

/// Settings of the stores of tenants, passed to [`TenantStores::open`].
#[derive(Clone)]
pub struct TenantStoreSettings {
    /// Time without a use after which a store is closed.
    pub idle_after: Duration,
    /// Limits of each tenant, until [`TenantStores::set_limits`] replaces them.
    pub limits: LimitsOfTenant,
}

/// The limits of the store of one tenant.
pub struct TenantStoreLimits {
    /// Maximum numbers of series. See [`Store::set_series_limits`].
    pub series: SeriesLimits,
    /// The out-of-order window. See [`Store::set_late_window_ms`].
    pub late_window_ms: i64,
    /// The retention. See [`Store::set_retention`].
    pub retention: RetentionLimits,
}

impl TenantStoreLimits {
    fn apply_to(self, store: &Store) {
        store.set_series_limits(self.series);
        store.set_late_window_ms(self.late_window_ms);
        store.set_retention(self.retention);
    }
}

/// Returns the limits of a tenant.
pub type LimitsOfTenant = Arc<dyn Fn(&TenantId) -> TenantStoreLimits + Send + Sync>;

/// Returns the metric metadata of a tenant, which is kept with its blocks.
pub type MetadataOfTenant = Arc<dyn Fn(&TenantId) -> MetadataBatch + Send + Sync>;

/// The stores of all tenants. Created by [`TenantStores::open`] with the store of the tenant
/// `anonymous`.
pub struct TenantStores {
    own: Arc<PartitionedStore>,
    env: Env,
    /// Options of all stores except for folder, tenant and seed.
    options: StoreOptions,
    /// The open stores with their common settings.
    open: StoreSet,
    slots: RwLock<BTreeMap<TenantId, Arc<TenantSlot>>>,
    limits: RwLock<LimitsOfTenant>,
    idle_after: Duration,
    metadata: OnceLock<MetadataOfTenant>,
    /// True while [`TenantStores::tend`] runs.
    is_tending: AtomicBool,
}

impl TenantStores {
    /// Lists the tenants in the data folder of `own`, the store of the tenant `anonymous`, and
    /// opens those whose log contains records. `options` are those of `own`. A tenant whose store
    /// cannot be opened is logged, and opened again by its next request. May take as long as the
    /// replay of all logs.
    ///
    /// # Errors
    ///
    /// The folder of the tenants cannot be listed.
    pub fn open(
        env: Env,
        own: Arc<PartitionedStore>,
        options: StoreOptions,
        settings: TenantStoreSettings,
    ) -> Result<Arc<Self>, Error> {
        let stores = Self {
            own,
            env,
            options,
            open: StoreSet::new(1),
            slots: RwLock::default(),
            limits: RwLock::new(settings.limits),
            idle_after: settings.idle_after,
            metadata: OnceLock::new(),
            is_tending: AtomicBool::new(false),
        };
        for tenant in stores.list_folders()? {
            let wal = stores.folder_of(&tenant).join("wal");
            let slot = stores.slot_of_writer(&tenant);
            slot.set_existing();
            let is_clean = stores.env.disk.list(&wal).is_ok_and(|log| log.is_empty());
            if is_clean {
                continue;
            }
            if let Err(e) = stores.open_slot(&tenant, &slot) {
                let tenant = tenant.as_str();
                tracing::error!(tenant, error = %e, "failed to open the store of a tenant");
            }
        }
        Ok(Arc::new(stores))
    }

    fn list_folders(&self) -> Result<Vec<TenantId>, Error> {
        let root = self.options.dir.join(TENANTS);
        let names = match self.env.disk.list(&root) {
            Ok(names) => names,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => {
                let text = format!("failed to list {}: {e}", root.display());
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
        };
        let id = |name: &PathBuf| TenantId::new(name.to_str()?).ok();
        Ok(names.iter().filter_map(id).collect())
    }

    /// Returns the data folder of a tenant. An id is a valid name of a folder.
    fn folder_of(&self, tenant: &TenantId) -> PathBuf {
        self.options.dir.join(TENANTS).join(tenant.as_str())
    }

    fn is_own(&self, tenant: &TenantId) -> bool {
        *tenant == self.options.tenant
    }

    fn slot(&self, tenant: &TenantId) -> Option<Arc<TenantSlot>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(tenant).cloned()
    }

    /// Returns the slot of a tenant that may be new.
    fn slot_of_writer(&self, tenant: &TenantId) -> Arc<TenantSlot> {
        if let Some(slot) = self.slot(tenant) {
            return slot;
        }
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let number = PartitionId(u32::try_from(slots.len()).unwrap_or(u32::MAX));
        let slot = slots.entry(tenant.clone());
        slot.or_insert_with(|| Arc::new(TenantSlot::new(number)))
            .clone()
    }

    fn slots(&self) -> Vec<(TenantId, Arc<TenantSlot>)> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let slots = slots.iter();
        slots.map(|(id, slot)| (id.clone(), slot.clone())).collect()
    }

    /// Returns the store of a tenant other than `anonymous` for a read: opens it if it is closed.
    /// Returns `None` for an unknown tenant.
    fn find_store(&self, tenant: &TenantId) -> Result<Option<Arc<Store>>, Error> {
        match self.slot(tenant).filter(|slot| slot.exists()) {
            Some(slot) => self.open_slot(tenant, &slot).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the store of a tenant other than `anonymous` for an append: opens or creates it.
    /// Fails for an id that stands for several tenants.
    fn create_store(&self, tenant: &TenantId) -> Result<Arc<Store>, Error> {
        TenantId::new(tenant.as_str())?;
        self.open_slot(tenant, &self.slot_of_writer(tenant))
    }

    /// Returns the store in a slot and notes its use.
    fn open_slot(&self, tenant: &TenantId, slot: &TenantSlot) -> Result<Arc<Store>, Error> {
        slot.note_use(self.env.clock.monotonic() + self.idle_after);
        slot.get_or_open(|| self.open_store(tenant, slot.number))
    }

    fn open_store(&self, tenant: &TenantId, number: PartitionId) -> Result<Arc<Store>, Error> {
        let hash = self.own.series_hash();
        let options = StoreOptions {
            dir: self.folder_of(tenant),
            tenant: tenant.clone(),
            new_seed: hash.as_ref().map(|hash| hash.keys.seed()),
            beside: Vec::new(),
            ..self.options.clone()
        };
        let store = Store::open(self.env.clone(), options)?;
        if store.series_hash().map(|hash| hash.keys) != hash.map(|hash| hash.keys) {
            let text = format!(
                "the folder {} was created by another server: its series have other fingerprints",
                self.folder_of(tenant).display()
            );
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        let limits = self.limits.read();
        limits.unwrap_or_else(PoisonError::into_inner)(tenant).apply_to(&store);
        if let Some(source) = self.metadata.get() {
            let (source, tenant) = (source.clone(), tenant.clone());
            store.set_metadata_source(Box::new(move || source(&tenant)));
        }
        self.open.insert(number, store.clone());
        self.divide_caches();
        Ok(store)
    }

    /// Divides the memory of one cache among the caches of the open stores.
    fn divide_caches(&self) {
        let open = self.open.stores();
        let bytes = self.options.page_cache_bytes / open.len().max(1);
        open.iter()
            .for_each(|open| open.store.set_cache_bytes(bytes));
    }

    /// Closes stores that are idle, opens one closed store whose background work may be due, and
    /// schedules the work that is due in all open stores. The binary calls it once a second. Blocks
    /// while stores are closed and opened. Has no effect while another call runs.
    pub fn tend(&self) {
        if self.is_tending.swap(true, Ordering::AcqRel) {
            return;
        }
        let now = self.env.clock.monotonic();
        let mut is_visiting = false;
        for (tenant, slot) in self.slots() {
            if let Err(e) = slot.close_if_idle(now, &self.open) {
                let tenant = tenant.as_str();
                tracing::warn!(tenant, error = %e, "failed to close an idle store");
            }
            if !is_visiting && slot.is_visit_due(now, VISIT_AFTER) {
                is_visiting = true;
                slot.note_use(now + VISIT);
                let opened = slot.get_or_open(|| self.open_store(&tenant, slot.number));
                if let Err(e) = opened {
                    let tenant = tenant.as_str();
                    tracing::error!(tenant, error = %e, "failed to open the store of a tenant");
                }
            }
        }
        self.divide_caches();
        // Scheduled work prevents that a store is closed, so it begins after idle stores are.
        self.open.stores().iter().for_each(|open| open.store.tick());
        self.is_tending.store(false, Ordering::Release);
    }

    /// Closes all stores cleanly, even if one of them fails.
    ///
    /// # Errors
    ///
    /// The error of the first store that failed.
    pub fn close(&self) -> Result<(), Error> {
        let open = self.open.stores();
        let closed: Vec<_> = open.iter().map(|open| open.store.close()).collect();
        let own = self.own.close();
        closed.into_iter().chain([own]).collect()
    }

    /// Deletes samples of one tenant. See [`Store::delete_series`].
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub fn delete_series(&self, request: DeleteRequest<'_>) -> Result<(), Error> {
        if self.is_own(request.tenant) {
            return self.own.delete_series(request);
        }
        match self.find_store(request.tenant)? {
            Some(store) => store.delete_series(request),
            None => Ok(()),
        }
    }

    /// Removes deleted samples of one tenant from the disk. See [`Store::clean_tombstones`].
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub fn clean_tombstones(&self, tenant: &TenantId) -> Result<(), Error> {
        if self.is_own(tenant) {
            return self.own.clean_tombstones();
        }
        match self.find_store(tenant)? {
            Some(store) => store.clean_tombstones(),
            None => Ok(()),
        }
    }

    /// Returns statistics of the head of one tenant. See [`PartitionedStore::stats`].
    ///
    /// # Errors
    ///
    /// The store cannot be opened.
    pub fn stats(&self, tenant: &TenantId, top: usize) -> Result<StoreStats, Error> {
        if self.is_own(tenant) {
            return Ok(self.own.stats(top));
        }
        let store = self.find_store(tenant)?;
        let stores: Vec<&Store> = store.iter().map(|store| &**store).collect();
        Ok(Store::joint_stats(&stores, top))
    }

    /// Returns the blocks of one tenant. See [`PartitionedStore::block_stats`].
    ///
    /// # Errors
    ///
    /// The store cannot be opened.
    pub fn block_stats(&self, tenant: &TenantId) -> Result<BlockStoreStats, Error> {
        if self.is_own(tenant) {
            return Ok(self.own.block_stats());
        }
        let store = self.find_store(tenant)?;
        Ok(store.map_or_else(BlockStoreStats::default, |store| store.block_stats()))
    }

    /// Returns the tenants whose stores are open.
    pub fn open_tenants(&self) -> Vec<TenantId> {
        let slots = self.slots().into_iter();
        let open = slots.filter(|(_, slot)| slot.open_store().is_some());
        let own = [self.options.tenant.clone()].into_iter();
        own.chain(open.map(|(tenant, _)| tenant)).collect()
    }

    /// Sets the limits of all tenants but `anonymous`, also of those whose stores are closed.
    pub fn set_limits(&self, limits: LimitsOfTenant) {
        let place = self.limits.write();
        *place.unwrap_or_else(PoisonError::into_inner) = limits.clone();
        for (tenant, slot) in self.slots() {
            if let Some(store) = slot.open_store() {
                limits(&tenant).apply_to(&store);
            }
        }
    }

    /// Sets the source of metric metadata. It applies to stores that are opened later.
    pub fn set_metadata_source(&self, source: MetadataOfTenant) {
        // A process sets it only once.
        let _ = self.metadata.set(source);
    }

    /// Sets the maximum number of exemplars of each store. See [`Store::set_exemplars_max`].
    pub fn set_exemplars_max(&self, max: usize) {
        self.open.set_exemplars_max(max);
    }

    /// Returns the memory of the open stores in bytes, without that of `anonymous`.
    pub fn memory_bytes(&self) -> usize {
        let open = self.open.stores();
        open.iter().map(|open| open.store.memory_bytes()).sum()
    }

    /// Returns the damage found in the open stores of other tenants than `anonymous`.
    pub fn damages(&self) -> Vec<Damage> {
        let open = self.open.stores();
        open.iter().flat_map(|open| open.store.damages()).collect()
    }
}

/// Writes the metrics of all stores, added up, and the numbers of tenants and of open stores.
impl Collect for TenantStores {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let mut sums = MetricSums::default();
        self.own.collect(&mut sums);
        self.open.collect(&mut sums);
        sums.write(sink);
        let known = self.slots().iter().filter(|slot| slot.1.exists()).count();
        sink.metric(
            "firn_tenants_known",
            "Tenants with stored data, without the tenant anonymous.",
            &[],
            MetricValue::Gauge(known as f64),
        );
        sink.metric(
            "firn_tenants_open",
            "Tenants whose store is open, without the tenant anonymous.",
            &[],
            MetricValue::Gauge(self.open.stores().len() as f64),
        );
    }
}
