//! What goes to one Alertmanager: asks its outbox what to do next, and does it.

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

/// The queue of an Alertmanager and its task's work.
pub(super) struct Sender {
    url: String,
    state: Mutex<State>,
    changed: Notify,
    latency: DurationHistogram,
}

struct State {
    outbox: Outbox,
    /// What the task has to do and has not begun.
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

    /// How long requests took that were answered well.
    pub fn latency(&self) -> &DurationHistogram {
        &self.latency
    }

    /// What became of notifications, and how many wait.
    pub fn counts(&self) -> (OutboxCounts, usize) {
        let state = lock(&self.state);
        (state.outbox.counts(), state.outbox.len())
    }

    /// Hands an event to the outbox, and what it says to the task.
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

    /// Sends until it is told to stop.
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
