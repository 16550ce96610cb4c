//! Errors while decoding a request: of a single point, or of the whole message.

use crate::error::WireError;
use crate::remote_write::{Offence, Refusal};

/// The reason why a part of the request cannot be decoded, and the extent of the failure: a point,
/// or the whole request.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The message as a whole is malformed or exceeds a limit.
    Message(WireError),
    /// This point, or the metric, scope or resource around it, is rejected; the others are not
    /// affected.
    Point(Offence),
}

impl Trouble {
    /// Returns the error for a rejected point.
    pub(super) fn point(refusal: Refusal, message: impl Into<String>) -> Self {
        Trouble::Point(Offence {
            refusal,
            message: message.into(),
        })
    }
}

impl From<WireError> for Trouble {
    fn from(error: WireError) -> Self {
        Trouble::Message(error)
    }
}

impl From<Offence> for Trouble {
    fn from(offence: Offence) -> Self {
        Trouble::Point(offence)
    }
}
