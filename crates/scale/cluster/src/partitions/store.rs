//! The stores of all partitions of this process as one store.
//!
//! It has the methods of [`Store`] that a server uses. Settings reach all stores, also those that
//! are opened later; limits that are amounts are divided among them. Sizes, counts and metrics are
//! sums over the stores of this process. Appends and reads reach all partitions, wherever they are.
//!
//! Invariant: statistics are exact, because no two partitions have a series in common and values
//! that several partitions have count once.

use super::append::PartitionedAppend;
use super::select::PartitionedSelect;
use super::store_set::{OpenStore, StoreSet};
use crate::ids::PartitionId;
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::fingerprint::{Fingerprint, SeriesHash};
use firn_model::log::LogHealth;
use firn_model::losses::DataLossWarnings;
use firn_model::metadata::MetadataBatch;
use firn_model::metrics::{Collect, MetricSink};
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::stats::{BlockStoreStats, BlockWorkStats, StoreStats};
use firn_model::store::{
    Append, AppendBounds, DeleteRequest, ExemplarRequest, MatcherCost, MetadataRequest,
    NewestSampleTimes, Select, SelectRequest, Selection, StoreVersion, Ticket,
};
use firn_model::tenant::TenantId;
use firn_storage::damage::Damage;
use firn_storage::store::{RetentionLimits, SeriesLimits, Store};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The stores of all partitions as one store. With one partition, its methods are those of the
/// store.
pub struct PartitionedStore {
    open: Arc<StoreSet>,
    append: PartitionedAppend,
    select: Arc<dyn Select>,
}

impl PartitionedStore {
    /// Creates a store whose partitions open and close: `open` contains those of this process.
    /// Appends and reads pass to `append` and `select`, which reach all partitions.
    pub fn with_changing_stores(
        open: Arc<StoreSet>,
        append: PartitionedAppend,
        select: Arc<dyn Select>,
    ) -> Self {
        Self {
            open,
            append,
            select,
        }
    }

    /// Joins `stores`, which are all partitions in the order of their numbers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if there is no store, or if several do not hash series keys with the
    /// same keys and format.
    pub fn new(stores: Vec<Arc<Store>>) -> Result<Self, Error> {
        let append = |store: &Arc<Store>| store.clone() as Arc<dyn Append>;
        let select = |store: &Arc<Store>| store.clone() as Arc<dyn Select>;
        let append = PartitionedAppend::new(stores.iter().map(append).collect())?;
        let select = PartitionedSelect::new(stores.iter().map(select).collect());
        let open = StoreSet::new(stores.len());
        for (number, store) in (0..).zip(stores) {
            open.insert(PartitionId(number), store);
        }
        let (open, select) = (Arc::new(open), Arc::new(select));
        Ok(Self::with_changing_stores(open, append, select))
    }

    /// Returns the stores of this process, in the order of their partitions.
    pub fn stores(&self) -> Vec<Arc<Store>> {
        let open = self.open.stores();
        open.iter().map(|open| open.store.clone()).collect()
    }

    /// Returns a value of each store of this process.
    fn map_stores<T>(&self, value: impl Fn(&Store) -> T) -> Vec<T> {
        let open = self.open.stores();
        open.iter()
            .map(|OpenStore { store, .. }| value(store))
            .collect()
    }

    /// Schedules background work that is due in each store. See [`Store::tick`].
    pub fn tick(&self) {
        self.map_stores(Store::tick);
    }

    /// Shuts down all stores cleanly, even if one of them fails. See [`Store::close`].
    ///
    /// # Errors
    ///
    /// The error of the first store that failed.
    pub fn close(&self) -> Result<(), Error> {
        // Each store must be closed, so this does not stop at an error.
        self.map_stores(Store::close).into_iter().collect()
    }

    /// Creates a snapshot of the store. See [`Store::snapshot`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if there are several partitions, and the errors of the store.
    pub fn snapshot(&self, name: &str, skips_head: bool) -> Result<(), Error> {
        match &self.open.stores()[..] {
            [one] => one.store.snapshot(name, skips_head),
            _ => Err(Error::new(
                ErrorKind::Invalid,
                "snapshots of several partitions are not supported",
            )),
        }
    }

    /// Deletes samples of the store. See [`Store::delete_series`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] in a cluster, and the errors of the store.
    pub fn delete_series(&self, request: DeleteRequest<'_>) -> Result<(), Error> {
        self.sole_store()?.delete_series(request)
    }

    /// Removes deleted samples from the disk. See [`Store::clean_tombstones`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] in a cluster, and the errors of the store.
    pub fn clean_tombstones(&self) -> Result<(), Error> {
        self.sole_store()?.clean_tombstones()
    }

    /// Returns the only store, for operations that a cluster does not support.
    fn sole_store(&self) -> Result<Arc<Store>, Error> {
        match &self.open.stores()[..] {
            [one] => Ok(one.store.clone()),
            _ => Err(Error::new(
                ErrorKind::Invalid,
                "deletes are not supported in a cluster",
            )),
        }
    }

    /// Returns the journals of all stores, those of the first one first. Only the first partition
    /// logs journals. Later calls return nothing. See [`Store::take_journal`].
    pub fn take_journal(&self) -> Vec<Vec<u8>> {
        self.map_stores(Store::take_journal).concat()
    }

    /// Sets the maximum number of exemplars of all stores together, and drops the oldest ones above
    /// it. Each store keeps an equal share, at least one exemplar if `max` is not zero.
    pub fn set_exemplars_max(&self, max: usize) {
        self.open.set_exemplars_max(max);
    }

    /// Sets the source of metric metadata of all stores. See [`Store::set_metadata_source`].
    pub fn set_metadata_source(&self, learn: impl Fn() -> MetadataBatch + Send + Sync + 'static) {
        self.open.set_metadata_source(Arc::new(learn));
    }

    /// Sets the out-of-order window of all stores in milliseconds. See
    /// [`Store::set_late_window_ms`].
    pub fn set_late_window_ms(&self, window_ms: i64) {
        self.open.set_late_window_ms(window_ms);
    }

    /// Changes the retention limits of all stores together: each gets the retention time and an
    /// equal share of the size limits. See [`Store::set_retention`].
    pub fn set_retention(&self, retention: RetentionLimits) {
        self.open.set_retention(retention);
    }

    /// Changes the limits of new series of all stores together: each gets an equal share. See
    /// [`Store::set_series_limits`].
    pub fn set_series_limits(&self, limits: SeriesLimits) {
        self.open.set_series_limits(limits);
    }

    /// Returns the memory of all stores in bytes. See [`Store::memory_bytes`].
    pub fn memory_bytes(&self) -> usize {
        self.map_stores(Store::memory_bytes).into_iter().sum()
    }

    /// Returns the number of active series in all stores. See [`Store::active_series`].
    pub fn active_series(&self) -> usize {
        self.map_stores(Store::active_series).into_iter().sum()
    }

    /// Returns the health of the log that is in the worst state, the first one of several.
    pub fn health(&self) -> LogHealth {
        let mut worst = LogHealth::Sound;
        for health in self.map_stores(Store::health) {
            if severity(&health) > severity(&worst) {
                worst = health;
            }
        }
        worst
    }

    /// Returns the damage found in all stores since they were opened, store by store.
    pub fn damages(&self) -> Vec<Damage> {
        self.map_stores(Store::damages).concat()
    }

    /// Returns statistics of all heads together; each table has at most `top` lines. Visits every
    /// series, and finds each label value in all stores.
    pub fn stats(&self, top: usize) -> StoreStats {
        let open = self.open.stores();
        let stores: Vec<&Store> = open.iter().map(|open| &*open.store).collect();
        Store::joint_stats(&stores, top)
    }

    /// Returns time ranges that contain all samples, which may overlap. See [`Store::time_ranges`].
    pub fn time_ranges(&self) -> Vec<TimeRange> {
        self.map_stores(Store::time_ranges).concat()
    }

    /// Returns the start time of the oldest block, if there is one.
    pub fn first_block_ms(&self) -> Option<TimestampMs> {
        let first = self.map_stores(Store::first_block_ms);
        first.into_iter().flatten().min()
    }

    /// Returns the blocks of all stores in order of time, and the progress of the work on them.
    /// Samples before the cut time are in blocks of all stores.
    pub fn block_stats(&self) -> BlockStoreStats {
        let mut joined = BlockStoreStats::default();
        let mut cut_times = Vec::new();
        for stats in self.map_stores(Store::block_stats) {
            joined.blocks.extend(stats.blocks);
            cut_times.push(stats.cut_time);
            add_work(&mut joined.cut, stats.cut);
            add_work(&mut joined.compaction, stats.compaction);
        }
        let range = |block: &firn_model::stats::BlockStats| (block.range.min, block.range.max);
        joined
            .blocks
            .sort_by(|a, b| (range(a), a.shard, &a.id).cmp(&(range(b), b.shard, &b.id)));
        // `None`, a store without a cut, is less than any time.
        joined.cut_time = cut_times.into_iter().min().flatten();
        joined
    }
}

/// Adds the work of one store to that of others.
fn add_work(joined: &mut BlockWorkStats, work: BlockWorkStats) {
    joined.is_running |= work.is_running;
    joined.series += work.series;
    joined.series_done += work.series_done;
    joined.written_bytes += work.written_bytes;
    joined.last_ms = joined.last_ms.max(work.last_ms);
}

/// Returns a number that is higher the less a log can recover by itself.
fn severity(health: &LogHealth) -> u8 {
    match health {
        LogHealth::Sound => 0,
        LogHealth::NoRoom(_) => 1,
        LogHealth::Failing(_) => 2,
        LogHealth::Poisoned(_) => 3,
    }
}

/// Writes the metrics of all stores, added up.
impl Collect for PartitionedStore {
    fn collect(&self, sink: &mut dyn MetricSink) {
        self.open.collect(sink);
    }
}

impl Append for PartitionedStore {
    fn append(&self, tenant: &TenantId, batch: &Batch, bounds: AppendBounds) -> Ticket {
        self.append.append(tenant, batch, bounds)
    }

    fn append_from(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        self.append.append_from(tenant, source, bounds)
    }

    fn check_append(&self, tenant: &TenantId) -> Result<(), Error> {
        self.append.check_append(tenant)
    }

    fn begin_log_unit(&self, tenant: &TenantId) -> Result<(), Error> {
        self.append.begin_log_unit(tenant)
    }

    fn series_hash(&self) -> Option<SeriesHash> {
        self.append.series_hash()
    }

    fn write_held_record(&self) {
        self.append.write_held_record();
    }

    fn may_wait(&self) -> bool {
        self.append.may_wait()
    }

    fn first_sample_times(
        &self,
        tenant: &TenantId,
        bounds: AppendBounds,
    ) -> RangeInclusive<TimestampMs> {
        self.append.first_sample_times(tenant, bounds)
    }

    fn newest_time(&self, tenant: &TenantId) -> Option<TimestampMs> {
        self.append.newest_time(tenant)
    }

    /// Only series of partitions in this process have times.
    fn newest_sample_times(
        &self,
        tenant: &TenantId,
        prints: &[Fingerprint],
    ) -> Vec<Option<NewestSampleTimes>> {
        let all = self.map_stores(|store| store.newest_sample_times(tenant, prints));
        let of_series = |i: usize| all.iter().find_map(|of_store| of_store[i]);
        (0..prints.len()).map(of_series).collect()
    }

    fn can_store_exemplars(&self) -> bool {
        self.append.can_store_exemplars()
    }
}

// A method that is not forwarded would silently have the default of the trait.
#[deny(clippy::missing_trait_methods)]
impl Select for PartitionedStore {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select.select(request)
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select.select_labels(request)
    }

    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        self.select.explain(request)
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.select.label_names(request)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.select.label_values(name, request)
    }

    fn version(&self, tenant: &TenantId) -> Option<StoreVersion> {
        self.select.version(tenant)
    }

    fn unchanged_before(&self, tenant: &TenantId, version: &StoreVersion) -> TimestampMs {
        self.select.unchanged_before(tenant, version)
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        self.select.exemplars(request)
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        self.select.metadata(request)
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.select.loss_warnings(tenant, range)
    }

    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.select.label_loss_warnings(tenant, range)
    }
}

#[cfg(test)]
impl PartitionedStore {
    /// Makes the router break a rule.
    pub(super) fn set_flaw(&mut self, flaw: Option<super::routing::RoutingFlaw>) {
        if let Some(router) = &mut self.append.router {
            router.flaw = flaw;
        }
    }
}
