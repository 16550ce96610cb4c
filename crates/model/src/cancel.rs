//! Telling work that it is no longer wanted.
//!
//! One [`Cancel`] is shared by everything that works on a request. Operators check it once a batch;
//! a check is one relaxed load.

use crate::error::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Why work was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The client went away or someone ended the query.
    Canceled,
    /// The time allowed ran out.
    Timeout,
}

/// A shared flag that is set at most once. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicU8>);

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag; the first reason stays.
    pub fn cancel(&self, reason: Reason) {
        let code = match reason {
            Reason::Canceled => 1,
            Reason::Timeout => 2,
        };
        // The first reason stays: the failed exchange of a second one is the wanted outcome.
        let _ = self
            .0
            .compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Why the flag is set, if it is.
    #[inline]
    pub fn reason(&self) -> Option<Reason> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Reason::Canceled),
            _ => Some(Reason::Timeout),
        }
    }

    /// Fails with [`ErrorKind::Canceled`] or [`ErrorKind::Timeout`] once the flag is set.
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        match self.reason() {
            None => Ok(()),
            Some(Reason::Canceled) => Err(Error::new(ErrorKind::Canceled, "query was canceled")),
            Some(Reason::Timeout) => Err(Error::new(ErrorKind::Timeout, "query timed out")),
        }
    }
}
