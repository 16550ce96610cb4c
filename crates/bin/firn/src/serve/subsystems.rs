//! Creates the parts of a server that the configuration describes, once its store is open.

use super::agent::DiscardingStore;
use super::aggregating::AggregationConfigurator;
use super::backend::ClusterBackendParts;
use super::error::ServeError;
use super::notify::{Notifier, NotifierSettings};
use super::opened_data::OpenedData;
use super::reading::RemoteReadStore;
use super::rules::{RuleDependencies, RuleManager};
use super::sending::{RemoteWriteManager, SendingMode};
use super::store_settings::series_limits;
use super::{StartingServer, metadata};
use firn_cluster::node::ClusterNode;
use firn_cluster::partitions::store::PartitionedStore;
use firn_discovery::DiscoveryContext;
use firn_http_client::ConnectionSlots;
use firn_ingest::{IngestLimits, Pipeline};
use firn_model::metrics::Collect;
use firn_model::shares::BudgetShares;
use firn_model::store::Append;
use firn_model::tenant::TenantId;
use firn_scrape::ScrapeManager;
use firn_server::ActiveQueries;
use std::sync::Arc;
use tokio::task::{JoinSet, spawn_blocking};

/// Connects the sources of metadata with the receivers of `sending` and with all stores.
pub(super) fn connect_metadata(
    data: &OpenedData,
    sending: &RemoteWriteManager,
    pipeline: &Arc<Pipeline>,
    scraping: &Arc<ScrapeManager>,
) {
    metadata::set_metadata_sources(&data.store, sending, pipeline, scraping);
    if let Some(tenants) = &data.tenants {
        metadata::set_tenant_sources(tenants, pipeline);
    }
    if let Some(peers) = &data.peers {
        peers.set_metadata_sources(pipeline, scraping);
    }
}

impl StartingServer {
    /// Creates the pipeline of samples into `store`, or only to the receivers of an agent.
    pub(super) fn pipeline(&self, data: &OpenedData) -> Pipeline {
        let features = self.running.features();
        let into: Arc<dyn Append> = if features.is_agent {
            Arc::new(DiscardingStore)
        } else {
            data.writes()
        };
        let pipeline = Pipeline::new(
            into,
            self.env.clock.clone(),
            IngestLimits::from_write_share(&BudgetShares::from_limit(self.memory.limit_bytes())),
            &self.memory,
        )
        .with_type_labels(features.type_and_unit_labels)
        .with_zero_samples(features.start_times.make_zeros)
        .with_otlp_settings(features.deltas, self.lookback);
        let config = self.running.config();
        let limits = series_limits(&config, &TenantId::anonymous());
        data.store.set_series_limits(limits);
        pipeline.set_overrides(config.overrides.clone());
        pipeline.set_translation(config.otlp.clone());
        pipeline
    }

    /// Starts remote write. No sample is stored before this, so that every sample is queued for the
    /// receivers.
    pub(super) async fn begin_sending(
        &self,
        pipeline: &Pipeline,
    ) -> Result<Arc<RemoteWriteManager>, ServeError> {
        let (env, tracer) = (self.env.clone(), self.tracer());
        let (dir, limits) = (&self.options.dir, pipeline.limits().wire);
        let (is_agent, app) = (self.running.features().is_agent, self.app.clone());
        let duty = SendingMode {
            is_agent,
            tell: Box::new(move |is_good| app.note_sending(is_good)),
        };
        let sending = Arc::new(RemoteWriteManager::new(env, tracer, dir, limits, duty));
        pipeline.set_receiver_queue(sending.clone());
        let (begun, config) = (sending.clone(), self.running.config());
        let followed = spawn_blocking(move || begun.apply_config(&config)).await?;
        match followed {
            // An agent stores samples nowhere else.
            Err(e) if is_agent => Err(ServeError::Sending(e)),
            // A server stores samples, logs the error, and retries.
            _ => Ok(sending),
        }
    }

    /// Creates the manager of scrapes, which has no jobs until a configuration is applied.
    pub(super) fn scrape_manager(
        &self,
        pipeline: &Arc<Pipeline>,
        places: &ConnectionSlots,
    ) -> ScrapeManager {
        let (clock, tracer) = (self.env.clock.clone(), self.tracer());
        ScrapeManager::new(
            pipeline.clone(),
            clock,
            tracer,
            &self.memory,
            places.clone(),
        )
    }

    /// Returns the reads and metrics of a cluster, or `None` if the log is in the data folder.
    pub(super) fn cluster_reads(&self, data: &OpenedData) -> Option<ClusterBackendParts> {
        let member = self.member.as_ref()?;
        let mut collectors: Vec<Arc<dyn Collect>> = vec![member.metrics(), member.state_metrics()];
        if let Some(peers) = &data.peers {
            collectors.push(peers.metrics());
        }
        Some(ClusterBackendParts {
            partial: data.partial.clone(),
            collectors,
        })
    }

    pub(super) fn watch_bucket(&self, node: Option<&Arc<ClusterNode>>) -> JoinSet<()> {
        match (&self.member, node) {
            (Some(member), Some(node)) => member.watch_store(node, &self.env),
            _ => JoinSet::new(),
        }
    }

    /// Creates the reader of the local store and of the remote servers in the config.
    pub(super) fn begin_reading(&self, data: &OpenedData) -> RemoteReadStore {
        let of_blocks = data.store.clone();
        let since = Box::new(move || of_blocks.first_block_ms());
        let reading = RemoteReadStore::new(data.reads.clone(), since, self.env.clock.clone());
        reading.apply_config(&self.running.config());
        reading
    }

    /// Starts aggregation. No sample is stored before its state is restored.
    pub(super) async fn begin_aggregation(
        &self,
        store: &Arc<PartitionedStore>,
        pipeline: &Arc<Pipeline>,
        scraping: &Arc<ScrapeManager>,
    ) -> Result<Arc<AggregationConfigurator>, ServeError> {
        let sources_max = self.options.series_max;
        let (env, lookback) = (self.env.clone(), self.lookback);
        let (pipeline, of_metadata) = (pipeline.clone(), pipeline.clone());
        let aggregating = AggregationConfigurator::new(pipeline, store, env, lookback, sources_max);
        aggregating.set_targets(scraping);
        let aggregating = Arc::new(aggregating);
        let (begun, config) = (aggregating.clone(), self.running.config());
        let (env, dir) = (self.env.clone(), self.options.dir.clone());
        spawn_blocking(move || {
            // The type of a metric determines its aggregation.
            metadata::open(&of_metadata, &env, &dir);
            begun.apply_config(&config);
        })
        .await?;
        Ok(aggregating)
    }

    /// Opens the list of running queries. The store has locked the data folder before.
    pub(super) async fn open_active_queries(&self) -> Result<ActiveQueries, ServeError> {
        let (env, dir) = (self.env.clone(), self.options.dir.clone());
        let slots = self.queries_max;
        let opened = spawn_blocking(move || ActiveQueries::open(&env, &dir, slots));
        Ok(opened.await?)
    }

    /// Creates the notifier, which sends alerts to the Alertmanagers of the config.
    pub(super) fn notifier(&self, places: ConnectionSlots, lent: DiscoveryContext) -> Notifier {
        let notifier = Notifier::new(NotifierSettings {
            flags: self.notifier_flags,
            external_url: self.outside_url(),
            places,
            lent,
        });
        let config = self.running.config();
        notifier.apply(&config.alerting, &config.external_labels);
        notifier
    }

    /// Opens the state of rules. No rule runs yet, because rules query the server, which must be
    /// ready first.
    pub(super) async fn open_rules(
        &self,
        pipeline: &Arc<Pipeline>,
        notifier: &Arc<Notifier>,
    ) -> RuleManager {
        let notifier = notifier.clone();
        let around = RuleDependencies {
            app: self.app.clone(),
            pipeline: pipeline.clone(),
            env: self.env.clone(),
            notify: Arc::new(move |expression, alerts| notifier.send(&alerts, expression)),
            external_url: self.outside_url(),
        };
        RuleManager::open(around, self.rule_flags, &self.options.dir).await
    }
}
