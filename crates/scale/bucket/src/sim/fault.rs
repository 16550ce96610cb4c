//! The faults of a simulated store, and which operations can have them.

use crate::error::{BucketError, BucketFailure};
use std::time::Duration;

/// Simulated time after which an operation without an answer ends.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// An operation, as far as faults differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimOp {
    PutNew,
    Get,
    Head,
    List,
    Delete,
}

/// A fault of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SimFault {
    /// The operation takes effect, but its answer is lost: a timeout.
    AppliedTimeout,
    /// The operation takes effect only after its timeout.
    AppliedLate,
    /// The operation has no effect, and its answer is a timeout.
    Lost,
    /// The creation takes effect, and its answer is that the object exists, as if a proxy had
    /// repeated it.
    AppliedExists,
    /// The creation has no effect, and its answer is a conflict (409).
    Conflict,
    /// The operation has no effect, and its answer is an error of the server (5xx).
    ErrorBefore,
    /// The operation takes effect, and its answer is an error of the server (5xx).
    ErrorAfter,
    /// The operation has no effect, and its answer is that requests are too frequent (503).
    SlowDown,
    /// The creation replaces an existing object, as if a proxy had removed the condition.
    ConditionStripped,
    /// The body of an object arrives only partly.
    CutBody,
    /// The list is that of an earlier time.
    StaleList,
    /// The store does not accept connections. Drawn only during [`SimOutage::Refusing`].
    Unreachable,
    /// The store does not answer. Drawn only during [`SimOutage::Silent`].
    Silent,
}

impl SimFault {
    /// All faults that a correct caller must cope with. [`SimFault::ConditionStripped`] and
    /// [`SimFault::StaleList`] are faults of stores that the check refuses.
    pub const TOLERATED: [SimFault; 9] = [
        SimFault::AppliedTimeout,
        SimFault::AppliedLate,
        SimFault::Lost,
        SimFault::AppliedExists,
        SimFault::Conflict,
        SimFault::ErrorBefore,
        SimFault::ErrorAfter,
        SimFault::SlowDown,
        SimFault::CutBody,
    ];

    /// Returns whether an operation can have the fault.
    pub(super) fn applies_to(self, op: SimOp) -> bool {
        match self {
            SimFault::Lost
            | SimFault::ErrorBefore
            | SimFault::SlowDown
            | SimFault::Unreachable
            | SimFault::Silent => true,
            SimFault::AppliedTimeout | SimFault::AppliedLate | SimFault::ErrorAfter => {
                matches!(op, SimOp::PutNew | SimOp::Delete)
            }
            SimFault::AppliedExists | SimFault::Conflict | SimFault::ConditionStripped => {
                op == SimOp::PutNew
            }
            SimFault::CutBody => op == SimOp::Get,
            SimFault::StaleList => op == SimOp::List,
        }
    }

    /// Returns whether the operation neither changes nor reads the store, and is answered in time.
    pub(super) fn is_without_effect(self) -> bool {
        matches!(
            self,
            SimFault::Conflict
                | SimFault::ErrorBefore
                | SimFault::SlowDown
                | SimFault::CutBody
                | SimFault::Unreachable
        )
    }

    /// Returns the error with which the operation ends, if it ends with one.
    pub(super) fn error(self, op: SimOp) -> Option<BucketError> {
        let (failure, text) = match self {
            SimFault::AppliedTimeout
            | SimFault::AppliedLate
            | SimFault::Lost
            | SimFault::Silent => (BucketFailure::Timeout, "no complete response within 10s"),
            SimFault::Conflict => (BucketFailure::Conflict, "status 409"),
            SimFault::ErrorBefore | SimFault::ErrorAfter => (BucketFailure::Server, "status 500"),
            SimFault::SlowDown => (BucketFailure::Throttled, "status 503 SlowDown"),
            SimFault::CutBody => (BucketFailure::Damaged, "the response was cut off"),
            SimFault::Unreachable => (BucketFailure::Connection, "no connection"),
            SimFault::AppliedExists | SimFault::ConditionStripped | SimFault::StaleList => {
                return None;
            }
        };
        Some(BucketError::new(
            failure,
            format!("simulated {op:?}: {text}"),
        ))
    }
}

/// The faults of a client, drawn for each operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimFaults {
    /// One in so many operations has a fault. Zero for none.
    pub one_in: u64,
    /// The faults to draw from. Drawing one that the operation cannot have gives none.
    pub faults: Vec<SimFault>,
}

impl SimFaults {
    /// Returns no faults.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns all tolerated faults, in one of `one_in` operations.
    pub fn tolerated(one_in: u64) -> Self {
        Self {
            one_in,
            faults: SimFault::TOLERATED.to_vec(),
        }
    }

    /// Returns one fault in each operation that can have it.
    pub fn always(fault: SimFault) -> Self {
        Self {
            one_in: 1,
            faults: vec![fault],
        }
    }
}

/// An outage of the whole store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimOutage {
    /// No connection is accepted: creations are refused.
    Refusing,
    /// Requests get no answer and have no effect: creations are ambiguous.
    Silent,
}
