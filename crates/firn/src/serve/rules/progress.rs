//! How far all groups are, told to those that wait for others ([`firn_rules::order`]).

use firn_model::sync::lock;
use firn_rules::group::Group;
use firn_rules::instant::Instant;
use firn_rules::machine::Machine;
use firn_rules::order::Order;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// See the module.
#[derive(Default)]
pub(super) struct Progress {
    order: Mutex<Order>,
    changed: watch::Sender<()>,
}

impl Progress {
    /// Takes over the groups that there are.
    pub(super) fn take_over(&self, groups: &[Arc<Group>]) {
        lock(&self.order).take_over(groups);
        self.changed.send_replace(());
    }

    /// The group of this key is as far as its machine says.
    pub(super) fn reach(&self, key: &str, machine: &Mutex<Machine>) {
        let reached = lock(machine).reached();
        if lock(&self.order).reach(key, reached) {
            self.changed.send_replace(());
        }
    }

    /// Whether all that the group of this key reads for `instant` is recorded, as far as that is
    /// waited for at `now`.
    pub(super) fn is_clear(&self, key: &str, instant: Instant, now: Instant) -> bool {
        lock(&self.order).is_clear(key, instant, now)
    }

    /// Returns once that is so.
    pub(super) async fn clear(&self, key: &str, instant: Instant, now: Instant) {
        self.wait(|order| order.is_clear(key, instant, now)).await;
    }

    /// Returns once what it reads for `instant` is made up for, too, where the store could not
    /// take it.
    pub(super) async fn made_up(&self, key: &str, instant: Instant) {
        self.wait(|order| order.is_made_up(key, instant)).await;
    }

    async fn wait(&self, is_so: impl Fn(&Order) -> bool) {
        let mut changes = self.changed.subscribe();
        while !is_so(&lock(&self.order)) {
            // The sender lives as long as this does.
            let _ = changes.changed().await;
        }
    }
}
