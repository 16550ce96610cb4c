//! Errors of reading and writing Prometheus data folders.

use firn_model::error::{Error, ErrorKind};

/// The reason why a file of a folder cannot be read, or a block cannot be written. Errors of files
/// contain the name and the offset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TsdbError {
    /// The content of a file is invalid.
    #[error("{file}: {what} at byte {offset}")]
    Damaged {
        /// The file, with the name that the caller chose.
        file: String,
        /// Offset of the damage in the file.
        offset: u64,
        /// Description of the damage, without file and offset.
        what: String,
    },
    /// The version of a file or an encoding in it is not supported.
    #[error("{file}: {what}")]
    Unsupported {
        /// The file, with the name that the caller chose.
        file: String,
        /// Description of the unsupported part and its version.
        what: String,
    },
    /// A read or write of the caller failed.
    #[error("{file}: {error}")]
    Io {
        /// The file, with the name that the caller chose.
        file: String,
        /// The error of the caller's read or append.
        error: Error,
    },
    /// The series or samples to write do not form a valid block.
    #[error("{0}")]
    Refused(String),
    /// One series alone needs more memory than the caller allows.
    #[error("series {labels} needs more than {limit} bytes of memory")]
    SeriesTooLarge {
        /// Labels of the series.
        labels: String,
        /// The memory limit in bytes.
        limit: usize,
    },
}

impl TsdbError {
    /// Returns the kind of error, which determines the reaction of the caller.
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

/// An error in bytes whose file the decoder does not have; the caller adds name and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedTsdbBytes {
    /// The bytes end before the encoded value does.
    #[error("unexpected end")]
    CutShort,
    /// The bytes encode an impossible value; the string describes it.
    #[error("{0}")]
    Invalid(&'static str),
}
