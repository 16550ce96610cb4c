//! Limits and settings of single tenants, from the file of `firn.overrides`.
//!
//! If a limit is not set, the limit of the config or the flag applies. A limit of zero in the file
//! means no limit.

use crate::query_limits::BlockedQuery;
use crate::tenant::TenantId;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Limits of one tenant. A missing one is not set; a maximum value means no limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantLimits {
    /// `max_global_series_per_user`: maximum number of series in memory.
    pub active_series_max: Option<usize>,
    /// `new_series_limit`: maximum number of new series per window.
    pub new_series_max: Option<usize>,
    /// `ingestion_rate` with `ingestion_burst_size`.
    pub rate: Option<IngestionRate>,
    /// `max_label_names_per_series`: maximum number of labels of a pushed series.
    pub labels_max: Option<usize>,
    /// `max_request_body_size`: maximum size of a request body in bytes.
    pub body_bytes_max: Option<usize>,
    /// `max_fetched_series_per_query`: maximum number of series that a query selects.
    pub query_series_max: Option<usize>,
    /// `max_samples_per_query`: maximum number of samples that a query reads.
    pub query_samples_max: Option<u64>,
    /// `query_timeout`: maximum time for which a query waits and runs.
    pub query_timeout: Option<Duration>,
    /// `max_concurrent_queries`: maximum number of queries that run at one time.
    pub queries_max: Option<usize>,
    /// `blocked_queries`: queries that are refused.
    pub blocked_queries: Option<Vec<BlockedQuery>>,
    /// `compactor_blocks_retention_period`: age of the oldest samples that are kept.
    pub retention: Option<Duration>,
    /// `out_of_order_time_window`: maximum age of samples that are not in order.
    pub late_window: Option<Duration>,
    /// Settings for pairs of replicas; `None` without `accept_ha_samples`.
    pub replicas: Option<ReplicaSettings>,
    /// The label by whose values the usage is divided; `None` without `cost_attribution_labels`.
    pub attribution: Option<CostAttribution>,
}

/// The division of the usage of a tenant by the values of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostAttribution {
    /// `cost_attribution_labels`: the name of the label.
    pub label: String,
    /// `max_cost_attribution_cardinality`: maximum number of values that are counted separately.
    pub values_max: usize,
}

/// The maximum rate of pushed samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IngestionRate {
    /// Samples per second.
    pub per_second: f64,
    /// Maximum number of samples that may arrive at once. `None` admits a request of any size after
    /// a pause that is long enough for the previous ones.
    pub burst: Option<u64>,
}

/// The labels by which samples of several replicas are recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSettings {
    /// `ha_cluster_label`: the label that all replicas of a cluster have in common.
    pub cluster_label: String,
    /// `ha_replica_label`: the label that distinguishes the replicas, which is removed.
    pub replica_label: String,
    /// `ha_max_clusters`: maximum number of clusters with recent samples.
    pub clusters_max: usize,
}

/// The limits of all tenants in the file. Created from the file and replaced by a reload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantOverrides(BTreeMap<TenantId, Arc<TenantLimits>>);

impl TenantOverrides {
    /// Sets the limits of a tenant.
    pub fn insert(&mut self, tenant: TenantId, limits: TenantLimits) {
        self.0.insert(tenant, Arc::new(limits));
    }

    /// Returns the tenants in the file with their limits.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, &TenantLimits)> {
        self.0.iter().map(|(tenant, limits)| (tenant, &**limits))
    }

    /// Returns the limits of a tenant. For a tenant that is not in the file, no limit is set.
    pub fn limits_of(&self, tenant: &TenantId) -> &Arc<TenantLimits> {
        static NONE: LazyLock<Arc<TenantLimits>> = LazyLock::new(Arc::default);
        self.0.get(tenant).unwrap_or(&NONE)
    }
}
