//! The log as a trait: whoever makes bytes durable in order.
//!
//! The local segment log is one engine; an object-store log and Kafka follow. A block is opaque
//! here and self-contained: it replays from itself plus the series records of its segment or
//! catalogue.

use crate::error::Error;

/// A place in the log. Later blocks have greater positions; zero comes before every block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(pub u64);

impl Position {
    /// The position of the block after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The position of the block before this one.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// A block as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// Where it stands.
    pub position: Position,
    /// What was appended, or other bytes that say the same.
    pub payload: Vec<u8>,
}

type OnDone = Box<dyn FnOnce(Result<Position, Error>) + Send>;
type OnDelayed = Box<dyn FnOnce(Error) + Send>;

/// What is called for a block: once when it is durable (with its position) or can never be, and
/// before that at most once if nobody knows when it will be.
pub struct OnDurable {
    done: OnDone,
    delayed: Option<OnDelayed>,
}

impl OnDurable {
    /// Calls `done` when the block is durable or can never be.
    pub fn new(done: impl FnOnce(Result<Position, Error>) + Send + 'static) -> Self {
        Self {
            done: Box::new(done),
            delayed: None,
        }
    }

    /// Calls `delayed` before, if the log cannot write now and keeps the block until it can: the
    /// disk is full, or failed.
    pub fn or_delayed(self, delayed: impl FnOnce(Error) + Send + 'static) -> Self {
        Self {
            delayed: Some(Box::new(delayed)),
            ..self
        }
    }

    /// The block is durable, or can never be.
    pub fn done(self, outcome: Result<Position, Error>) {
        (self.done)(outcome);
    }

    /// What to call if the block is delayed; nothing the second time.
    pub fn take_delayed(&mut self) -> Option<impl FnOnce(Error) + Send + use<>> {
        self.delayed.take()
    }
}

impl std::fmt::Debug for OnDurable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnDurable")
    }
}

/// Makes blocks durable.
pub trait DurableLog: Send + Sync {
    /// Whether an append could succeed now. Asked before anything is changed for its sake, so that
    /// a poisoned log or a full disk refuses a write while it can still be refused whole.
    fn admit(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Appends a block. Returns at once, unless so much is queued that writers must wait; `done` is
    /// called when the block is durable, on any thread and perhaps before this returns, and must
    /// not append itself. While the log cannot write it keeps the block and says that it is
    /// delayed; if it can never write again every append fails with
    /// [`crate::error::ErrorKind::Unavailable`] until the process restarts.
    fn append(&self, payload: Vec<u8>, done: OnDurable);

    /// Calls `each` for every block from `from` on, in order. Damage is reported as an `Err` item
    /// with [`crate::error::ErrorKind::Corrupt`] that names the place, and reading goes on behind
    /// it.
    fn tail(
        &self,
        from: Position,
        each: &mut dyn FnMut(Result<LogBlock, Error>),
    ) -> Result<(), Error>;

    /// Forgets blocks before `to`; may keep some of them.
    fn trim(&self, to: Position) -> Result<(), Error>;
}
