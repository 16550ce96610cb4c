//! How far all groups are, told to those that wait for others ([`firn_rules::order`]).

use firn_model::sync::lock;
use firn_rules::group::Group;
use firn_rules::instant::Instant;
use firn_rules::order::{Order, Reached};
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

    /// The group of this key is so far.
    pub(super) fn reach(&self, key: &str, reached: Reached) {
        if lock(&self.order).reach(key, reached) {
            self.changed.send_replace(());
        }
    }

    /// Returns once all that the group of this key reads for `instant` is recorded.
    pub(super) async fn clear(&self, key: &str, instant: Instant) {
        let mut changes = self.changed.subscribe();
        while !lock(&self.order).is_clear(key, instant) {
            // The sender lives as long as this does.
            let _ = changes.changed().await;
        }
    }
}
