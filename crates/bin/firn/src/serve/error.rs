//! Errors of starting and stopping a server.

use super::listen::ListenError;
use super::parts::AppPartsError;
use super::running::QueryLogError;
use firn_cluster::node::JoinError;
use firn_config::config::ConfigError;
use firn_config::retention::UnknownDiskSize;
use firn_config::web_config::WebConfigError;
use firn_model::error::Error;
use firn_storage::error::StorageError;
use std::path::PathBuf;

/// Error that prevents a server from starting or from stopping cleanly. Printed as one line; the
/// exit code is 1.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The config file is invalid or cannot be read.
    #[error("load config {0}")]
    Config(#[from] ConfigError),
    /// The web config or one of its files is invalid or cannot be read.
    #[error("load web config: {0}")]
    Locks(#[from] WebConfigError),
    /// A flag has a value that the parts of the server reject.
    #[error(transparent)]
    Parts(#[from] AppPartsError),
    /// A listening address is invalid or cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The retention is a share of the disk, whose size is unknown.
    #[error(transparent)]
    Retention(#[from] UnknownDiskSize),
    /// The threads of the asynchronous runtime cannot be started.
    #[error("start threads: {0}")]
    Threads(std::io::Error),
    /// The limit of open files cannot be read or raised.
    #[error("raise the limit of open files: {0}")]
    Descriptors(std::io::Error),
    /// The handlers of signals cannot be installed.
    #[error("listen for signals: {0}")]
    Signals(std::io::Error),
    /// The query log named in the config cannot be opened.
    #[error(transparent)]
    Files(#[from] QueryLogError),
    /// A task of the server panicked or was cancelled.
    #[error("a task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
    /// The data folder cannot be opened, for example because of its format or permissions.
    #[error("open data folder: {0}")]
    Open(Error),
    /// Another process has locked the data folder and may be using it.
    #[error(
        "data folder {} is in use by another {}: stop it, or choose another folder (--data, of an \
         agent --storage.agent.path)",
        path.display(),
        owner.map_or("process".to_owned(), |id| format!("process ({id})"))
    )]
    InUse {
        /// Path of the locked data folder.
        path: PathBuf,
        /// Process id of the owner, or `None` if it cannot be determined.
        owner: Option<u32>,
    },
    /// The bucket of the config is not that of a cluster to which this node can belong.
    #[error("{0}")]
    Join(JoinError),
    /// This process lost a partition that only it leads: another process with the same bucket took
    /// over, or the log contains an object that this version cannot read.
    #[error("cluster: {0}")]
    LostPartition(String),
    /// The settings of the listener for peers are invalid, or the peers reject this node.
    #[error("{0}")]
    Peers(String),
    /// The remote-write queue of an agent cannot be opened. A server would retry.
    #[error("{0}")]
    Sending(String),
    /// The data folder was not closed cleanly, so that the next start replays the WAL.
    #[error("close data folder: {0}")]
    Close(Error),
}

impl From<StorageError> for ServeError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Locked { path, owner } => Self::InUse { path, owner },
            other => Self::Open(other.into()),
        }
    }
}
