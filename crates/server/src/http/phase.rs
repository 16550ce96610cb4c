//! Where a connection stands, as its socket and its requests see it.
//!
//! ```text
//! Head --request complete--> Busy --answer sent--> Idle --first byte--> Head
//!                             ` the body was not read to its end ----> Last
//! ```

use super::request_head::Beside;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The head of a request is due or under way.
const HEAD: u8 = 0;
/// A request is being answered.
const BUSY: u8 = 1;
/// The next request may begin.
const IDLE: u8 = 2;
/// No request follows.
const LAST: u8 = 3;

/// The phase of a connection. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    /// What goes with the next request past the parser.
    beside: Mutex<Option<Beside>>,
}

impl Phase {
    /// What went past the parser of the request that it has just read.
    pub(crate) fn take_beside(&self) -> Option<Beside> {
        self.beside().take()
    }

    /// Keeps what goes with the next request past the parser.
    pub(super) fn put_beside(&self, beside: Beside) {
        *self.beside() = Some(beside);
    }

    fn beside(&self) -> MutexGuard<'_, Option<Beside>> {
        self.0.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the head of a request is due or under way.
    pub(super) fn is_head(&self) -> bool {
        self.0.phase.load(Ordering::Relaxed) == HEAD
    }

    /// Whether no request follows.
    pub(super) fn is_last(&self) -> bool {
        self.0.phase.load(Ordering::Relaxed) == LAST
    }

    /// A byte came. Returns whether it is the first of a request after a pause.
    pub(super) fn begin_head(&self) -> bool {
        self.change(IDLE, HEAD)
    }

    /// A request is complete and under way until the guard is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.0.phase.store(BUSY, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// No request may follow the one under way.
    pub(crate) fn end(&self) {
        self.0.phase.store(LAST, Ordering::Relaxed);
    }

    fn change(&self, from: u8, to: u8) -> bool {
        let phase = &self.0.phase;
        let changed = phase.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        changed.is_ok()
    }
}

/// Holds a connection busy.
#[derive(Debug)]
pub(crate) struct Busy(Phase);

impl Drop for Busy {
    fn drop(&mut self) {
        // A connection whose last request this was stays at its end.
        self.0.change(BUSY, IDLE);
    }
}
