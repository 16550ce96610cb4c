//! The newest list of targets of one discovery: its task writes it, its job reads it.

use super::group::Group;
use firn_model::sync::lock;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The list of a discovery, which its task replaces.
#[derive(Debug)]
pub(super) struct Published {
    groups: Mutex<Option<Arc<Vec<Group>>>>,
    changed: Arc<Notify>,
}

impl Published {
    /// No list yet; each new one notifies `changed`.
    pub(super) fn new(changed: Arc<Notify>) -> Self {
        Self {
            groups: Mutex::default(),
            changed,
        }
    }

    /// Publishes `groups` if they are news.
    pub(super) fn publish(&self, groups: Vec<Group>) {
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
