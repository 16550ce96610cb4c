//! Errors of starting and stopping a server.

use super::listen::ListenError;
use super::parts::PartsError;
use super::running::QueryLogError;
use crate::settings::config::ConfigError;
use crate::settings::retention::UnknownSize;
use crate::settings::web_config::WebConfigError;
use firn_model::error::Error;
use firn_storage::error::StorageError;
use std::path::PathBuf;

/// Error that prevents a server from starting or from stopping cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The config is invalid or cannot be read.
    #[error("load config {0}")]
    Config(#[from] ConfigError),
    /// The web config or one of its files is invalid or cannot be read.
    #[error("load web config: {0}")]
    Locks(#[from] WebConfigError),
    /// A flag has an invalid value.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// An address cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The retention is a share of the disk, whose size is unknown.
    #[error(transparent)]
    Retention(#[from] UnknownSize),
    /// The threads of the runtime cannot be started.
    #[error("start threads: {0}")]
    Threads(std::io::Error),
    /// The limit of open files cannot be raised.
    #[error("raise the limit of open files: {0}")]
    Descriptors(std::io::Error),
    /// Signal handlers cannot be installed.
    #[error("listen for signals: {0}")]
    Signals(std::io::Error),
    /// The query log cannot be opened.
    #[error(transparent)]
    Files(#[from] QueryLogError),
    /// A task panicked or was cancelled.
    #[error("a task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
    /// The data folder cannot be opened.
    #[error("open data folder: {0}")]
    Open(Error),
    /// Another process has locked the data folder.
    #[error(
        "data folder {} is in use by another {}: stop it, or choose another folder (--data, of an \
         agent --storage.agent.path)",
        path.display(),
        owner.map_or("process".to_owned(), |id| format!("process ({id})"))
    )]
    InUse {
        /// Path of the data folder.
        path: PathBuf,
        /// Id of the other process, if it is known.
        owner: Option<u32>,
    },
    /// The remote-write queue of an agent cannot be opened.
    #[error("{0}")]
    Sending(String),
    /// The data folder was not closed cleanly.
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
