//! Why a folder of Prometheus could not be read or written.

use firn_model::error::{Error, ErrorKind};

/// Why a file of a folder could not be read, or a block not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TsdbError {
    /// Bytes of a file do not say what they should.
    #[error("{file}: {what} at byte {offset}")]
    Damaged {
        /// The file, as the caller named it.
        file: String,
        /// Where in the file.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A file of a version or with an encoding that is not known.
    #[error("{file}: {what}")]
    Unsupported {
        /// The file, as the caller named it.
        file: String,
        /// What is not known.
        what: String,
    },
    /// The caller could not deliver or take bytes.
    #[error("{file}: {error}")]
    Io {
        /// The file, as the caller named it.
        file: String,
        /// What the caller said.
        error: Error,
    },
    /// What was to be written makes no block.
    #[error("{0}")]
    Refused(String),
    /// One series alone takes more memory than the caller allows.
    #[error("series {labels} needs more than {limit} bytes of memory")]
    SeriesTooLarge {
        /// The labels of the series.
        labels: String,
        /// What is allowed.
        limit: usize,
    },
}

impl TsdbError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TsdbError::Damaged { .. } => ErrorKind::Corrupt,
            TsdbError::Unsupported { .. } | TsdbError::Refused(_) => ErrorKind::Invalid,
            TsdbError::Io { error, .. } => error.kind,
            TsdbError::SeriesTooLarge { .. } => ErrorKind::Limited,
        }
    }
}

impl From<TsdbError> for Error {
    fn from(error: TsdbError) -> Self {
        Error::new(error.kind(), error.to_string())
    }
}

/// What is wrong with bytes whose file the reader does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes end before what they say.
    #[error("unexpected end")]
    CutShort,
    /// The bytes say what cannot be.
    #[error("{0}")]
    Invalid(&'static str),
}
