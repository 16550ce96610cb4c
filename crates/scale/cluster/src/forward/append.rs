//! Appends to partitions, wherever they are led.
//!
//! ```text
//! parts of a batch -> by leader: this node    -> store, part by part
//!                                another node -> one request -> an answer for each part
//!                  <- parts that were not acknowledged, after a pause
//! ```

use super::metrics::ForwardMetrics;
use crate::ids::PartitionId;
use crate::membership::Membership;
use crate::partitions::append::{PartForwarder, RoutedBatch};
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::SeriesHash;
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, AppendBounds, AppendOutcome, Ticket, TicketResolver};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_peer::{
    AppendPart, EncodedAppend, PartAnswer, PeerAppended, PeerClient, PeerFailure, encode_append,
};
use firn_storage::store::Store;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The pause before a part of a batch is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The time limit of one request with parts of a batch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size in bytes of a request with several parts.
const REQUEST_BYTES: usize = 4 << 20;

/// Settings and metrics of forwarded writes.
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

/// Sends parts of batches to the leaders of their partitions, in one request for each node. Parts
/// that are not acknowledged are sent again, also to a new leader, until the time limit. A repeat
/// stores samples once. Cloning is cheap.
#[derive(Clone)]
pub struct LeaderForwarder(Arc<LeaderForwarderState>);

struct LeaderForwarderState {
    membership: Arc<Membership>,
    options: ForwardOptions,
    /// The newest sample of each partition that other nodes reported.
    newest: Vec<Mutex<Option<TimestampMs>>>,
}

impl LeaderForwarder {
    /// Creates the appends to all partitions of the cluster of `membership`.
    pub fn new(membership: Arc<Membership>, options: ForwardOptions) -> Self {
        let partitions = membership.node().format().partitions.get();
        let newest = (0..partitions).map(|_| Mutex::default()).collect();
        Self(Arc::new(LeaderForwarderState {
            membership,
            options,
            newest,
        }))
    }

    /// Returns all partitions in order, each of which appends to its leader.
    pub fn partitions(&self) -> Vec<Arc<dyn Append>> {
        let partition = |number| -> Arc<dyn Append> {
            Arc::new(LedPartition {
                partition: PartitionId(number),
                forwarder: self.clone(),
            })
        };
        (0..self.0.newest.len() as u32).map(partition).collect()
    }

    fn find_led(&self, partition: PartitionId) -> Option<Arc<Store>> {
        let led = self.0.membership.node().find_led(partition);
        led.map(|(_, store)| store)
    }

    /// Sends parts whose encoding did not fail. Returns a ticket for each.
    fn send(&self, parts: Vec<Result<EncodedAppend, Error>>) -> Vec<Ticket> {
        let begin = Instant::now();
        let mut open = Vec::with_capacity(parts.len());
        let tickets = parts.into_iter().map(|part| match part {
            Err(error) => Ticket::resolved(Err(error)),
            Ok(part) => {
                let (ticket, resolver) = Ticket::new();
                open.push(OpenPart {
                    part,
                    resolver,
                    begin,
                });
                ticket
            }
        });
        let tickets = tickets.collect();
        self.spawn_requests(open);
        tickets
    }

    /// Starts a task for each request that is necessary for `parts`.
    fn spawn_requests(&self, parts: Vec<OpenPart>) {
        let runtime = self.0.membership.directory().runtime();
        for request in self.group_by_leader(parts) {
            runtime.spawn(self.clone().run_request(request));
        }
    }

    fn group_by_leader(&self, parts: Vec<OpenPart>) -> Vec<ForwardRequest> {
        let mut requests: Vec<ForwardRequest> = Vec::new();
        for part in parts {
            let target = self.find_target(PartitionId(part.part.partition()));
            let bytes = part.part.frame_bytes();
            let fits = |request: &&mut ForwardRequest| {
                // Parts of this node do not wait for each other.
                let is_joint = target != ForwardTarget::Own && request.target == target;
                is_joint && request.bytes + bytes <= REQUEST_BYTES
            };
            match requests.iter_mut().find(fits) {
                Some(request) => {
                    request.bytes += bytes;
                    request.parts.push(part);
                }
                None => requests.push(ForwardRequest {
                    target,
                    bytes,
                    parts: vec![part],
                }),
            }
        }
        requests
    }

    fn find_target(&self, partition: PartitionId) -> ForwardTarget {
        if self.find_led(partition).is_some() {
            // This node has become the leader since the part was encoded.
            return ForwardTarget::Own;
        }
        let leader = self.0.membership.leader(partition);
        leader.map_or(ForwardTarget::Unled, |l| ForwardTarget::Peer(l.address))
    }

    /// Sends the parts of a request, and sends those again that are not acknowledged.
    async fn run_request(self, request: ForwardRequest) {
        let answers = self.send_request(&request).await;
        let mut failed = Vec::new();
        for (open, answer) in request.parts.into_iter().zip(answers) {
            failed.extend(self.finish(open, answer));
        }
        if failed.is_empty() {
            return;
        }
        self.0.options.metrics.retries.add(failed.len() as u64);
        tokio::time::sleep(RETRY_PAUSE).await;
        self.spawn_requests(failed);
    }

    /// Returns an answer for each part.
    async fn send_request(&self, request: &ForwardRequest) -> Vec<PartAnswer> {
        let parts = || request.parts.iter().map(|open| &open.part);
        let answers = match &request.target {
            ForwardTarget::Own => {
                let mut answers = Vec::with_capacity(request.parts.len());
                for part in parts() {
                    answers.push(self.append_here(part).await);
                }
                return answers;
            }
            ForwardTarget::Unled => {
                let text = "no node leads the partition".to_owned();
                Err(PeerFailure::Unavailable(text))
            }
            ForwardTarget::Peer(address) => match self.0.membership.directory().client(address) {
                Ok(client) => self.send_to(&client, parts().cloned().collect()).await,
                Err(failure) => Err(failure),
            },
        };
        answers.unwrap_or_else(|failure| parts().map(|_| Err(failure.clone())).collect())
    }

    async fn append_here(&self, part: &EncodedAppend) -> PartAnswer {
        let partition = PartitionId(part.partition());
        let store = self.find_led(partition).ok_or_else(|| {
            PeerFailure::Unavailable("this node does not lead the partition any more".to_owned())
        })?;
        part.append_to(store).await
    }

    async fn send_to(
        &self,
        client: &PeerClient,
        parts: Vec<EncodedAppend>,
    ) -> Result<Vec<PartAnswer>, PeerFailure> {
        let bytes: usize = parts.iter().map(EncodedAppend::frame_bytes).sum();
        self.0.options.metrics.bytes.add(bytes as u64);
        let answers = client.append(&parts, REQUEST_TIMEOUT).await?;
        for (part, answer) in parts.iter().zip(&answers) {
            let newest = self.0.newest.get(part.partition() as usize);
            if let (Some(newest), Ok(appended)) = (newest, answer) {
                let mut newest = lock(newest);
                *newest = appended.newest.max(*newest);
            }
        }
        Ok(answers)
    }

    /// Resolves the ticket of a part that was acknowledged or rejected, or whose time is over.
    /// Returns the part otherwise.
    fn finish(&self, open: OpenPart, answer: PartAnswer) -> Option<OpenPart> {
        let (metrics, wait_max) = (&self.0.options.metrics, self.0.options.wait_max);
        let failure = match answer.and_then(outcome_of) {
            Ok(outcome) => {
                metrics.samples.add(outcome.stored as u64);
                metrics.acknowledgements.observe(open.begin.elapsed());
                open.resolver.resolve(Ok(outcome));
                return None;
            }
            Err(failure) => failure,
        };
        if let Some(error) = final_error(&failure) {
            open.resolver.resolve(Err(error));
            return None;
        }
        if open.begin.elapsed() < wait_max {
            return Some(open);
        }
        metrics.failures.inc();
        let partition = open.part.partition();
        let text = format!(
            "partition {partition} did not store the samples within {wait_max:?}: {failure}"
        );
        open.resolver.resolve(Err(Error::unavailable(text)));
        None
    }
}

/// A part of a batch without an acknowledgement.
struct OpenPart {
    part: EncodedAppend,
    resolver: TicketResolver,
    begin: Instant,
}

/// Parts for one leader.
struct ForwardRequest {
    target: ForwardTarget,
    /// The sum of the sizes of `parts`.
    bytes: usize,
    parts: Vec<OpenPart>,
}

/// The leader of some partitions.
#[derive(PartialEq, Eq)]
enum ForwardTarget {
    /// This node.
    Own,
    /// The node at this address.
    Peer(String),
    /// No live node leads the partitions.
    Unled,
}

impl PartForwarder for LeaderForwarder {
    fn is_elsewhere(&self, partition: PartitionId) -> bool {
        self.find_led(partition).is_none()
    }

    fn forward(
        &self,
        tenant: &TenantId,
        batch: &RoutedBatch<'_>,
        partitions: &[PartitionId],
        bounds: AppendBounds,
    ) -> Vec<Ticket> {
        let encode = |partition: &PartitionId| {
            let part = AppendPart {
                partition: partition.0,
                batch: batch.batch,
                series: batch.series_of(*partition),
                prints: batch.prints,
            };
            part.encode(tenant, &self.0.options.hash, bounds)
        };
        self.send(partitions.iter().map(encode).collect())
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

/// Appends to one partition: to the store of this node if it leads the partition, else to the node
/// that does.
struct LedPartition {
    partition: PartitionId,
    forwarder: LeaderForwarder,
}

impl LedPartition {
    fn store(&self) -> Option<Arc<Store>> {
        self.forwarder.find_led(self.partition)
    }
}

impl Append for LedPartition {
    fn append(&self, tenant: &TenantId, mut batch: &Batch, bounds: AppendBounds) -> Ticket {
        self.append_from(tenant, &mut batch, bounds)
    }

    fn append_from(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        if let Some(store) = self.store() {
            return store.append_from(tenant, source, bounds);
        }
        let hash = &self.forwarder.0.options.hash;
        let part = encode_append(self.partition.0, tenant, source, hash, bounds);
        let mut tickets = self.forwarder.send(vec![part]);
        tickets.pop().expect("a ticket for the part")
    }

    fn check_append(&self, tenant: &TenantId) -> Result<(), Error> {
        match self.store() {
            Some(store) => store.check_append(tenant),
            // Forwarded parts wait for a leader.
            None => Ok(()),
        }
    }

    fn series_hash(&self) -> Option<SeriesHash> {
        Some(self.forwarder.0.options.hash.clone())
    }

    fn may_wait(&self) -> bool {
        self.store().is_some_and(|store| store.may_wait())
    }

    fn newest_time(&self, tenant: &TenantId) -> Option<TimestampMs> {
        match self.store() {
            Some(store) => store.newest_time(tenant),
            None => *lock(&self.forwarder.0.newest[self.partition.0 as usize]),
        }
    }

    fn can_store_exemplars(&self) -> bool {
        self.forwarder.0.options.keeps_exemplars
    }
}
