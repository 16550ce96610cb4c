//! Errors of bucket operations: a kind, by which the caller decides what to do, and a text.
//!
//! Invariant: no text contains a secret. Texts are made from the operation, the key, the status and
//! the error code of the store, never from request headers or raw response bodies.

use firn_model::error::{Error, ErrorKind};

/// The cause of a failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BucketFailure {
    /// The operation took longer than its limit. A creation may still be stored later.
    Timeout,
    /// The store could not be reached, or the connection ended before the complete response.
    Connection,
    /// The store asks for fewer requests (429, or 503 `SlowDown`). Wait before the next request.
    Throttled,
    /// The store failed (other 5xx).
    Server,
    /// The store reports a concurrent creation of the same key (409). Whether an object exists is
    /// unknown.
    Conflict,
    /// There are no credentials, or the store rejects them.
    Denied,
    /// The bucket or its folder does not exist.
    NoBucket,
    /// The store rejects the request, or its response cannot be understood.
    Invalid,
    /// The store contradicts the request: a list without order or with other keys.
    WrongAnswer,
    /// A limit of this client was exceeded; nothing was sent.
    Limited,
    /// Fewer or other bytes arrived than the store announced.
    Damaged,
    /// The client was stopped before the operation finished.
    Stopped,
}

/// An error of one operation, created by an implementation of [`crate::Bucket`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BucketError {
    /// The cause, by which the caller decides what to do.
    pub failure: BucketFailure,
    /// The text for the user, which names the operation and the key.
    pub message: String,
}

impl BucketError {
    /// Creates an error with the text `message` for the user, which must not contain secrets.
    pub fn new(failure: BucketFailure, message: impl Into<String>) -> Self {
        let message = message.into();
        debug_assert!(!message.is_empty(), "an error without a text");
        Self { failure, message }
    }

    /// Returns the kind of the error as other crates exchange it.
    pub fn kind(&self) -> ErrorKind {
        match self.failure {
            BucketFailure::Timeout => ErrorKind::Timeout,
            BucketFailure::Limited => ErrorKind::Limited,
            BucketFailure::NoBucket => ErrorKind::NotFound,
            BucketFailure::Invalid => ErrorKind::Invalid,
            BucketFailure::Damaged | BucketFailure::WrongAnswer => ErrorKind::Corrupt,
            BucketFailure::Connection
            | BucketFailure::Throttled
            | BucketFailure::Server
            | BucketFailure::Conflict
            | BucketFailure::Denied
            | BucketFailure::Stopped => ErrorKind::Unavailable,
        }
    }
}

impl From<BucketError> for Error {
    fn from(error: BucketError) -> Self {
        Error::new(error.kind(), error.message)
    }
}
