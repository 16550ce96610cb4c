//! Appends and reads that reach every partition, wherever it is led.
//!
//! ```text
//! PartitionedAppend -> LeaderForwarder: this node leads -> its store
//!                                       another node    -> PeerClient, one request for each node,
//!                                                          again at a new leader
//! ClusterSelect -> partitions by leader -> stores of this node, one request for each other node
//!               -> selections concatenated
//! NodePeerService <- requests of other nodes, for the partitions that this node leads
//! ```
//!
//! Invariants: a write is acknowledged when each part of it is durable at the leader of its
//! partition; an answer contains all partitions, or it is an error, unless the caller asked for a
//! partial answer, which then has a warning for each missing partition.

mod append;
mod metrics;
mod select;
mod service;

#[cfg(test)]
pub(crate) use select::join_led;

pub use append::{ForwardOptions, LeaderForwarder};
pub use metrics::ForwardMetrics;
pub use select::{ClusterSelect, ReadMode};
pub use service::{MetadataProvider, NodePeerService};
