//! Phase of a connection, shared by its socket and its requests.
//!
//! ```text
//! Head --request complete--> Busy --response sent--> Idle --first byte--> Head
//!                             ` request body not read completely -------> Last
//! ```

use super::request_head::RequestHeadAttachment;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Phase: the head of a request is expected or being received, with a deadline.
const HEAD: u8 = 0;
/// Phase: a request is being processed, or its response is being sent.
const BUSY: u8 = 1;
/// Phase: the connection is idle, and the next request may start.
const IDLE: u8 = 2;
/// Phase: no further request is accepted on this connection.
const LAST: u8 = 3;

/// The phase of a connection. Written by its socket and its requests. Cheap to clone; clones share
/// the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionPhase(Arc<ConnectionPhaseState>);

#[derive(Debug, Default)]
struct ConnectionPhaseState {
    phase: AtomicU8,
    /// Data that bypasses the parser and belongs to the next request.
    beside: Mutex<Option<RequestHeadAttachment>>,
}

impl ConnectionPhase {
    /// Returns and removes the data that bypassed the parser for the request that was just parsed.
    pub(crate) fn take_beside(&self) -> Option<RequestHeadAttachment> {
        self.beside().take()
    }

    /// Stores data that bypasses the parser, for the request whose head is being received.
    pub(super) fn put_beside(&self, beside: RequestHeadAttachment) {
        *self.beside() = Some(beside);
    }

    fn beside(&self) -> MutexGuard<'_, Option<RequestHeadAttachment>> {
        self.0.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the head of a request is expected or being received, so that its deadline
    /// applies.
    pub(super) fn is_head(&self) -> bool {
        self.0.phase.load(Ordering::Relaxed) == HEAD
    }

    /// Returns whether no further request is accepted.
    pub(super) fn is_last(&self) -> bool {
        self.0.phase.load(Ordering::Relaxed) == LAST
    }

    /// Records that a byte was received. Returns whether it starts a request after an idle period.
    pub(super) fn begin_head(&self) -> bool {
        self.change(IDLE, HEAD)
    }

    /// Marks the connection as busy until the returned guard is dropped.
    pub(crate) fn busy(&self) -> BusyConnectionGuard {
        self.0.phase.store(BUSY, Ordering::Relaxed);
        BusyConnectionGuard(self.clone())
    }

    /// Rejects further requests after the current one.
    pub(crate) fn end(&self) {
        self.0.phase.store(LAST, Ordering::Relaxed);
    }

    fn change(&self, from: u8, to: u8) -> bool {
        let phase = &self.0.phase;
        let changed = phase.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        changed.is_ok()
    }
}

/// Guard that keeps a connection busy until the response was sent.
#[derive(Debug)]
pub(crate) struct BusyConnectionGuard(ConnectionPhase);

impl Drop for BusyConnectionGuard {
    fn drop(&mut self) {
        // Has no effect if the connection is already in the phase `PreviousColumn`.
        self.0.change(BUSY, IDLE);
    }
}
