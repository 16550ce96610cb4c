//! The state of a cluster as one node sees it, for the status API and the commands.
//!
//! Invariant: a [`ClusterStatus`] is a snapshot without effects. Two nodes may see different
//! states, because members exchange theirs at intervals; only the log of a partition decides who
//! leads it.
//!
//! This module leaves to others: the exchange between members (`firn-cluster`), and the JSON and
//! text forms (`firn-server`, the commands).

use crate::sample::TimestampMs;
use std::time::Duration;

/// The state of a cluster as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Identity of the cluster in hexadecimal, or empty before the node has joined.
    pub cluster: String,
    /// Name of the node that reports this state.
    pub node: String,
    /// Version of Firn of this node.
    pub version: String,
    /// True if this node hands off its partitions and takes over no others.
    pub is_draining: bool,
    /// Fault of the bucket that concerns all partitions, if there is one.
    pub fault: Option<String>,
    /// The partitions, sorted by number. Empty before the node has joined.
    pub partitions: Vec<PartitionStatus>,
    /// The members, sorted by name, this node included.
    pub nodes: Vec<MemberStatus>,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Name of the node, or empty for a configured peer that has not answered yet.
    pub name: String,
    /// Address of its listener for peers, in the form `host:port`.
    pub address: String,
    /// Version of Firn of the node, or empty if it is unknown.
    pub version: String,
    /// Whether the node answers, and whether it takes partitions.
    pub state: MemberState,
    /// Time since the last answer of the node. `None` for the reporting node, and for a peer that
    /// has never answered.
    pub seen_ago: Option<Duration>,
    /// Number of partitions that the node leads, as far as the reporting node has learned.
    pub partitions_led: usize,
}

/// Whether a node answers its peers, and whether it takes partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// The node answers and takes partitions.
    Alive,
    /// The node does not answer. Others take over its partitions.
    Silent,
    /// The node answers, hands off its partitions and takes none.
    Draining,
}

impl MemberState {
    /// Returns the name of the state in the status API.
    pub fn as_str(self) -> &'static str {
        match self {
            MemberState::Alive => "alive",
            MemberState::Silent => "silent",
            MemberState::Draining => "draining",
        }
    }
}

/// A partition: its leader, and the state of its log and its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    /// Number of the partition, from zero.
    pub partition: u32,
    /// Name of the node that leads the partition. `None` if the reporting node has learned of none.
    pub leader: Option<String>,
    /// Epoch of that leader. Each takeover raises it.
    pub epoch: u64,
    /// The state of the partition on the reporting node.
    pub state: PartitionPhase,
    /// Number of records in the log that are stored durably.
    pub position: u64,
    /// Number of series in the head. `None` on nodes that do not lead the partition.
    pub series: Option<u64>,
    /// All samples before this time that were appended in order are in blocks. `None` on nodes that
    /// do not lead the partition, and before the first block.
    pub cut_ms: Option<TimestampMs>,
    /// Wall-clock time of the last commit of a block list. `None` on nodes that do not lead the
    /// partition, and before the first commit.
    pub last_commit_ms: Option<TimestampMs>,
    /// Size in bytes of the log that a takeover replays. `None` if it is unknown.
    pub log_bytes: Option<u64>,
    /// Reason why the reporting node accepts no writes of the partition, or why its last leadership
    /// ended if another node leads.
    pub fault: Option<String>,
}

/// The state of a partition on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionPhase {
    /// This node leads the partition: it accepts writes and answers queries.
    Leading,
    /// Another node leads the partition.
    Following,
    /// This node creates a fence at the end of the log, which ends the writes of the last leader.
    TakingOver,
    /// This node replays the log of the partition.
    Replaying,
    /// This node ends its writes so that another node can lead.
    HandingOff,
    /// No node leads the partition, as far as this node has learned.
    Unowned,
}

impl PartitionPhase {
    /// Returns the name of the state in the status API.
    pub fn as_str(self) -> &'static str {
        match self {
            PartitionPhase::Leading => "leading",
            PartitionPhase::Following => "following",
            PartitionPhase::TakingOver => "taking_over",
            PartitionPhase::Replaying => "replaying",
            PartitionPhase::HandingOff => "handing_off",
            PartitionPhase::Unowned => "unowned",
        }
    }
}
