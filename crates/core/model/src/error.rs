//! The classification of errors that crates exchange. It determines how a caller must react.
//!
//! Each crate has a more detailed error enum and maps it to an [`ErrorKind`]. Only the server maps
//! a kind to an HTTP status and a Prometheus error type.

/// The kind of an error, which determines how the caller must react.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The input is invalid. A retry with the same input fails again.
    Invalid,
    /// A limit was exceeded. The message contains the value and the limit.
    Limited,
    /// The data exceeds the permitted rate. A retry after some time may succeed. The message
    /// contains the rate.
    RateLimited {
        /// Time after which a retry may succeed, in seconds.
        retry_after_seconds: u32,
    },
    /// The requested item does not exist. A retry fails again until it is created.
    NotFound,
    /// The caller closed the connection or canceled the work.
    Canceled,
    /// The time limit for the work was exceeded before it was finished.
    Timeout,
    /// The state is temporarily unavailable. A later retry may succeed.
    Unavailable,
    /// Stored bytes are corrupt, or the disk cannot read them.
    Corrupt,
    /// A defect of Firn itself, which should be reported.
    Internal,
}

/// An error as it is passed between crates: its kind, and a text for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The kind of the error, by which the caller decides what to do.
    pub kind: ErrorKind,
    /// The text in lower case, without a full stop, with the value and the limit if there is one.
    pub message: String,
}

impl Error {
    /// Creates an error with the text `message` for the user.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Creates an error of kind [`ErrorKind::Unavailable`] with the text `message` for the user.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }
}
