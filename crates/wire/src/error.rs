//! Why a message as a whole could not be read.

use firn_model::error::{Error, ErrorKind};

/// Why a message as a whole could not be read. What is wrong with single series is no error but
/// part of what was decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The body is not what snappy writes.
    #[error("snappy: corrupt input")]
    SnappyCorrupt,
    /// The body says that it unpacks to more than is allowed.
    #[error("message too large: {bytes} bytes decompressed, limit {limit}")]
    MessageTooLarge {
        /// What the body declares.
        bytes: u64,
        /// What is allowed.
        limit: usize,
    },
    /// The bytes are no message of the protocol.
    #[error("protobuf: {0}")]
    Protobuf(&'static str),
    /// The text is no message of the protocol in JSON.
    #[error("JSON: {0}")]
    Json(String),
    /// More series than a request may have.
    #[error("too many series in one request: limit {limit}")]
    TooManySeries {
        /// What is allowed.
        limit: usize,
    },
    /// The samples would take more memory than a request may.
    #[error("too many samples in one request: more than {limit} bytes in memory")]
    TooManySamples {
        /// What is allowed.
        limit: usize,
    },
    /// There is no memory left for the samples now.
    #[error("{0}")]
    NoMemory(String),
}

impl WireError {
    /// What the sender must do.
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
