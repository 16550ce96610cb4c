//! Progress of all groups, for groups that wait for others (see [`firn_rules::order`]).

use firn_model::sync::lock;
use firn_rules::group::RuleGroup;
use firn_rules::instant::RuleInstant;
use firn_rules::machine::GroupMachine;
use firn_rules::order::GroupOrder;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Shared order of the groups, with a notification of changes. See the module.
#[derive(Default)]
pub(super) struct RuleGroupOrder {
    order: Mutex<GroupOrder>,
    changed: watch::Sender<()>,
}

impl RuleGroupOrder {
    /// Replaces the set of groups after a configuration change, and wakes all that wait.
    pub(super) fn take_over(&self, groups: &[Arc<RuleGroup>]) {
        lock(&self.order).set_groups(groups);
        self.changed.send_replace(());
    }

    /// Records the progress of the group `key` from its machine, and wakes the groups that wait.
    pub(super) fn record_progress(&self, key: &str, machine: &Mutex<GroupMachine>) {
        let reached = lock(machine).progress();
        if lock(&self.order).set_progress(key, reached) {
            self.changed.send_replace(());
        }
    }

    /// Returns whether the series that the group `key` reads are complete for `instant`, or the
    /// group no longer waits for them at `now`.
    pub(super) fn is_clear(&self, key: &str, instant: RuleInstant, now: RuleInstant) -> bool {
        lock(&self.order).are_sources_complete(key, instant, now)
    }

    /// Waits until [`RuleGroupOrder::are_sources_complete`] returns true for these arguments.
    pub(super) async fn clear(&self, key: &str, instant: RuleInstant, now: RuleInstant) {
        self.wait(|order| order.are_sources_complete(key, instant, now))
            .await;
    }

    /// Waits until the unstored instants of the groups that `key` reads are filled in up to
    /// `instant`.
    pub(super) async fn wait_until_filled(&self, key: &str, instant: RuleInstant) {
        self.wait(|order| order.are_sources_backfilled(key, instant))
            .await;
    }

    async fn wait(&self, is_so: impl Fn(&GroupOrder) -> bool) {
        let mut changes = self.changed.subscribe();
        while !is_so(&lock(&self.order)) {
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }
}
