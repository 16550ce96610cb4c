//! Stream aggregation: computes results from samples while they are ingested, so that the source
//! series need not be stored.
//!
//! ```text
//! batch of any protocol -> machine -> batch without dropped series -> store
//!                             \----> results with the journal -> store, one record
//! ```
//!
//! The state is in memory and in the log of the store. Each batch writes a record with its changes
//! to the state (the journal), and results are in the same record as the step that computed them. A
//! batch is acknowledged when both its own record and that one are durable. After any crash, an
//! acknowledged sample therefore counts exactly once, and a repeated sample is recognized
//! (`docs/adr/0130-aggregation-keeps-its-state-in-the-log.md`).
//!
//! The main type is [`StreamAggregation`]. The write pipeline owns one, passes each batch to it and
//! stores the results:
//!
//! ```
//! use firn_aggregation::*;
//! use firn_model::batch::Batch;
//! use firn_model::fingerprint::FingerprintSeed;
//! use firn_model::labels::Labels;
//! use firn_model::matcher::{MatchOp, Matcher};
//! use firn_model::store::{Append, AppendBounds, AppendOutcome, Ticket};
//! use firn_model::tenant::TenantId;
//! use std::sync::Arc;
//!
//! /// A store that acknowledges everything and keeps nothing.
//! struct Sink;
//! impl Append for Sink {
//!     fn append(&self, _: &TenantId, _: &Batch, _: AppendBounds) -> Ticket {
//!         Ticket::resolved(Ok(AppendOutcome::default()))
//!     }
//! }
//!
//! let rule = AggregationRuleSpec {
//!     record: "job:requests".into(),
//!     expr: "sum by (job) (requests)".into(),
//!     op: AggregationOp::Sum,
//!     grouping: AggregationGrouping::By(vec!["job".into()]),
//!     matchers: vec![Matcher::new("__name__", MatchOp::Equal, b"requests")?],
//!     labels: Vec::new(),
//!     drops: true,
//!     kind: Some(AggregatedMetricKind::Gauge),
//! };
//! let group = AggregationGroupSpec {
//!     name: "example".into(),
//!     interval_ms: 60_000,
//!     delay_ms: 0,
//!     lookback_ms: 300_000,
//!     rules: Arc::new([rule]),
//! };
//! let spec = AggregationSpec { groups: vec![group] };
//! let inputs = AggregationInputs {
//!     seed: FingerprintSeed([1, 2]),
//!     sources_max: 1_000,
//!     kind_of: Arc::new(|_| None),
//!     journal: &[],
//! };
//! let mut results = Batch::default();
//! let mut keep = |batch: &Batch| {
//!     results = batch.clone();
//!     Ticket::resolved(Ok(AppendOutcome::default()))
//! };
//! let aggregation = StreamAggregation::new(TenantId::anonymous());
//! aggregation.configure(&spec, inputs, &Sink, &mut keep)?;
//! for (time, pods) in [(30_000, ["a", "b"]), (90_000, ["a", "b"])] {
//!     let mut batch = Batch::default();
//!     for pod in pods {
//!         let labels = [("__name__", "requests"), ("job", "api"), ("pod", pod)];
//!         batch.push_series(Labels::from_pairs(labels).as_ref(), &[(time, 2.0)]);
//!     }
//!     let receipt = aggregation.aggregate_batch(&mut &batch, i64::MAX, &Sink, &mut keep)?;
//!     assert_eq!(receipt.dropped, [0, 1], "the sources are not stored");
//! }
//! let result = results.iter().next().expect("the first minute is over");
//! assert_eq!((result.times, result.values), (&[60_000][..], &[4.0][..]));
//! # Ok::<(), firn_model::error::Error>(())
//! ```
//!
//! Invariant: records are appended in the order in which the state changed, under one lock. This
//! file connects the pure state machine (`machine.rs`) to the store. The crate starts no thread and
//! reads no clock: time is that of the samples. It does not evaluate expressions; the settings
//! compile them to an [`AggregationSpec`]. It stores nothing itself; the pipeline does.

mod code;
mod entries;
mod failpoints;
mod fold;
mod hashing;
mod lane;
mod machine;
mod metrics;
mod native;
mod ops;
mod output;
mod printed;
mod spec;
#[cfg(test)]
mod tests;

pub use machine::KindOf;
pub use printed::FingerprintedSource;
pub use spec::{
    AggregatedMetricKind, AggregationGroupSpec, AggregationGrouping, AggregationOp,
    AggregationRuleSpec, AggregationSpec, GROUPS_MAX,
};

use firn_model::batch::{Batch, BatchSource};
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::{FingerprintSeed, HashKeys, HashKind};
use firn_model::log::{JournalMark, JournalRecord};
use firn_model::metrics::{Collect, MetricSink};
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, Ticket};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_wire::remote_write::KEY_FORMAT;
use hashing::SourceHashing;
use machine::{AggregatedBatch, AggregationState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The aggregation of one tenant's samples on their way into a store. Owned by the pipeline and
/// shared by all its writers.
pub struct StreamAggregation {
    tenant: TenantId,
    /// True if any group is configured: read for each batch, without the lock.
    is_on: AtomicBool,
    machine: Mutex<Option<AggregationState>>,
}

/// The result of aggregating a batch, which the pipeline needs for storing the rest of it.
pub struct AggregationReceipt {
    /// Indexes of the series that must not be stored, ascending.
    pub dropped: Vec<u32>,
    /// Number of samples of the dropped series.
    pub dropped_samples: usize,
    /// Resolves when the journal of the batch is durable; `None` if it changed nothing.
    pub ticket: Option<Ticket>,
}

/// Appends a batch of results with its journal to the store, and returns the ticket of the write.
pub type Hand<'a> = &'a mut dyn FnMut(&Batch) -> Ticket;

impl StreamAggregation {
    /// Returns an aggregation without groups; [`StreamAggregation::configure`] adds them.
    pub fn new(tenant: TenantId) -> Self {
        Self {
            tenant,
            is_on: AtomicBool::new(false),
            machine: Mutex::new(None),
        }
    }

    /// Returns whether batches of `tenant` must go through [`StreamAggregation::aggregate_batch`]
    /// before they are stored.
    pub fn must_aggregate(&self, tenant: &TenantId) -> bool {
        self.is_on.load(Ordering::Relaxed) && *tenant == self.tenant
    }

    /// Applies a configuration, the first time after a replay of the `journal` that the store
    /// contained at its start. Blocks until the new state is durable.
    pub fn configure(
        &self,
        spec: &AggregationSpec,
        start: AggregationInputs<'_>,
        store: &dyn Append,
        hand: Hand<'_>,
    ) -> Result<(), Error> {
        let mut state = lock(&self.machine);
        if spec.groups.is_empty() && state.is_none() && start.journal.is_empty() {
            // There is no state to write, neither now nor when the server stops.
            return Ok(());
        }
        if !spec.groups.is_empty() {
            // Until the state is restored, batches are rejected: they must not bypass it.
            self.is_on.store(true, Ordering::Relaxed);
        }
        store.check_append(&self.tenant)?;
        let machine = state.get_or_insert_with(|| {
            let hashing = choose_hashing(store, start.seed);
            let mut machine = AggregationState::new(hashing, start.sources_max, start.kind_of);
            let lost = machine.restore(start.journal);
            if lost > 0 {
                tracing::error!(
                    lanes = lost,
                    "aggregation journal is damaged: the state of some sources is lost"
                );
            }
            machine
        });
        let mut ends = machine.configure(spec);
        let mut journal = if machine.has_no_groups() {
            vec![JournalRecord {
                mark: JournalMark::Ends,
                bytes: Vec::new(),
            }]
        } else {
            machine.encode_whole_state()
        };
        let mut tickets = Vec::with_capacity(journal.len());
        for record in journal.drain(..) {
            ends.set_journal(record);
            tickets.push(hand(&ends));
            ends.clear();
        }
        self.is_on
            .store(!machine.has_no_groups(), Ordering::Relaxed);
        if machine.has_no_groups() {
            *state = None;
        }
        drop(state);
        tickets
            .into_iter()
            .try_for_each(|ticket| ticket.wait().map(drop))
    }

    /// Aggregates the samples of `source` up to `time_max`. If it fails, the state is unchanged.
    /// After a success the caller must append the series that are not dropped, then call
    /// [`Append::write_held`].
    pub fn aggregate_batch(
        &self,
        source: &mut dyn BatchSource,
        time_max: TimestampMs,
        store: &dyn Append,
        hand: Hand<'_>,
    ) -> Result<AggregationReceipt, Error> {
        let mut state = lock(&self.machine);
        let Some(machine) = &mut *state else {
            let message = "aggregation is starting or stopping: retry the request";
            return Err(Error::new(ErrorKind::Unavailable, message));
        };
        // Checked first, because a state that has changed can no longer be refused.
        store.check_append(&self.tenant)?;
        let AggregatedBatch {
            dropped,
            dropped_samples,
            mut results,
            journal,
        } = machine.aggregate_batch(source, time_max)?;
        let is_stored = dropped.len() < source.batch().series_count();
        let ticket = (!journal.is_empty()).then(|| {
            results.set_journal(journal);
            // Allows one sync for this record and that of the stored series.
            results.set_followed(is_stored);
            hand(&results)
        });
        drop(state);
        Ok(AggregationReceipt {
            dropped,
            dropped_samples,
            ticket,
        })
    }

    /// Returns the memory of the state in bytes; zero before it is configured.
    pub fn memory_bytes(&self) -> usize {
        match &*lock(&self.machine) {
            Some(machine) => machine
                .group_sizes()
                .iter()
                .map(|(_, _, sizes)| sizes.bytes)
                .sum(),
            None => 0,
        }
    }

    /// Writes a snapshot of the whole state at the start of a new unit of the log, so that a log
    /// that is closed afterwards contains nothing else.
    pub fn write_snapshot(&self, store: &dyn Append, hand: Hand<'_>) -> Result<(), Error> {
        let mut state = lock(&self.machine);
        let Some(machine) = &mut *state else {
            return Ok(());
        };
        store.check_append(&self.tenant)?;
        // Starts the log that a closed store keeps. Without it that log is longer but not wrong.
        if let Err(e) = store.begin_log_unit(&self.tenant) {
            tracing::warn!(
                error = %e,
                "failed to begin a new log segment for the aggregation state"
            );
        }
        let mut batch = Batch::default();
        let records = machine.encode_whole_state().into_iter();
        let tickets: Vec<Ticket> = records
            .map(|record| {
                batch.set_journal(record);
                hand(&batch)
            })
            .collect();
        drop(state);
        tickets
            .into_iter()
            .try_for_each(|ticket| ticket.wait().map(drop))
    }
}

/// The inputs of a new or restored state, which the caller collects when the store is opened. The
/// journal is empty for a store without aggregation.
pub struct AggregationInputs<'a> {
    /// Seed for hashing series keys, used by a new state if the store has no shared hash keys.
    pub seed: FingerprintSeed,
    /// Largest number of sources, beyond which new ones are rejected.
    pub sources_max: usize,
    /// Lookup of the metric type in the metadata.
    pub kind_of: KindOf,
    /// Journal records that the store contained at its start; empty for a new state.
    pub journal: &'a [Vec<u8>],
}

/// Returns the hash function for a new state: that of `store` if its keys have the same format.
fn choose_hashing(store: &dyn Append, seed: FingerprintSeed) -> SourceHashing {
    let shared = store.series_hash();
    let shared = shared.filter(|hash| hash.format.name() == KEY_FORMAT.name());
    let keys = shared.map(|hash| hash.keys);
    SourceHashing::Keys(
        keys.unwrap_or_else(|| Arc::new(HashKeys::from_seed(HashKind::fastest(), seed))),
    )
}

/// Exports the metrics of all groups, with the group as a label.
impl Collect for StreamAggregation {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let groups = match &*lock(&self.machine) {
            Some(machine) => machine.group_sizes(),
            None => return,
        };
        metrics::collect(sink, &groups);
    }
}

impl std::fmt::Debug for StreamAggregation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aggregation").finish_non_exhaustive()
    }
}
