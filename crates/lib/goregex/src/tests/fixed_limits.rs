//! Limits of tests: a fixed number of bytes, and a flag that a test sets.

use crate::{RegexError, RegexErrorKind, RegexLimits};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A memory limit with counters that a test reads, and a flag that stops the work.
#[derive(Debug)]
pub(crate) struct FixedRegexLimits {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    is_timed_out: AtomicBool,
}

impl FixedRegexLimits {
    /// Creates limits of which nothing is used.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            is_timed_out: AtomicBool::new(false),
        }
    }

    /// Makes all later checks fail.
    pub(crate) fn time_out(&self) {
        self.is_timed_out.store(true, Ordering::Relaxed);
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Ordering::Relaxed)
    }
}

impl RegexLimits for FixedRegexLimits {
    fn reserve(&self, bytes: usize) -> Result<(), RegexError> {
        let used = self.used_bytes() + bytes;
        if used > self.limit_bytes {
            let message = format!("{used} bytes needed, limit {}", self.limit_bytes);
            return Err(RegexError::new(RegexErrorKind::Memory, message));
        }
        self.used_bytes.store(used, Ordering::Relaxed);
        self.peak_bytes.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self, bytes: usize) {
        let before = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} of {before} bytes are released");
    }

    fn check(&self) -> Result<(), RegexError> {
        if self.is_timed_out.load(Ordering::Relaxed) {
            return Err(RegexError::new(RegexErrorKind::Timeout, "timed out"));
        }
        Ok(())
    }
}
