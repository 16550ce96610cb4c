//! Sender of notifications to one Alertmanager: executes the steps that its outbox returns.

use firn_http_client::HttpClient;
use firn_ingest::alertmanagers;
use firn_model::metrics::DurationHistogram;
use firn_model::sync::lock;
use firn_rules::notification::{
    Event, Next, Notification, Outbox, OutboxCounts, OutboxLimits, body,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::{error, warn};

/// Outbox of one Alertmanager, and the next step of the task that sends from it. Shared by that
/// task, the rules and the metrics.
pub(super) struct Sender {
    url: String,
    state: Mutex<State>,
    changed: Notify,
    latency: DurationHistogram,
}

struct State {
    outbox: Outbox,
    /// Step returned by the outbox that the task has not begun yet.
    next: Next,
}

impl Sender {
    pub fn new(url: String, limits: OutboxLimits) -> Self {
        Self {
            url,
            state: Mutex::new(State {
                outbox: Outbox::new(limits),
                next: Next::Wait,
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
    pub fn tell(&self, event: Event) {
        let adds = matches!(event, Event::Add(_));
        let mut state = lock(&self.state);
        let before = state.outbox.counts().dropped;
        let next = state.outbox.step(event);
        let dropped = state.outbox.counts().dropped - before;
        if next != Next::Wait {
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

    /// Sends batches until the outbox returns [`Next::End`]. `limit` bounds the duration of each
    /// request.
    pub async fn run(&self, client: &HttpClient, limit: Duration) {
        loop {
            let next = std::mem::replace(&mut lock(&self.state).next, Next::Wait);
            match next {
                Next::Wait => self.changed.notified().await,
                Next::End => return,
                Next::Send(batch) => {
                    let begun = Instant::now();
                    let outcome = match timeout(limit, self.post(client, &batch)).await {
                        Ok(outcome) => outcome,
                        Err(_) => Err(format!("no response within {limit:?}")),
                    };
                    self.tell(match outcome {
                        Ok(()) => {
                            self.latency.observe(begun.elapsed());
                            Event::Delivered
                        }
                        Err(e) => {
                            let count = batch.len();
                            error!(
                                alertmanager = self.url,
                                count,
                                error = e,
                                "failed to send alerts"
                            );
                            Event::Failed
                        }
                    });
                }
            }
        }
    }

    async fn post(&self, client: &HttpClient, batch: &[Arc<Notification>]) -> Result<(), String> {
        let body = body(batch).map_err(|e| format!("encode alerts: {e}"))?;
        let posted = alertmanagers::post(client, &self.url, body).await;
        posted.map_err(|e| e.message)
    }
}
