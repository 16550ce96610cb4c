//! The notification queue of one Alertmanager.
//!
//! ```text
//!          Add              send           Delivered, Failed
//!   idle -------> queued -------> sending -----------------> idle, or queued
//!     `-- Stop --> sends the rest of the queue, or drops it --> ended
//! ```
//!
//! Invariant: at most one batch is in flight, and every added notification is counted exactly once
//! as delivered or dropped. A failed batch is not sent again, because rules repeat alerts that
//! still fire.

use super::AlertNotification;
use std::collections::VecDeque;
use std::sync::Arc;

/// Limits of an outbox, the same for all Alertmanagers of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxLimits {
    /// Maximum number of queued notifications; beyond it, the oldest are dropped.
    pub capacity: usize,
    /// Maximum number of notifications in one request.
    pub batch_max: usize,
}

/// Input of an [`NotificationOutbox`]: new notifications, the outcome of the request in flight, or
/// the end.
#[derive(Clone, Debug, PartialEq)]
pub enum OutboxEvent {
    /// Adds notifications to the queue.
    Add(Vec<Arc<AlertNotification>>),
    /// The request in flight succeeded: its notifications are counted as delivered.
    Delivered,
    /// The request in flight failed: its notifications are counted as errors and dropped.
    Failed,
    /// The Alertmanager was removed or the server stops.
    Stop {
        /// True if queued notifications are sent before the end, false if they are dropped.
        drains: bool,
    },
}

/// Output of an [`NotificationOutbox`]: the next operation that the caller must perform.
#[derive(Clone, Debug, PartialEq)]
pub enum OutboxAction {
    /// Wait for the next event; there is nothing to send, or a batch is in flight.
    Wait,
    /// Send this batch and report [`OutboxEvent::Delivered`] or [`OutboxEvent::Failed`].
    Send(Vec<Arc<AlertNotification>>),
    /// Stop: nothing more will be sent.
    End,
}

/// Counters of notifications since the creation of an outbox. Each delivered or dropped
/// notification is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxCounts {
    /// Notifications that were delivered.
    pub sent: u64,
    /// Notifications in requests that failed; also contained in `dropped`.
    pub errors: u64,
    /// Notifications that were not delivered: the queue was full, their request failed, or the
    /// outbox was stopped.
    pub dropped: u64,
}

/// A bounded queue of notifications for one Alertmanager, with at most one batch in flight. If it
/// is full, the oldest notifications are dropped.
#[derive(Debug)]
pub struct NotificationOutbox {
    limits: OutboxLimits,
    queue: VecDeque<Arc<AlertNotification>>,
    /// Number of notifications in the request in flight.
    sending: usize,
    is_stopped: bool,
    counts: OutboxCounts,
}

impl NotificationOutbox {
    /// Creates an empty outbox.
    pub fn new(limits: OutboxLimits) -> Self {
        Self {
            limits,
            queue: VecDeque::new(),
            sending: 0,
            is_stopped: false,
            counts: OutboxCounts::default(),
        }
    }

    /// Applies an event and returns the next operation. Never blocks.
    pub fn step(&mut self, event: OutboxEvent) -> OutboxAction {
        match event {
            OutboxEvent::Add(notifications) => self.add(notifications),
            OutboxEvent::Delivered => {
                self.counts.sent += std::mem::take(&mut self.sending) as u64;
            }
            OutboxEvent::Failed => {
                let lost = std::mem::take(&mut self.sending) as u64;
                self.counts.errors += lost;
                self.counts.dropped += lost;
            }
            OutboxEvent::Stop { drains } => {
                self.is_stopped = true;
                if !drains {
                    self.counts.dropped += self.queue.len() as u64;
                    self.queue.clear();
                }
            }
        }
        self.next()
    }

    fn add(&mut self, mut notifications: Vec<Arc<AlertNotification>>) {
        if self.is_stopped {
            self.counts.dropped += notifications.len() as u64;
            return;
        }
        let capacity = self.limits.capacity;
        let beyond = notifications.len().saturating_sub(capacity);
        notifications.drain(..beyond);
        let oldest = (self.queue.len() + notifications.len()).saturating_sub(capacity);
        self.queue.drain(..oldest);
        self.counts.dropped += (beyond + oldest) as u64;
        self.queue.extend(notifications);
    }

    fn next(&mut self) -> OutboxAction {
        if self.sending > 0 {
            return OutboxAction::Wait;
        }
        if self.queue.is_empty() {
            return if self.is_stopped {
                OutboxAction::End
            } else {
                OutboxAction::Wait
            };
        }
        self.sending = self.queue.len().min(self.limits.batch_max.max(1));
        OutboxAction::Send(self.queue.drain(..self.sending).collect())
    }

    /// Returns the number of queued notifications, without those in flight.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no notifications are queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the counters of delivered, failed and dropped notifications, for metrics.
    pub fn counts(&self) -> OutboxCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;
    use firn_model::labels::Labels;

    fn some(numbers: std::ops::Range<usize>) -> Vec<Arc<AlertNotification>> {
        let one = |number: usize| {
            Arc::new(AlertNotification {
                labels: Labels::from_pairs([("n", number.to_string())]),
                annotations: Vec::new(),
                starts_at: None,
                ends_at: None,
                generator_url: "".into(),
            })
        };
        numbers.map(one).collect()
    }

    fn outbox(capacity: usize, batch_max: usize) -> NotificationOutbox {
        NotificationOutbox::new(OutboxLimits {
            capacity,
            batch_max,
        })
    }

    #[test]
    fn outbox_sends_batches_in_order_and_one_at_a_time() {
        let mut outbox = outbox(10, 2);
        assert_eq!(
            outbox.step(OutboxEvent::Add(some(0..3))),
            OutboxAction::Send(some(0..2))
        );
        assert_eq!(
            outbox.step(OutboxEvent::Add(some(3..4))),
            OutboxAction::Wait
        );
        assert_eq!(
            outbox.step(OutboxEvent::Delivered),
            OutboxAction::Send(some(2..4))
        );
        assert_eq!(outbox.step(OutboxEvent::Failed), OutboxAction::Wait);
        let counts = OutboxCounts {
            sent: 2,
            errors: 2,
            dropped: 2,
        };
        assert_eq!((outbox.counts(), outbox.len()), (counts, 0));
    }

    #[test]
    fn outbox_full_drops_the_oldest() {
        let mut outbox = outbox(3, 1);
        outbox.step(OutboxEvent::Add(some(0..1)));
        outbox.step(OutboxEvent::Add(some(1..4)));
        outbox.step(OutboxEvent::Add(some(4..5)));
        assert_eq!(
            outbox.step(OutboxEvent::Delivered),
            OutboxAction::Send(some(2..3))
        );
        outbox.step(OutboxEvent::Add(some(10..15)));
        assert_eq!(
            outbox.step(OutboxEvent::Delivered),
            OutboxAction::Send(some(12..13))
        );
        assert_eq!(outbox.counts().dropped, 1 + 2 + 2);
    }

    #[test]
    fn outbox_that_stops_drains_or_drops() {
        for (drains, next, dropped) in [
            (true, OutboxAction::Send(some(1..2)), 0),
            (false, OutboxAction::End, 1),
        ] {
            let mut outbox = outbox(3, 1);
            outbox.step(OutboxEvent::Add(some(0..2)));
            assert_eq!(
                outbox.step(OutboxEvent::Stop { drains }),
                OutboxAction::Wait
            );
            assert_eq!(outbox.step(OutboxEvent::Delivered), next);
            assert_eq!(outbox.counts().dropped, dropped);
        }
        assert_eq!(
            outbox(3, 1).step(OutboxEvent::Stop { drains: true }),
            OutboxAction::End
        );
    }

    #[test]
    fn outbox_accounts_for_every_notification() {
        for seed in 0..500 {
            println!("seed {seed}");
            let rng = SimRng::new(seed);
            let mut outbox = outbox(
                1 + rng.next_below(20) as usize,
                1 + rng.next_below(5) as usize,
            );
            let (mut added, mut on_way) = (0, 0);
            for step in 0..200 {
                let event = match rng.next_below(3) {
                    0 if on_way > 0 => OutboxEvent::Delivered,
                    1 if on_way > 0 => OutboxEvent::Failed,
                    _ => {
                        let count = rng.next_below(30) as usize;
                        added += count as u64;
                        OutboxEvent::Add(some(step..step + count))
                    }
                };
                if matches!(event, OutboxEvent::Delivered | OutboxEvent::Failed) {
                    on_way = 0;
                }
                if let OutboxAction::Send(batch) = outbox.step(event) {
                    assert_eq!(on_way, 0);
                    on_way = batch.len();
                }
                let counts = outbox.counts();
                let known = counts.sent + counts.dropped + (outbox.len() + on_way) as u64;
                assert_eq!(known, added);
            }
        }
    }
}
