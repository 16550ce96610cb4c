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
mod published;
#[cfg(test)]
mod tests;

pub use group::{Group, ReadYaml};

use crate::client::HttpSettings;
use published::Published;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
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

/// A discovery that runs until it is dropped.
#[derive(Debug)]
pub struct Discovery {
    published: Arc<Published>,
    task: Option<JoinHandle<()>>,
}

impl Discovery {
    /// Starts a discovery that notifies `changed` of each new list, and reads none beyond
    /// `bytes_max`. Must be called inside a tokio runtime.
    pub fn start(
        settings: &DiscoverySettings,
        read_yaml: ReadYaml,
        bytes_max: u64,
        changed: Arc<Notify>,
    ) -> Self {
        let published = Arc::new(Published::new(changed));
        let to = published.clone();
        let task = match settings {
            DiscoverySettings::Static(groups) => {
                to.publish(groups.clone());
                None
            }
            DiscoverySettings::File { patterns, refresh } => {
                let files = file::Files::new(patterns.clone(), read_yaml, bytes_max);
                Some(tokio::spawn(file::run(files, *refresh, to)))
            }
            DiscoverySettings::Http {
                url,
                refresh,
                client,
            } => {
                let source = http::Source::new(url, *refresh, (**client).clone(), bytes_max);
                Some(tokio::spawn(http::run(source, to)))
            }
        };
        Self { published, task }
    }

    /// The newest list; `None` while there was none.
    pub fn groups(&self) -> Option<Arc<Vec<Group>>> {
        self.published.groups()
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
