//! The parts of a server that follow its configuration.

use super::aggregating::AggregationConfigurator;
use super::notify::Notifier;
use super::opened_data::OpenedData;
use super::reading::RemoteReadStore;
use super::rules::RuleManager;
use super::sending::RemoteWriteManager;
use firn_config::config::Config;
use firn_ingest::Pipeline;
use firn_scrape::ScrapeManager;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

/// Parts that follow the configuration, borrowed by the main loop.
pub(super) struct ConfigSubscribers<'a> {
    pub(super) data: &'a OpenedData,
    pub(super) pipeline: &'a Arc<Pipeline>,
    pub(super) scraping: &'a ScrapeManager,
    pub(super) rules: &'a RuleManager,
    pub(super) notifier: &'a Notifier,
    pub(super) aggregating: &'a Arc<AggregationConfigurator>,
    pub(super) reading: &'a RemoteReadStore,
}

/// Applies configurations in order, in a separate task, to the parts that may wait for the WAL or
/// for a folder. The task ends when the returned set is dropped.
pub(super) fn follow_apart(
    mut configs: watch::Receiver<Arc<Config>>,
    aggregating: Arc<AggregationConfigurator>,
    sending: Arc<RemoteWriteManager>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while configs.changed().await.is_ok() {
            let config = configs.borrow_and_update().clone();
            let (aggregating, sending) = (aggregating.clone(), sending.clone());
            let work = move || {
                aggregating.apply_config(&config);
                // `follow` logs its own errors and retries.
                let _ = sending.apply_config(&config);
            };
            // The panic of the thread was logged by its hook.
            let _ = spawn_blocking(work).await;
        }
    });
    tasks
}
