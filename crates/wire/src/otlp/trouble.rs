//! What stops a point, or the whole request.

use crate::error::WireError;
use crate::remote_write::{Offence, Refusal};

/// Why something could not be read.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The message as a whole is malformed or over a limit.
    Message(WireError),
    /// This point, or what it belongs to, cannot stand; others can.
    Point(Offence),
}

impl Trouble {
    /// A point that cannot stand.
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
