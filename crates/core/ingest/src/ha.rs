//! Deduplicates the samples of replicas that scrape the same targets: the sample of one replica is
//! stored for each scrape.
//!
//! ```text
//! tenant -> cluster (label `cluster`) -> replicas (label `__replica__`)
//!                                     -> series -> stored, held or refused
//! ```
//!
//! [`series`] selects samples of one series, [`cluster`] contains the series of a cluster,
//! and the pipeline removes the label of the replica (`pipeline/replicas.rs`).
//!
//! Invariants: decisions depend only on the times of samples and the order of requests, never on a
//! clock. The changes by a failed append are reverted, so that its sender can repeat it. The
//! number of clusters and of tracked series is limited.

mod cluster;
mod interval;
mod series;
#[cfg(test)]
mod tests;

pub(crate) use cluster::{ClusterChanges, HaClusterState, OfferedSeries, SeriesSelection};
pub(crate) use series::ReplicaNumber;

use cluster::{KEEP_MS, SERIES_BYTES};
use firn_model::error::{Error, ErrorKind};
use firn_model::metrics::{MetricSink, MetricValue};
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A cluster that several requests use at once.
pub(crate) type HaCluster = Arc<Mutex<HaClusterState>>;

type TenantClusters = BTreeMap<Box<[u8]>, HaCluster>;

/// The clusters of all tenants. Shared by all writes of a pipeline.
#[derive(Debug)]
pub(crate) struct HaTracker {
    tenants: Mutex<BTreeMap<TenantId, TenantClusters>>,
    tracked: Arc<AtomicUsize>,
    tracked_max: usize,
    /// Samples that were dropped because the sample of another replica is stored.
    pub(crate) deduplicated: AtomicU64,
    /// Held samples stored in place of missing ones.
    pub(crate) filled: AtomicU64,
    /// Elections of another replica.
    pub(crate) elections: AtomicU64,
}

/// The changes by one batch, which are reverted when they are dropped without
/// [`HaChanges::commit`].
#[derive(Debug, Default)]
pub(crate) struct HaChanges(Vec<(HaCluster, ClusterChanges)>);

impl HaTracker {
    /// Returns a tracker without clusters that uses at most `bytes_max` for series.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            tenants: Mutex::default(),
            tracked: Arc::default(),
            tracked_max: bytes_max / SERIES_BYTES,
            deduplicated: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            elections: AtomicU64::new(0),
        }
    }

    /// Returns the cluster `name` of `tenant`, or creates it. Fails if the tenant has
    /// `clusters_max` other clusters with recent samples.
    pub(crate) fn cluster(
        &self,
        tenant: &TenantId,
        name: &[u8],
        clusters_max: usize,
    ) -> Result<HaCluster, Error> {
        let mut tenants = lock(&self.tenants);
        let clusters = match tenants.get_mut(tenant) {
            Some(known) => known,
            None => tenants.entry(tenant.clone()).or_default(),
        };
        if let Some(known) = clusters.get(name) {
            return Ok(known.clone());
        }
        if clusters.len() >= clusters_max {
            forget_silent(clusters);
        }
        if clusters.len() >= clusters_max {
            let message = format!(
                "too many HA clusters: {}, limit {clusters_max} (ha_max_clusters)",
                clusters.len() + 1
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let state = HaClusterState::new(self.tracked.clone(), self.tracked_max);
        let created = Arc::new(Mutex::new(state));
        clusters.insert(name.into(), created.clone());
        Ok(created)
    }

    /// Returns the approximate memory of all series in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.tracked.load(Ordering::Relaxed) * SERIES_BYTES
    }

    /// Writes the metrics of deduplication.
    pub(crate) fn collect(&self, sink: &mut dyn MetricSink) {
        let clusters: usize = lock(&self.tenants).values().map(BTreeMap::len).sum();
        let gauges = [
            (
                "firn_ingest_ha_clusters",
                "Clusters of replicas with recent samples.",
                clusters,
            ),
            (
                "firn_ingest_ha_series",
                "Series of clusters of replicas with recent samples.",
                self.tracked.load(Ordering::Relaxed),
            ),
        ];
        for (name, help, value) in gauges {
            sink.metric(name, help, &[], MetricValue::Gauge(value as f64));
        }
        let counters = [
            (
                "firn_ingest_ha_deduplicated_samples_total",
                "Samples not stored because the sample of another replica is.",
                &self.deduplicated,
            ),
            (
                "firn_ingest_ha_filled_samples_total",
                "Samples of other replicas stored because the elected replica missed a scrape.",
                &self.filled,
            ),
            (
                "firn_ingest_ha_elections_total",
                "Elections of another replica of a cluster.",
                &self.elections,
            ),
        ];
        for (name, help, count) in counters {
            let value = MetricValue::Counter(count.load(Ordering::Relaxed) as f64);
            sink.metric(name, help, &[], value);
        }
    }
}

/// Removes the clusters of a tenant that are behind its newest sample by more than [`KEEP_MS`].
fn forget_silent(clusters: &mut TenantClusters) {
    let newest = |cluster: &HaCluster| lock(cluster).newest();
    let newest_of_all = clusters.values().map(newest).max();
    let newest_of_all = newest_of_all.unwrap_or(TimestampMs::MIN);
    clusters.retain(|_, cluster| newest(cluster) >= newest_of_all.saturating_sub(KEEP_MS));
}

impl HaChanges {
    /// Adds the changes of one cluster.
    pub(crate) fn add(&mut self, cluster: HaCluster, changes: ClusterChanges) {
        self.0.push((cluster, changes));
    }

    /// Keeps the changes: the samples are stored.
    pub(crate) fn commit(mut self) {
        self.0.clear();
    }
}

impl Drop for HaChanges {
    fn drop(&mut self) {
        for (cluster, changes) in self.0.drain(..) {
            lock(&cluster).revert(changes);
        }
    }
}
