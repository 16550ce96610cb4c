//! Sends alerts to Alertmanagers: discovers them, queues notifications, and posts them.
//!
//! ```text
//! rules --alerts--> external labels, relabeling --> each Set --its relabeling--> each Sender
//! discoveries --> Sets, one per entry of `alerting.alertmanagers` --> Senders, one per URL
//! ```
//!
//! Invariant: [`Notifier::send`] never waits. Each Alertmanager has its own outbox
//! ([`firn_rules::notification::NotificationOutbox`]), so that a hanging one does not delay the
//! others. A set with unchanged settings continues across a reload, including its queues.

mod metrics;
mod sender;
mod set;
#[cfg(test)]
mod tests;

use firn_config::Settings;
use firn_config::config::AlertingSettings;
use firn_discovery::DiscoveryContext;
use firn_http_client::ConnectionSlots;
use firn_ingest::relabel::{self, RelabelRule};
use firn_ingest::targets::DiscoveredAlertmanagers;
use firn_model::labels::Labels;
use firn_model::sync::lock;
use firn_rules::alert::Alert;
use firn_rules::notification::{
    AlertNotification, OutboxLimits, add_external_labels, generator_url,
};
use set::AlertmanagerSet;
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;

/// Settings of notifications from flags.
#[derive(Clone, Copy, Debug)]
pub struct NotifierFlags {
    /// `--alertmanager.notification-queue-capacity` and `--alertmanager.notification-batch-size`:
    /// limits of the outbox of each Alertmanager.
    pub outbox: OutboxLimits,
    /// `--alertmanager.drain-notification-queue-on-shutdown`: whether queued notifications are sent
    /// before a stop.
    pub drains: bool,
}

impl NotifierFlags {
    /// Returns the notification settings of a command line.
    pub fn from_command_line(settings: &Settings) -> Self {
        Self {
            outbox: OutboxLimits {
                capacity: settings.notifications_queued_max,
                batch_max: settings.notifications_batch_max,
            },
            drains: settings.drains_notifications,
        }
    }
}

/// Settings that do not change while the process runs.
pub struct NotifierSettings {
    /// Settings of notifications from flags.
    pub flags: NotifierFlags,
    /// URL under which users reach this server.
    pub external_url: String,
    /// Limit of open connections, shared with other clients.
    pub places: ConnectionSlots,
    /// Clock, disk and metrics for discoveries.
    pub lent: DiscoveryContext,
}

/// Settings from the active configuration.
#[derive(Default)]
struct NotifierConfig {
    external_labels: Labels,
    relabel: Arc<Vec<RelabelRule>>,
    sets: Vec<AlertmanagerSet>,
}

/// Sends alerts to all configured Alertmanagers.
pub struct Notifier {
    settings: Arc<NotifierSettings>,
    configured: Mutex<NotifierConfig>,
    /// Tasks of running senders, including those that are ending.
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Notifier {
    /// Creates a notifier without Alertmanagers.
    pub fn new(settings: NotifierSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            configured: Mutex::default(),
            tasks: Arc::default(),
        }
    }

    /// Applies a configuration. Must be called inside a tokio runtime.
    pub fn apply(&self, alerting: &AlertingSettings, external_labels: &Labels) {
        let mut configured = lock(&self.configured);
        configured.external_labels = external_labels.clone();
        configured.relabel = alerting.relabel.clone();
        let mut old = std::mem::take(&mut configured.sets);
        for (place, settings) in alerting.alertmanagers.iter().enumerate() {
            let known = old.iter().position(|set| set.settings() == settings);
            let set = match known {
                Some(at) => old.swap_remove(at),
                None => AlertmanagerSet::start(
                    place,
                    settings.clone(),
                    &self.settings,
                    self.tasks.clone(),
                ),
            };
            configured.sets.push(set);
        }
        old.into_iter().for_each(AlertmanagerSet::stop);
    }

    /// Queues the alerts of a rule with `expression` for every Alertmanager.
    pub fn send(&self, alerts: &[Alert], expression: &str) {
        let configured = lock(&self.configured);
        if configured.sets.is_empty() || alerts.is_empty() {
            return;
        }
        let url = generator_url(&self.settings.external_url, expression);
        let notifications: Vec<Arc<AlertNotification>> = alerts
            .iter()
            .map(|alert| Arc::new(AlertNotification::from_alert(alert, url.clone())))
            .collect();
        let external = &configured.external_labels;
        let notifications = relabel_notifications(&configured.relabel, external, &notifications);
        for set in &configured.sets {
            set.send(&notifications);
        }
    }

    /// Returns the discovered Alertmanagers, in the order of the configuration.
    pub fn alertmanagers(&self) -> DiscoveredAlertmanagers {
        let mut all = DiscoveredAlertmanagers::default();
        for set in &lock(&self.configured).sets {
            let found = set.found();
            all.active.extend(found.active);
            all.dropped.extend(found.dropped);
        }
        all
    }

    /// Stops all senders. Queued notifications are sent first if the flags require it.
    pub async fn stop(&self) {
        let sets = std::mem::take(&mut lock(&self.configured).sets);
        sets.into_iter().for_each(AlertmanagerSet::stop);
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        while tasks.join_next().await.is_some() {}
    }
}

/// Applies external labels and relabeling. Returns the notifications that remain, with their new
/// labels.
fn relabel_notifications(
    rules: &[RelabelRule],
    external_labels: &Labels,
    notifications: &[Arc<AlertNotification>],
) -> Vec<Arc<AlertNotification>> {
    let mut kept = Vec::with_capacity(notifications.len());
    for notification in notifications {
        let mut labels = add_external_labels(&notification.labels, external_labels);
        if relabel::apply_rules(rules, &mut labels) {
            kept.push(notification.clone().with_labels(labels.build()));
        }
    }
    kept
}
