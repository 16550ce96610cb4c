//! The latest target list of one discovery: its task publishes it and its job reads it.

use super::group::TargetGroup;
use firn_model::env::Clock;
use firn_model::metrics::{Counter, DurationHistogram, Gauge};
use firn_model::sync::lock;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Latest target list of a discovery, with its metrics. Shared by the discovery's task and its
/// readers.
pub(super) struct PublishedTargets {
    groups: Mutex<Option<Arc<Vec<TargetGroup>>>>,
    changed: Arc<Notify>,
    clock: Arc<dyn Clock>,
    /// Number of published lists, including unchanged ones.
    pub(super) updates: Counter,
    /// Number of failed requests to the source.
    pub(super) failures: Counter,
    /// Number of targets in the latest list.
    pub(super) targets: Gauge,
    /// Time of the latest publication, in milliseconds.
    pub(super) updated_ms: Gauge,
    /// Durations of refreshes; empty if the source is watched.
    pub(super) refreshes: DurationHistogram,
}

impl PublishedTargets {
    /// Creates the state before the first list. Each changed list notifies `changed`.
    pub(super) fn new(changed: Arc<Notify>, clock: Arc<dyn Clock>) -> Self {
        Self {
            groups: Mutex::default(),
            changed,
            clock,
            updates: Counter::default(),
            failures: Counter::default(),
            targets: Gauge::default(),
            updated_ms: Gauge::default(),
            refreshes: DurationHistogram::default(),
        }
    }

    /// Publishes `groups`. Readers are notified only if they differ from the previous list.
    pub(super) fn publish(&self, groups: Vec<TargetGroup>) {
        let count: usize = groups.iter().map(|group| group.targets.len()).sum();
        self.updates.inc();
        self.updated_ms.set(self.clock.now_ms());
        self.targets.set(count as i64);
        let mut known = lock(&self.groups);
        if known.as_ref().is_none_or(|known| **known != groups) {
            *known = Some(Arc::new(groups));
            self.changed.notify_one();
        }
    }

    /// Returns the latest list, or `None` before the first publication.
    pub(super) fn groups(&self) -> Option<Arc<Vec<TargetGroup>>> {
        lock(&self.groups).clone()
    }
}
