//! Discovery: where the targets of a job come from.
//!
//! ```text
//! static_configs ------------------------------> groups, once
//! files    -- looked at every few seconds -----> groups, when a file changed
//! HTTP     -- asked at every refresh_interval -> groups, when the list changed
//! ```
//!
//! Each discovery is a task that owns a list of groups and publishes it as a whole; a job sees the
//! newest list of each of its discoveries. Labels under `__meta_` are those of Prometheus.
//!
//! Invariant: what cannot be read keeps the list that was read last.

mod file;
mod group;
mod http;
#[cfg(test)]
mod tests;

pub use group::Group;

use crate::client::HttpSettings;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Where targets come from.
#[derive(Clone, Debug, PartialEq)]
pub enum DiscoverySettings {
    /// `static_configs`
    Static(Vec<Group>),
    /// One of `file_sd_configs`
    File {
        /// `files`: paths, or patterns of paths.
        patterns: Vec<PathBuf>,
        /// `refresh_interval`
        refresh: Duration,
    },
    /// One of `http_sd_configs`
    Http {
        /// `url`
        url: String,
        /// `refresh_interval`
        refresh: Duration,
        /// How the server is reached.
        client: Box<HttpSettings>,
    },
}

/// Reads target groups from YAML. The binary owns the reader of YAML and lends it.
pub type ReadYaml = fn(&str) -> Result<Vec<Group>, String>;

/// A discovery that runs until it is dropped.
#[derive(Debug)]
pub struct Discovery {
    groups: watch::Receiver<Arc<Vec<Group>>>,
    task: Option<JoinHandle<()>>,
}

impl Discovery {
    /// Starts a discovery. Must be called inside a tokio runtime.
    pub fn start(settings: &DiscoverySettings, read_yaml: ReadYaml) -> Self {
        let known = match settings {
            DiscoverySettings::Static(groups) => groups.clone(),
            _ => Vec::new(),
        };
        let (publish, groups) = watch::channel(Arc::new(known));
        let task = match settings {
            DiscoverySettings::Static(_) => None,
            DiscoverySettings::File { patterns, refresh } => {
                let files = file::Files::new(patterns.clone(), read_yaml);
                Some(tokio::spawn(file::run(files, *refresh, publish)))
            }
            DiscoverySettings::Http {
                url,
                refresh,
                client,
            } => {
                let source = http::Source::new(url, *refresh, (**client).clone());
                Some(tokio::spawn(http::run(source, publish)))
            }
        };
        Self { groups, task }
    }

    /// The newest list.
    pub fn groups(&self) -> Arc<Vec<Group>> {
        self.groups.borrow().clone()
    }

    /// Follows the list.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Vec<Group>>> {
        self.groups.clone()
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Publishes `groups` if they are news.
fn publish(to: &watch::Sender<Arc<Vec<Group>>>, groups: Vec<Group>) {
    to.send_if_modified(|known| {
        let is_news = **known != groups;
        if is_news {
            *known = Arc::new(groups);
        }
        is_news
    });
}
