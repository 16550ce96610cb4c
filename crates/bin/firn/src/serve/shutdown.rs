//! Stops the parts of a server in order.

use super::cluster::peers::PeerMembership;
use super::error::ServeError;
use super::listen::HttpServerTasks;
use super::notify::Notifier;
use super::opened_data::close_data;
use super::rules::RuleManager;
use super::sending::RemoteWriteManager;
use super::signals::Signals;
use super::spans::SpanExportManager;
use super::{aggregating, metadata};
use firn_cluster::partitions::store::PartitionedStore;
use firn_cluster::tenants::TenantStores;
use firn_ingest::Pipeline;
use firn_scrape::ScrapeManager;
use std::sync::Arc;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

/// Parts that end with the process, in the order of their stop: sources of samples first, the store
/// last.
pub(super) struct ShutdownSequence {
    pub(super) scraping: Arc<ScrapeManager>,
    pub(super) rules: Arc<RuleManager>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) servers: HttpServerTasks,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) sending: Arc<RemoteWriteManager>,
    pub(super) spans: Arc<SpanExportManager>,
    pub(super) store: Arc<PartitionedStore>,
    /// The stores of all tenants, if there are several.
    pub(super) tenants: Option<Arc<TenantStores>>,
    pub(super) peers: Option<PeerMembership>,
}

impl ShutdownSequence {
    /// Stops all parts. A second signal ends the process immediately.
    pub(super) async fn stop_unless(self, mut signals: Signals) -> Result<(), ServeError> {
        info!("stop");
        let pipeline = self.pipeline.clone();
        tokio::select! {
            closed = self.stop() => closed,
            () = signals.stop() => {
                warn!("second signal: exiting immediately");
                pipeline.log_remaining_rejections();
                Ok(())
            }
        }
    }

    /// Stops all parts. The store is closed last, when no part writes samples any more.
    pub(super) async fn stop(self) -> Result<(), ServeError> {
        let Self {
            scraping,
            rules,
            notifier,
            servers,
            pipeline,
            sending,
            spans,
            store,
            tenants,
            peers,
        } = self;
        scraping.stop_all().await;
        rules.stop().await;
        notifier.stop().await;
        servers.stop().await;
        sending.stop().await;
        spans.stop().await;
        pipeline.log_remaining_rejections();
        spawn_blocking(move || {
            aggregating::finish(&pipeline);
            metadata::store_if_due(&pipeline, true);
        })
        .await?;
        close_data(peers, tenants, store)
            .await?
            .map_err(ServeError::Close)
    }
}
