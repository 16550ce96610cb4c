//! Progress of the compaction of a store. Contains only data; the logic is in [`super`].

use super::merging::Merging;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicBool;
use std::time::Duration;

/// State of the compaction, behind its own lock so that it does not delay ticks.
#[derive(Default)]
pub(crate) struct Compaction {
    pub(super) under_way: Mutex<UnderWay>,
    pub(super) is_scheduled: AtomicBool,
}

/// The current merge, if there is one, and the pause after a failure.
#[derive(Default)]
pub(super) struct UnderWay {
    pub(super) merging: Option<Merging>,
    /// Time of the next attempt after a failure, on the monotonic clock.
    pub(super) not_before: Duration,
}
