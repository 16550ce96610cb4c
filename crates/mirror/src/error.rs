//! Errors of load generation, mirroring and comparison, and their classification for exit codes.

use clap::error::ErrorKind::UnknownArgument;
use clap::error::{ContextKind, ContextValue};
use firn_model::error::ErrorKind;
use firn_model::rounded;
use std::path::{Path, PathBuf};

/// An error of this crate. Messages name the file or URL concerned.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The command line or an input file is invalid.
    #[error("{0}")]
    Usage(String),
    /// A file could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// The failed operation as a verb, such as "read".
        action: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The system could not be reached, or the connection broke.
    #[error("{url}: {source}")]
    Transport {
        /// URL of the failed request.
        url: String,
        /// Error of the HTTP client.
        source: Box<ureq::Error>,
    },
    /// The response of a system cannot be used.
    #[error("{url}: {what}")]
    Answer {
        /// URL of the request.
        url: String,
        /// Description of the fault in the response.
        what: String,
    },
    /// A system that is to be compared cannot be reached at all.
    #[error("cannot query the {system} at {url}: {why}")]
    Unasked {
        /// Name of the system: `baseline` or `candidate`.
        system: &'static str,
        /// URL of the system without the password.
        url: String,
        /// Reason why it cannot be reached.
        why: String,
    },
    /// An expected event did not happen in time.
    #[error("{0}")]
    Late(String),
    /// The operation was cancelled by a signal.
    #[error("stopped by a signal; run the same command again to continue")]
    Stopped,
    /// A system under test missed a required figure.
    #[error("missed: {0}")]
    Missed(String),
    /// A load was stopped by a rejected or lost request.
    #[error(
        "{first}\n  stopped after {}; --keep-going sends the rest",
        rounded::counted(*requests, "request", "requests")
    )]
    Broken {
        /// Number of requests that were sent until then.
        requests: u64,
        /// URL of the first failed request and its result.
        first: String,
    },
    /// Requests of a completed load were rejected or lost.
    #[error("{failed} of {requests} requests failed, the first one with: {first}")]
    Failed {
        /// Number of failed requests.
        failed: u64,
        /// Number of requests that were sent.
        requests: u64,
        /// Result of the first failed request.
        first: String,
    },
}

impl MirrorError {
    /// Returns the kind of the error, which determines the caller's reaction and the exit code.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Usage(_) => ErrorKind::Invalid,
            Self::File { .. }
            | Self::Transport { .. }
            | Self::Unasked { .. }
            | Self::Late(_)
            | Self::Stopped
            | Self::Missed(_)
            | Self::Broken { .. }
            | Self::Failed { .. } => ErrorKind::Unavailable,
            Self::Answer { .. } => ErrorKind::Corrupt,
        }
    }

    /// Returns a function that wraps an I/O error with the attempted operation and the path.
    pub(crate) fn file(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> MirrorError {
        let path = path.to_path_buf();
        move |source| MirrorError::File {
            action,
            path,
            source,
        }
    }

    /// Returns a function that wraps an error of the HTTP client with the URL of the request.
    pub(crate) fn transport(url: &str) -> impl FnOnce(ureq::Error) -> MirrorError {
        let url = url.to_owned();
        move |source| MirrorError::Transport {
            url,
            source: Box::new(source),
        }
    }
}

impl From<clap::Error> for MirrorError {
    fn from(error: clap::Error) -> Self {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.as_str()),
            _ => None,
        };
        if error.kind() != UnknownArgument {
            let all = error.render().to_string();
            let all = all.strip_prefix("error: ").unwrap_or(&all);
            return Self::Usage(all.trim_end().to_owned());
        }
        let flag = text(ContextKind::InvalidArg).unwrap_or_default();
        Self::Usage(match text(ContextKind::SuggestedArg) {
            None => format!("unknown flag: {flag}"),
            Some(similar) => format!("unknown flag: {flag}; a similar flag exists: {similar}"),
        })
    }
}
