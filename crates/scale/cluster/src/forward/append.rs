//! Appends to one partition, wherever it is led.

use super::metrics::ForwardMetrics;
use crate::ids::PartitionId;
use crate::membership::Membership;
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::SeriesHash;
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, AppendBounds, AppendOutcome, Ticket, TicketResolver};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_peer::{EncodedAppend, PeerAppended, PeerClient, PeerFailure, encode_append};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The pause before a part of a batch is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The time limit of one request with a part of a batch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings and metrics that the forwarders of all partitions share.
#[derive(Clone)]
pub struct ForwardOptions {
    /// The hash of all partitions for series keys.
    pub hash: SeriesHash,
    /// The time for which a part of a batch is sent again, while no node acknowledges it.
    pub wait_max: Duration,
    /// Whether the stores of the cluster keep exemplars.
    pub keeps_exemplars: bool,
    /// Counts of forwarded parts.
    pub metrics: Arc<ForwardMetrics>,
}

/// Appends to one partition: to the store of this node if it leads the partition, else to the node
/// that does. A part that is not acknowledged is sent again, also to a new leader, until the time
/// limit. A repeat stores samples once.
pub struct PartitionForwarder {
    partition: PartitionId,
    membership: Arc<Membership>,
    options: ForwardOptions,
    /// The newest sample of the partition that another node reported.
    newest: Arc<Mutex<Option<TimestampMs>>>,
}

impl PartitionForwarder {
    /// Creates the appends to `partition`.
    pub fn new(
        partition: PartitionId,
        membership: Arc<Membership>,
        options: ForwardOptions,
    ) -> Self {
        Self {
            partition,
            membership,
            options,
            newest: Arc::default(),
        }
    }

    fn forward(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        let (partition, hash) = (self.partition.0, &self.options.hash);
        let part = match encode_append(partition, tenant, source, hash, bounds) {
            Ok(part) => part,
            Err(error) => return Ticket::resolved(Err(error)),
        };
        let (ticket, resolver) = Ticket::new();
        let forwarding = ForwardedPart {
            partition: self.partition,
            membership: self.membership.clone(),
            options: self.options.clone(),
            newest: self.newest.clone(),
            part,
        };
        let runtime = self.membership.directory().runtime();
        runtime.spawn(forwarding.send_until_stored(resolver));
        ticket
    }
}

/// A part of a batch on its way to the leader of its partition.
struct ForwardedPart {
    partition: PartitionId,
    membership: Arc<Membership>,
    options: ForwardOptions,
    newest: Arc<Mutex<Option<TimestampMs>>>,
    part: EncodedAppend,
}

impl ForwardedPart {
    /// Sends the part until a leader acknowledges or rejects it, or the time is over.
    async fn send_until_stored(self, resolver: TicketResolver) {
        let begin = Instant::now();
        let metrics = self.options.metrics.clone();
        loop {
            let failure = match self.send().await {
                Ok(outcome) => {
                    metrics.samples.add(outcome.stored as u64);
                    metrics.acknowledgements.observe(begin.elapsed());
                    return resolver.resolve(Ok(outcome));
                }
                Err(failure) => failure,
            };
            if let Some(error) = final_error(&failure) {
                return resolver.resolve(Err(error));
            }
            if begin.elapsed() >= self.options.wait_max {
                metrics.failures.inc();
                let text = format!(
                    "partition {} did not store the samples within {:?}: {failure}",
                    self.partition, self.options.wait_max
                );
                return resolver.resolve(Err(Error::unavailable(text)));
            }
            metrics.retries.inc();
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn send(&self) -> Result<AppendOutcome, PeerFailure> {
        if let Some((_, store)) = self.membership.node().find_led(self.partition) {
            // This node has become the leader since the part was encoded.
            return outcome_of(self.part.append_to(store).await?);
        }
        let client = self.find_client()?;
        self.options
            .metrics
            .bytes
            .add(self.part.frame_bytes() as u64);
        let appended = client.append(&self.part, REQUEST_TIMEOUT).await?;
        let mut newest = lock(&self.newest);
        *newest = appended.newest.max(*newest);
        drop(newest);
        outcome_of(appended)
    }

    fn find_client(&self) -> Result<PeerClient, PeerFailure> {
        let (partition, leader) = (self.partition, self.membership.leader(self.partition));
        let leader = leader.ok_or_else(|| {
            PeerFailure::Unavailable(format!("no node leads partition {partition}"))
        })?;
        self.membership.directory().client(&leader.address)
    }
}

/// Returns the outcome of an append. Series whose labels the leader rejected are an error, like
/// those that this node would have rejected; the other samples are stored.
fn outcome_of(appended: PeerAppended) -> Result<AppendOutcome, PeerFailure> {
    match appended.invalid_series.into_iter().next() {
        None => Ok(appended.outcome),
        Some(invalid) => Err(Error::new(ErrorKind::Invalid, invalid.first).into()),
    }
}

/// Returns the error of a part that no repeat can store.
fn final_error(failure: &PeerFailure) -> Option<Error> {
    match failure {
        PeerFailure::Failed(error) if error.kind != ErrorKind::Unavailable => Some(error.clone()),
        _ => None,
    }
}

impl Append for PartitionForwarder {
    fn append(&self, tenant: &TenantId, mut batch: &Batch, bounds: AppendBounds) -> Ticket {
        self.append_from(tenant, &mut batch, bounds)
    }

    fn append_from(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        match self.membership.node().find_led(self.partition) {
            Some((_, store)) => store.append_from(tenant, source, bounds),
            None => self.forward(tenant, source, bounds),
        }
    }

    fn check_append(&self, tenant: &TenantId) -> Result<(), Error> {
        match self.membership.node().find_led(self.partition) {
            Some((_, store)) => store.check_append(tenant),
            // Forwarded parts wait for a leader.
            None => Ok(()),
        }
    }

    fn series_hash(&self) -> Option<SeriesHash> {
        Some(self.options.hash.clone())
    }

    fn may_wait(&self) -> bool {
        let led = self.membership.node().find_led(self.partition);
        led.is_some_and(|(_, store)| store.may_wait())
    }

    fn newest_time(&self, tenant: &TenantId) -> Option<TimestampMs> {
        match self.membership.node().find_led(self.partition) {
            Some((_, store)) => store.newest_time(tenant),
            None => *lock(&self.newest),
        }
    }

    fn can_store_exemplars(&self) -> bool {
        self.options.keeps_exemplars
    }
}
