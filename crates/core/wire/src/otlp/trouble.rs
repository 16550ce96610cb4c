//! Errors while decoding a request: of a single point, or of the whole message.

use crate::error::WireError;
use crate::remote_write::{SeriesRejection, WriteRejectionReason};

/// The reason why a part of the request cannot be decoded, and the extent of the failure: a point,
/// or the whole request.
#[derive(Debug)]
pub(super) enum OtlpDecodeError {
    /// The message as a whole is malformed or exceeds a limit.
    Message(WireError),
    /// This point, or the metric, scope or resource around it, is rejected; the others are not
    /// affected.
    Point(SeriesRejection),
}

impl OtlpDecodeError {
    /// Returns the error for a rejected point.
    pub(super) fn reject_point(refusal: WriteRejectionReason, message: impl Into<String>) -> Self {
        OtlpDecodeError::Point(SeriesRejection {
            refusal,
            message: message.into(),
        })
    }
}

impl From<WireError> for OtlpDecodeError {
    fn from(error: WireError) -> Self {
        OtlpDecodeError::Message(error)
    }
}

impl From<SeriesRejection> for OtlpDecodeError {
    fn from(offence: SeriesRejection) -> Self {
        OtlpDecodeError::Point(offence)
    }
}
