//! The newest list of targets of one discovery: its task writes it, its job reads it.

use super::group::Group;
use firn_model::env::Clock;
use firn_model::metrics::{Counter, DurationHistogram, Gauge};
use firn_model::sync::lock;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The list of a discovery, which its task replaces, and what happened to it.
pub(super) struct Published {
    groups: Mutex<Option<Arc<Vec<Group>>>>,
    changed: Arc<Notify>,
    clock: Arc<dyn Clock>,
    /// Lists that were published.
    pub(super) updates: Counter,
    /// Requests to the source of the list that failed.
    pub(super) failures: Counter,
    /// Targets in the list.
    pub(super) targets: Gauge,
    /// When the list was published.
    pub(super) updated_ms: Gauge,
    /// How long it took to ask for the list, if it is asked for as a whole.
    pub(super) refreshes: DurationHistogram,
}

impl Published {
    /// No list yet; each new one notifies `changed`.
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

    /// Publishes `groups` if they are news.
    pub(super) fn publish(&self, groups: Vec<Group>) {
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

    /// The newest list; `None` while there was none.
    pub(super) fn groups(&self) -> Option<Arc<Vec<Group>>> {
        lock(&self.groups).clone()
    }
}
