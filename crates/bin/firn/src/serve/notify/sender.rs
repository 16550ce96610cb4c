//! Sender of notifications to one Alertmanager: executes the steps that its outbox returns.

use firn_http_client::HttpClient;
use firn_model::metrics::DurationHistogram;
use firn_model::sync::lock;
use firn_rules::notification::{
    AlertNotification, NotificationOutbox, OutboxAction, OutboxCounts, OutboxEvent, OutboxLimits,
    encode_notifications,
};
use firn_scrape::alertmanagers;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::{error, warn};

/// Outbox of one Alertmanager, and the next step of the task that sends from it. Shared by that
/// task, the rules and the metrics.
pub(super) struct AlertmanagerSender {
    url: String,
    state: Mutex<AlertmanagerSenderState>,
    changed: Notify,
    latency: DurationHistogram,
}

struct AlertmanagerSenderState {
    outbox: NotificationOutbox,
    /// Step returned by the outbox that the task has not begun yet.
    next: OutboxAction,
}

impl AlertmanagerSender {
    pub fn new(url: String, limits: OutboxLimits) -> Self {
        Self {
            url,
            state: Mutex::new(AlertmanagerSenderState {
                outbox: NotificationOutbox::new(limits),
                next: OutboxAction::Wait,
            }),
            changed: Notify::new(),
            latency: DurationHistogram::default(),
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the histogram of the durations of successful requests to this Alertmanager.
    pub fn latency(&self) -> &DurationHistogram {
        &self.latency
    }

    /// Returns the counters of notifications since the start of the sender, and the number that
    /// wait now.
    pub fn counts(&self) -> (OutboxCounts, usize) {
        let state = lock(&self.state);
        (state.outbox.counts(), state.outbox.len())
    }

    /// Passes an event to the outbox and wakes the task if the outbox returns a new step.
    pub fn handle_event(&self, event: OutboxEvent) {
        let adds = matches!(event, OutboxEvent::Add(_));
        let mut state = lock(&self.state);
        let before = state.outbox.counts().dropped;
        let next = state.outbox.step(event);
        let dropped = state.outbox.counts().dropped - before;
        if next != OutboxAction::Wait {
            state.next = next;
            self.changed.notify_one();
        }
        drop(state);
        if adds && dropped > 0 {
            let count = dropped;
            warn!(
                alertmanager = self.url,
                count, "notification queue full: dropping the oldest alerts"
            );
        }
    }

    /// Sends batches until the outbox returns [`OutboxAction::End`]. `limit` bounds the duration of
    /// each request.
    pub async fn run(&self, client: &HttpClient, limit: Duration) {
        loop {
            let next = std::mem::replace(&mut lock(&self.state).next, OutboxAction::Wait);
            match next {
                OutboxAction::Wait => self.changed.notified().await,
                OutboxAction::End => return,
                OutboxAction::Send(batch) => {
                    let begun = Instant::now();
                    let outcome = match timeout(limit, self.post(client, &batch)).await {
                        Ok(outcome) => outcome,
                        Err(_) => Err(format!("no response within {limit:?}")),
                    };
                    self.handle_event(match outcome {
                        Ok(()) => {
                            self.latency.observe(begun.elapsed());
                            OutboxEvent::Delivered
                        }
                        Err(e) => {
                            let count = batch.len();
                            error!(
                                alertmanager = self.url,
                                count,
                                error = e,
                                "failed to send alerts"
                            );
                            OutboxEvent::Failed
                        }
                    });
                }
            }
        }
    }

    async fn post(
        &self,
        client: &HttpClient,
        batch: &[Arc<AlertNotification>],
    ) -> Result<(), String> {
        let body = encode_notifications(batch).map_err(|e| format!("encode alerts: {e}"))?;
        let posted = alertmanagers::post_alerts(client, &self.url, body).await;
        posted.map_err(|e| e.message)
    }
}
