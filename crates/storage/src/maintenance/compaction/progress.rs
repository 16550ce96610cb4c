//! Where the compaction of a store stands. Data alone: what is done with it stands in [`super`].

use super::merging::Merging;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicBool;
use std::time::Duration;

/// The compaction of a store.
#[derive(Default)]
pub(crate) struct Compaction {
    pub(super) under_way: Mutex<UnderWay>,
    pub(super) is_scheduled: AtomicBool,
}

#[derive(Default)]
pub(super) struct UnderWay {
    pub(super) merging: Option<Merging>,
    /// On the monotonic clock.
    pub(super) not_before: Duration,
}
