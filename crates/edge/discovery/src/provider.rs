//! Providers of discoveries: their lists in the config, and the settings that start a task.
//!
//! ```text
//! YAML entry -- DiscoveryProvider::read --> DiscoverySettings -- Discovery::start --> task
//! ```
//!
//! A provider is one row of [`crate::providers::PROVIDERS`]. Its settings are a type of its own,
//! which the other crates see only as [`DiscoverySettings`].

use crate::discover::{BoxFuture, Discover, Refresh, RefreshTask};
use crate::group::TargetGroup;
use crate::published::PublishedTargets;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, KeyPrinting};
use firn_http_client::ClientTlsSettings;
use firn_model::env::Clock;
use firn_yaml::{YamlError, YamlNode};
use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Result of reading one entry of a provider's list.
pub(crate) type ReadResult = Result<DiscoverySettings, YamlError>;

/// A kind of discovery as the config shows it: the row of its list, and the reader of an entry.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryProvider {
    /// Key of the list in a scrape job or an Alertmanager section.
    pub key: ConfigKey,
    /// Reads an entry that has the shape. The path is the folder of the config.
    pub(crate) read: fn(&YamlNode, &Path) -> ReadResult,
}

impl DiscoveryProvider {
    /// Creates a provider whose entries have the shape `entry`. `/api/v1/status/config` prints an
    /// entry as the file contains it, without defaults: these are in the reader of the entry.
    pub(crate) const fn new(
        key: &'static str,
        entry: &'static ConfigValueShape,
        read: fn(&YamlNode, &Path) -> ReadResult,
    ) -> Self {
        let key = ConfigKey::new(key, ConfigValueShape::List(entry));
        Self {
            key: key.printed(KeyPrinting::AsWritten),
            read,
        }
    }

    /// Returns the provider with entries that are printed in the order of their keys, with
    /// defaults. The default of each row must equal the one in the reader.
    pub(crate) const fn printed_with_defaults(self) -> Self {
        Self {
            key: self.key.printed(KeyPrinting::IfSet),
            ..self
        }
    }
}

/// Settings of one discovery: an entry of the config.
#[derive(Clone, Debug, PartialEq)]
pub enum DiscoverySettings {
    /// The groups in `static_configs`, which never change.
    Static(Vec<TargetGroup>),
    /// An entry in the list of a provider, such as `consul_sd_configs`.
    Provided(ProvidedDiscovery),
}

impl DiscoverySettings {
    pub(crate) fn provided(settings: impl DiscoveryMechanism) -> Self {
        Self::Provided(ProvidedDiscovery(Arc::new(settings)))
    }

    /// Returns the name of the mechanism in metrics, which is the config key without `_sd_configs`.
    pub fn mechanism(&self) -> &'static str {
        match self {
            Self::Static(_) => "static",
            Self::Provided(provided) => provided.0.mechanism(),
        }
    }

    /// Returns the patterns of the files that contain the targets; none if a server has them.
    pub fn target_files(&self) -> &[PathBuf] {
        match self {
            Self::Static(_) => &[],
            Self::Provided(provided) => provided.0.target_files(),
        }
    }

    /// Returns the TLS settings whose files a check of the config requires. As in promtool, only
    /// those of Kubernetes are checked.
    pub fn checked_tls(&self) -> Option<&ClientTlsSettings> {
        match self {
            Self::Static(_) => None,
            Self::Provided(provided) => provided.0.checked_tls(),
        }
    }
}

/// Settings of a provider, whose type only the provider uses. Clones share them.
#[derive(Clone)]
pub struct ProvidedDiscovery(Arc<dyn DiscoveryMechanism>);

impl ProvidedDiscovery {
    pub(crate) fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        self.0.start(starter)
    }

    /// Returns the settings if they have the type `T`.
    #[cfg(test)]
    pub(crate) fn downcast<T: 'static>(&self) -> Option<&T> {
        let settings: &dyn Any = &*self.0;
        settings.downcast_ref()
    }
}

impl fmt::Debug for ProvidedDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for ProvidedDiscovery {
    fn eq(&self, other: &Self) -> bool {
        (*self.0).equals(&*other.0)
    }
}

/// Settings of one kind of discovery, with which its task starts.
pub(crate) trait DiscoveryMechanism:
    Any + ComparableSettings + fmt::Debug + Send + Sync
{
    /// Returns the name of the mechanism in metrics.
    fn mechanism(&self) -> &'static str;

    /// Starts the task of a discovery with these settings.
    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask;

    /// Returns the patterns of the files that contain the targets.
    fn target_files(&self) -> &[PathBuf] {
        &[]
    }

    /// Returns the TLS settings whose files a check of the config requires.
    fn checked_tls(&self) -> Option<&ClientTlsSettings> {
        None
    }
}

/// Comparison with settings of any type.
pub(crate) trait ComparableSettings {
    /// Returns whether `other` has the same type and is equal.
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<T: PartialEq + 'static> ComparableSettings for T {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

/// The limits and the receiver of a discovery that starts, with the functions that spawn its task.
pub(crate) struct DiscoveryStarter {
    /// Maximum size in bytes of a response or target file.
    pub(crate) bytes_max: u64,
    /// Clock for signatures and token expiry.
    pub(crate) clock: Arc<dyn Clock>,
    /// Receiver of the target lists.
    pub(crate) to: Arc<PublishedTargets>,
}

impl DiscoveryStarter {
    /// Spawns the task of a discovery that decides itself when to publish a list.
    pub(crate) fn watch(&self, discovery: impl Discover) -> DiscoveryTask {
        let run: BoxFuture<'static, ()> = Box::pin(discovery.run(self.to.clone()));
        DiscoveryTask(tokio::spawn(run))
    }

    /// Spawns a task that polls `source` at its interval.
    pub(crate) fn refresh(&self, source: impl Refresh) -> DiscoveryTask {
        self.watch(RefreshTask::new(source))
    }
}

/// The running task of a discovery; it stops when this handle is dropped.
pub(crate) struct DiscoveryTask(JoinHandle<()>);

impl Drop for DiscoveryTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
