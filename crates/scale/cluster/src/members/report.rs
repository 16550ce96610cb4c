//! The report that nodes exchange, as JSON, so that versions with other fields understand it.

use crate::ids::{Epoch, PartitionId};
use serde::{Deserialize, Serialize};

/// The maximum length of a report in bytes: 1,024 partitions take less than a tenth.
const REPORT_BYTES_MAX: usize = 4 << 20;

/// The stage of a node in the life of a partition that it claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionStage {
    /// The node looks for the end of the log and creates its FENCE.
    TakingOver,
    /// The node replays the log.
    Replaying,
    /// The node accepts writes and answers queries.
    Leading,
    /// The node writes its last records.
    HandingOff,
}

/// A partition that a node claims: it leads the partition or is about to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionReport {
    /// The number of the partition.
    pub partition: PartitionId,
    /// What the node does with it.
    pub stage: PartitionStage,
    /// The epoch of the leadership; zero before it begins.
    #[serde(default)]
    pub epoch: Epoch,
    /// The position of the newest durable record.
    #[serde(default)]
    pub position: u64,
    /// The time of the newest sample that was appended in order, in milliseconds.
    #[serde(default)]
    pub newest_ms: Option<i64>,
}

/// A member that the sender of a report has heard from, directly or by a third node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenMember {
    /// Milliseconds since the member was heard from.
    pub age_ms: u64,
    /// The report of the member at that time, without the members that it had seen itself.
    pub report: NodeReport,
}

/// The state of one node, sent to all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The name of the node, unique in the cluster.
    pub name: String,
    /// The number of the process: a later process of the same node has a higher one.
    pub incarnation: u64,
    /// The time of the report on the clock of the process, in milliseconds. Of two reports of a
    /// process the later one has the higher time.
    #[serde(default)]
    pub sent_ms: u64,
    /// The address at which other nodes reach it, `host:port`.
    pub address: String,
    /// The version of Firn that it runs.
    pub version: String,
    /// True if the node leads no partition any more, because an operator drains it or it stops.
    #[serde(default)]
    pub is_draining: bool,
    /// The partitions that it claims.
    pub partitions: Vec<PartitionReport>,
    /// The other members that it has heard from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<SeenMember>,
}

/// The reason why a report cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// It is longer than the limit.
    #[error("report of a node has {0} bytes, limit {REPORT_BYTES_MAX}")]
    Length(usize),
    /// It is not the JSON of a report.
    #[error("report of a node: {0}")]
    Syntax(#[from] serde_json::Error),
}

impl NodeReport {
    /// Returns the report as JSON.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a report has no map and no float")
    }

    /// Reads a report. Fields that this version does not have are ignored.
    pub fn decode(bytes: &[u8]) -> Result<Self, ReportError> {
        if bytes.len() > REPORT_BYTES_MAX {
            return Err(ReportError::Length(bytes.len()));
        }
        Ok(serde_json::from_slice(bytes)?)
    }

    /// Returns the claim of the node on `partition`, if it has one.
    pub fn claim(&self, partition: PartitionId) -> Option<&PartitionReport> {
        let mut claims = self.partitions.iter();
        claims.find(|claim| claim.partition == partition)
    }
}
