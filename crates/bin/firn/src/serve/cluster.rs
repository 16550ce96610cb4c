//! A server whose log is in a bucket: it joins the cluster, leads partitions alone or with its
//! peers, and watches the store.
//!
//! Invariants: a bucket that does not answer delays the start, and ends a running server never. A
//! server without peers that another process replaced ends with an error. A store that stops
//! honoring the condition of creations gets no write any more.

pub mod peers;
mod status;
mod store_watch;

use super::error::ServeError;
use super::opened_data::{OpenedData, join_stores};
use crate::process::host;
use firn_bucket::{AwsEnvironment, Bucket, BucketMetrics, ObjectStoreBucket};
use firn_cluster::cluster_format::ClusterFormat;
use firn_cluster::ids::PartitionId;
use firn_cluster::node::{
    ClusterNode, JoinError, JoinOptions, NodeOptions, StrongSelect, join_cluster,
};
use firn_config::Settings;
use firn_config::config::Config;
use firn_config::config::cluster::ClusterSettings;
use firn_model::budget::Budget;
use firn_model::env::{Env, real};
use firn_model::metrics::Collect;
use firn_server::parts::ClusterControl;
use firn_storage::store::StoreOptions;
use peers::PeerMembership;
use status::ClusterStatusSource;
use std::sync::Arc;
use std::time::Duration;
use store_watch::StoreWatch;
use tokio::runtime::Handle;
use tokio::task::{JoinSet, spawn_blocking};
use tracing::{info, warn};

/// Pause between two attempts to join while the bucket does not answer.
const JOIN_PAUSE: Duration = Duration::from_secs(2);

/// Data time of one block before merges, in milliseconds. It is shorter than that of a server with
/// a local log, because a takeover replays all samples after the newest block.
const CUT_MS: i64 = 30 * 60_000;

/// Folder of the scratch folders of the partitions, in the data folder.
const PARTITIONS_FOLDER: &str = "partitions";

/// The bucket of a server, before and while the server leads partitions.
pub struct ClusterMember {
    settings: ClusterSettings,
    bucket: Arc<dyn Bucket>,
    metrics: Arc<BucketMetrics>,
    status: Arc<ClusterStatusSource>,
}

impl ClusterMember {
    /// Opens the bucket of the config, without a request. Runs on the current runtime. Returns
    /// `None` if the log is in the data folder.
    pub fn open_if_set(
        config: &Config,
        flags: &Settings,
        env: &Env,
    ) -> Result<Option<Self>, ServeError> {
        let Some(settings) = &config.cluster else {
            return Ok(None);
        };
        let mut settings = settings.clone();
        settings.replace_addresses(
            flags.cluster_node.clone(),
            flags.cluster_listen.clone(),
            flags.cluster_advertise.clone(),
        );
        settings.check_listener().map_err(ServeError::Peers)?;
        Self::open(settings, env).map(Some)
    }

    fn open(settings: ClusterSettings, env: &Env) -> Result<Self, ServeError> {
        let metrics = Arc::new(BucketMetrics::default());
        let bucket = ObjectStoreBucket::open(
            &settings.bucket,
            &settings.bucket_options,
            &AwsEnvironment::of_process(),
            &Handle::current(),
            metrics.clone(),
        );
        let name = settings.node.clone().unwrap_or_else(host::name);
        Ok(Self {
            settings,
            bucket: Arc::new(bucket.map_err(|e| ServeError::Join(JoinError::Bucket(e)))?),
            metrics,
            status: Arc::new(ClusterStatusSource::new(name, env.clock.clone())),
        })
    }

    /// Returns the metrics of the requests to the bucket.
    pub fn metrics(&self) -> Arc<BucketMetrics> {
        self.metrics.clone()
    }

    /// Returns the metrics of the state of the cluster.
    pub fn state_metrics(&self) -> Arc<dyn Collect> {
        self.status.clone()
    }

    /// Returns the name of this node: that of the flag or the config, else the host name.
    pub fn name(&self) -> &str {
        self.status.name()
    }

    /// Returns the state of the cluster and the control of this node, for the API. Works before
    /// the node has joined.
    pub fn control(&self) -> ClusterControl {
        let (status, control) = (self.status.clone(), self.status.clone());
        ClusterControl {
            status: Arc::new(move || status.read()),
            drain: Arc::new(move |is_draining| control.set_draining(is_draining)),
        }
    }

    /// Joins the cluster and leads the partitions of this node: all of them, or its share among
    /// its peers. Waits for as long as the bucket does not answer.
    pub async fn open_data(
        &self,
        env: &Env,
        options: &StoreOptions,
        budget: &Budget,
    ) -> Result<OpenedData, ServeError> {
        let listening = match &self.settings.listen {
            Some(address) => Some(peers::listen(address).await?),
            None => None,
        };
        let format = self.join(env).await?;
        info!(
            cluster = %format.cluster,
            node = self.name(),
            partitions = format.partitions,
            "joined the cluster"
        );
        let node = Arc::new(self.create_node(env, format, options)?);
        match listening {
            Some(listener) => {
                let (settings, status) = (&self.settings, &self.status);
                let keeps_exemplars = options.exemplars_max > 0;
                PeerMembership::join(listener, node, settings, status, env, budget)
                    .await?
                    .into_data(settings, keeps_exemplars)
            }
            None => self.lead_all(node).await,
        }
    }

    fn create_node(
        &self,
        env: &Env,
        format: ClusterFormat,
        options: &StoreOptions,
    ) -> Result<ClusterNode, ServeError> {
        let node_options = NodeOptions {
            flush_interval: self.settings.flush_interval,
            read_lease: self.settings.read_lease,
            clock: Arc::new(real::boot_time),
        };
        let folder = options.dir.join(PARTITIONS_FOLDER);
        let options = partition_options(options, format.partitions.get() as usize);
        let store_options = move |partition: PartitionId| StoreOptions {
            dir: folder.join(partition.to_string()),
            ..options.clone()
        };
        let (bucket, env) = (self.bucket.clone(), env.clone());
        let node = ClusterNode::new(bucket, env, format, node_options, store_options);
        node.map_err(ServeError::Open)
    }

    /// Leads all partitions, for a server without peers.
    async fn lead_all(&self, node: Arc<ClusterNode>) -> Result<OpenedData, ServeError> {
        self.status.set_node(node.clone());
        let leading = node.clone();
        let led = spawn_blocking(move || leading.lead_all()).await?;
        led.map_err(ServeError::Open)?;
        let open = node.open_stores().stores();
        let store = join_stores(open.iter().map(|open| open.store.clone()).collect())?;
        let wait_max = self.settings.strong_wait;
        let reads = StrongSelect::new(node.logs(), store.clone(), wait_max);
        Ok(OpenedData {
            tenants: None,
            reads: Arc::new(reads),
            partial: None,
            store,
            node: Some(node),
            peers: None,
        })
    }

    async fn join(&self, env: &Env) -> Result<ClusterFormat, ServeError> {
        loop {
            let (bucket, env) = (self.bucket.clone(), env.clone());
            let options = JoinOptions {
                partitions: self.settings.partitions,
                version: env!("CARGO_PKG_VERSION"),
            };
            let joined = spawn_blocking(move || join_cluster(&*bucket, &env, options)).await?;
            match joined {
                Err(e) if e.is_transient() => {
                    warn!(error = %e, "cannot join the cluster: retrying");
                    tokio::time::sleep(JOIN_PAUSE).await;
                }
                joined => return joined.map_err(ServeError::Join),
            }
        }
    }

    /// Tests the store now and at intervals, until the returned set is dropped. The partitions of
    /// `node` accept no write if it does not honor the condition of creations.
    pub fn watch_store(&self, node: &Arc<ClusterNode>, env: &Env) -> JoinSet<()> {
        let watch = StoreWatch {
            bucket: self.bucket.clone(),
            metrics: self.metrics.clone(),
            status: self.status.clone(),
            node: node.clone(),
            env: env.clone(),
        };
        watch.start()
    }
}

/// Returns the options of the store of one of `count` partitions. All partitions of this node share
/// the limits of the head, however many it leads. Of other limits each has an equal part, since
/// hashes divide series evenly.
fn partition_options(options: &StoreOptions, count: usize) -> StoreOptions {
    let share = |limit: usize| {
        if limit == usize::MAX {
            limit
        } else {
            limit.div_ceil(count)
        }
    };
    let retention = options.retention().divide_among(count);
    let mut new_series = options.new_series;
    new_series.all = share(new_series.all);
    new_series.of_job = share(new_series.of_job);
    StoreOptions {
        cut_ms: CUT_MS,
        shards: options.shards.div_ceil(count),
        retention_bytes: retention.bytes,
        retention_percent: retention.percent,
        late_sharers: count,
        page_cache_bytes: share(options.page_cache_bytes),
        exemplars_max: share(options.exemplars_max),
        backlog_bytes_max: options.backlog_bytes_max.div_ceil(count as u64),
        new_series,
        ..options.clone()
    }
}
