//! Passes batches through aggregation, and its results to the store.
//!
//! Results reserve memory and are counted like other batches, but are not aggregated again.

use super::ledger::PendingBatchEntry;
use super::room::WriteAdmission;
use super::{Pipeline, SampleSender};
use firn_aggregation::{
    AggregationInputs, AggregationReceipt, AggregationSpec, FingerprintedSource,
};
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::Error;
use firn_model::metrics::Collect;
use firn_model::store::{Append, AppendBounds, Ticket};
use firn_model::tenant::TenantId;
use std::sync::Arc;

/// Calls [`Append::write_held_record`] when it is dropped, so that the log writes the held journal
/// of a batch after the batch was appended, or given up.
struct HeldJournalGuard<'a>(&'a dyn Append);

impl Drop for HeldJournalGuard<'_> {
    fn drop(&mut self) {
        self.0.write_held_record();
    }
}

impl Pipeline {
    /// Applies the aggregation rules in `spec`; `start` contains the initial state if there is none
    /// yet. Blocks until the new state is durable.
    pub fn configure_aggregation(
        &self,
        spec: &AggregationSpec,
        start: AggregationInputs<'_>,
    ) -> Result<(), Error> {
        let hand = &mut |results: &Batch| self.store_results(results);
        self.aggregation.configure(spec, start, &*self.store, hand)
    }

    /// Writes the whole aggregation state to the log, so that a log that is closed afterwards is
    /// short. Blocks until it is durable. The caller must call this after all writes have ended.
    pub fn finish_aggregation(&self) -> Result<(), Error> {
        let hand = &mut |results: &Batch| self.store_results(results);
        self.aggregation.write_snapshot(&*self.store, hand)
    }

    /// Returns the metrics of aggregation, for the exposition of this process.
    pub fn aggregation_metrics(&self) -> Arc<dyn Collect> {
        self.aggregation.clone()
    }

    /// Returns the memory of the aggregation state in bytes.
    pub fn aggregation_bytes(&self) -> usize {
        self.aggregation.memory_bytes()
    }

    /// Aggregates the samples of `source`, and passes those that are not dropped to the store.
    pub(super) fn aggregate_samples(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        mut entry: PendingBatchEntry,
        bounds: AppendBounds,
    ) -> Ticket {
        let _held = HeldJournalGuard(&*self.store);
        let mut source = FingerprintedSource::new(source, self.store.series_hash());
        let hand = &mut |results: &Batch| self.store_results(results);
        let passed =
            self.aggregation
                .aggregate_batch(&mut source, entry.time_max, &*self.store, hand);
        let AggregationReceipt {
            dropped,
            dropped_samples,
            ticket,
        } = match passed {
            Ok(passed) => passed,
            Err(e) => {
                let outcome = Err(e);
                self.ledger.close_entry(entry, &outcome);
                return Ticket::resolved(outcome);
            }
        };
        let settle = |stored: Ticket| match ticket {
            Some(ticket) => stored.join_with(ticket, dropped_samples),
            None => stored,
        };
        if !dropped.is_empty() {
            // The body contains the dropped samples.
            entry.body = None;
        }
        if dropped.is_empty() {
            self.store_samples(tenant, &mut source, entry, bounds, settle)
        } else {
            match source.remove_series(&dropped) {
                Some(rest) => self.store_samples(tenant, &mut &rest, entry, bounds, settle),
                None => self.store_samples(tenant, &mut source, entry, bounds, settle),
            }
        }
    }

    /// Passes results, with the journal, to the store.
    fn store_results(&self, mut results: &Batch) -> Ticket {
        let entry = PendingBatchEntry {
            sender: Some(SampleSender::Aggregation),
            room: Some(WriteAdmission::count_batch(
                &self.room,
                results.memory_bytes(),
            )),
            time_max: i64::MAX,
            started: self.ledger.clock.monotonic(),
            body: None,
        };
        let bounds = AppendBounds::up_to(i64::MAX);
        let tenant = TenantId::anonymous();
        self.store_samples(&tenant, &mut results, entry, bounds, |ticket| ticket)
    }
}
