//! What can go wrong between Firn's tools and the systems they talk to.

use clap::error::ErrorKind::UnknownArgument;
use clap::error::{ContextKind, ContextValue};
use firn_model::error::ErrorKind;
use firn_model::rounded;
use std::path::{Path, PathBuf};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The command line or an input file does not say what it should.
    #[error("{0}")]
    Usage(String),
    /// A file could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// Verb, as in "read".
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The other side could not be reached or broke off.
    #[error("{url}: {source}")]
    Transport {
        /// The URL that was asked.
        url: String,
        /// What went wrong.
        source: Box<ureq::Error>,
    },
    /// The other side answered something that cannot be used.
    #[error("{url}: {what}")]
    Answer {
        /// The URL that was asked.
        url: String,
        /// What is wrong with the answer.
        what: String,
    },
    /// A system cannot be asked at all.
    #[error("cannot query the {system} at {url}: {why}")]
    Unasked {
        /// Which one.
        system: &'static str,
        /// Where it should be.
        url: String,
        /// Why.
        why: String,
    },
    /// Something that should have happened did not.
    #[error("{0}")]
    Late(String),
    /// It was asked to stop.
    #[error("stopped by a signal; run the same command again to continue")]
    Stopped,
    /// A system under test did not reach what it must.
    #[error("missed: {0}")]
    Missed(String),
    /// A load stopped at a request that was refused or lost.
    #[error(
        "{first}\n  stopped after {}; --keep-going sends the rest",
        rounded::counted(*requests, "request", "requests")
    )]
    Broken {
        /// How many were sent.
        requests: u64,
        /// The URL, and what the first one that failed got.
        first: String,
    },
    /// Requests of a load were refused or lost.
    #[error("{failed} of {requests} requests failed, the first one with: {first}")]
    Failed {
        /// How many failed.
        failed: u64,
        /// How many were sent.
        requests: u64,
        /// What the first one got.
        first: String,
    },
}

impl MirrorError {
    /// What the caller must do about it.
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

    /// Says what was being done to `path` when `source` happened.
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

    /// Names the URL that was asked when `source` happened.
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
