//! The answers of a node to its peers.

use super::select::join_led;
use crate::ids::PartitionId;
use crate::membership::Membership;
use bytes::Bytes;
use firn_model::error::{Error, ErrorKind};
use firn_model::metadata::MetadataBatch;
use firn_model::store::{Append, MetadataRequest, Select};
use firn_peer::{PeerFailure, PeerService, ReadConsistency};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Returns the metadata that this node has in its stores or has received.
pub type MetadataProvider =
    Arc<dyn Fn(MetadataRequest<'_>) -> Result<MetadataBatch, Error> + Send + Sync>;

/// The answers of a node to its peers: its report, and the partitions that it leads.
pub struct NodePeerService {
    membership: Arc<Membership>,
    /// The time for which a strong read waits for the leases of its partitions.
    wait_max: Duration,
    metadata: OnceLock<MetadataProvider>,
}

impl NodePeerService {
    /// Creates the answers of the node of `membership`. Strong reads fail with
    /// [`ErrorKind::Unavailable`] if the bucket does not confirm within `wait_max` that this node
    /// leads.
    pub fn new(membership: Arc<Membership>, wait_max: Duration) -> Self {
        Self {
            membership,
            wait_max,
            metadata: OnceLock::new(),
        }
    }

    /// Sets the source of metadata. Before this, the node has none. Later calls have no effect.
    pub fn set_metadata_provider(&self, provider: MetadataProvider) {
        // A server sets it once, when it is open.
        let _ = self.metadata.set(provider);
    }

    fn not_leader(&self, partition: u32) -> PeerFailure {
        let leader = self.membership.leader(PartitionId(partition));
        PeerFailure::NotLeader {
            partition,
            leader: leader.map(|leader| leader.address),
        }
    }

    fn check_partition(&self, partition: u32) -> Result<PartitionId, PeerFailure> {
        let count = self.membership.node().format().partitions.get();
        if partition < count {
            return Ok(PartitionId(partition));
        }
        let text = format!("partition {partition} does not exist, the cluster has {count}");
        Err(PeerFailure::Failed(Error::new(ErrorKind::Invalid, text)))
    }
}

impl PeerService for NodePeerService {
    fn exchange(&self, request: Bytes) -> Result<Bytes, PeerFailure> {
        let answer = self.membership.answer_report(&request);
        answer
            .map(Bytes::from)
            .map_err(|e| PeerFailure::Failed(e.into()))
    }

    fn appender(&self, partition: u32) -> Result<Arc<dyn Append>, PeerFailure> {
        let led = self
            .membership
            .node()
            .find_led(self.check_partition(partition)?);
        let (_, store) = led.ok_or_else(|| self.not_leader(partition))?;
        Ok(store)
    }

    fn reader(
        &self,
        partitions: &[u32],
        consistency: ReadConsistency,
    ) -> Result<Arc<dyn Select>, PeerFailure> {
        let mut led = Vec::with_capacity(partitions.len());
        for number in partitions {
            let partition = self.check_partition(*number)?;
            let found = self.membership.node().find_led(partition);
            let (log, store) = found.ok_or_else(|| self.not_leader(*number))?;
            led.push((partition, log, store));
        }
        Ok(Arc::from(join_led(led, consistency, self.wait_max)))
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, PeerFailure> {
        let provider = self.metadata.get();
        let batch = provider.map_or_else(|| Ok(MetadataBatch::default()), |p| p(request));
        batch.map_err(PeerFailure::Failed)
    }
}
