//! Progress of the compaction of a store. Contains only data; the logic is in [`super`].

use super::expiry::ExpiryChecks;
use super::merging::MergeJob;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicBool;
use std::time::Duration;

/// State of the compaction, behind its own lock so that it does not delay ticks.
#[derive(Default)]
pub(crate) struct CompactionState {
    pub(in crate::maintenance) under_way: Mutex<CompactionProgress>,
    pub(in crate::maintenance) is_scheduled: AtomicBool,
}

/// The current merge, if there is one, and the pause after a failure.
#[derive(Default)]
pub(in crate::maintenance) struct CompactionProgress {
    pub(super) merging: Option<MergeJob>,
    /// Blocks that were checked for expired series.
    pub(super) expiry: ExpiryChecks,
    /// Time of the next attempt after a failure, on the monotonic clock.
    pub(super) not_before: Duration,
}
