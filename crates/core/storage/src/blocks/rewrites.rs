//! A counter of the changes of stored samples that are not appends: deletes, imports and retention.
//! Merges, cuts and flushes move samples and do not count.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Counts the beginnings and ends of changes. If a reader gets the same number before and after it
/// reads, and at a later time, nothing has changed in between.
#[derive(Debug, Default)]
pub(crate) struct SampleRewrites(AtomicU64);

/// A change in progress, which ends when it is dropped: also if it fails, because it may have taken
/// effect in part.
pub(crate) struct SampleRewriteGuard<'a>(&'a SampleRewrites);

impl SampleRewrites {
    /// Begins a change. Must be called before any part of it is visible.
    pub(crate) fn begin(&self) -> SampleRewriteGuard<'_> {
        self.0.fetch_add(1, Ordering::AcqRel);
        SampleRewriteGuard(self)
    }

    /// Returns the number of beginnings and ends so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for SampleRewriteGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::AcqRel);
    }
}
