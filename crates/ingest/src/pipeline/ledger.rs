//! Counts the outcome of all samples in one place, whatever their origin.

use super::room::Admission;
use crate::discards::Discards;
use crate::metrics::Metrics;
use crate::outcome::Dropped;
use crate::refusals::{Refusals, Sender};
use crate::sending::KeptRequest;
use firn_model::env::Clock;
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimestampMs;
use firn_model::store::Appended;
use std::sync::Arc;
use std::time::Duration;

/// The metrics of a pipeline, the log lines about rejected samples, and their statistics. Shared by
/// all batches in flight.
pub(super) struct Ledger {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) refusals: Refusals,
    pub(super) discards: Discards,
}

/// A batch that was passed to the store and is not durable yet. Closed exactly once, when its
/// ticket resolves.
pub(super) struct BatchEntry {
    /// Sender, named in log lines about rejected samples; `None` if rejections are not logged.
    pub(super) sender: Option<Sender>,
    /// Memory reservation of a batch that this process created; a push holds its own.
    pub(super) room: Option<Admission>,
    /// Newest timestamp that the store may accept.
    pub(super) time_max: TimestampMs,
    /// Monotonic time at which the batch was passed to the store.
    pub(super) started: Duration,
    /// The request body from which the batch was decoded, if it is forwarded unchanged.
    pub(super) body: Option<KeptRequest>,
}

impl Ledger {
    /// Counts the outcome of a batch and releases its memory reservation.
    pub(super) fn close(&self, entry: BatchEntry, outcome: &Result<Appended, Error>) {
        drop(entry.room);
        // An invalid batch did not reach the log.
        if !matches!(outcome, Err(e) if e.kind == ErrorKind::Invalid) {
            let took = self.clock.monotonic().saturating_sub(entry.started);
            self.metrics.write_duration.observe(took);
        }
        if let Ok(appended) = outcome {
            self.metrics.samples_stored.add(appended.stored as u64);
            if let Some(sender) = &entry.sender {
                let rejected: Vec<Dropped> = appended.rejected.iter().map(Dropped::from).collect();
                self.count_dropped(sender, &rejected, entry.time_max);
            }
        }
    }

    /// Counts and logs dropped samples; `time_max` is the newest timestamp that was accepted.
    pub(super) fn count_dropped(
        &self,
        sender: &Sender,
        dropped: &[Dropped],
        time_max: TimestampMs,
    ) {
        if dropped.is_empty() {
            return;
        }
        for dropped in dropped {
            let count = dropped.sample_count as u64;
            self.metrics.count_dropped(dropped.reason, count);
        }
        let now = self.clock.monotonic();
        self.refusals.note(sender, dropped, time_max, now);
        let now_ms = self.clock.now_ms();
        self.discards.note(sender, dropped, now_ms);
    }
}
