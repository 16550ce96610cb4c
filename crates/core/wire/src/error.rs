//! Errors that reject a request body as a whole.

use firn_model::error::{Error, ErrorKind};

/// The reason why a decoder rejected a message as a whole. Faults of single series are not errors:
/// the decoded request lists them beside its valid series.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The body is not a valid snappy block, or is shorter than it declares.
    #[error("snappy: corrupt input")]
    SnappyCorrupt,
    /// The uncompressed size in the snappy header exceeds the limit, so that nothing was
    /// decompressed.
    #[error("message too large: {bytes} bytes decompressed, limit {limit}")]
    MessageTooLarge {
        /// Uncompressed size in bytes that the body declares.
        bytes: u64,
        /// Largest allowed uncompressed size in bytes.
        limit: usize,
    },
    /// The bytes are not a valid protobuf message of the protocol; the string describes the first
    /// fault.
    #[error("protobuf: {0}")]
    Protobuf(&'static str),
    /// The text is not a valid message in the JSON encoding of the protocol; the string describes
    /// the first fault.
    #[error("JSON: {0}")]
    Json(String),
    /// The request has more series than the limit allows.
    #[error("too many series in one request: limit {limit}")]
    TooManySeries {
        /// Largest allowed number of series in one request.
        limit: usize,
    },
    /// The decoded samples would need more memory than one request may use.
    #[error("too many samples in one request: more than {limit} bytes in memory")]
    TooManySamples {
        /// Largest allowed size of the decoded samples in bytes.
        limit: usize,
    },
    /// The memory budget is exhausted at the moment, so that the sender should retry.
    #[error("{0}")]
    NoMemory(String),
}

impl WireError {
    /// Returns the kind of error, which decides whether the sender may retry the request.
    pub fn kind(&self) -> ErrorKind {
        match self {
            WireError::SnappyCorrupt | WireError::Protobuf(_) | WireError::Json(_) => {
                ErrorKind::Invalid
            }
            WireError::NoMemory(_) => ErrorKind::Unavailable,
            WireError::MessageTooLarge { .. }
            | WireError::TooManySeries { .. }
            | WireError::TooManySamples { .. } => ErrorKind::Limited,
        }
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        Error::new(error.kind(), error.to_string())
    }
}
