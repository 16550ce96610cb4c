//! Cancellation of work whose result is no longer needed.
//!
//! All parts of a request share one [`CancelToken`]. Operators check it once per batch; a check is
//! one relaxed load.

use crate::error::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The reason why work was canceled, which determines the error for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// The client closed the connection, or an operator canceled the query.
    Canceled,
    /// The time limit of the request was exceeded.
    Timeout,
}

/// A shared flag that is set at most once. Cloning is cheap, and clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicU8>);

impl CancelToken {
    /// Creates a flag that is not set and is not shared yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag. If it is set already, the first reason is kept.
    pub fn cancel(&self, reason: CancelReason) {
        let code = match reason {
            CancelReason::Canceled => 1,
            CancelReason::Timeout => 2,
        };
        // The exchange fails if the flag is set already, which is intended.
        let _ = self
            .0
            .compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the reason if the flag is set, with one relaxed load.
    #[inline]
    pub fn reason(&self) -> Option<CancelReason> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(CancelReason::Canceled),
            _ => Some(CancelReason::Timeout),
        }
    }

    /// Returns an error of kind [`ErrorKind::Canceled`] or [`ErrorKind::Timeout`] if the flag is
    /// set.
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        match self.reason() {
            None => Ok(()),
            Some(CancelReason::Canceled) => {
                Err(Error::new(ErrorKind::Canceled, "query was canceled"))
            }
            Some(CancelReason::Timeout) => Err(Error::new(ErrorKind::Timeout, "query timed out")),
        }
    }
}
