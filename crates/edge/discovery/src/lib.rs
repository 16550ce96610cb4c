//! Service discovery: the sources of a job's targets.
//!
//! ```text
//! static_configs ---------------------------------> groups, once
//! polled: files, HTTP, DNS, clouds -- interval ---> groups
//! watched: Consul, Kubernetes, .. -- each change -> groups, at a limited rate
//! ```
//!
//! Each discovery is a task that owns a list of target groups and publishes it as a whole; a job
//! reads the latest list of each of its discoveries. The labels with the prefix `__meta_` are those
//! of Prometheus. The traits in `discover` separate polling and publishing from the individual
//! mechanisms. The table in `providers` lists the mechanisms; all else follows from it.
//!
//! Invariant: a source that cannot be read keeps its last published list.

mod api;
mod combined_lists;
mod discover;
mod environment;
mod group;
mod json;
mod meta;
mod metrics;
mod once;
mod pages;
mod provider;
mod providers;
mod published;
mod section_values;
mod sections;
mod side_by_side;
#[cfg(test)]
mod stub;
#[cfg(test)]
mod tests;
mod tokens;
mod xml;
mod xmlrpc;

pub use group::{TargetGroup, check_address, read_json_groups, read_yaml_groups};
pub use metrics::{DiscoveryMetrics, DiscoveryOwner};
pub use provider::{DiscoverySettings, ProvidedDiscovery};
pub use providers::{
    AwsSettings, AzureAdSettings, AzureCloud, AzureIdentity, GoogleIamSettings, SigV4Settings,
    read_sigv4,
};
pub use sections::{DISCOVERY_KEYS, discovery_names, read_discoveries};

use firn_model::env::Clock;
use provider::{DiscoveryStarter, DiscoveryTask};
use published::PublishedTargets;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Notify;

/// Dependencies and limits that all discoveries of a server share.
#[derive(Clone)]
pub struct DiscoveryContext {
    /// Maximum size in bytes of a response or target file; larger ones are errors.
    pub bytes_max: u64,
    /// Clock for signatures, token expiry and the timestamps of published lists.
    pub clock: Arc<dyn Clock>,
    /// Metrics to which new discoveries are added.
    pub metrics: DiscoveryMetrics,
}

/// A running discovery; its task stops when this handle is dropped.
pub struct Discovery {
    published: Arc<PublishedTargets>,
    /// None for static groups, which are published once.
    _task: Option<DiscoveryTask>,
}

impl Discovery {
    /// Starts a discovery that notifies `changed` of each new target list. Must be called inside a
    /// tokio runtime.
    pub fn start(
        settings: &DiscoverySettings,
        context: &DiscoveryContext,
        owner: &DiscoveryOwner,
        changed: Arc<Notify>,
    ) -> Self {
        let published = Arc::new(PublishedTargets::new(changed, context.clock.clone()));
        context
            .metrics
            .add_running(settings.mechanism(), owner, &published);
        let task = match settings {
            DiscoverySettings::Static(groups) => {
                published.publish(groups.clone());
                None
            }
            DiscoverySettings::Provided(provided) => Some(provided.start(&DiscoveryStarter {
                bytes_max: context.bytes_max,
                clock: context.clock.clone(),
                to: published.clone(),
            })),
        };
        Self {
            published,
            _task: task,
        }
    }

    /// Returns the latest published list, or `None` before the first one.
    pub fn groups(&self) -> Option<Arc<Vec<TargetGroup>>> {
        self.published.groups()
    }
}

impl fmt::Debug for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery").finish_non_exhaustive()
    }
}
