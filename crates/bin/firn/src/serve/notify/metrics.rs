//! Metrics of notifications: `firn_notifications_*`, some of them per Alertmanager.

use super::Notifier;
use super::sender::AlertmanagerSender;
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_model::sync::lock;
use firn_rules::notification::OutboxCounts;
use std::sync::Arc;

/// A counter per Alertmanager: name, help text, and the function that reads it.
type Counted = (&'static str, &'static str, fn(&OutboxCounts) -> u64);

const COUNTERS: [Counted; 3] = [
    (
        "firn_notifications_sent_total",
        "Alerts delivered to an Alertmanager.",
        |counts| counts.sent,
    ),
    (
        "firn_notifications_errors_total",
        "Alerts in failed requests to an Alertmanager.",
        |counts| counts.errors,
    ),
    (
        "firn_notifications_dropped_total",
        "Alerts dropped without delivery: after failed requests, because of a full queue, or at \
         shutdown.",
        |counts| counts.dropped,
    ),
];

impl Collect for Notifier {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let mut senders: Vec<Arc<AlertmanagerSender>> = Vec::new();
        for set in &lock(&self.configured).sets {
            // If two sections contain the same Alertmanager, only the first one is reported.
            set.for_each_sender(|sender| {
                if !senders.iter().any(|known| known.url() == sender.url()) {
                    senders.push(sender.clone());
                }
            });
        }
        for (name, help, count) in COUNTERS {
            for sender in &senders {
                let value = MetricValue::Counter(count(&sender.counts().0) as f64);
                sink.metric(name, help, &[("alertmanager", sender.url())], value);
            }
        }
        for sender in &senders {
            sink.metric(
                "firn_notifications_queue_length",
                "Alerts queued for an Alertmanager.",
                &[("alertmanager", sender.url())],
                MetricValue::Gauge(sender.counts().1 as f64),
            );
        }
        for sender in &senders {
            sink.metric(
                "firn_notifications_latency_seconds",
                "Duration of successful requests to an Alertmanager.",
                &[("alertmanager", sender.url())],
                MetricValue::Histogram(sender.latency()),
            );
        }
        sink.metric(
            "firn_notifications_queue_capacity",
            "Capacity of the alert queue of each Alertmanager.",
            &[],
            MetricValue::Gauge(self.settings.flags.outbox.capacity as f64),
        );
        sink.metric(
            "firn_notifications_alertmanagers_discovered",
            "Alertmanagers that receive alerts.",
            &[],
            MetricValue::Gauge(self.alertmanagers().active.len() as f64),
        );
    }
}
