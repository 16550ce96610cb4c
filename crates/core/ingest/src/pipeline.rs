//! The write pipeline: the path of all samples in this process to the store.
//!
//! ```text
//! push           admit -> prepare -> decode --.
//! scrape, rule   a batch of its own ----------+-> aggregation --> results -----.
//! other writers  `Append` of the pipeline ----'        '--> series to store ---+-> store -> ticket
//! import         admit -> a batch for each piece ------------------------------'     |
//!                                                                counted and logged <'
//! ```
//!
//! Each batch holds its memory reservation until its ticket resolves; the ledger counts it then,
//! whatever its origin.
//!
//! Invariant: a body is admitted before it is read, and its message before it is decompressed, so
//! that the memory of all requests together stays below one limit until they are in the log. At the
//! limit, requests wait for a bounded time and then fail with [`ErrorKind::Unavailable`], after
//! which senders retry. A request that exceeds a limit on its own fails with [`ErrorKind::Limited`]
//! or [`ErrorKind::Invalid`], after which they do not.

mod aggregating;
mod decoded;
mod forwarding;
mod ledger;
mod otlp;
mod push;
mod rates;
mod replicas;
mod room;
mod tenants;
#[cfg(test)]
mod tests;
mod usage;

pub use otlp::{DeltaMode, OtlpOrigin};
pub use push::{PendingWrite, PushOrigin};
pub use room::WriteAdmission;

use crate::deltas::DeltaStreams;
use crate::discards::{DiscardEntry, DiscardStatistics};
use crate::ha::HaTracker;
use crate::limits::IngestLimits;
use crate::metadata::PushedMetadata;
use crate::metrics::Metrics;
use crate::outcome::{DroppedSamples, WriteOutcome};
use crate::refusals::{RejectionLog, SampleSender};
use crate::sending::ReceiverQueue;
use crate::usage::UsageStatistics;
use firn_aggregation::StreamAggregation;
use firn_model::batch::{Batch, BatchSource};
use firn_model::budget::Budget;
use firn_model::env::Clock;
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, AppendBounds, LateSamplePolicy, Ticket};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::tenant_limits::TenantOverrides;
use firn_wire::remote_write::{self, RemoteWriteDecoder, ZeroSampleGenerator};
use ledger::{PendingBatchEntry, WriteLedger};
use otlp::OtlpSettings;
use rates::IngestionRates;
use room::WriteMemoryBudgets;
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

/// Age in milliseconds up to which backfilled samples are stored in order: as old as samples may be
/// behind the newest one of a store and still be accepted in order.
const IN_ORDER_MS: i64 = 60 * 60 * 1000;

/// The relation of a rule's evaluation instant to the current time, which decides about late
/// samples and aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstantAge {
    /// A regular evaluation, whose instant is close to the present.
    Live,
    /// A missed evaluation that is made up for: its samples may have any age and are aggregated
    /// like late ones.
    MadeUp,
    /// A backfill: its samples may have any age and are not aggregated, like those of an import.
    Past,
}

/// Stores the samples of all writers. Created once for a store, and shared by all connections and
/// background tasks.
pub struct Pipeline {
    store: Arc<dyn Append>,
    limits: IngestLimits,
    room: Arc<WriteMemoryBudgets>,
    spare_decoders: Mutex<Vec<RemoteWriteDecoder>>,
    spare_otlp_decoders: Mutex<Vec<firn_wire::otlp::OtlpDecoder>>,
    spare_bodies: Mutex<Vec<Vec<u8>>>,
    ledger: Arc<WriteLedger>,
    aggregation: Arc<StreamAggregation>,
    labels_types: bool,
    makes_zeros: bool,
    metadata: Arc<PushedMetadata>,
    sending: OnceLock<Arc<dyn ReceiverQueue>>,
    otlp: OtlpSettings,
    deltas: DeltaStreams,
    overrides: RwLock<Arc<TenantOverrides>>,
    rates: IngestionRates,
    replicas: HaTracker,
}

impl Pipeline {
    /// Returns a pipeline into `store_samples` whose requests in flight reserve their memory in
    /// `memory`.
    pub fn new(
        store: Arc<dyn Append>,
        clock: Arc<dyn Clock>,
        limits: IngestLimits,
        memory: &Budget,
    ) -> Self {
        let body_bytes_max = limits.wire.body_bytes_max;
        let room = WriteMemoryBudgets::new(memory, limits.in_flight_bytes_max, body_bytes_max);
        let deltas = DeltaStreams::new(clock.clone(), limits.deltas_bytes_max);
        let ledger = WriteLedger {
            clock,
            metrics: Arc::new(Metrics::new(room.all.clone())),
            refusals: RejectionLog::default(),
            discards: DiscardStatistics::default(),
            usage: UsageStatistics::default(),
        };
        Self {
            store,
            limits,
            room,
            spare_decoders: Mutex::default(),
            spare_otlp_decoders: Mutex::default(),
            spare_bodies: Mutex::default(),
            ledger: Arc::new(ledger),
            aggregation: Arc::new(StreamAggregation::new(TenantId::anonymous())),
            labels_types: false,
            makes_zeros: false,
            metadata: Arc::default(),
            sending: OnceLock::new(),
            otlp: OtlpSettings::default(),
            deltas,
            overrides: RwLock::default(),
            rates: IngestionRates::default(),
            replicas: HaTracker::new(limits.replicas_bytes_max),
        }
    }

    /// Returns the pipeline with type and unit labels enabled for protocols that transmit both
    /// (`type-and-unit-labels`).
    #[must_use]
    pub fn with_type_labels(mut self, labels_types: bool) -> Self {
        self.labels_types = labels_types;
        self
    }

    /// Returns the pipeline with zero samples enabled at the start timestamps in pushes
    /// (`created-timestamp-zero-ingestion`).
    #[must_use]
    pub fn with_zero_samples(mut self, makes_zeros: bool) -> Self {
        self.makes_zeros = makes_zeros;
        self
    }

    /// Returns the table of pushed metadata, which the API reads.
    pub fn metadata(&self) -> &Arc<PushedMetadata> {
        &self.metadata
    }

    /// Writes the pushed metadata to its file, if it has changed and the latest write is some
    /// seconds ago or this one `is_last`. May block.
    pub fn write_metadata(&self, is_last: bool) -> io::Result<()> {
        let now = self.ledger.clock.now_ms();
        if is_last {
            self.metadata.write_last(now)
        } else {
            self.metadata.write_if_due(now)
        }
    }

    /// Returns the limits of the pipeline, which the server needs for reading bodies.
    pub fn limits(&self) -> IngestLimits {
        self.limits
    }

    /// Returns the recently rejected samples by reason, sender and job, most recent first.
    pub fn discards(&self) -> Vec<DiscardEntry> {
        self.ledger.discards.list_entries()
    }

    /// Returns the metrics of ingestion, for the exposition of this process.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.ledger.metrics.clone()
    }

    /// Reserves memory for reading `bytes` of a body, and waits until it is available. Fails with
    /// [`ErrorKind::Limited`] if bodies of this size are never allowed, and with
    /// [`ErrorKind::Unavailable`] if the wait takes too long.
    pub async fn admit_body(&self, bytes: usize) -> Result<WriteAdmission, Error> {
        self.count_unavailable(WriteAdmission::wait_for_body(&self.room, bytes).await)
    }

    /// Reserves memory for processing `body`, and waits until it is available. Fails like
    /// [`Pipeline::check_append`], and if the header of the body is invalid.
    pub async fn prepare_body(
        &self,
        admission: &mut WriteAdmission,
        body: &[u8],
    ) -> Result<(), Error> {
        let outcome = match remote_write::message_bytes(body, &self.limits.wire) {
            Ok(bytes) => admission.wait_for_message(bytes).await,
            Err(e) => Err(e.into()),
        };
        self.count_failed_request(&outcome);
        outcome
    }

    /// Counts a request whose batches were all passed to the store, by its outcome.
    pub(crate) fn count_request(&self, outcome: &Result<WriteOutcome, Error>) {
        let metrics = &self.ledger.metrics;
        let counter = match outcome {
            Ok(outcome) if outcome.dropped.is_empty() => &metrics.requests_stored,
            Ok(_) => &metrics.requests_partial,
            Err(e) if e.kind == ErrorKind::Unavailable => &metrics.requests_failed,
            Err(_) => &metrics.requests_invalid,
        };
        counter.inc();
    }

    fn count_unavailable<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        if outcome
            .as_ref()
            .is_err_and(|e| e.kind == ErrorKind::Unavailable)
        {
            self.ledger.metrics.requests_turned_away.inc();
        }
        outcome
    }

    /// Counts a request that failed before it was stored, by the kind of its error.
    fn count_failed_request<T>(&self, outcome: &Result<T, Error>) {
        let metrics = &self.ledger.metrics;
        match outcome {
            Ok(_) => {}
            Err(e) if e.kind == ErrorKind::Unavailable => metrics.requests_turned_away.inc(),
            Err(_) => metrics.requests_invalid.inc(),
        }
    }

    /// Passes a batch with samples of `sender` to the store, subject to the bounds of that sender.
    pub fn append_from_sender(
        &self,
        tenant: &TenantId,
        sender: SampleSender,
        mut batch: &Batch,
    ) -> Ticket {
        let bounds = self.append_bounds_for(Some(&sender));
        self.append_created_batch(tenant, Some(sender), &mut batch, bounds)
    }

    /// Returns the times at which [`Pipeline::append_from_sender`] would accept the first sample of
    /// a new series now.
    pub fn first_sample_times(
        &self,
        tenant: &TenantId,
        sender: &SampleSender,
    ) -> RangeInclusive<TimestampMs> {
        let bounds = self.append_bounds_for(Some(sender));
        self.store.first_sample_times(tenant, bounds)
    }

    /// Passes a batch with backfilled samples of any age to the store; those older than currently
    /// sent samples are stored as late ones.
    pub(crate) fn append_backfilled(
        &self,
        tenant: &TenantId,
        sender: SampleSender,
        mut batch: &Batch,
    ) -> Ticket {
        let now = self.ledger.clock.now_ms();
        let in_order_min = now.saturating_sub(IN_ORDER_MS);
        let bounds = AppendBounds::any_age_up_to(self.accepted_time_max(), in_order_min);
        self.append_created_batch(tenant, Some(sender), &mut batch, bounds)
    }

    /// Appends a batch whose samples may be rejected silently: rejections are neither counted nor
    /// logged. The batch is durable when one that is appended after it is.
    pub fn append_optional(&self, tenant: &TenantId, source: &mut dyn BatchSource) {
        // No caller waits for this batch: the log is written in order.
        drop(self.append_created_batch(tenant, None, source, self.append_bounds_for(None)));
    }

    /// Stores zero samples at the start timestamps in `batch`, which must be stored afterwards.
    /// Rejected zeros, because the store has newer samples or they are too old, are not an error.
    /// Fails if there is no memory for them.
    fn append_zeros(
        &self,
        tenant: &TenantId,
        batch: &Batch,
        admission: &mut WriteAdmission,
    ) -> Result<(), Error> {
        if !self.makes_zeros {
            return Ok(());
        }
        if let Some(work) = &mut admission.work {
            work.grow(batch.memory_bytes().saturating_mul(2))?;
        }
        let mut zeros = ZeroSampleGenerator::new(self.limits.wire);
        if let Some(mut made) = zeros.generate(batch) {
            self.append_optional(tenant, &mut made);
        }
        Ok(())
    }

    /// Passes the samples of a rule in `group`, evaluated for instants of this `age`, to the store:
    /// atomically, and visible and durable when the ticket resolves. Computes on the calling
    /// thread, and may wait for the store.
    pub fn append_rule_results(
        &self,
        tenant: &TenantId,
        group: &str,
        age: InstantAge,
        mut batch: &Batch,
    ) -> Ticket {
        let sender = SampleSender::Rules(group.into());
        let mut bounds = self.append_bounds_for(Some(&sender));
        if age != InstantAge::Live {
            bounds.late = LateSamplePolicy::OfAnyAge;
        }
        if age == InstantAge::MadeUp && self.aggregation.must_aggregate(tenant) {
            batch.assert_complete();
            let entry = self.created_batch_entry(Some(sender), batch, bounds);
            return self.aggregate_samples(tenant, &mut batch, entry, bounds);
        }
        self.append_created_batch(tenant, Some(sender), &mut batch, bounds)
    }

    /// Passes a batch that this process created to the store, after its memory was counted.
    fn append_created_batch(
        &self,
        tenant: &TenantId,
        sender: Option<SampleSender>,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        let entry = self.created_batch_entry(sender, source.batch(), bounds);
        self.aggregate_and_store(tenant, source, entry, bounds)
    }

    /// Returns the ledger entry of a batch that this process created. Its memory is allocated
    /// already and cannot be refused: it is counted until the batch is durable, and requests wait
    /// for it.
    fn created_batch_entry(
        &self,
        sender: Option<SampleSender>,
        batch: &Batch,
        bounds: AppendBounds,
    ) -> PendingBatchEntry {
        PendingBatchEntry {
            sender,
            room: Some(WriteAdmission::count_batch(
                &self.room,
                batch.memory_bytes(),
            )),
            time_max: bounds.time_max,
            started: self.ledger.clock.monotonic(),
            body: None,
        }
    }

    /// Aggregates samples, unless they are backfilled, and passes those that must be stored to the
    /// store; `entry` is closed when the ticket resolves.
    fn aggregate_and_store(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        entry: PendingBatchEntry,
        bounds: AppendBounds,
    ) -> Ticket {
        source.batch().assert_complete();
        if bounds.late != LateSamplePolicy::OfAnyAge && self.aggregation.must_aggregate(tenant) {
            self.aggregate_samples(tenant, source, entry, bounds)
        } else {
            self.store_samples(tenant, source, entry, bounds, |ticket| ticket)
        }
    }

    /// Passes samples to the store, and queues those that must be forwarded; `entry` is closed when
    /// the ticket returned by `settle` resolves.
    fn store_samples(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        mut entry: PendingBatchEntry,
        bounds: AppendBounds,
        settle: impl FnOnce(Ticket) -> Ticket,
    ) -> Ticket {
        let ledger = self.ledger.clone();
        let kept = self.queue_for_receivers(tenant, source, entry.body.take(), bounds.time_max);
        let usage = self.measure_batch(tenant, source.batch(), entry.sender.as_ref());
        let stored = self.store.append_from(tenant, source, bounds);
        let stored = settle(self.count_when_stored(stored, tenant, usage));
        let ticket = match kept {
            Some(kept) => stored.join_with(kept, 0),
            None => stored,
        };
        ticket.with_observer(move |outcome| ledger.close_entry(entry, outcome))
    }

    /// Counts and logs samples that were dropped before they reached the store.
    pub fn count_dropped(&self, sender: &SampleSender, dropped: &DroppedSamples) {
        let dropped = std::slice::from_ref(dropped);
        self.ledger
            .count_dropped(sender, dropped, self.accepted_time_max());
    }

    /// Returns the bounds for samples of `sender`; `None` means samples that may be rejected
    /// silently.
    fn append_bounds_for(&self, sender: Option<&SampleSender>) -> AppendBounds {
        AppendBounds {
            // As upstream: staleness markers of a scrape, and samples created at a start, are never
            // stored late.
            late: match sender {
                Some(SampleSender::Push { .. } | SampleSender::Aggregation) => {
                    LateSamplePolicy::All
                }
                Some(SampleSender::Job(_) | SampleSender::Rules(_)) => {
                    LateSamplePolicy::AllButStale
                }
                None => LateSamplePolicy::Nothing,
            },
            ..AppendBounds::up_to(self.accepted_time_max())
        }
    }

    fn accepted_time_max(&self) -> TimestampMs {
        let now = self.ledger.clock.now_ms();
        now.saturating_add(self.limits.future_ms_max)
    }

    /// Returns an empty buffer for a body that reuses earlier memory: growing a new buffer while
    /// bytes arrive costs more than reading them.
    pub fn take_body_buffer(&self) -> Vec<u8> {
        lock(&self.spare_bodies).pop().unwrap_or_default()
    }

    /// Takes back the buffer of a stored body, for a later request.
    pub fn return_body_buffer(&self, mut body: Vec<u8>) {
        body.clear();
        let mut spare = lock(&self.spare_bodies);
        let limits = self.limits.spare;
        if spare.len() < limits.bodies && body.capacity() <= limits.body_bytes {
            spare.push(body);
        }
    }
}

/// Accepts batches from other parts of this process. They reserve memory and are counted, and
/// rejections are logged like those of a push of their tenant without an address.
impl Append for Pipeline {
    fn append(&self, tenant: &TenantId, mut batch: &Batch, bounds: AppendBounds) -> Ticket {
        self.append_from(tenant, &mut batch, bounds)
    }

    /// The stricter of `bounds` and the pipeline's own bounds applies.
    fn append_from(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        let sender = SampleSender::Push {
            tenant: tenant.clone(),
            address: None,
        };
        let time_max = bounds.time_max.min(self.accepted_time_max());
        self.append_created_batch(tenant, Some(sender), source, AppendBounds::up_to(time_max))
    }

    fn check_append(&self, tenant: &TenantId) -> Result<(), Error> {
        self.store.check_append(tenant)
    }

    fn may_wait(&self) -> bool {
        self.store.may_wait()
    }

    fn can_store_exemplars(&self) -> bool {
        self.store.can_store_exemplars()
    }
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
