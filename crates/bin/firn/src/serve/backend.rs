//! Connects the parts of the running server to the HTTP handlers, once the store is open.

use crate::file_time;
use firn_cluster::partitions::store::PartitionedStore;
use firn_cluster::tenants::TenantStores;
use firn_ingest::Pipeline;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::log::LogHealth;
use firn_model::metrics::Collect;
use firn_model::stats::BlockStoreStats;
use firn_model::store::Select;
use firn_model::tenant::TenantId;
use firn_scrape::ScrapeManager;
use firn_server::ActiveQueries;
use firn_server::parts::{Backend, DeleteSeries, Provider, ReadHeadStats, TenantProvider};
use std::sync::Arc;

use super::notify::Notifier;
use super::reading::RemoteReadStore;
use super::rule_folder::RuleFolder;
use super::rules::RuleManager;
use super::running::ActiveConfig;
use super::sending::RemoteWriteManager;
use super::spans::SpanExportManager;

/// Reads and metrics that only a cluster has. Other processes may write to its bucket, so that
/// clients may choose reads that do not wait for a confirmation.
pub struct ClusterBackendParts {
    /// Reads that leave out partitions without an answer, if any is at another node.
    pub partial: Option<Arc<dyn Select>>,
    /// Metrics of the bucket, of the membership, and of requests between nodes.
    pub collectors: Vec<Arc<dyn Collect>>,
}

/// Parts of the running server that a [`Backend`] is built from, created after the store was
/// opened.
pub struct BackendParts {
    /// Clock, disk and randomness of the process.
    pub env: Env,
    /// The open store, for statistics, snapshots and metrics of the data.
    pub store: Arc<PartitionedStore>,
    /// The stores of all tenants, if there are several.
    pub tenants: Option<Arc<TenantStores>>,
    /// Reads of the local samples, which include all that were acknowledged before.
    pub local: Arc<dyn Select>,
    /// Reads and metrics of a cluster, or `None` if the log is in the data folder.
    pub cluster: Option<ClusterBackendParts>,
    /// Pipeline through which pushes and imports write to the store.
    pub pipeline: Arc<Pipeline>,
    /// Scrape targets and their states, for the API and for metrics.
    pub scraping: Arc<ScrapeManager>,
    /// Running rule groups with their alerts, for the API and for metrics.
    pub rules: Arc<RuleManager>,
    /// Sender of alerts, for the list of Alertmanagers and for metrics.
    pub notifier: Arc<Notifier>,
    /// Reader of the local store and of remote servers, for queries.
    pub reading: Arc<RemoteReadStore>,
    /// Exporter of spans, for its metrics.
    pub spans: Arc<SpanExportManager>,
    /// Remote write, for its metrics.
    pub sending: Arc<RemoteWriteManager>,
    /// The active configuration, which names the folder of editable rules.
    pub running: Arc<ActiveConfig>,
    /// List of queries that are running now.
    pub active: ActiveQueries,
}

/// Builds the backend of the HTTP handlers from these parts.
pub fn backend(parts: BackendParts) -> Backend {
    let log = parts.store.clone();
    let access = DataAccess::new(&parts);
    let (notifier, scraping) = (parts.notifier.clone(), parts.scraping.clone());
    let eventual = parts
        .cluster
        .as_ref()
        .map(|_| -> Arc<dyn Select> { parts.store.clone() });
    let partial = parts.cluster.as_ref().and_then(|c| c.partial.clone());
    let of_data: Arc<dyn Collect> = match &parts.tenants {
        Some(tenants) => tenants.clone(),
        None => parts.store.clone(),
    };
    let mut collectors: Vec<Arc<dyn Collect>> = vec![
        of_data,
        parts.scraping.clone(),
        parts.rules.clone(),
        parts.notifier,
        parts.sending,
        parts.reading.clone(),
        parts.spans,
        parts.pipeline.aggregation_metrics(),
    ];
    if let Some(cluster) = parts.cluster {
        collectors.extend(cluster.collectors);
    }
    Backend {
        active: parts.active,
        stats: access.stats,
        open_tenants: access.open_tenants,
        blocks: access.blocks,
        write_fault: Arc::new(move || match log.health() {
            LogHealth::Failing(cause) => Some(cause),
            LogHealth::Poisoned(cause) => Some(format!("{cause}; restart Firn")),
            LogHealth::Sound | LogHealth::NoRoom(_) => None,
        }),
        snapshot: access.snapshot,
        delete_series: access.delete_series,
        clean_tombstones: access.clean_tombstones,
        collectors,
        alertmanagers: Arc::new(move || notifier.alertmanagers()),
        rule_editor: Arc::new(RuleFolder::new(parts.running)),
        store: parts.reading,
        local: parts.local,
        eventual,
        partial,
        pipeline: parts.pipeline,
        scrape_pools: Arc::new(move || scraping.pool_views()),
        outside: parts.rules.outside_url(),
        rules: parts.rules,
    }
}

/// The functions of a [`Backend`] that read or change the store of one tenant, or all data.
struct DataAccess {
    stats: ReadHeadStats,
    open_tenants: Provider<Vec<TenantId>>,
    blocks: TenantProvider<Result<BlockStoreStats, Error>>,
    snapshot: Arc<dyn Fn(bool) -> Result<String, Error> + Send + Sync>,
    delete_series: DeleteSeries,
    clean_tombstones: TenantProvider<Result<(), Error>>,
}

impl DataAccess {
    fn new(parts: &BackendParts) -> Self {
        match &parts.tenants {
            Some(tenants) => Self::of_tenants(tenants),
            None => Self::of_store(&parts.store, parts.env.clone()),
        }
    }

    /// Returns the functions of a server whose store has one tenant.
    fn of_store(store: &Arc<PartitionedStore>, env: Env) -> Self {
        let (figures, blocks) = (store.clone(), store.clone());
        let (deleting, cleaning, kept) = (store.clone(), store.clone(), store.clone());
        Self {
            stats: Arc::new(move |_, top| Ok(figures.stats(top))),
            open_tenants: Arc::new(|| vec![TenantId::anonymous()]),
            blocks: Arc::new(move |_| Ok(blocks.block_stats())),
            snapshot: Arc::new(move |skips_head| {
                let name = file_time::snapshot_name(&env);
                kept.snapshot(&name, skips_head).map(|()| name)
            }),
            delete_series: Arc::new(move |request| deleting.delete_series(request)),
            clean_tombstones: Arc::new(move |_| cleaning.clean_tombstones()),
        }
    }

    /// Returns the functions of a server with a store per tenant. A snapshot fails: it would
    /// contain one tenant only.
    fn of_tenants(tenants: &Arc<TenantStores>) -> Self {
        let (figures, blocks) = (tenants.clone(), tenants.clone());
        let (deleting, cleaning, open) = (tenants.clone(), tenants.clone(), tenants.clone());
        let text = "snapshots are not supported together with firn.multitenancy yet";
        Self {
            stats: Arc::new(move |tenant, top| figures.stats(tenant, top)),
            open_tenants: Arc::new(move || open.open_tenants()),
            blocks: Arc::new(move |tenant| blocks.block_stats(tenant)),
            snapshot: Arc::new(move |_| Err(Error::new(ErrorKind::Invalid, text.to_owned()))),
            delete_series: Arc::new(move |request| deleting.delete_series(request)),
            clean_tombstones: Arc::new(move |tenant| cleaning.clean_tombstones(tenant)),
        }
    }
}
