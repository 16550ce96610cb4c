//! The node that answers its peers, as the server sees it.

use crate::failure::PeerFailure;
use bytes::Bytes;
use firn_model::metadata::MetadataBatch;
use firn_model::store::{Append, MetadataRequest, Select};
use std::sync::Arc;

/// Whether a look-up includes every sample that any node has acknowledged before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadConsistency {
    /// The leader is confirmed before the look-up.
    Strong,
    /// The leader is not confirmed: the newest samples may be missing after a takeover.
    Eventual,
}

/// The node that answers requests of its peers. All methods may be called from many threads at the
/// same time.
pub trait PeerService: Send + Sync + 'static {
    /// Exchanges the state of members, which only the two nodes interpret. Must not wait.
    fn exchange(&self, request: Bytes) -> Result<Bytes, PeerFailure>;

    /// Returns the store of a partition for appends, if this node leads it now. Must not wait.
    fn appender(&self, partition: u32) -> Result<Arc<dyn Append>, PeerFailure>;

    /// Returns one store of the partitions for reads. Strong reads are confirmed here or in the
    /// look-up. May wait.
    fn reader(
        &self,
        partitions: &[u32],
        consistency: ReadConsistency,
    ) -> Result<Arc<dyn Select>, PeerFailure>;

    /// Returns the metadata that this node has received or stored, for any partition. May wait.
    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, PeerFailure>;
}
