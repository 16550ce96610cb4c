//! Errors of patterns, and the limits that a caller sets for them: memory and cancellation.
//!
//! Invariant: [`RegexMemory`] releases exactly the bytes that it has reserved.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The reason of a [`RegexError`], which determines what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegexErrorKind {
    /// The pattern is invalid. The message is that of Go.
    Syntax,
    /// The pattern needs more memory than its limit permits.
    Memory,
    /// The work was canceled by the caller or its client.
    Canceled,
    /// The time limit of the caller was exceeded.
    Timeout,
}

/// An error of a pattern. Parsing and compiling return it, and [`RegexLimits`] creates it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RegexError {
    /// The reason, by which the caller decides what to do.
    pub kind: RegexErrorKind,
    /// The text in lower case, without a full stop.
    pub message: String,
}

impl RegexError {
    /// Creates an error with the text `message` for the user.
    pub fn new(kind: RegexErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

/// Limits of the work for patterns, implemented by the caller. One instance may be shared by many
/// patterns and threads.
pub trait RegexLimits: fmt::Debug + Send + Sync {
    /// Counts `bytes` as used before they are allocated. Fails with [`RegexErrorKind::Memory`] if
    /// a limit would be exceeded; then nothing is counted.
    fn reserve(&self, bytes: usize) -> Result<(), RegexError>;

    /// Counts `bytes` as free, which were reserved before.
    fn release(&self, bytes: usize);

    /// Fails with [`RegexErrorKind::Canceled`] or [`RegexErrorKind::Timeout`] if the work must
    /// stop. Must be cheap, since it is called once per character in the worst case.
    fn check(&self) -> Result<(), RegexError>;
}

/// Limits that permit everything, for patterns of a trusted config.
#[derive(Clone, Copy, Debug)]
pub struct UnlimitedRegex;

impl RegexLimits for UnlimitedRegex {
    fn reserve(&self, _bytes: usize) -> Result<(), RegexError> {
        Ok(())
    }

    fn release(&self, _bytes: usize) {}

    fn check(&self) -> Result<(), RegexError> {
        Ok(())
    }
}

/// Memory reserved in the limits of a pattern. It is released when this value is dropped.
#[derive(Debug)]
pub(crate) struct RegexMemory {
    limits: Arc<dyn RegexLimits>,
    bytes: usize,
}

impl RegexMemory {
    /// Reserves `bytes`. Fails if a limit would be exceeded.
    pub(crate) fn reserve(limits: &Arc<dyn RegexLimits>, bytes: usize) -> Result<Self, RegexError> {
        limits.reserve(bytes)?;
        Ok(Self {
            limits: limits.clone(),
            bytes,
        })
    }

    /// Grows the reservation by `bytes`. If this fails, the reservation is unchanged.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), RegexError> {
        // Avoid access to the counters of the limits, which threads may share.
        if bytes == 0 {
            return Ok(());
        }
        self.limits.reserve(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Releases all except `bytes`. Does nothing if the reservation is smaller.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.limits.release(surplus);
        self.bytes -= surplus;
    }
}

impl Drop for RegexMemory {
    fn drop(&mut self) {
        self.limits.release(self.bytes);
    }
}

/// Acquires the lock, even if a thread panicked while it held the lock: the data that this crate
/// guards are valid after each statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
