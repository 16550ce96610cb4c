//! What a caller must do about an error: the one classification that crosses room borders.
//!
//! Rooms keep rich error enums of their own and map each to an [`ErrorKind`]; only the server turns
//! a kind into an HTTP status and a Prometheus error type.

/// What the caller must do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The input is wrong; sending it again will fail again.
    Invalid,
    /// A stated limit was reached; the message names the value and the limit.
    Limited,
    /// The thing asked for does not exist.
    NotFound,
    /// The caller went away or asked to stop.
    Canceled,
    /// The time allowed for the work ran out.
    Timeout,
    /// Nothing can be promised now; trying later may succeed.
    Unavailable,
    /// Stored bytes do not say what they should, or the disk does not deliver them.
    Corrupt,
    /// A defect in Firn itself.
    Internal,
}

/// An error as it crosses a room border: its kind and the text for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What the caller must do.
    pub kind: ErrorKind,
    /// Lower case, no full stop, with the value and the limit where there is one.
    pub message: String,
}

impl Error {
    /// An error of `kind` that tells the user `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// An error of [`ErrorKind::Unavailable`] that tells the user `message`.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }
}
