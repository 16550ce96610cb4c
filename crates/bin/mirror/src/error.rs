//! Errors of load generation, mirroring and comparison. The command line turns them into a message
//! and an exit code.

use clap::error::ErrorKind::UnknownArgument;
use clap::error::{ContextKind, ContextValue};
use firn_model::error::ErrorKind;
use firn_model::rounded;
use std::path::{Path, PathBuf};

/// An error of this crate. Messages name the file or URL concerned. [`MirrorError::Usage`] is an
/// error of the user, all others are failures of a run.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The command line or an input file is invalid, which the user must correct.
    #[error("{0}")]
    Usage(String),
    /// A file or directory could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// The failed operation as a verb, such as "read".
        action: &'static str,
        /// Path of the file or directory concerned.
        path: PathBuf,
        /// Error of the operating system with its cause.
        source: std::io::Error,
    },
    /// The system could not be reached, or the connection broke.
    #[error("{url}: {source}")]
    Transport {
        /// URL of the failed request, including its path.
        url: String,
        /// Error of the HTTP client, such as a timeout.
        source: Box<ureq::Error>,
    },
    /// The response of a system arrived but cannot be used.
    #[error("{url}: {what}")]
    Answer {
        /// URL of the request whose response it is.
        url: String,
        /// Description of the fault in the response, or the response itself.
        what: String,
    },
    /// A system that is to be compared cannot be reached at all.
    #[error("cannot query the {system} at {url}: {why}")]
    Unasked {
        /// Name of the system in messages: `baseline` or `candidate`.
        system: &'static str,
        /// URL of the system without the password.
        url: String,
        /// Reason why it cannot be reached, from the HTTP client.
        why: String,
    },
    /// An expected event did not happen in time, or a step failed to complete.
    #[error("{0}")]
    Late(String),
    /// The operation was cancelled by a signal and has cleaned up.
    #[error("stopped by a signal; run the same command again to continue")]
    Stopped,
    /// A system under test missed required figures, which the text lists.
    #[error("missed: {0}")]
    Missed(String),
    /// A load was stopped by a rejected or lost request.
    #[error(
        "{first}\n  stopped after {}; --keep-going sends the rest",
        rounded::format_count_with_noun(*requests, "request", "requests")
    )]
    Broken {
        /// Number of requests that were sent until then, including the failed one.
        requests: u64,
        /// URL of the first failed request and its result.
        first: String,
    },
    /// Requests of a completed load were rejected or lost, and no goals were set.
    #[error("{failed} of {requests} requests failed, the first one with: {first}")]
    Failed {
        /// Number of requests that were rejected or lost.
        failed: u64,
        /// Number of requests that were sent in total.
        requests: u64,
        /// URL, and error of the first failed request.
        first: String,
    },
}

impl MirrorError {
    /// Returns the kind of the error, which determines how the caller must react.
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
