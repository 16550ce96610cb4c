//! The queue before one Alertmanager.
//!
//! ```text
//!          add              send              answer
//!   idle -------> has work -------> sending -----------> idle, or has work
//!     `-- stop --> drains what is queued, or drops it --> ended
//! ```
//!
//! Invariant: one batch is on its way at a time; every notification that was added is delivered or
//! counted as dropped, once. A batch that failed is not sent again: rules send what still holds.

use super::Notification;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bounds of an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxLimits {
    /// Notifications that may wait.
    pub capacity: usize,
    /// Notifications of one request.
    pub batch_max: usize,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// There are more to send.
    Add(Vec<Arc<Notification>>),
    /// The batch on its way arrived.
    Delivered,
    /// The batch on its way was lost.
    Failed,
    /// The Alertmanager is gone or the server ends; what is queued is sent before if `drains`.
    Stop {
        /// Whether to send it.
        drains: bool,
    },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Wait for an event.
    Wait,
    /// Send these; the next event about them is [`Event::Delivered`] or [`Event::Failed`].
    Send(Vec<Arc<Notification>>),
    /// Nothing more will be sent.
    End,
}

/// What became of notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxCounts {
    /// Delivered.
    pub sent: u64,
    /// Of requests that failed.
    pub errors: u64,
    /// Never delivered: they were too many, their request failed, or the end came.
    pub dropped: u64,
}

/// Notifications that wait for one Alertmanager.
#[derive(Debug)]
pub struct Outbox {
    limits: OutboxLimits,
    queue: VecDeque<Arc<Notification>>,
    /// How many are on their way.
    sending: usize,
    is_stopped: bool,
    counts: OutboxCounts,
}

impl Outbox {
    /// An empty one.
    pub fn new(limits: OutboxLimits) -> Self {
        Self {
            limits,
            queue: VecDeque::new(),
            sending: 0,
            is_stopped: false,
            counts: OutboxCounts::default(),
        }
    }

    /// Takes an event and says what to do now.
    pub fn step(&mut self, event: Event) -> Next {
        match event {
            Event::Add(notifications) => self.add(notifications),
            Event::Delivered => {
                self.counts.sent += std::mem::take(&mut self.sending) as u64;
            }
            Event::Failed => {
                let lost = std::mem::take(&mut self.sending) as u64;
                self.counts.errors += lost;
                self.counts.dropped += lost;
            }
            Event::Stop { drains } => {
                self.is_stopped = true;
                if !drains {
                    self.counts.dropped += self.queue.len() as u64;
                    self.queue.clear();
                }
            }
        }
        self.next()
    }

    fn add(&mut self, mut notifications: Vec<Arc<Notification>>) {
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

    fn next(&mut self) -> Next {
        if self.sending > 0 {
            return Next::Wait;
        }
        if self.queue.is_empty() {
            return match self.is_stopped {
                true => Next::End,
                false => Next::Wait,
            };
        }
        self.sending = self.queue.len().min(self.limits.batch_max.max(1));
        Next::Send(self.queue.drain(..self.sending).collect())
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// What became of those that were added.
    pub fn counts(&self) -> OutboxCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;
    use firn_model::labels::Labels;

    fn some(numbers: std::ops::Range<usize>) -> Vec<Arc<Notification>> {
        let one = |number: usize| {
            Arc::new(Notification {
                labels: Labels::from_pairs([("n", number.to_string())]),
                annotations: Vec::new(),
                starts_at: None,
                ends_at: None,
                generator_url: "".into(),
            })
        };
        numbers.map(one).collect()
    }

    fn outbox(capacity: usize, batch_max: usize) -> Outbox {
        Outbox::new(OutboxLimits {
            capacity,
            batch_max,
        })
    }

    #[test]
    fn outbox_sends_batches_in_order_and_one_at_a_time() {
        let mut outbox = outbox(10, 2);
        assert_eq!(outbox.step(Event::Add(some(0..3))), Next::Send(some(0..2)));
        assert_eq!(outbox.step(Event::Add(some(3..4))), Next::Wait);
        assert_eq!(outbox.step(Event::Delivered), Next::Send(some(2..4)));
        assert_eq!(outbox.step(Event::Failed), Next::Wait);
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
        outbox.step(Event::Add(some(0..1)));
        outbox.step(Event::Add(some(1..4)));
        outbox.step(Event::Add(some(4..5)));
        assert_eq!(outbox.step(Event::Delivered), Next::Send(some(2..3)));
        outbox.step(Event::Add(some(10..15)));
        assert_eq!(outbox.step(Event::Delivered), Next::Send(some(12..13)));
        assert_eq!(outbox.counts().dropped, 1 + 2 + 2);
    }

    #[test]
    fn outbox_that_stops_drains_or_drops() {
        for (drains, next, dropped) in [(true, Next::Send(some(1..2)), 0), (false, Next::End, 1)] {
            let mut outbox = outbox(3, 1);
            outbox.step(Event::Add(some(0..2)));
            assert_eq!(outbox.step(Event::Stop { drains }), Next::Wait);
            assert_eq!(outbox.step(Event::Delivered), next);
            assert_eq!(outbox.counts().dropped, dropped);
        }
        assert_eq!(outbox(3, 1).step(Event::Stop { drains: true }), Next::End);
    }

    #[test]
    fn outbox_accounts_for_every_notification() {
        for seed in 0..500 {
            println!("seed {seed}");
            let rng = SimRng::new(seed);
            let mut outbox = outbox(1 + rng.below(20) as usize, 1 + rng.below(5) as usize);
            let (mut added, mut on_way) = (0, 0);
            for step in 0..200 {
                let event = match rng.below(3) {
                    0 if on_way > 0 => Event::Delivered,
                    1 if on_way > 0 => Event::Failed,
                    _ => {
                        let count = rng.below(30) as usize;
                        added += count as u64;
                        Event::Add(some(step..step + count))
                    }
                };
                if matches!(event, Event::Delivered | Event::Failed) {
                    on_way = 0;
                }
                if let Next::Send(batch) = outbox.step(event) {
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
