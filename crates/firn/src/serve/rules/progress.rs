//! Progress of all groups, for groups that wait for others (see [`firn_rules::order`]).

use firn_model::sync::lock;
use firn_rules::group::Group;
use firn_rules::instant::Instant;
use firn_rules::machine::Machine;
use firn_rules::order::Order;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Shared order of the groups, with a notification of changes. See the module.
#[derive(Default)]
pub(super) struct Progress {
    order: Mutex<Order>,
    changed: watch::Sender<()>,
}

impl Progress {
    /// Replaces the set of groups after a configuration change, and wakes all that wait.
    pub(super) fn take_over(&self, groups: &[Arc<Group>]) {
        lock(&self.order).take_over(groups);
        self.changed.send_replace(());
    }

    /// Records the progress of the group `key` from its machine, and wakes the groups that wait.
    pub(super) fn reach(&self, key: &str, machine: &Mutex<Machine>) {
        let reached = lock(machine).reached();
        if lock(&self.order).reach(key, reached) {
            self.changed.send_replace(());
        }
    }

    /// Returns whether the series that the group `key` reads are complete for `instant`, or the
    /// group no longer waits for them at `now`.
    pub(super) fn is_clear(&self, key: &str, instant: Instant, now: Instant) -> bool {
        lock(&self.order).is_clear(key, instant, now)
    }

    /// Waits until [`Progress::is_clear`] returns true for these arguments.
    pub(super) async fn clear(&self, key: &str, instant: Instant, now: Instant) {
        self.wait(|order| order.is_clear(key, instant, now)).await;
    }

    /// Waits until the unstored instants of the groups that `key` reads are filled in up to
    /// `instant`.
    pub(super) async fn made_up(&self, key: &str, instant: Instant) {
        self.wait(|order| order.is_made_up(key, instant)).await;
    }

    async fn wait(&self, is_so: impl Fn(&Order) -> bool) {
        let mut changes = self.changed.subscribe();
        while !is_so(&lock(&self.order)) {
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }
}
