//! Sends alerts to Alertmanagers: finds them, queues what they are to hear, posts it.
//!
//! ```text
//! rules --alerts--> external labels, relabelling --> each set --its relabelling--> each Sender
//! discoveries --> sets, one for each of `alerting.alertmanagers` --> Senders, one for each URL
//! ```
//!
//! Invariant: [`Notifier::send`] never waits; what becomes of a notification is up to the outbox
//! ([`firn_rules::notification::Outbox`]) of each Alertmanager, so that one that hangs holds up no
//! other. A set whose settings did not change goes on over a reload, its queues included.

mod metrics;
mod sender;
mod set;
#[cfg(test)]
mod tests;

use crate::settings::Settings;
use crate::settings::config::AlertingSettings;
use firn_discovery::Lent;
use firn_http_client::Places;
use firn_ingest::alertmanagers::Alertmanagers;
use firn_ingest::relabel::{self, Rule};
use firn_model::labels::Labels;
use firn_model::sync::lock;
use firn_rules::alert::Alert;
use firn_rules::notification::{Notification, OutboxLimits, generator_url, with_external};
use set::Set;
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;

/// What flags say of notifications.
#[derive(Clone, Copy, Debug)]
pub struct NotifierFlags {
    /// `--alertmanager.notification-queue-capacity` and `--alertmanager.notification-batch-size`
    pub outbox: OutboxLimits,
    /// `--alertmanager.drain-notification-queue-on-shutdown`
    pub drains: bool,
}

impl NotifierFlags {
    /// Those of a command line.
    pub fn of(settings: &Settings) -> Self {
        Self {
            outbox: OutboxLimits {
                capacity: settings.notifications_queued_max,
                batch_max: settings.notifications_batch_max,
            },
            drains: settings.drains_notifications,
        }
    }
}

/// What does not change while the process runs.
pub struct NotifierSettings {
    /// What flags say.
    pub flags: NotifierFlags,
    /// Where users reach this server.
    pub external_url: String,
    /// Places of connections.
    pub places: Places,
    /// What discoveries are lent.
    pub lent: Lent,
}

/// What the configuration says.
#[derive(Default)]
struct Configured {
    external_labels: Labels,
    relabel: Arc<Vec<Rule>>,
    sets: Vec<Set>,
}

/// Sends alerts to all Alertmanagers.
pub struct Notifier {
    settings: Arc<NotifierSettings>,
    configured: Mutex<Configured>,
    /// Senders at work, those that are leaving included.
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Notifier {
    /// A notifier that knows no Alertmanager yet.
    pub fn new(settings: NotifierSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            configured: Mutex::default(),
            tasks: Arc::default(),
        }
    }

    /// Takes over a configuration. Must be called inside a tokio runtime.
    pub fn apply(&self, alerting: &AlertingSettings, external_labels: &Labels) {
        let mut configured = lock(&self.configured);
        configured.external_labels = external_labels.clone();
        configured.relabel = alerting.relabel.clone();
        let mut old = std::mem::take(&mut configured.sets);
        for (place, settings) in alerting.alertmanagers.iter().enumerate() {
            let known = old.iter().position(|set| set.settings() == settings);
            let set = match known {
                Some(at) => old.swap_remove(at),
                None => Set::start(place, settings.clone(), &self.settings, self.tasks.clone()),
            };
            configured.sets.push(set);
        }
        old.into_iter().for_each(Set::stop);
    }

    /// Queues the alerts of a rule with `expression` for every Alertmanager.
    pub fn send(&self, alerts: &[Alert], expression: &str) {
        let configured = lock(&self.configured);
        if configured.sets.is_empty() || alerts.is_empty() {
            return;
        }
        let url = generator_url(&self.settings.external_url, expression);
        let notifications: Vec<Arc<Notification>> = alerts
            .iter()
            .map(|alert| Arc::new(Notification::of(alert, url.clone())))
            .collect();
        let external = &configured.external_labels;
        let notifications = relabelled(&configured.relabel, external, &notifications);
        for set in &configured.sets {
            set.send(&notifications);
        }
    }

    /// The Alertmanagers found, in the order of the configuration.
    pub fn alertmanagers(&self) -> Alertmanagers {
        let mut all = Alertmanagers::default();
        for set in &lock(&self.configured).sets {
            let found = set.found();
            all.active.extend(found.active);
            all.dropped.extend(found.dropped);
        }
        all
    }

    /// Ends; what is queued is sent before, if the settings say so.
    pub async fn stop(&self) {
        let sets = std::mem::take(&mut lock(&self.configured).sets);
        sets.into_iter().for_each(Set::stop);
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        while tasks.join_next().await.is_some() {}
    }
}

/// The notifications that `rules` keep, with the labels that they leave.
fn relabelled(
    rules: &[Rule],
    external_labels: &Labels,
    notifications: &[Arc<Notification>],
) -> Vec<Arc<Notification>> {
    let mut kept = Vec::with_capacity(notifications.len());
    for notification in notifications {
        let mut labels = with_external(&notification.labels, external_labels);
        if relabel::apply(rules, &mut labels) {
            kept.push(notification.clone().relabelled(labels.build()));
        }
    }
    kept
}
