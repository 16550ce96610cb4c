//! Counts the outcome of all samples in one place, whatever their origin.

use super::Pipeline;
use super::room::WriteAdmission;
use crate::discards::DiscardStatistics;
use crate::metrics::Metrics;
use crate::outcome::DroppedSamples;
use crate::refusals::{RejectionLog, SampleSender};
use crate::sending::KeptRequest;
use crate::usage::UsageStatistics;
use firn_model::env::Clock;
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimestampMs;
use firn_model::store::AppendOutcome;
use std::sync::Arc;
use std::time::Duration;

/// The metrics of a pipeline, the log lines about rejected samples, and their statistics. Shared by
/// all batches in flight.
pub(super) struct WriteLedger {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) refusals: RejectionLog,
    pub(super) discards: DiscardStatistics,
    pub(super) usage: UsageStatistics,
}

/// A batch that was passed to the store and is not durable yet. Closed exactly once, when its
/// ticket resolves.
pub(super) struct PendingBatchEntry {
    /// Sender, named in log lines about rejected samples; `None` if rejections are not logged.
    pub(super) sender: Option<SampleSender>,
    /// Memory reservation of a batch that this process created; a push holds its own.
    pub(super) room: Option<WriteAdmission>,
    /// Newest timestamp that the store may accept.
    pub(super) time_max: TimestampMs,
    /// Monotonic time at which the batch was passed to the store.
    pub(super) started: Duration,
    /// The request body from which the batch was decoded, if it is forwarded unchanged.
    pub(super) body: Option<KeptRequest>,
}

impl Pipeline {
    /// Logs rejected samples if a log line is due; the caller must call this about once a second.
    pub fn log_due_rejections(&self) {
        self.ledger
            .refusals
            .write_due_lines(self.ledger.clock.monotonic());
    }

    /// Logs rejected samples that are not logged yet; the caller must call this after all writes
    /// have ended.
    pub fn log_remaining_rejections(&self) {
        self.ledger.refusals.write_all_lines();
    }
}

impl WriteLedger {
    /// Counts the outcome of a batch and releases its memory reservation.
    pub(super) fn close_entry(
        &self,
        entry: PendingBatchEntry,
        outcome: &Result<AppendOutcome, Error>,
    ) {
        drop(entry.room);
        // An invalid batch did not reach the log.
        if !matches!(outcome, Err(e) if e.kind == ErrorKind::Invalid) {
            let took = self.clock.monotonic().saturating_sub(entry.started);
            self.metrics.write_duration.observe(took);
        }
        if let Ok(appended) = outcome {
            self.metrics.samples_stored.add(appended.stored as u64);
            if let Some(sender) = &entry.sender {
                let rejected: Vec<DroppedSamples> =
                    appended.rejected.iter().map(DroppedSamples::from).collect();
                self.count_dropped(sender, &rejected, entry.time_max);
            }
        }
    }

    /// Counts and logs dropped samples; `time_max` is the newest timestamp that was accepted.
    pub(super) fn count_dropped(
        &self,
        sender: &SampleSender,
        dropped: &[DroppedSamples],
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
        self.refusals.record_dropped(sender, dropped, time_max, now);
        let now_ms = self.clock.now_ms();
        self.discards.record_dropped(sender, dropped, now_ms);
    }
}
