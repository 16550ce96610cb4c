//! What became of samples, counted once, whichever way they came in.

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

/// The counts of a pipeline, and the log lines about refused samples.
pub(super) struct Ledger {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) refusals: Refusals,
    pub(super) discards: Discards,
}

/// A batch on its way through the store.
pub(super) struct BatchEntry {
    /// Named in the log where the store refused samples; none where refusals are no loss.
    pub(super) sender: Option<Sender>,
    /// What a batch takes that this process made; a push keeps its own.
    pub(super) room: Option<Admission>,
    /// The newest time that the store may accept.
    pub(super) time_max: TimestampMs,
    /// When the store got the batch, by the monotonic clock.
    pub(super) started: Duration,
    /// The body that the batch was read from, if that is to be sent on as it is.
    pub(super) body: Option<KeptRequest>,
}

impl Ledger {
    /// Counts what became of a batch, and gives its room back.
    pub(super) fn close(&self, entry: BatchEntry, outcome: &Result<Appended, Error>) {
        drop(entry.room);
        // A batch that cannot stand did not reach the log.
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

    /// Counts dropped samples, and logs them; `time_max` is the newest time that
    /// was accepted.
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
