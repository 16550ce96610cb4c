//! Notifications for Alertmanagers, and the queue of each Alertmanager.
//!
//! ```text
//! Alert --of--> Notification --relabelled by the edge--> Outbox --batch--> body --> HTTP
//!                                                          ^ if full: drops the oldest, counted
//! ```
//!
//! An [`NotificationOutbox`] is a state machine: events in, batches to send out. It never blocks.
//! Follows upstream's `notifier/sendloop.go` and `notifier/alert.go`.

mod body;
mod outbox;

pub use body::encode_notifications;
pub use outbox::{NotificationOutbox, OutboxAction, OutboxCounts, OutboxEvent, OutboxLimits};

use crate::alert::{Alert, Annotations};
use crate::instant::RuleInstant;
use firn_gotemplate::url_query_escape;
use firn_model::labels::{Labels, LabelsBuilder};
use std::sync::Arc;

/// An alert in the form that Alertmanagers receive. Created from an alert that is due, and shared
/// by the queues of all Alertmanagers.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertNotification {
    /// Labels that identify the alert, after relabelling.
    pub labels: Labels,
    /// Annotations of the alert.
    pub annotations: Annotations,
    /// Time at which the alert started to fire; `None` if it never did.
    pub starts_at: Option<RuleInstant>,
    /// Time of the resolution, or the time until which the alert remains valid without an update.
    pub ends_at: Option<RuleInstant>,
    /// URL of a page that shows the expression of the rule.
    pub generator_url: Arc<str>,
}

impl AlertNotification {
    /// Creates the notification for the current state of `alert`. It ends at the resolution or, for
    /// an active alert, when it would become invalid.
    pub fn from_alert(alert: &Alert, generator_url: Arc<str>) -> Self {
        Self {
            labels: alert.labels.clone(),
            annotations: alert.annotations.clone(),
            starts_at: alert.fired_at,
            ends_at: alert.resolved_at.or(alert.valid_until),
            generator_url,
        }
    }

    /// Returns the notification with other labels. Returns the same object if the labels are equal.
    pub fn with_labels(self: Arc<Self>, labels: Labels) -> Arc<Self> {
        if labels == self.labels {
            self
        } else {
            Arc::new(Self {
                labels,
                ..(*self).clone()
            })
        }
    }
}

/// Returns the URL of the query page for `expression` on the server whose public URL is
/// `external_url`.
pub fn generator_url(external_url: &str, expression: &str) -> Arc<str> {
    let expression = url_query_escape(expression);
    format!("{external_url}/graph?g0.expr={expression}&g0.tab=1").into()
}

/// Adds those of the `external` labels that `labels` does not contain, and returns a builder for
/// relabelling.
pub fn add_external_labels(labels: &Labels, external: &Labels) -> LabelsBuilder {
    let mut all = LabelsBuilder::from_labels(labels.as_ref());
    for (name, value) in external.iter() {
        if all.get(name).is_empty() {
            all.set(name, value);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Labels::from_pairs(pairs.iter().copied())
    }

    #[test]
    fn notification_of_an_alert_says_since_when_and_until_when() {
        let at = |seconds| Some(RuleInstant::from_seconds(seconds));
        for (resolved, valid_until, ends) in [
            (None, None, None),
            (None, at(9), at(9)),
            (at(5), at(9), at(5)),
        ] {
            let alert = Alert {
                fired_at: at(3),
                resolved_at: resolved,
                valid_until,
                ..Alert::default()
            };
            let sent = AlertNotification::from_alert(&alert, "u".into());
            assert_eq!((sent.starts_at, sent.ends_at), (at(3), ends));
        }
    }

    #[test]
    fn generator_url_leads_to_the_table_of_the_expression() {
        assert_eq!(
            &*generator_url("http://x/p", "up{job=\"a b\"} == 0"),
            "http://x/p/graph?g0.expr=up%7Bjob%3D%22a+b%22%7D+%3D%3D+0&g0.tab=1"
        );
    }

    #[test]
    fn external_labels_give_way_to_own_ones() {
        let own = labels(&[("alertname", "A"), ("region", "own")]);
        let external = labels(&[("region", "eu"), ("replica", "1")]);
        assert_eq!(
            add_external_labels(&own, &external).build(),
            labels(&[("alertname", "A"), ("region", "own"), ("replica", "1")])
        );
    }
}
