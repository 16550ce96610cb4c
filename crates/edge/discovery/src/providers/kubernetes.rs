//! Discovery of Kubernetes objects: nodes, pods, services, endpoints, endpoint slices and
//! ingresses.
//!
//! ```text
//! access -> one reflector per kind and namespace: list, then watch -> stores
//! any store changed -> all targets of the role are rebuilt -> publish, at a limited rate
//! ```
//!
//! The behaviour follows upstream's `discovery/kubernetes` and the Kubernetes API. A full rebuild
//! needs no index of dependencies between objects; it takes some ten milliseconds for ten thousand
//! pods.
//!
//! Invariant: a list is published only after every store has been listed once, and stores keep
//! their objects while the API fails.

mod access;
mod endpoints;
mod events;
mod labels;
mod objects;
mod pods;
mod reflector;
mod roles;
mod selectors;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod world;

pub(super) use settings::PROVIDER;

use crate::combined_lists::{PublishRateLimiter, TIMING, WatchTiming, wait_until_due};
use crate::discover::Discover;
use crate::provider::{DiscoveryMechanism, DiscoveryStarter, DiscoveryTask};
use crate::published::PublishedTargets;
use access::KubernetesCluster;
use firn_http_client::ClientTlsSettings;
use settings::KubernetesSettings;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use tracing::{error, warn};
use world::KubernetesObjectStores;

/// Discovery that watches the objects of one role in a Kubernetes cluster.
pub(super) struct KubernetesDiscovery {
    settings: KubernetesSettings,
    bytes_max: u64,
    timing: WatchTiming,
}

impl KubernetesDiscovery {
    pub(super) fn new(settings: &KubernetesSettings, bytes_max: u64) -> Self {
        Self {
            settings: settings.clone(),
            bytes_max,
            timing: TIMING,
        }
    }

    /// Connects to the API, and retries until it has the necessary addresses and credentials.
    async fn connect_cluster(&self, to: &PublishedTargets) -> Arc<KubernetesCluster> {
        loop {
            let (settings, bytes_max) = (self.settings.clone(), self.bytes_max);
            let found =
                spawn_blocking(move || KubernetesCluster::find_cluster(&settings, bytes_max)).await;
            match found {
                Ok(Ok(cluster)) => return Arc::new(cluster),
                Ok(Err(e)) => warn!(error = %e, "cannot find the Kubernetes API"),
                Err(e) => error!(error = %e, "cannot find the Kubernetes API"),
            }
            to.failures.inc();
            sleep(self.timing.retry).await;
        }
    }
}

impl DiscoveryMechanism for KubernetesSettings {
    fn mechanism(&self) -> &'static str {
        "kubernetes"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.watch(KubernetesDiscovery::new(self, starter.bytes_max))
    }

    fn checked_tls(&self) -> Option<&ClientTlsSettings> {
        Some(&self.client.tls)
    }
}

impl Discover for KubernetesDiscovery {
    async fn run(self, to: Arc<PublishedTargets>) {
        let cluster = self.connect_cluster(&to).await;
        let changed = Arc::new(Notify::new());
        let world = Arc::new(KubernetesObjectStores::new(&self.settings, changed.clone()));
        // Dropping this future stops all reflectors.
        let mut reflectors = JoinSet::new();
        world.start_all_reflectors(&cluster, &to, self.timing.retry, &mut reflectors);
        let mut pace = PublishRateLimiter::new(self.timing);
        loop {
            tokio::select! {
                () = changed.notified() => {
                    if world.is_listed() {
                        pace.record_change();
                    }
                }
                () = wait_until_due(pace.next_publication(world.has_owners())) => {
                    pace.record_publication();
                    let built = world.clone();
                    match spawn_blocking(move || built.build_groups()).await {
                        Ok(groups) => to.publish(groups),
                        Err(e) => error!(error = %e, "failed to create targets"),
                    }
                }
            }
        }
    }
}
